package agilelimiter

import (
	"fmt"
	"iter"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Every benchmark here has its floor beside it: the least that the operation
// can cost. Compare the two of one run, the machines differ:
//
//	go test -run '^$' -bench . -count 5 .

// gate is a bare CAS gate: the floor of a semaphore.
type gate struct{ open, limit atomic.Int64 }

func (g *gate) tryTake() bool {
	for {
		n := g.open.Load()
		if n >= g.limit.Load() {
			return false
		}
		if g.open.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (g *gate) release() { g.open.Add(-1) }

// increments is a histogram with one bucket an octave: the floor of recording.
type increments [64]atomic.Uint32

func (h *increments) record(d time.Duration) { h[bits.Len64(uint64(d))&63].Add(1) }

var keep any // what must not be optimised away

func openGate(limit int64) *gate {
	g := &gate{}
	g.limit.Store(limit)
	return g
}

var benchAnchors = map[string]Anchor{"ours": AnchorBaseline, "ours-knee": AnchorKnee}

func benchConcurrency(a Anchor) *ConcurrencyLimiter {
	return NewConcurrency(ConcurrencyConfig{MaxLimit: 1 << 20, InitialLimit: 1 << 20, Anchor: a, SLOTarget: time.Second})
}

func benchLimiters() iter.Seq2[string, *ConcurrencyLimiter] {
	return func(yield func(string, *ConcurrencyLimiter) bool) {
		for name, anchor := range benchAnchors {
			if !yield(name, benchConcurrency(anchor)) {
				return
			}
		}
	}
}

// contended runs op from 64 goroutines for each of GOMAXPROCS (use -cpu 1,2,8).
func contended(b *testing.B, name string, op func()) {
	b.Run(name+"/contended", func(b *testing.B) {
		b.ReportAllocs()
		b.SetParallelism(64)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				op()
			}
		})
	})
}

func nop() error { return nil }

func BenchmarkTryTakeRelease(b *testing.B) {
	g := openGate(1 << 20)
	b.Run("floor", func(b *testing.B) {
		for b.Loop() {
			g.tryTake()
			g.release()
		}
	})
	contended(b, "floor", func() { g.tryTake(); g.release() })
	for name, l := range benchLimiters() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				l.TryTake()
				l.Release()
			}
		})
		contended(b, name, func() { l.TryTake(); l.Release() })
	}
}

func BenchmarkConcurrencyDo(b *testing.B) {
	g, h, epoch := openGate(1<<20), &increments{}, time.Now()
	floor := func() {
		g.tryTake()
		start := time.Since(epoch)
		_ = nop()
		h.record(time.Since(epoch) - start)
		g.release()
	}
	b.Run("floor", func(b *testing.B) {
		for b.Loop() {
			floor()
		}
	})
	contended(b, "floor", floor)
	for name, l := range benchLimiters() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = l.Do(nop)
			}
		})
		contended(b, name, func() { _ = l.Do(nop) })
	}
}

func BenchmarkRefusal(b *testing.B) {
	g := openGate(0)
	b.Run("floor", func(b *testing.B) {
		for b.Loop() {
			g.tryTake()
		}
	})
	contended(b, "floor", func() { g.tryTake() })
	l := NewConcurrency(ConcurrencyConfig{MaxLimit: 1})
	l.TryTake()
	b.Run("ours-TryTake", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			l.TryTake()
		}
	})
	contended(b, "ours-TryTake", func() { l.TryTake() })
	b.Run("ours-Do", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = l.Do(nop)
		}
	})
	contended(b, "ours-Do", func() { _ = l.Do(nop) })
}

func BenchmarkTake(b *testing.B) {
	var mu sync.Mutex
	epoch := time.Now()
	var last time.Duration
	floor := func() {
		mu.Lock()
		last = time.Since(epoch)
		mu.Unlock()
	}
	b.Run("floor", func(b *testing.B) {
		for b.Loop() {
			floor()
		}
	})
	contended(b, "floor", floor)
	keep = last
	for name, anchor := range benchAnchors {
		l := New(Config{MaxRate: 1e9, InitialRate: 1e9, Anchor: anchor})
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				l.Take()
			}
		})
		contended(b, name, func() { l.Take() })
	}
}

func BenchmarkLimiterDo(b *testing.B) {
	for name, anchor := range benchAnchors {
		l := New(Config{MaxRate: 1e9, InitialRate: 1e9, Anchor: anchor})
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = l.Do(nop)
			}
		})
		contended(b, name, func() { _ = l.Do(nop) })
	}
}

