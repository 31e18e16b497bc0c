package redisshare

import (
	_ "embed"

	"github.com/redis/go-redis/v9"
)

// The script in two parts, so that a test can put another clock in.
var (
	//go:embed clock.lua
	clockSource string
	//go:embed share.lua
	shareSource string

	shareScript = redis.NewScript(clockSource + shareSource)
)

// keysOf returns the keys of a share. The braces make them one hash slot of a
// cluster.
func keysOf(name string) []string {
	base := "agilelimiter:{" + name + "}:"
	return []string{base + "state", base + "members", base + "deadlines", base + "demand"}
}
