package hotpath

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/juju/ratelimit"
	uber "go.uber.org/ratelimit"
	"golang.org/x/time/rate"
)

// fastest is one departure a nanosecond, the highest rate that all limiters
// here accept: no caller comes that fast, so that none has to wait.
const fastest = 1e9

// takeRow: pass a limiter of the rate that need not make the caller wait.
var takeRow = row{"Take", slices.Concat([]arm{
	{"floor", func(testing.TB) func() worker {
		s := &spacing{epoch: time.Now(), gap: time.Second / fastest}
		return func() worker {
			return func(n int) (took int) {
				for range n {
					if wait := s.take(); wait > 0 {
						time.Sleep(wait)
					}
					took++
				}
				return took
			}
		}
	}},
	{"uber", func(testing.TB) func() worker {
		l := uber.New(fastest)
		return func() worker {
			return func(n int) (took int) {
				for range n {
					if !l.Take().IsZero() {
						took++
					}
				}
				return took
			}
		}
	}},
	{"juju", func(testing.TB) func() worker {
		// A bucket of some depth, because its rate is kept by whole ticks.
		l := ratelimit.NewBucketWithRate(fastest, 1<<40)
		return func() worker {
			return func(n int) (took int) {
				for range n {
					l.Wait(1)
					took++
				}
				return took
			}
		}
	}},
	{"x-time-wait", func(testing.TB) func() worker {
		// Wait reads the clock before it locks, so that a contended bucket
		// of depth one would now and then start a timer for a nanosecond.
		l := rate.NewLimiter(fastest, 1<<30)
		ctx := context.Background()
		return func() worker {
			return func(n int) (took int) {
				for range n {
					if l.Wait(ctx) == nil {
						took++
					}
				}
				return took
			}
		}
	}},
	{"failsafe-ratelimiter", func(testing.TB) func() worker {
		l := ratelimiter.NewSmoothWithMaxRate[any](time.Second / fastest)
		ctx := context.Background()
		return func() worker {
			return func(n int) (took int) {
				for range n {
					if l.AcquirePermit(ctx) == nil {
						took++
					}
				}
				return took
			}
		}
	}},
}, oursTake)}

func xtimeEvery(d time.Duration) *rate.Limiter { return rate.NewLimiter(rate.Every(d), 1) }
