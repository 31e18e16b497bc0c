package agilelimiter

import (
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// spyLaw keeps what the ticks bring and holds the number.
type spyLaw struct {
	ticks  []tickInput
	target float64
}

func (s *spyLaw) step(in tickInput) (float64, Decision) {
	s.ticks = append(s.ticks, in)
	return s.target, Hold
}
func (s *spyLaw) start() float64                                  { return s.target }
func (s *spyLaw) synthetic() time.Duration                        { return 0 }
func (s *spyLaw) cutoff() time.Duration                           { return 0 }
func (s *spyLaw) signals() (baseline, fast, window time.Duration) { return 1, 2, 3 }

// spyOn replaces the law of a limiter that has not been started.
func spyOn(c *core, target float64) *spyLaw {
	s := &spyLaw{target: target}
	c.law = s
	return s
}

func TestATickCountsEachOutcome(t *testing.T) {
	lim := New(Config{MaxRate: 1000, InitialRate: 1000, SLOTarget: 200 * ms, Clock: NewVirtualClock(time.Unix(0, 0))})
	spy := spyOn(&lim.core, 1000)
	observe(lim, 5, 20*ms)
	lim.Observe(200 * ms)     // at the SLO: inside
	lim.Observe(200*ms + 1)   // over it, though it shares a bucket with the former
	lim.ObserveTruncated(3e9) // over it
	lim.Unavailable()
	lim.Unavailable()
	lim.Record(Reached, 20*ms)
	lim.Record(Unreachable, 20*ms)
	lim.Record(Aborted, 20*ms)
	lim.Record(Outcome(77), 20*ms) // undefined: as Reached
	lim.Observe(-1)
	lim.Observe(math.MinInt64)
	lim.ObserveTruncated(-5 * ms)
	lim.step()
	in := spy.ticks[0]
	if in.reached != 10 || in.truncated != 1 || in.unreachable != 3 || in.aborted != 4 || in.samples != 10 || in.overSLO != 2 {
		t.Errorf("a tick saw %+v", in)
	}
	s := lim.Stats()
	if s.Reached != 10 || s.Truncated != 1 || s.Unreachable != 3 || s.Aborted != 4 {
		t.Errorf("Stats counts reached %d, truncated %d, unreachable %d, aborted %d", s.Reached, s.Truncated, s.Unreachable, s.Aborted)
	}
	lim.step()
	in = spy.ticks[1]
	if in.reached+in.truncated+in.unreachable+in.aborted+in.samples+in.overSLO != 0 || in.p50 != 0 || in.p99 != 0 {
		t.Errorf("the tick after it saw %+v, want nothing", in)
	}
}

func TestTotalsDoNotWaitForTheTick(t *testing.T) {
	lim := New(Config{MaxRate: 1000, Clock: NewVirtualClock(time.Unix(0, 0))})
	for i := range uint64(10) {
		lim.Observe(20 * ms)
		if got := lim.Stats().Reached; got != i+1 {
			t.Fatalf("Reached = %d after %d calls", got, i+1)
		}
	}
	lim.step()
	lim.Observe(20 * ms)
	if got := lim.Stats().Reached; got != 11 {
		t.Errorf("Reached = %d after a tick and one more call, want 11", got)
	}
}

func TestAdmittedIsCountedPerTick(t *testing.T) {
	sem := NewConcurrency(ConcurrencyConfig{MaxLimit: 100, InitialLimit: 100})
	spy := spyOn(&sem.core, 100)
	for n := range 5 {
		for range n {
			sem.TryTake()
			sem.Release()
		}
		sem.step()
		if got := spy.ticks[n].admitted; got != n {
			t.Errorf("tick %d saw %d admissions, want %d", n, got, n)
		}
	}
	if got := sem.Stats().Admitted; got != 10 {
		t.Errorf("Admitted = %d, want 10", got)
	}
}

// Every kind of evidence, from many goroutines, with ticks and readers in
// between: nothing is lost, nothing twice, and no counter runs back.
func TestTheRecorderLosesNothingUnderConcurrentTicks(t *testing.T) {
	const writers, each = 4, 6000
	sem := NewConcurrency(ConcurrencyConfig{MaxLimit: 100, SLOTarget: 50 * ms})
	spy := spyOn(&sem.core, 100)
	var running atomic.Int32
	running.Store(writers)
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for i := range each {
				switch i % 4 {
				case 0:
					sem.Observe(20 * ms)
				case 1:
					sem.ObserveTruncated(60 * ms)
				case 2:
					sem.Unavailable()
				case 3:
					sem.Record(Aborted, 0)
				}
			}
			running.Add(-1)
		})
	}
	wg.Go(func() {
		var last Stats
		for running.Load() > 0 {
			s := sem.Stats()
			if s.Reached < last.Reached || s.Unreachable < last.Unreachable || s.Aborted < last.Aborted || s.Truncated < last.Truncated {
				t.Errorf("a counter ran back: %+v after %+v", s, last)
				return
			}
			last = s
		}
	})
	for running.Load() > 0 {
		sem.step()
	}
	wg.Wait()
	sem.step()
	var sum tickInput
	for _, in := range spy.ticks {
		sum.reached += in.reached
		sum.truncated += in.truncated
		sum.unreachable += in.unreachable
		sum.aborted += in.aborted
		sum.overSLO += in.overSLO
		sum.samples += in.samples
	}
	const quarter = writers * each / 4
	if sum.reached != 2*quarter || sum.samples != 2*quarter || sum.truncated != quarter ||
		sum.unreachable != quarter || sum.aborted != quarter || sum.overSLO != quarter {
		t.Errorf("the ticks saw %+v, want %d of each", sum, quarter)
	}
	if s := sem.Stats(); s.Reached != 2*quarter || s.Truncated != quarter || s.Unreachable != quarter || s.Aborted != quarter {
		t.Errorf("Stats counts %+v, want %d of each", s, quarter)
	}
}

func FuzzTheRecorderAddsUp(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 0, 0, 5})
	f.Fuzz(func(t *testing.T, ops []byte) {
		lim := New(Config{MaxRate: 1000, SLOTarget: 50 * ms, Clock: NewVirtualClock(time.Unix(0, 0))})
		spy := spyOn(&lim.core, 1000)
		var want, got tickInput
		for _, op := range append(ops, 5) {
			switch d := time.Duration(op) * ms / 2; op % 6 {
			case 0, 1:
				lim.Observe(d)
				want.reached++
				if d > 50*ms {
					want.overSLO++
				}
			case 2:
				lim.ObserveTruncated(d)
				want.reached++
				want.truncated++
				if d > 50*ms {
					want.overSLO++
				}
			case 3:
				lim.Unavailable()
				want.unreachable++
			case 4:
				lim.Record(Aborted, d)
				want.aborted++
			case 5:
				lim.step()
				in := spy.ticks[len(spy.ticks)-1]
				got.reached += in.reached
				got.overSLO += in.overSLO
				got.truncated += in.truncated
				got.unreachable += in.unreachable
				got.aborted += in.aborted
			}
		}
		if got != want {
			t.Errorf("the ticks saw %+v, want %+v", got, want)
		}
	})
}
