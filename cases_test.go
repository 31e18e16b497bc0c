package agilelimiter

// Failures reported about limiters elsewhere, each as an input for this one.

import (
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// refuse calls a port that refuses everything, in a bubble, for a little less
// than the given time, and returns the limiter and what its rate was after
// each tick.
func refuse(t *testing.T, cfg Config, d time.Duration) (lim *Limiter, rates []float64) {
	synctest.Test(t, func(t *testing.T) {
		cfg.OnTick = func(s Stats) { rates = append(rates, s.Target) }
		lim = New(cfg)
		lim.Start()
		defer lim.Stop()
		for start := time.Now(); time.Since(start) < d-10*ms; {
			err := lim.Do(func() error {
				time.Sleep(50 * time.Microsecond)
				return syscall.ECONNREFUSED
			})
			if err != syscall.ECONNREFUSED {
				t.Fatal(err)
			}
		}
	})
	return lim, rates
}

func refusedIsUnreachable(err error) Outcome {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return Unreachable
	}
	return Reached
}

// The harm that a wrong idea of evidence does: 50/s become 335/s within ten
// seconds, in 39 steps of 5 %, into a dependency that is not there.
func TestARefusedPortLooksHealthyToAWrongClassify(t *testing.T) {
	_, rates := refuse(t, Config{MinRate: 20, MaxRate: 500, InitialRate: 50, SlowStartGain: 1,
		Classify: func(error) Outcome { return Reached }}, 10*time.Second)
	if len(rates) != 39 {
		t.Fatalf("%d ticks in 9.99 s, want 39", len(rates))
	}
	if got := rates[38]; !near(got, 335, 0.005) {
		t.Errorf("the rate climbed to %.1f, want 335", got)
	}
}

func TestARefusedPortLowersTheRateWithClassify(t *testing.T) {
	lim, rates := refuse(t, Config{MinRate: 20, MaxRate: 500, InitialRate: 50, SlowStartGain: 1,
		SLOTarget: 200 * ms, Classify: refusedIsUnreachable}, 10*time.Second)
	last := 50.0
	for i, rate := range rates {
		if rate > last {
			t.Fatalf("tick %d: the rate rose from %g to %g", i, last, rate)
		}
		last = rate
	}
	if rates[2] != 20 {
		t.Errorf("rates %v: want the floor after three cuts by 30 %%", rates[:4])
	}
	if s := lim.Stats(); s.Reached != 0 || s.Unreachable != s.Admitted {
		t.Errorf("%d reached, %d unreachable of %d admitted", s.Reached, s.Unreachable, s.Admitted)
	}
}

func TestARefusedPortWithoutAnAnchorHolds(t *testing.T) {
	_, rates := refuse(t, Config{MinRate: 20, MaxRate: 500, InitialRate: 50, Classify: refusedIsUnreachable}, 10*time.Second)
	for i, rate := range rates {
		if rate != 50 {
			t.Fatalf("tick %d: rate %g, want 50: there is nothing to compare with", i, rate)
		}
	}
}

func TestARefusedPortAfterGoodTimesWithoutAnSLO(t *testing.T) {
	lim := New(Config{MinRate: 20, MaxRate: 500, InitialRate: 50, Classify: refusedIsUnreachable})
	for range 20 {
		tickOf(lim, 100, 20*ms)
	}
	last := lim.Rate()
	for tick := range 30 {
		for range 100 {
			lim.Record(refusedIsUnreachable(syscall.ECONNREFUSED), 50*time.Microsecond)
		}
		lim.step()
		if got := lim.Rate(); got > last {
			t.Fatalf("tick %d: the rate rose from %g to %g", tick, last, got)
		}
		last = lim.Rate()
	}
	if last != 20 {
		t.Errorf("rate %g after 30 ticks of refusals, want the floor", last)
	}
}

// The floor is a positive number by construction, and three hundred bad ticks
// lead to it and no further.
func TestTheRateNeverReachesZero(t *testing.T) {
	clock := NewVirtualClock(epoch)
	lim := New(Config{MaxRate: 500, Clock: clock})
	tickOf(lim, 100, 20*ms)
	for range 300 {
		tickOf(lim, 100, time.Second)
	}
	if got := lim.Rate(); got != 1 {
		t.Fatalf("rate %g, want the default floor of 1", got)
	}
	lim.Take()
	if _, ok := lim.TryTake(); ok {
		t.Error("a second call at the same instant")
	}
	clock.Advance(time.Second)
	if _, ok := lim.TryTake(); !ok {
		t.Error("no call after a second at 1/s")
	}
}

