package agilelimiter

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// loopTest is a started limiter on a virtual clock whose law only records.
func loopTest(t *testing.T, onTick func(Stats)) (*Limiter, *VirtualClock, *spyLaw) {
	clock := NewVirtualClock(epoch)
	lim := New(Config{MaxRate: 100, InitialRate: 100, Clock: clock, OnTick: onTick})
	return lim, clock, spyOn(&lim.core, 100)
}

func TestTicksComeExactlyEveryTick(t *testing.T) {
	var at []time.Duration
	var clock *VirtualClock
	lim, clock, _ := loopTest(t, func(Stats) { at = append(at, clock.Now().Sub(epoch)) })
	clock.Advance(70 * ms)
	lim.Start()
	for range 999 {
		clock.Advance(ms)
	}
	if want := []time.Duration{320 * ms, 570 * ms, 820 * ms}; !slices.Equal(at, want) {
		t.Errorf("ticks at %v, want %v", at, want)
	}
	clock.Advance(time.Minute)
	if len(at) != 243 {
		t.Errorf("%d ticks in 60.999 s, want 243", len(at))
	}
}

func TestStartTwiceIsStartOnce(t *testing.T) {
	clock := NewVirtualClock(epoch)
	lim := New(Config{MinRate: 1, MaxRate: 1000, InitialRate: 100, SlowStartGain: 1, Clock: clock})
	lim.Start()
	lim.Start()
	if got := clock.Sleepers(); got != 1 {
		t.Errorf("%d timers armed by two Starts, want 1", got)
	}
	observe(lim, 10, 20*ms)
	clock.Advance(250 * ms)
	if got := lim.Rate(); got != 105 || lim.Stats().Ticks != 1 {
		t.Errorf("rate %g after %d ticks, want 105 after 1", got, lim.Stats().Ticks)
	}
	if got := clock.Sleepers(); got != 1 {
		t.Errorf("%d timers armed, want 1", got)
	}
}

func TestStopAndStartAgain(t *testing.T) {
	lim, clock, _ := loopTest(t, nil)
	ticks := func() uint64 { return lim.Stats().Ticks }
	lim.Stop() // before Start
	clock.Advance(time.Second)
	if ticks() != 0 {
		t.Errorf("%d ticks without Start", ticks())
	}
	for round := range uint64(5) {
		lim.Start()
		clock.Advance(time.Second)
		lim.Stop()
		lim.Stop()
		if want := 4 * (round + 1); ticks() != want {
			t.Fatalf("%d ticks after round %d, want %d", ticks(), round, want)
		}
		clock.Advance(time.Minute)
		if clock.Sleepers() != 0 {
			t.Fatalf("%d timers armed after Stop", clock.Sleepers())
		}
	}
	// Start; Stop; Start in one tick: the first timer must not count.
	lim.Start()
	clock.Advance(200 * ms)
	lim.Stop()
	lim.Start()
	clock.Advance(200 * ms)
	if ticks() != 20 {
		t.Errorf("%d ticks, want 20: the timer of the first Start has fired", ticks())
	}
	// Nor where it was about to run when it was stopped.
	lim.loop.fire(lim.loop.run - 1)
	if ticks() != 20 {
		t.Errorf("%d ticks, want 20: a timer of an earlier Start made a step", ticks())
	}
	clock.Advance(50 * ms)
	if ticks() != 21 {
		t.Errorf("%d ticks, want 21", ticks())
	}
}

func TestASuspendedMachineMakesOneStep(t *testing.T) {
	lim, clock, spy := loopTest(t, nil)
	lim.Start()
	clock.Advance(time.Second)
	clock.Jump(17*time.Hour + 100*ms)
	if got := len(spy.ticks); got != 5 {
		t.Fatalf("%d steps after 4 ticks and 17 hours of sleep, want 5", got)
	}
	clock.Advance(149 * ms)
	if got := len(spy.ticks); got != 5 {
		t.Errorf("%d steps: the next one came before its place on the grid", got)
	}
	clock.Advance(ms)
	if got := len(spy.ticks); got != 6 {
		t.Errorf("%d steps, want 6: the grid of ticks is lost", got)
	}
}

func TestTicksGoOnAfterAStepBack(t *testing.T) {
	lim, clock, spy := loopTest(t, nil)
	lim.Start()
	clock.Advance(time.Second)
	clock.Jump(-time.Hour)
	clock.Advance(time.Second)
	if got := len(spy.ticks); got < 7 || got > 8 {
		t.Errorf("%d steps in two seconds around a step back, want 8, or 7 where the lost time was a tick", got)
	}
}

func TestOnTickSeesTheStepAndMayCallEverything(t *testing.T) {
	clock := NewVirtualClock(epoch)
	var lim *Limiter
	var seen []Stats
	lim = New(Config{MaxRate: 1000, InitialRate: 100, SlowStartGain: 1, Clock: clock, OnTick: func(s Stats) {
		seen = append(seen, s)
		if s.Target != lim.Rate() || s != lim.Stats() || lim.Waiting() != 0 || lim.InFlight() != 0 {
			t.Errorf("OnTick got %+v, Stats says %+v", s, lim.Stats())
		}
		lim.Observe(20 * ms)
		lim.Config()
	}})
	lim.Start()
	lim.Observe(20 * ms)
	clock.Advance(time.Second)
	if len(seen) != 4 {
		t.Fatalf("OnTick ran %d times, want 4", len(seen))
	}
	for i, s := range seen {
		if s.Ticks != uint64(i+1) || s.Samples != 1 || s.Decision != Probe {
			t.Errorf("tick %d: %+v", i, s)
		}
	}
	if !near(seen[0].Target, 105, 1e-9) {
		t.Errorf("OnTick saw %g, want the number after the step, 105", seen[0].Target)
	}
}

