package hotpath

import (
	"errors"
	"testing"
	"time"

	"agilelimiter"
	"agilelimiter/httpclient"
	"agilelimiter/httpserver"
)

// Ours comes twice in the rows where it matters: with the default law, and
// with AnchorKnee, which also counts calls in flight over time. Both run with
// their controller started, as in production, and with the floor at the
// ceiling, so that no step changes what is measured.

func ourConcurrency(tb testing.TB, limit int, anchor agilelimiter.Anchor) *agilelimiter.ConcurrencyLimiter {
	l := agilelimiter.NewConcurrency(agilelimiter.ConcurrencyConfig{
		MinLimit: limit, MaxLimit: limit, Anchor: anchor, SLOTarget: time.Second,
	})
	l.Start()
	tb.Cleanup(l.Stop)
	return l
}

func ourRate(tb testing.TB, anchor agilelimiter.Anchor) *agilelimiter.Limiter {
	l := agilelimiter.New(agilelimiter.Config{
		MinRate: fastest, MaxRate: fastest, Anchor: anchor, SLOTarget: time.Second,
	})
	l.Start()
	tb.Cleanup(l.Stop)
	return l
}

// ours makes the two arms of a row from one body.
func ours(start func(tb testing.TB, anchor agilelimiter.Anchor) func() worker) []arm {
	with := func(anchor agilelimiter.Anchor) func(testing.TB) func() worker {
		return func(tb testing.TB) func() worker { return start(tb, anchor) }
	}
	return []arm{
		{"agilelimiter", with(agilelimiter.AnchorBaseline)},
		{"agilelimiter-knee", with(agilelimiter.AnchorKnee)},
	}
}

var oursGate = ours(func(tb testing.TB, anchor agilelimiter.Anchor) func() worker {
	l := ourConcurrency(tb, roomy, anchor)
	return func() worker {
		return func(n int) (took int) {
			for range n {
				if l.TryTake() {
					took++
					l.Release()
				}
			}
			return took
		}
	}
})

var oursMeasured = ours(func(tb testing.TB, anchor agilelimiter.Anchor) func() worker {
	l := ourConcurrency(tb, roomy, anchor)
	return func() worker {
		return func(n int) (took int) {
			for range n {
				if l.Do(nothing) == nil {
					took++
				}
			}
			return took
		}
	}
})

var oursRefusal = ours(func(tb testing.TB, anchor agilelimiter.Anchor) func() worker {
	l := ourConcurrency(tb, 1, anchor)
	full(tb, l.TryTake())
	return func() worker {
		return func(n int) (refused int) {
			for range n {
				if !l.TryTake() {
					refused++
				}
			}
			return refused
		}
	}
})

// oursRefusalDo is the same through Do, whose refusal is an error.
var oursRefusalDo = arm{"agilelimiter-do", func(tb testing.TB) func() worker {
	l := ourConcurrency(tb, 1, agilelimiter.AnchorBaseline)
	full(tb, l.TryTake())
	return func() worker {
		return func(n int) (refused int) {
			for range n {
				if errors.Is(l.Do(nothing), agilelimiter.ErrOverloaded) {
					refused++
				}
			}
			return refused
		}
	}
}}

var oursTake = ours(func(tb testing.TB, anchor agilelimiter.Anchor) func() worker {
	l := ourRate(tb, anchor)
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
})

var oursObserve = ours(func(tb testing.TB, anchor agilelimiter.Anchor) func() worker {
	l := ourConcurrency(tb, roomy, anchor)
	return func() worker {
		return func(n int) int {
			for i := range n {
				l.Observe(latencies[i%len(latencies)])
			}
			return n
		}
	}
})

var oursHandler = ours(func(tb testing.TB, anchor agilelimiter.Anchor) func() worker {
	return handlerWorkers(httpserver.Wrap(noContent, ourConcurrency(tb, roomy, anchor)))
})

var oursTransport = ours(func(tb testing.TB, anchor agilelimiter.Anchor) func() worker {
	return transportWorkers(httpclient.Wrap(echo{}, ourRate(tb, anchor)))
})

// BenchmarkTick is one step of the controller over a hundred samples, the
// hundred Observes and the virtual clock that brings it about included. It has
// no floor and no peers: those adapt within a call.
func BenchmarkTick(b *testing.B) {
	for _, anchor := range []agilelimiter.Anchor{agilelimiter.AnchorBaseline, agilelimiter.AnchorKnee} {
		name := map[agilelimiter.Anchor]string{
			agilelimiter.AnchorBaseline: "agilelimiter", agilelimiter.AnchorKnee: "agilelimiter-knee",
		}[anchor]
		b.Run("arm="+name, func(b *testing.B) {
			step := ticking(b, anchor)
			b.ReportAllocs()
			for b.Loop() {
				step()
			}
		})
	}
}

// ticking returns a function that makes one step of a limiter.
func ticking(tb testing.TB, anchor agilelimiter.Anchor) (step func()) {
	clock := agilelimiter.NewVirtualClock(time.Unix(0, 0))
	l := agilelimiter.NewConcurrency(agilelimiter.ConcurrencyConfig{
		MaxLimit: 100, Anchor: anchor, SLOTarget: time.Second, Clock: clock,
	})
	l.Start()
	tb.Cleanup(l.Stop)
	tick := l.Config().Tick
	return func() {
		for i := range 100 {
			l.Observe(latencies[i])
		}
		clock.Advance(tick)
	}
}

// leastAllocs is the least of five counts: what goroutines that the peers have
// left behind allocate meanwhile is counted too, but not every time.
func leastAllocs(runs int, f func()) float64 {
	least := testing.AllocsPerRun(runs, f)
	for range 4 {
		least = min(least, testing.AllocsPerRun(runs, f))
	}
	return least
}

func TestTickAllocatesNothing(t *testing.T) {
	for _, anchor := range []agilelimiter.Anchor{agilelimiter.AnchorBaseline, agilelimiter.AnchorKnee} {
		step := ticking(t, anchor)
		step()
		if got := leastAllocs(100, step); got != 0 {
			t.Errorf("%v: %v allocations a step, want none", anchor, got)
		}
	}
}

// allocations is what ours may allocate a call; rows that are not named may
// allocate nothing.
var allocations = map[string]float64{"Handler": 1}

// TestOursAllocations counts instead of timing, so that it holds on any
// machine.
func TestOursAllocations(t *testing.T) {
	seen := 0
	for _, r := range rows {
		for _, a := range r.arms {
			if !isOurs(a.name) {
				continue
			}
			seen++
			t.Run(r.name+"/"+a.name, func(t *testing.T) {
				w := a.start(t)()
				// One run of a hundred calls, because AllocsPerRun rounds
				// down and an allocation now and then would pass unseen.
				if got := leastAllocs(10, func() { w(100) }) / 100; got > allocations[r.name] {
					t.Errorf("%.2f allocations a call, want at most %.0f", got, allocations[r.name])
				}
			})
		}
	}
	if seen < len(rows) {
		t.Errorf("%d arms of ours in %d rows", seen, len(rows))
	}
}

func isOurs(arm string) bool {
	const name = "agilelimiter"
	return len(arm) >= len(name) && arm[:len(name)] == name
}

// TestOursMemory holds one limiter to the 4 KB that goals.md grants it, its
// histogram included.
func TestOursMemory(t *testing.T) {
	for _, a := range memoryArms {
		if !isOurs(a.name) {
			continue
		}
		if got := bytesEach(a.build); got > 4096 {
			t.Errorf("%s: %.0f bytes a limiter, want at most 4096", a.name, got)
		}
	}
}
