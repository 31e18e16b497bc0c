package arm

import (
	"fmt"
	"math"
	"sync/atomic"

	"go.uber.org/ratelimit"
)

// uber is go.uber.org/ratelimit at a fixed rate, FixedShare of the capacity at
// the start. Its Take cannot be cancelled, so a caller who may wait no longer
// than Wait must not call it behind more callers than depart in that time.
type uber struct {
	ratelimit.Limiter
	rate    int
	most    int64 // callers in Take
	waiting atomic.Int64
}

func newUber(env Env) Limiter {
	return fixedUber(max(1, int(math.Round(FixedShare*env.StartCapacity))), env)
}

// Uber is the same at a rate of one's own choice, in calls a second.
func Uber(rate int) Arm {
	return Arm{fmt.Sprintf("uber(%d)", rate), func(env Env) Limiter { return fixedUber(rate, env) }}
}

func fixedUber(rate int, env Env) Limiter {
	return &uber{
		Limiter: ratelimit.New(rate),
		rate:    rate,
		most:    max(1, int64(env.Wait.Seconds()*float64(rate))),
	}
}

func (u *uber) Acquire() (Done, bool) {
	defer u.waiting.Add(-1)
	if u.waiting.Add(1) > u.most {
		return nil, false
	}
	u.Take()
	return ignore, true
}

func (u *uber) Target() float64 { return float64(u.rate) }
func (u *uber) Stop()           {}
