package agilelimiter

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// fixedLimit returns a limiter whose limit stays at n.
func fixedLimit(n int) *ConcurrencyLimiter {
	return NewConcurrency(ConcurrencyConfig{MinLimit: n, MaxLimit: n})
}

func newSemaphore(lo, hi, initial float64) *semaphore {
	s := new(semaphore)
	t := new(timebase)
	t.init(NewVirtualClock(time.Time{}))
	s.init(t, params{min: lo, max: hi, initial: initial})
	return s
}

func TestSemaphoreAdmitsExactlyTheLimit(t *testing.T) {
	l := fixedLimit(10)
	for i := range 10 {
		if !l.TryTake() {
			t.Fatalf("call %d of 10 refused", i+1)
		}
	}
	if l.TryTake() {
		t.Error("an eleventh call admitted")
	}
	l.Release()
	if !l.TryTake() || l.TryTake() {
		t.Error("one Release did not make room for exactly one")
	}
	if l.InFlight() != 10 {
		t.Errorf("InFlight() = %d, want 10", l.InFlight())
	}
}

func TestSemaphoreRoundsTheTargetDownButNeverBelowOne(t *testing.T) {
	s := newSemaphore(1, 100, 4)
	for _, tt := range []struct {
		target float64
		limit  int64
		kept   float64
	}{
		{4.2, 4, 4.2}, {4.99999, 4, 4.99999}, {5, 5, 5}, {1.99, 1, 1.99},
		{0.3, 1, 1}, {0, 1, 1}, {-5, 1, 1}, {math.Inf(-1), 1, 1},
		{100.5, 100, 100}, {1e300, 100, 100}, {math.Inf(1), 100, 100},
		{math.NaN(), 100, 100}, // changes nothing
	} {
		s.set(tt.target)
		var out Stats
		s.report(&out)
		if got := s.limit.Load(); got != tt.limit || out.Target != tt.kept {
			t.Errorf("set(%g): limit %d, target %g, want %d and %g", tt.target, got, out.Target, tt.limit, tt.kept)
		}
	}
}

// A model with one number: admitted is what is admitted while fewer than the
// limit are in flight.
func TestSemaphoreAgainstAModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 9))
	s := newSemaphore(1, 40, 10)
	limit, open := 10, 0
	var admitted, shed uint64
	for i := range 200_000 {
		switch rng.IntN(5) {
		case 0, 1:
			want := open < limit
			if got := s.tryAcquire(); got != want {
				t.Fatalf("op %d: tryAcquire = %t with %d in flight at limit %d", i, got, open, limit)
			}
			if want {
				open++
				admitted++
			} else {
				shed++
			}
		case 2, 3:
			if open > 0 {
				s.release()
				open--
			}
		case 4:
			limit = 1 + rng.IntN(40)
			s.set(float64(limit) + rng.Float64()*0.99)
		}
		if got := s.word.Load() & inFlight; int(got) != open {
			t.Fatalf("op %d: %d in flight, want %d", i, got, open)
		}
	}
	var out Stats
	s.report(&out)
	if out.Admitted != admitted || out.Shed != shed || out.InFlight != open {
		t.Errorf("admitted %d, shed %d, in flight %d, want %d, %d, %d", out.Admitted, out.Shed, out.InFlight, admitted, shed, open)
	}
}

// Many goroutines and a limit that moves: once the calls in flight have come
// down to a lowered limit, they never exceed it again until it rises.
func TestSemaphoreHoldsAMovingLimit(t *testing.T) {
	s := newSemaphore(1, 64, 64)
	var inside, over atomic.Int64
	var bound atomic.Int64 // what inside must not exceed; 1000 while it settles
	bound.Store(1000)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if s.tryAcquire() {
					if inside.Add(1) > bound.Load() {
						over.Add(1)
					}
					inside.Add(-1)
					s.release()
				}
			}
		})
	}
	for i := range 200 {
		limit := int64([]int{1, 30, 3, 64, 8}[i%5])
		bound.Store(1000)
		s.set(float64(limit))
		for int64(s.word.Load()&inFlight) > limit {
			time.Sleep(10 * time.Microsecond)
		}
		bound.Store(limit)
		for range 20 {
			if n := int64(s.word.Load() & inFlight); n > limit {
				t.Fatalf("%d in flight at limit %d", n, limit)
			}
		}
	}
	close(stop)
	wg.Wait()
	if over.Load() != 0 {
		t.Errorf("the limit was exceeded %d times", over.Load())
	}
	if got := s.word.Load() & inFlight; got != 0 {
		t.Errorf("%d in flight at the end", got)
	}
}

