package agilelimiter

import (
	"iter"
	"math/bits"
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