func TestALongSuspendChangesNothing(t *testing.T) {
	clock := NewVirtualClock(epoch)
	lim := New(Config{MinRate: 20, MaxRate: 500, InitialRate: 50, Clock: clock})
	lim.Start()
	defer lim.Stop()
	for range 20 {
		observe(lim, 50, 20*ms)
		clock.Advance(250 * ms)
	}
	before := lim.Stats()
	clock.Jump(17 * time.Hour)
	after := lim.Stats()
	if after.Ticks != before.Ticks+1 || after.Decision != Blind {
		t.Errorf("%d steps after the jump, the last %v, want one, blind", after.Ticks-before.Ticks, after.Decision)
	}
	if after.Target != before.Target || after.Fast != before.Fast || after.Baseline != before.Baseline {
		t.Errorf("the jump moved %+v to %+v", before, after)
	}
	n := 0
	for range 50 {
		if _, ok := lim.TryTake(); ok {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d calls depart at once after the jump, want 1: idle time earns nothing", n)
	}
}

func TestNegativeAndZeroDurations(t *testing.T) {
	lim := New(Config{MaxRate: 500, InitialRate: 50, MaxBaselineRise: 0.01})
	for _, d := range []time.Duration{-5 * ms, -1, math.MinInt64} {
		lim.Observe(d)
	}
	lim.step()
	if s := lim.Stats(); s.Aborted != 3 || s.Samples != 0 || s.Decision != Blind || s.Target != 50 {
		t.Errorf("negative durations: %+v", s)
	}
	// A baseline of zero must not make each later sample congestion.
	tickOf(lim, 100, 0)
	if s := tickOf(lim, 100, 0); s.Decision != SlowStart || s.Baseline <= 0 || s.Window <= s.Baseline {
		t.Errorf("samples of 0: %+v", s)
	}
	for range 1500 {
		tickOf(lim, 100, ms)
	}
	if got := lim.Rate(); got != 500 {
		t.Errorf("rate %g long after samples of 0, want 500", got)
	}
}

// B120: finite, in order, at the top, and counted.
func TestHugeDurationsLandInTheLastBucket(t *testing.T) {
	lim := New(Config{MaxRate: 500, SLOTarget: time.Hour})
	observe(lim, 100, 10*time.Minute)
	lim.step()
	if s := lim.Stats(); s.Overflow != 0 || !near(float64(s.P99), float64(10*time.Minute), 0.02) {
		t.Errorf("ten minutes: p99 %v, %d overflowed", s.P99, s.Overflow)
	}
	observe(lim, 100, 2*time.Hour)
	lim.Observe(time.Hour)
	lim.ObserveTruncated(math.MaxInt64)
	if got := lim.Stats().Overflow; got != 101 {
		t.Errorf("Overflow = %d before the tick, want 101", got)
	}
	lim.Unavailable() // a synthetic sample of 75 minutes is no call
	lim.step()
	s := lim.Stats()
	top := float64(time.Hour)
	if s.Samples != 103 || !near(float64(s.P50), top, 0.02) || !near(float64(s.P99), top, 0.02) || s.P50 > s.P99 {
		t.Errorf("huge durations: %d samples, p50 %v, p99 %v", s.Samples, s.P50, s.P99)
	}
	if s.Overflow != 101 || s.Reached != 202 {
		t.Errorf("Overflow = %d of %d, want 101 of 202", s.Overflow, s.Reached)
	}
}

// LLM calls and batch jobs: an SLO of half an hour works like any other.
func TestAnSLOOfHalfAnHour(t *testing.T) {
	for _, anchor := range []Anchor{AnchorBaseline, AnchorSLO} {
		lim := New(Config{MaxRate: 500, InitialRate: 100, SLOTarget: 30 * time.Minute, Anchor: anchor, SlowStartGain: 1})
		tickOf(lim, 100, 10*time.Minute)
		tickOf(lim, 100, 10*time.Minute)
		if s := lim.Stats(); s.Target <= 100 || s.Decision != Probe {
			t.Errorf("%v: %v to %g under an SLO that is kept, want a probe", anchor, s.Decision, s.Target)
		}
		before := lim.Rate()
		for range 20 {
			tickOf(lim, 100, 31*time.Minute)
		}
		if s := lim.Stats(); s.Target >= before || s.Decision != TailBackoff {
			t.Errorf("%v: %v from %g to %g over the SLO, want a tail backoff", anchor, s.Decision, before, s.Target)
		}
	}
}

// After an outage: down by 30 % a tick, up by 5 %, or by doubling where
// RecoverRamp is set.
func TestTheWayDownAndBackAroundAnOutage(t *testing.T) {
	for _, tt := range []struct {
		ramp   float64
		wantUp int
	}{
		{0, 66},
		{0.5, 5},
	} {
		lim := New(Config{MinRate: 20, MaxRate: 500, InitialRate: 500, SLOTarget: 200 * ms, RecoverRamp: tt.ramp})
		for range 20 {
			tickOf(lim, 100, 20*ms)
		}
		down := 0
		for tick := range 30 {
			for range 20 {
				lim.Unavailable()
			}
			lim.step()
			if down == 0 && lim.Rate() == 20 {
				down = tick + 1
			}
		}
		if down != 10 {
			t.Errorf("500 → 20 took %d ticks, want 10", down)
		}
		up := 0
		for lim.Rate() < 500 && up < 200 {
			before := lim.Rate()
			if tickOf(lim, 20, 20*ms); lim.Rate() > before {
				up++
			}
		}
		if up != tt.wantUp {
			t.Errorf("RecoverRamp %g: 20 → 500 took %d steps, want %d", tt.ramp, up, tt.wantUp)
		}
	}
}

// lawOf returns the law of a config, for tests of hours.
func lawOf(t *testing.T, cfg Config) *gradient {
	t.Helper()
	p, err := cfg.resolve()
	if err != nil {
		t.Fatal(err)
	}
	return newGradient(&p)
}

// In a long incident the baseline creeps up by 12.7 % a minute: without an SLO
// that is how long the limiter holds out, with one it does so for ever.
func TestHowLongTheBaselineHoldsOut(t *testing.T) {
	g := lawOf(t, Config{MaxRate: 500})
	for range 40 {
		g.step(full(20 * ms))
	}
	ticks := 0
	for ; g.baseline < float64(time.Second) && ticks < 20_000; ticks++ {
		g.step(full(2 * time.Second))
		if g.baseline < float64(950*ms) && g.target != 1 && ticks > 60 {
			t.Fatalf("tick %d: %g at a baseline of %v", ticks, g.target, time.Duration(g.baseline))
		}
	}
	if minutes := float64(ticks) / 240; minutes < 31 || minutes > 35 {
		t.Errorf("20 ms became 1 s after %.1f minutes, want 33 ± 2", minutes)
	}

	g = lawOf(t, Config{MaxRate: 500, SLOTarget: 200 * ms})
	for range 40 {
		g.step(full(20 * ms))
	}
	bad := full(2 * time.Second)
	bad.overSLO = 100
	for tick := range 24 * 14_400 { // a day
		if g.step(bad); g.window() > float64(160*ms) || tick > 60 && g.target != 1 {
			t.Fatalf("tick %d with an SLO: target %g, window %v", tick, g.target, time.Duration(g.window()))
		}
	}
}

// One tick of very fast calls pulls the baseline by 16 % of the distance, not
// to the fastest of them.
func TestOneFastTickPullsTheBaselineALittle(t *testing.T) {
	g := lawOf(t, Config{MaxRate: 500, InitialRate: 500})
	for range 40 {
		g.step(full(50 * ms))
	}
	g.step(full(ms))
	if want := float64(50*ms) - (1-math.Exp2(-0.25))*float64(49*ms); !near(g.baseline, want, 1e-9) {
		t.Errorf("baseline %v after one tick of 1 ms, want %v", time.Duration(g.baseline), time.Duration(want))
	}
	for tick := range 28_800 { // two hours
		if got, why := g.step(full(50 * ms)); got != 500 {
			t.Fatalf("tick %d: %g %v", tick, got, why)
		}
	}
	if !near(g.baseline, float64(50*ms), 1e-6) {
		t.Errorf("baseline %v two hours later, want 50 ms", time.Duration(g.baseline))
	}
}

// A first tick of 1 ms before calls of 50 ms is the worst of starts: it takes
// half an hour at the floor.
func TestAFastFirstTickCostsHalfAnHour(t *testing.T) {
	g := lawOf(t, Config{MaxRate: 500, InitialRate: 500})
	g.step(full(ms))
	back := 0
	for tick := range 28_800 {
		if got, _ := g.step(full(50 * ms)); got < 500 {
			back = tick
		}
	}
	if minutes := float64(back) / 240; minutes > 31 || minutes < 27 {
		t.Errorf("back at the ceiling after %.1f minutes, want 29 ± 2", minutes)
	}
}

// Some slow calls among few are no tail: the rate must not walk to its floor.
func TestFewSamplesWithASlowOneNowAndThen(t *testing.T) {
	for _, tt := range []struct {
		n    int
		slow float64
	}{{5, 0.01}, {13, 0.01}, {50, 0.005}, {99, 0.0013}, {99, 0.004}} {
		rng := rand.New(rand.NewPCG(uint64(tt.n), 3))
		lim := New(Config{MaxRate: 500, InitialRate: 500, SLOTarget: 200 * ms})
		sum := 0.0
		for range 2000 {
			for range tt.n {
				if rng.Float64() < tt.slow {
					lim.Observe(time.Second)
				} else {
					lim.Observe(20 * ms)
				}
			}
			lim.step()
			sum += lim.Rate()
		}
		if mean := sum / 2000; mean < 350 {
			t.Errorf("%d samples a tick, %g %% of them slow: mean rate %.0f of 500", tt.n, 100*tt.slow, mean)
		}
	}
}

// A batch that fails together costs one step, however many calls it holds.
func TestABatchThatFailsTogetherCostsOneStep(t *testing.T) {
	for _, slow := range []bool{true, false} {
		l := NewConcurrency(ConcurrencyConfig{MaxLimit: 128, InitialLimit: 128, SLOTarget: 200 * ms})
		for range 128 {
			l.Observe(20 * ms)
		}
		l.step()
		for range 128 {
			if slow {
				l.Observe(10 * time.Second)
			} else {
				l.Unavailable()
			}
		}
		l.step()
		if got := l.Limit(); got != 89 {
			t.Errorf("slow %t: limit %d after one bad tick, want 89", slow, got)
		}
	}
}

func TestRandomTicksStayInBounds(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	for _, anchor := range []Anchor{AnchorBaseline, AnchorSLO} {
		lim := New(Config{MinRate: 20, MaxRate: 500, SLOTarget: 200 * ms, Anchor: anchor})
		l := NewConcurrency(ConcurrencyConfig{MinLimit: 3, MaxLimit: 50, SLOTarget: 200 * ms, Anchor: anchor})
		for tick := range 2500 {
			for range rng.IntN(12) {
				d := time.Duration(math.Exp(rng.Float64()*22)) * 10
				lim.Observe(d)
				l.Observe(d)
				if rng.IntN(3) == 0 {
					lim.Unavailable()
					l.Unavailable()
				}
			}
			lim.step()
			l.step()
			if r, n := lim.Rate(), l.Limit(); !(r >= 20 && r <= 500) || n < 3 || n > 50 {
				t.Fatalf("%v, tick %d: rate %g, limit %d", anchor, tick, r, n)
			}
		}
	}
}

// The actuators hold the bounds by themselves, whatever the law says.
func TestTheActuatorsHoldTheBoundsByThemselves(t *testing.T) {
	for _, bad := range []float64{math.Inf(1), 1e308, 501, 500, 100, 20, 19, 0, -1, math.Inf(-1), math.NaN()} {
		lim := New(Config{MinRate: 20, MaxRate: 500})
		l := NewConcurrency(ConcurrencyConfig{MinLimit: 20, MaxLimit: 500})
		spyOn(&lim.core, bad)
		spyOn(&l.core, bad)
		lim.step()
		l.step()
		want := min(max(bad, 20), 500)
		if math.IsNaN(bad) {
			want = 62.5
		}
		if lim.Rate() != want || l.Limit() != int(want) {
			t.Errorf("a law that says %g: rate %g, limit %d, want %g", bad, lim.Rate(), l.Limit(), want)
		}
	}
}

func TestNoSawtoothAtTheCeiling(t *testing.T) {
	for _, anchor := range []Anchor{AnchorBaseline, AnchorSLO} {
		lim := New(Config{MaxRate: 500, InitialRate: 500, SLOTarget: time.Second, Anchor: anchor})
		for tick := range 1000 {
			if s := tickOf(lim, 100, 20*ms); s.Target != 500 {
				t.Fatalf("%v, tick %d: rate %g, want exactly 500", anchor, tick, s.Target)
			}
		}
	}
}

// Ordinary wobble, with capacity to spare, costs nothing.
func TestWobbleDoesNotLowerTheRate(t *testing.T) {
	for _, cfg := range []Config{
		{SLOTarget: 200 * ms},
		{SLOTarget: 200 * ms, BackoffTicks: 2, RecoverTicks: 2},
		{SLOTarget: 200 * ms, Anchor: AnchorSLO},
		{},
	} {
		cfg.MaxRate, cfg.InitialRate = 500, 500
		rng := rand.New(rand.NewPCG(4, 4))
		lim := New(cfg)
		for tick := range 2000 {
			for range 50 {
				lim.Observe(time.Duration((10 + 30*rng.Float64()) * float64(ms)))
			}
			lim.step()
			if got := lim.Rate(); got != 500 {
				t.Fatalf("%+v: rate %g in tick %d, want 500", cfg, got, tick)
			}
		}
	}
}

// Refused calls are no samples: a million of them would otherwise look like
// calls of no duration at all.
func TestAMillionRefusalsAreNoEvidence(t *testing.T) {
	l := NewConcurrency(ConcurrencyConfig{MinLimit: 1, MaxLimit: 100, InitialLimit: 10})
	for range 10 {
		l.TryTake()
	}
	for range 1_000_000 {
		if l.Do(func() error { return nil }) != ErrOverloaded {
			t.Fatal("admitted")
		}
	}
	l.step()
	if s := l.Stats(); s.Samples != 0 || s.Decision != Blind || l.Limit() != 10 || s.Shed != 1_000_000 {
		t.Errorf("%+v, limit %d", s, l.Limit())
	}
}

// Everything at once from the first instant on: for the race detector, and no
// number may be seen that is none.
func TestEverythingAtOnce(t *testing.T) {
	for _, anchor := range []Anchor{AnchorBaseline, AnchorSLO, AnchorKnee} {
		cfg := Config{MinRate: 1e5, MaxRate: 1e6, SLOTarget: time.Second, Tick: ms, Anchor: anchor, OnTick: func(Stats) {}}
		lim := New(cfg)
		limits := ConcurrencyConfig{MaxLimit: 64, InitialLimit: 32, SLOTarget: time.Second, Tick: ms, Anchor: anchor}
		l := NewConcurrency(limits)
		cfg.MaxRate, limits.MaxLimit = 0, 0 // both were copied
		var wg sync.WaitGroup
		wg.Go(func() {
			for range 20 {
				lim.Start()
				l.Start()
				lim.Stop()
				lim.Start()
				l.Stop()
				l.Start()
			}
		})
		for worker := range 16 {
			wg.Go(func() {
				for range 40 {
					if r := lim.Rate(); !(r >= 1e5 && r <= 1e6) {
						t.Errorf("rate %g", r)
					}
					if n := l.Limit(); n < 1 || n > 64 {
						t.Errorf("limit %d", n)
					}
					lim.Do(func() error { return nil })
					l.Do(func() error { return errWork })
					switch worker % 4 {
					case 0:
						lim.Take()
						lim.Observe(ms)
					case 1:
						if _, ok := lim.TryTake(); ok {
							lim.Unavailable()
						}
					case 2:
						if l.TryTake() {
							l.Release()
							l.Record(Aborted, 0)
						}
					case 3:
						l.ObserveTruncated(ms)
						l.Unavailable()
					}
					if s := lim.Stats(); s.Max != 1e6 || s.InFlight < 0 || s.Waiting < 0 {
						t.Errorf("%+v", s)
					}
					if s := l.Stats(); s.Max != 64 || s.InFlight < 0 || s.InFlight > 64 {
						t.Errorf("%+v", s)
					}
					lim.Config()
					l.Config()
					lim.Waiting()
					l.InFlight()
				}
			})
		}
		wg.Wait()
		lim.Stop()
		l.Stop()
		if s := l.Stats(); s.InFlight != 0 {
			t.Errorf("%v: %d in flight at the end", anchor, s.InFlight)
		}
		if s := lim.Stats(); s.Waiting != 0 {
			t.Errorf("%v: %d waiting at the end", anchor, s.Waiting)
		}
	}
}