func TestTheLimitIsNeverExceededByManyCallers(t *testing.T) {
	l := fixedLimit(10)
	var inside, peak, admitted atomic.Int64
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			for range 200 {
				if !l.TryTake() {
					continue
				}
				admitted.Add(1)
				n := inside.Add(1)
				for old := peak.Load(); n > old && !peak.CompareAndSwap(old, n); old = peak.Load() {
				}
				inside.Add(-1)
				l.Release()
			}
		})
	}
	wg.Wait()
	if peak.Load() > 10 || l.InFlight() != 0 {
		t.Errorf("peak %d, in flight %d at the end, want at most 10 and 0", peak.Load(), l.InFlight())
	}
	s := l.Stats()
	if s.Admitted != uint64(admitted.Load()) || s.Admitted+s.Shed != 100*200 {
		t.Errorf("admitted %d, shed %d of 20 000, callers saw %d admitted", s.Admitted, s.Shed, admitted.Load())
	}
}

func TestALoweredLimitAdmitsNobodyUntilEnoughHaveLeft(t *testing.T) {
	l := NewConcurrency(ConcurrencyConfig{MinLimit: 10, MaxLimit: 50, InitialLimit: 50})
	for range 50 {
		l.TryTake()
	}
	l.sem.set(10)
	for left := range 40 {
		if l.TryTake() {
			t.Fatalf("admitted with %d in flight at limit 10", 50-left)
		}
		l.Release()
	}
	if l.TryTake() {
		t.Error("admitted with 10 in flight at limit 10")
	}
	for range 10 {
		l.Release()
	}
	n := 0
	for l.TryTake() {
		n++
	}
	if n != 10 {
		t.Errorf("%d calls admitted at limit 10", n)
	}
}

func TestReleaseWithoutTryTakePanics(t *testing.T) {
	l := fixedLimit(3)
	release := func() (r any) {
		defer func() { r = recover() }()
		l.Release()
		return nil
	}
	const want = "agilelimiter: Release without a matching TryTake"
	if got := release(); got != want {
		t.Errorf("panic %v, want %q", got, want)
	}
	l.TryTake()
	if got := release(); got != nil {
		t.Errorf("a matched Release panics with %v", got)
	}
	if got := release(); got != want {
		t.Errorf("panic %v, want %q", got, want)
	}
	n := 0
	for l.TryTake() {
		n++
	}
	if n != 3 || l.InFlight() != 3 {
		t.Errorf("after the panics %d calls are admitted and %d in flight, want 3", n, l.InFlight())
	}
}

func TestAdmissionsAreCountedBeyondThirtyTwoBits(t *testing.T) {
	s := newSemaphore(1, 10, 10)
	s.word.Store((1<<32 - 3) << 32) // as if that many had been admitted
	s.seen, s.admitted = 1<<32-3, 1<<32-3
	for range 10 {
		if !s.tryAcquire() {
			t.Fatal("refused")
		}
		s.release()
	}
	var out Stats
	s.report(&out)
	if want := uint64(1<<32 + 7); out.Admitted != want || out.InFlight != 0 {
		t.Errorf("admitted %d, in flight %d, want %d and 0", out.Admitted, out.InFlight, want)
	}
}

func TestRefusalsAreCountedFromManyGoroutines(t *testing.T) {
	l := fixedLimit(1)
	l.TryTake()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5000 {
				l.TryTake()
			}
		})
	}
	wg.Wait()
	if got := l.Stats().Shed; got != 40_000 {
		t.Errorf("Shed = %d, want 40 000", got)
	}
}
