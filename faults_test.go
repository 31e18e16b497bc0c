package agilelimiter

// Faults that somebody found who tried to break the package, each as a test of
// its kind.

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Exponential service times, an overload that takes the rate to its floor, and
// then room again: at the floor a tick holds one call or none, and the fastest
// of such single calls must not become the baseline.
func TestTheFloorIsLeftAgainWithExponentialServiceTimes(t *testing.T) {
	for seed := range uint64(3) {
		rng := rand.New(rand.NewPCG(seed, 1))
		lim := New(Config{MinRate: 4, MaxRate: 200, InitialRate: 200})
		const mean = 21.64 // ms: the median is 15 ms
		credit := 0.0
		tick := func(factor float64) Stats {
			credit += lim.Rate() / 4
			for ; credit >= 1; credit-- {
				lim.Observe(time.Duration(factor * mean * rng.ExpFloat64() * float64(ms)))
			}
			lim.step()
			return lim.Stats()
		}
		for range 80 {
			tick(1)
		}
		for range 240 {
			tick(20)
		}
		if got := lim.Rate(); got != 4 {
			t.Fatalf("seed %d: rate %g after a minute of overload, want the floor", seed, got)
		}
		back := -1
		for i := range 1200 { // five minutes
			if s := tick(1); s.Target == 200 && back < 0 {
				back = i
			}
		}
		if back < 0 {
			t.Errorf("seed %d: never back at the ceiling: %+v", seed, lim.Stats())
		}
		if b := lim.Stats().Baseline; b < 8*ms || b > 20*ms {
			t.Errorf("seed %d: baseline %v, want about 15 ms", seed, b)
		}
	}
}

// outcome: imports errors, fmt, net, net/url, os
// "something in its chain has Timeout() true"
func TestIsTimeoutLooksBehindAnErrorThatSaysNo(t *testing.T) {
	// url.Error has a Timeout method of its own, which looks one level deep only.
	for _, err := range []error{
		&url.Error{Op: "Get", URL: "/", Err: fmt.Errorf("attempt 1: %w", os.ErrDeadlineExceeded)},
		errors.Join(&net.DNSError{}, os.ErrDeadlineExceeded),
	} {
		if !IsTimeout(err) {
			t.Errorf("IsTimeout(%v) = false: something in its chain is a time-out", err)
		}
	}
}

// histogram: 1 µs to 1 h within 2 %
func TestAMicrosecondIsWithinTwoPerCent(t *testing.T) {
	for d := time.Microsecond; d < 1100; d++ {
		if got := valueOf(bucketOf(d)); !near(float64(got), float64(d), 0.02) {
			t.Fatalf("%v is reported as %v", d, got)
		}
	}
}

// loop: the panic is the caller's: it arrives, and so does a Goexit.
func TestAPanicInOnTickReachesTheCaller(t *testing.T) {
	clock := NewVirtualClock(epoch)
	boom := true
	lim := New(Config{MaxRate: 100, Clock: clock, OnTick: func(Stats) {
		if boom {
			panic("mine")
		}
	}})
	lim.Start()
	for _, move := range []func(time.Duration){clock.Advance, clock.Jump} {
		func() {
			defer func() {
				if r := recover(); r != "mine" {
					t.Errorf("recovered %v, want the panic of OnTick", r)
				}
			}()
			move(250 * ms)
		}()
		lim.Stop()
		lim.Start()
	}
	boom = false
	before := lim.Stats().Ticks
	clock.Advance(time.Second)
	if got := lim.Stats().Ticks - before; got != 4 {
		t.Errorf("%d ticks in the second after the panics, want 4", got)
	}
}

func TestAGoexitInOnTickEndsTheMoverOnly(t *testing.T) {
	clock := NewVirtualClock(epoch)
	lim := New(Config{MaxRate: 100, Clock: clock, OnTick: func(Stats) { runtime.Goexit() }})
	lim.Start()
	var wg sync.WaitGroup
	wg.Go(func() { clock.Jump(time.Second) })
	wg.Wait()
	lim.Stop()
	if got := lim.Stats().Ticks; got != 1 {
		t.Errorf("%d ticks, want 1", got)
	}
	if clock.Now() != epoch.Add(time.Second) {
		t.Errorf("the clock shows %v", clock.Now())
	}
}

// clock alone
func TestVirtualClockSurvivesAPanickingFunction(t *testing.T) {
	for _, jump := range []bool{false, true} {
		c := NewVirtualClock(epoch)
		c.AfterFunc(time.Second, func() { panic("mine") })
		func() {
			defer func() {
				if r := recover(); r != "mine" {
					t.Errorf("recovered %v", r)
				}
			}()
			if jump {
				c.Jump(time.Second)
			} else {
				c.Advance(time.Second)
			}
		}()
		ran := false
		c.AfterFunc(time.Second, func() { ran = true })
		c.Advance(time.Second)
		if !ran {
			t.Error("the clock is dead after a panic in one of its functions")
		}
	}
}

