package hotpath

import (
	"slices"
	"testing"

	"golang.org/x/sync/semaphore"
)

// gateRow: take a slot and give it back, nothing measured.
var gateRow = row{"Gate", slices.Concat([]arm{
	{"floor", func(testing.TB) func() worker {
		g := &casGate{limit: roomy}
		return func() worker {
			return func(n int) (took int) {
				for range n {
					if g.tryTake() {
						took++
						g.release()
					}
				}
				return took
			}
		}
	}},
	{"x-sync-semaphore", func(testing.TB) func() worker {
		s := semaphore.NewWeighted(roomy)
		return func() worker {
			return func(n int) (took int) {
				for range n {
					if s.TryAcquire(1) {
						took++
						s.Release(1)
					}
				}
				return took
			}
		}
	}},
	{"channel", func(testing.TB) func() worker {
		slots := make(chan struct{}, roomy)
		return func() worker {
			return func(n int) (took int) {
				for range n {
					select {
					case slots <- struct{}{}:
						took++
						<-slots
					default:
					}
				}
				return took
			}
		}
	}},
}, oursGate)}