func TestStopFromInsideOnTick(t *testing.T) {
	var lim *Limiter
	ran := 0
	lim, clock, _ := loopTest(t, func(Stats) { ran++; lim.Stop() })
	lim.Start()
	clock.Advance(time.Minute)
	if ran != 1 || lim.Stats().Ticks != 1 {
		t.Errorf("OnTick ran %d times after stopping itself, %d ticks", ran, lim.Stats().Ticks)
	}
	lim.Start()
	clock.Advance(time.Minute)
	if ran != 2 || clock.Sleepers() != 0 {
		t.Errorf("OnTick ran %d times in all, %d timers armed", ran, clock.Sleepers())
	}
}

func TestRestartFromInsideOnTick(t *testing.T) {
	var lim *Limiter
	ran := 0
	lim, clock, _ := loopTest(t, func(Stats) { ran++; lim.Stop(); lim.Start() })
	lim.Start()
	clock.Advance(10 * time.Second)
	if ran != 40 || clock.Sleepers() != 1 {
		t.Errorf("OnTick ran %d times in 40 ticks, %d timers armed", ran, clock.Sleepers())
	}
}

func TestStopDoesNotWaitForOnTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		entered := 0
		lim := New(Config{MaxRate: 100, OnTick: func(Stats) { entered++; <-release }})
		lim.Start()
		time.Sleep(time.Second)
		synctest.Wait()
		lim.Stop() // would deadlock the bubble
		if entered != 1 || lim.Stats().Ticks != 1 {
			t.Errorf("OnTick entered %d times in %d ticks: the next tick waits until it returns", entered, lim.Stats().Ticks)
		}
		close(release)
		time.Sleep(time.Hour)
		if got := lim.Stats().Ticks; got != 1 {
			t.Errorf("%d ticks after Stop, want 1", got)
		}
	})
}

// blockingLaw holds a step until it is told to go on.
type blockingLaw struct {
	spyLaw
	entered, release chan struct{}
}

func (b *blockingLaw) start() float64 { return 100 }
func (b *blockingLaw) step(tickInput) (float64, Decision) {
	b.entered <- struct{}{}
	<-b.release
	return 100, Hold
}

func TestStopWaitsForARunningStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := New(Config{MaxRate: 100, InitialRate: 50})
		b := &blockingLaw{entered: make(chan struct{}), release: make(chan struct{})}
		lim.law = b
		lim.Start()
		<-b.entered
		var stopped atomic.Int32
		for range 10 {
			go func() { lim.Stop(); stopped.Add(1) }()
		}
		time.Sleep(time.Second)
		if n := stopped.Load(); n != 0 {
			t.Errorf("%d of ten Stops returned while a step was running", n)
		}
		b.release <- struct{}{}
		synctest.Wait()
		if n := stopped.Load(); n != 10 {
			t.Errorf("%d of ten Stops returned after the step, want all", n)
		}
		if got := lim.Rate(); got != 100 {
			t.Errorf("rate %g, want what the last step said, 100", got)
		}
	})
}

// Start beside a Stop that still waits for the step: two steps at once would
// corrupt the law.
func TestStartWaitsForTheStepOfTheLastRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := New(Config{MaxRate: 100, InitialRate: 50})
		b := &blockingLaw{entered: make(chan struct{}), release: make(chan struct{})}
		lim.law = b
		lim.Start()
		<-b.entered
		go lim.Stop()
		synctest.Wait()
		var started atomic.Bool
		go func() { lim.Start(); started.Store(true) }()
		time.Sleep(time.Second)
		if started.Load() {
			t.Error("Start returned while a step of the last run was going on")
		}
		b.release <- struct{}{}
		<-b.entered
		if !started.Load() {
			t.Error("Start did not return after the step")
		}
		go lim.Stop()
		b.release <- struct{}{}
		synctest.Wait()
	})
}

func TestManyLimitersLeaveNothingBehind(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 1000 {
		lim := New(Config{MaxRate: 100})
		sem := NewConcurrency(ConcurrencyConfig{MaxLimit: 100})
		lim.Start()
		sem.Start()
		lim.Stop()
		sem.Stop()
	}
	if after := runtime.NumGoroutine(); after > before {
		t.Errorf("%d goroutines after a thousand limiters, %d before", after, before)
	}
}

func TestStartAndStopFromManyGoroutines(t *testing.T) {
	clock := NewVirtualClock(epoch)
	var ticks atomic.Int64
	lim := New(Config{MaxRate: 100, Clock: clock, OnTick: func(Stats) { ticks.Add(1) }})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 300 {
				lim.Start()
				lim.Stop()
				lim.Start()
			}
		})
	}
	wg.Go(func() {
		for range 300 {
			clock.Advance(250 * ms)
		}
	})
	wg.Wait()
	lim.Stop()
	before := ticks.Load()
	clock.Advance(time.Minute)
	if got := ticks.Load(); got != before || clock.Sleepers() != 0 {
		t.Errorf("%d ticks after the last Stop, %d timers armed", got-before, clock.Sleepers())
	}
	lim.Start()
	clock.Advance(time.Second)
	if got := ticks.Load() - before; got != 4 {
		t.Errorf("%d ticks in a second after the last Start, want 4", got)
	}
}