// loop: "Ticks come exactly every Tick", also around a step back
func TestTicksComeExactlyEveryTickAroundAStepBack(t *testing.T) {
	lim, clock, spy := loopTest(t, nil)
	lim.Start()
	clock.Advance(time.Second)
	clock.Jump(-time.Hour)
	clock.Advance(time.Second)
	if got := len(spy.ticks); got != 8 {
		t.Errorf("%d steps in two seconds around a step back, want 8", got)
	}
}

// recorder: "counted over the SLO a tick late, never without being there"
func TestACallOverTheSLOIsNeverCountedBeforeItIsThere(t *testing.T) {
	sem := NewConcurrency(ConcurrencyConfig{MaxLimit: 100, SLOTarget: 50 * ms})
	spy := spyOn(&sem.core, 100)
	var running atomic.Int32
	running.Store(4)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 30_000 {
				sem.Observe(60 * ms)
			}
			running.Add(-1)
		})
	}
	for running.Load() > 0 {
		sem.step()
	}
	wg.Wait()
	sem.step()
	over, reached := 0, 0
	for i, in := range spy.ticks {
		over += in.overSLO
		reached += in.reached
		if over > reached {
			t.Fatalf("tick %d: %d calls over the SLO of %d", i, over, reached)
		}
	}
}

// Steady exponential service times with capacity to spare, at rates that give a
// tick 4 to 50 calls: the baseline must not follow the lowest medians down.
func TestExponentialServiceTimesAtModestRates(t *testing.T) {
	for _, ceiling := range []float64{16, 64, 100, 200} {
		rng := rand.New(rand.NewPCG(1, 1))
		lim := New(Config{MinRate: 2, MaxRate: ceiling, InitialRate: ceiling})
		credit, sum := 0.0, 0.0
		for range 2400 { // ten minutes
			credit += lim.Rate() / 4
			for ; credit >= 1; credit-- {
				lim.Observe(time.Duration(21.64 * rng.ExpFloat64() * float64(ms)))
			}
			lim.step()
			sum += lim.Rate()
		}
		if mean := sum / 2400; mean < 0.7*ceiling {
			t.Errorf("ceiling %g: mean rate %.1f, baseline %v where the median is 15 ms", ceiling, mean, lim.Stats().Baseline)
		}
	}
}

// An outage that begins before 40 samples are together: the synthetic samples
// must not become the baseline, which would make a window for the outage.
func TestAnEarlyOutageIsNoBaseline(t *testing.T) {
	for _, slo := range []time.Duration{0, 200 * ms} {
		lim := New(Config{MinRate: 20, MaxRate: 500, InitialRate: 50, SLOTarget: slo})
		for range 3 {
			lim.Observe(20 * ms)
		}
		lim.step()
		before := lim.Stats().Baseline
		for range 40 {
			for range int(lim.Rate() / 4) {
				lim.Unavailable()
			}
			lim.step()
		}
		s := lim.Stats()
		if s.Target != 20 || float64(s.Baseline) > float64(before)*1.03 {
			t.Errorf("SLO %v: rate %v, baseline %v -> %v; want the floor and no more than 0.05 %% a tick", slo, s.Target, before, s.Baseline)
		}
	}
	// From the first tick on: nothing but the SLO is known.
	lim := New(Config{MinRate: 20, MaxRate: 500, InitialRate: 50, SLOTarget: 200 * ms})
	for range 10 {
		for range 10 {
			lim.Unavailable()
		}
		lim.step()
	}
	if s := lim.Stats(); s.Target != 20 || s.Baseline != 0 || s.Window != 160*ms {
		t.Errorf("an outage from the first tick on: %+v", s)
	}
}

// What was recorded while the loop stood still is of unknown age.
func TestStartAfterStopForgetsWhatItMissed(t *testing.T) {
	clock := NewVirtualClock(epoch)
	lim := New(Config{MinRate: 10, MaxRate: 500, InitialRate: 500, Clock: clock})
	lim.Start()
	second := func(latency time.Duration) {
		for range 4 {
			for range 50 {
				lim.Observe(latency)
			}
			clock.Advance(250 * ms)
		}
	}
	second(20 * ms)
	lim.Stop()
	for range 1000 {
		lim.Observe(2 * time.Second)
	}
	clock.Advance(time.Hour)
	lim.Start()
	second(20 * ms)
	if s := lim.Stats(); s.Target != 500 || s.Reached != 1400 || s.Fast > 21*ms {
		t.Errorf("rate %v, fast %v, %d reached; want 500, 20 ms and all 1400 counted", s.Target, s.Fast, s.Reached)
	}
	if d := lim.Stats().Decisions; d[Blind] != 0 {
		t.Errorf("%d of the ticks are called blind, and all had samples", d[Blind])
	}
}