func BenchmarkObserve(b *testing.B) {
	h := &increments{}
	b.Run("floor", func(b *testing.B) {
		for b.Loop() {
			h.record(time.Millisecond)
		}
	})
	contended(b, "floor", func() { h.record(time.Millisecond) })
	l := benchConcurrency(AnchorBaseline)
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			l.Observe(time.Millisecond)
		}
	})
	contended(b, "ours", func() { l.Observe(time.Millisecond) })
}

// BenchmarkTick is one controller step over a tick of a thousand samples that
// lie in many buckets: read, reset, decide, apply, publish.
func BenchmarkTick(b *testing.B) {
	for name, l := range benchLimiters() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				for i := range 1000 {
					l.Observe(time.Millisecond + time.Duration(i)*time.Millisecond/4)
				}
				b.StartTimer()
				l.step()
			}
		})
	}
}

// BenchmarkNew shows what one limiter weighs: B/op.
func BenchmarkNew(b *testing.B) {
	b.Run("Limiter", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			keep = New(Config{MaxRate: 100})
		}
	})
	b.Run("ConcurrencyLimiter", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			keep = NewConcurrency(ConcurrencyConfig{MaxLimit: 100})
		}
	})
}

// BenchmarkPacing is what a busy machine leaves of a rate, in per cent. A
// neighbour is a goroutine that computes without end on the only processor. The
// quota, half a core, stops every timer for the second half of each 100 ms.
//
//	go test -run '^$' -bench Pacing -benchtime 3s .
func BenchmarkPacing(b *testing.B) {
	for _, bb := range []struct {
		name        string
		neighbours  int
		clock       Clock
		maxLateness time.Duration
	}{
		{"quiet", 0, nil, 0},
		{"neighbour", 1, nil, 0},
		{"two-neighbours", 2, nil, 0},
		{"neighbour/30ms", 1, nil, 30 * ms},
		{"neighbour/50ms", 1, nil, 50 * ms},
		{"neighbour/2ms", 1, nil, 2 * ms},
		{"grid-5ms", 0, roundedClock(func(d time.Duration) time.Duration { return d + 5*ms - d%(5*ms) }), 0},
		{"grid-15.6ms", 0, roundedClock(func(d time.Duration) time.Duration { return d + 15600*us - d%(15600*us) }), 0},
		{"grid-15.6ms/2ms", 0, roundedClock(func(d time.Duration) time.Duration { return d + 15600*us - d%(15600*us) }), 2 * ms},
		{"quota", 0, roundedClock(halfACore), 0},
		{"quota/100ms", 0, roundedClock(halfACore), 100 * ms},
	} {
		for _, rate := range []float64{100, 1000} {
			for _, callers := range []int{1, 64} {
				b.Run(fmt.Sprintf("%s/%v/s/%d", bb.name, rate, callers), func(b *testing.B) {
					if bb.neighbours > 0 {
						defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
					}
					var stop atomic.Bool
					defer stop.Store(true)
					for range bb.neighbours {
						go func() {
							for !stop.Load() {
							}
						}()
					}
					l := New(Config{MinRate: rate, MaxRate: rate, MaxLateness: bb.maxLateness, Clock: bb.clock})
					var left atomic.Int64
					left.Store(int64(b.N))
					b.ResetTimer()
					var wg sync.WaitGroup
					for range callers {
						wg.Go(func() {
							for left.Add(-1) >= 0 {
								l.Take()
							}
						})
					}
					wg.Wait()
					b.ReportMetric(100*float64(b.N)/b.Elapsed().Seconds()/rate, "%-of-the-rate")
					b.ReportMetric(l.Stats().LatenessLost.Seconds()/b.Elapsed().Seconds()*100, "%-lost")
				})
			}
		}
	}
}

const us = time.Microsecond

// halfACore returns when a process with a quota of half a core runs again.
func halfACore(d time.Duration) time.Duration {
	if into := d % (100 * ms); into >= 50*ms {
		return d - into + 100*ms
	}
	return d
}

// roundedClock returns the machine's clock with timers that fire where round,
// which gets the time since the clock was made, allows it.
func roundedClock(round func(time.Duration) time.Duration) Clock {
	return &rounded{time.Now(), round}
}

type rounded struct {
	epoch time.Time
	round func(time.Duration) time.Duration
}

func (c *rounded) Now() time.Time { return time.Now() }

func (c *rounded) AfterFunc(d time.Duration, f func()) Timer {
	return &roundedTimer{c, time.AfterFunc(c.later(d), f)}
}

func (c *rounded) later(d time.Duration) time.Duration {
	now := time.Since(c.epoch)
	return c.round(now+max(d, 0)) - now
}

type roundedTimer struct {
	c *rounded
	*time.Timer
}

func (t *roundedTimer) Reset(d time.Duration) bool { return t.Timer.Reset(t.c.later(d)) }
