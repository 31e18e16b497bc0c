package hotpath

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/go-kratos/aegis/ratelimit"
	"github.com/go-kratos/aegis/ratelimit/bbr"
	"github.com/zeromicro/go-zero/core/load"
	"golang.org/x/sync/semaphore"
)

// refusalRow: the limiter is full and says no. This is the path that an
// overloaded service lives on.
var refusalRow = row{"Refusal", slices.Concat([]arm{
	{"floor", func(tb testing.TB) func() worker {
		g := &casGate{limit: 1}
		full(tb, g.tryTake())
		return func() worker {
			return func(n int) (refused int) {
				for range n {
					if !g.tryTake() {
						refused++
					}
				}
				return refused
			}
		}
	}},
	{"x-sync-semaphore", func(tb testing.TB) func() worker {
		s := semaphore.NewWeighted(1)
		full(tb, s.TryAcquire(1))
		return func() worker {
			return func(n int) (refused int) {
				for range n {
					if !s.TryAcquire(1) {
						refused++
					}
				}
				return refused
			}
		}
	}},
	{"channel", func(testing.TB) func() worker {
		slots := make(chan struct{}, 1)
		slots <- struct{}{}
		return func() worker {
			return func(n int) (refused int) {
				for range n {
					select {
					case slots <- struct{}{}:
					default:
						refused++
					}
				}
				return refused
			}
		}
	}},
	{"failsafe-adaptive", func(tb testing.TB) func() worker {
		l := failsafeAdaptive(1)
		_, ok := l.TryAcquirePermit()
		full(tb, ok)
		return func() worker {
			return func(n int) (refused int) {
				for range n {
					if _, ok := l.TryAcquirePermit(); !ok {
						refused++
					}
				}
				return refused
			}
		}
	}},
	{"failsafe-executor", func(tb testing.TB) func() worker {
		l := failsafeAdaptive(1)
		e := failsafe.With[any](l)
		_, ok := l.TryAcquirePermit()
		full(tb, ok)
		return func() worker {
			return func(n int) (refused int) {
				for range n {
					if errors.Is(e.Run(nothing), adaptivelimiter.ErrExceeded) {
						refused++
					}
				}
				return refused
			}
		}
	}},
	{"kratos-bbr", func(tb testing.TB) func() worker {
		// At a CPU threshold of 0 the limiter always takes the machine to
		// be overloaded; then it refuses beyond what its empty window says
		// could be in flight, which is one call.
		l := bbr.NewLimiter(bbr.WithCPUThreshold(0))
		for range 2 {
			_, err := l.Allow()
			full(tb, err == nil)
		}
		return func() worker {
			return func(n int) (refused int) {
				for range n {
					if _, err := l.Allow(); errors.Is(err, ratelimit.ErrLimitExceed) {
						refused++
					}
				}
				return refused
			}
		}
	}},
	{"go-zero-shedder", func(tb testing.TB) func() worker {
		// The shedder compares a moving average of the calls in flight,
		// updated when calls end, with what its window says could be: ten
		// for an empty one. A hundred of two hundred calls that fail leave
		// the average far above that, and no passed call in the window.
		s := goZero(0)
		var open []load.Promise
		for range 200 {
			p, err := s.Allow()
			full(tb, err == nil)
			open = append(open, p)
		}
		for _, p := range open[:100] {
			p.Fail()
		}
		return func() worker {
			return func(n int) (refused int) {
				for range n {
					if _, err := s.Allow(); errors.Is(err, load.ErrServiceOverloaded) {
						refused++
					}
				}
				return refused
			}
		}
	}},
	{"x-time-allow", func(tb testing.TB) func() worker {
		l := xtimeEvery(time.Hour)
		full(tb, l.Allow())
		return func() worker {
			return func(n int) (refused int) {
				for range n {
					if !l.Allow() {
						refused++
					}
				}
				return refused
			}
		}
	}},
}, oursRefusal, []arm{oursRefusalDo})}

// full fails the arm when the call that was to fill its limiter was itself
// refused.
func full(tb testing.TB, ok bool) {
	tb.Helper()
	if !ok {
		tb.Fatal("the limiter refused the calls that were to fill it")
	}
}
