package redisshare

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Batch collects the renewals of many shares of one process and sends them as one
// pipeline: for keyed sets, where every key has a share. Hand it to New in place
// of the client. It is made by NewBatch and is safe for concurrent use.
type Batch struct {
	redis.UniversalClient
	every time.Duration

	mu      sync.Mutex // guards waiting
	waiting []batched
}

type batched struct {
	ctx  context.Context
	sha  string
	keys []string
	args []any
	done chan *redis.Cmd // with room for one: nobody may be waiting any more
}

// NewBatch returns a Batch that sends what has come together in the time every. A
// renewal takes that much longer, and a lease is that much shorter for it. It
// panics if client is nil or every is not in (0, 100ms]; a tenth of a renewal,
// 100 ms for a Lease of 3 s, is a good choice.
func NewBatch(client redis.UniversalClient, every time.Duration) *Batch {
	if isNil(client) {
		panic(prefix + "NewBatch: client is nil")
	}
	if every <= 0 || every > 100*time.Millisecond {
		panic(fmt.Sprintf("%sNewBatch: every is %v, want above 0, at most 100ms", prefix, every))
	}
	return &Batch{UniversalClient: client, every: every}
}

// EvalSha is what a share calls.
func (b *Batch) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	q := batched{ctx, sha, keys, args, make(chan *redis.Cmd, 1)}
	b.mu.Lock()
	b.waiting = append(b.waiting, q)
	if len(b.waiting) == 1 {
		time.AfterFunc(b.every, b.send)
	}
	b.mu.Unlock()
	select {
	case cmd := <-q.done:
		return cmd
	case <-ctx.Done():
		cmd := redis.NewCmd(ctx)
		cmd.SetErr(ctx.Err())
		return cmd
	}
}

// send sends all that wait. Those whose context has ended are left out: nobody
// would look at their answer.
func (b *Batch) send() {
	b.mu.Lock()
	all := b.waiting
	b.waiting = nil
	b.mu.Unlock()
	pipe := b.UniversalClient.Pipeline()
	cmds := make([]*redis.Cmd, len(all))
	var last time.Time
	for i, q := range all {
		if q.ctx.Err() == nil {
			cmds[i] = pipe.EvalSha(q.ctx, q.sha, q.keys, q.args...)
		}
		if end, ok := q.ctx.Deadline(); ok && end.After(last) {
			last = end
		}
	}
	ctx := context.Background()
	if !last.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, last)
		defer cancel()
	}
	pipe.Exec(ctx) // each command has its own error
	for i, q := range all {
		if cmds[i] != nil {
			q.done <- cmds[i]
		}
	}
}