// Nor is what came before the first Start evidence: whoever starts late has used
// the limiter in another way before.
func TestTheFirstTickHoldsWhatCameAfterStart(t *testing.T) {
	for name, stopped := range map[string]bool{"first Start": false, "after Stop": true} {
		clock := NewVirtualClock(epoch)
		l := New(Config{MinRate: 1000, MaxRate: 1000, Anchor: AnchorKnee, SLOTarget: time.Second, Clock: clock})
		spy := spyOn(&l.core, 1000)
		if stopped {
			l.Start()
			l.Stop()
		}
		for range 7 { // still open at Start
			l.TryTake()
			clock.Advance(ms)
		}
		l.Observe(time.Second)
		l.ObserveTruncated(2 * time.Second)
		l.Unavailable()
		clock.Advance(time.Minute)
		l.Start()
		l.Observe(20 * ms)
		clock.Advance(500 * ms)
		if len(spy.ticks) != 2 {
			t.Fatalf("%s: %d ticks, want 2", name, len(spy.ticks))
		}
		in := spy.ticks[0]
		if in.reached != 1 || in.truncated != 0 || in.unreachable != 0 || in.admitted != 0 || in.overSLO != 0 || !in.first {
			t.Errorf("%s: the first tick holds %+v, want one sample of 20 ms", name, in)
		}
		if in.inFlight != 3 || in.inFlightEnd != 3 {
			t.Errorf("%s: %g in flight in the first tick and %d at its end, want 3 and 3", name, in.inFlight, in.inFlightEnd)
		}
		if spy.ticks[1].first {
			t.Errorf("%s: the second tick is called the first", name)
		}
		if s := l.Stats(); s.Reached != 3 || s.Unreachable != 1 || s.Admitted != 7 {
			t.Errorf("%s: %d reached, %d unreachable, %d admitted; want all counted", name, s.Reached, s.Unreachable, s.Admitted)
		}
		l.Stop()
	}
}

// Thin ticks are kept until they make a median. Not over a Start.
func TestStartForgetsThinTicks(t *testing.T) {
	clock := NewVirtualClock(epoch)
	l := New(Config{MinRate: 1000, MaxRate: 1000, Clock: clock})
	spy := spyOn(&l.core, 1000)
	l.Start()
	tick := func(n int, d time.Duration) time.Duration {
		observe(l, n, d)
		clock.Advance(250 * ms)
		return spy.ticks[len(spy.ticks)-1].settled
	}
	tick(minSettled-1, time.Second)
	l.Stop()
	l.Start()
	if got := tick(1, ms); got != 0 {
		t.Errorf("a median of %v out of one sample and some from before Start", got)
	}
}

// A reader between two counters sees a call too many in flight rather than one
// too few: an open call never vanishes behind those that come and go.
func TestACallThatComesAndGoesHidesNoOpenOne(t *testing.T) {
	l := New(Config{MaxRate: 1e9, InitialRate: 1e9})
	l.TryTake() // stays open
	l.act = hookedReport{l.act, func() { l.TryTake(); l.Observe(ms) }}
	if got := l.Stats().InFlight; got < 1 {
		t.Errorf("%d in flight, and one is open", got)
	}
}

// hookedReport lets something happen behind a report.
type hookedReport struct {
	actuator
	hook func()
}

func (a hookedReport) report(s *Stats) { a.actuator.report(s); a.hook() }

// A caller who polls instead of waiting is held back too.
func TestARefusedTryTakeIsBinding(t *testing.T) {
	clock := NewVirtualClock(epoch)
	lim := New(Config{MaxRate: 1000, InitialRate: 50, SLOTarget: 200 * ms, Anchor: AnchorKnee, Clock: clock})
	lim.Start()
	defer lim.Stop()
	for range 5000 {
		if _, ok := lim.TryTake(); ok {
			clock.AfterFunc(20*ms, func() { lim.Observe(20 * ms) })
		}
		clock.Advance(ms)
	}
	if s := lim.Stats(); s.Target < 900 || s.Shed != 0 {
		t.Errorf("after five seconds of polling the rate is %v (shed %d), want about 1000", s.Target, s.Shed)
	}
}
