package hotpath

import (
	"slices"
	"testing"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/go-kratos/aegis/ratelimit"
	"github.com/go-kratos/aegis/ratelimit/bbr"
	"github.com/zeromicro/go-zero/core/load"
	"github.com/zeromicro/go-zero/core/logx"
	"github.com/zeromicro/go-zero/core/stat"
)

// nothing is the call that the measured rows make: the row is about the
// limiter.
func nothing() error { return nil }

// measuredRow: admit, measure, record, release, which is what an adaptive
// limiter does for every call.
var measuredRow = row{"Measured", slices.Concat([]arm{
	{"floor", func(testing.TB) func() worker {
		m := newMeasure()
		return func() worker {
			return func(n int) (took int) {
				for range n {
					if m.do(nothing) {
						took++
					}
				}
				return took
			}
		}
	}},
	{"kratos-bbr", func(testing.TB) func() worker {
		l := bbr.NewLimiter(bbr.WithCPUThreshold(neverBusy))
		return func() worker {
			return func(n int) (took int) {
				for range n {
					done, err := l.Allow()
					if err != nil {
						continue
					}
					if nothing() == nil {
						took++
					}
					done(ratelimit.DoneInfo{})
				}
				return took
			}
		}
	}},
	{"failsafe-adaptive", func(testing.TB) func() worker {
		l := failsafeAdaptive(roomy)
		return func() worker {
			return func(n int) (took int) {
				for range n {
					permit, ok := l.TryAcquirePermit()
					if !ok {
						continue
					}
					if nothing() == nil {
						took++
					}
					permit.Record()
				}
				return took
			}
		}
	}},
	{"failsafe-executor", func(testing.TB) func() worker {
		e := failsafe.With[any](failsafeAdaptive(roomy))
		return func() worker {
			return func(n int) (took int) {
				for range n {
					if e.Run(nothing) == nil {
						took++
					}
				}
				return took
			}
		}
	}},
	{"go-zero-shedder", func(testing.TB) func() worker {
		s := goZero(neverBusy)
		return func() worker {
			return func(n int) (took int) {
				for range n {
					promise, err := s.Allow()
					if err != nil {
						continue
					}
					if nothing() == nil {
						took++
					}
					promise.Pass()
				}
				return took
			}
		}
	}},
}, oursMeasured)}

// neverBusy is a CPU threshold in thousandths that no load reaches: kratos
// and go-zero refuse by CPU use, and a benchmark that keeps every processor
// busy would otherwise measure their refusals.
const neverBusy = 1 << 30

func failsafeAdaptive(limit uint) adaptivelimiter.AdaptiveLimiter[any] {
	return adaptivelimiter.NewBuilder[any]().WithLimits(limit, limit, limit).Build()
}

func goZero(cpuThreshold int64) load.Shedder {
	logx.Disable()
	load.DisableLog()
	stat.DisableLog()
	return load.NewAdaptiveShedder(load.WithCpuThreshold(cpuThreshold))
}
