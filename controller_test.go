package agilelimiter

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

const ms = time.Millisecond

// instant makes both averages follow a tick at once and keeps the baseline from
// rising, so that a table can state what one rule does to the number.
func instant(cfg Config) Config {
	cfg.FastHalfLife = 1
	cfg.MaxBaselineRise = 1e-12
	return cfg
}

// full is a tick of a hundred equal samples.
func full(d time.Duration) tickInput {
	return tickInput{samples: 100, reached: 100, p50: d, p99: d, settled: d}
}

// lawStep is one row of a step table: the tick, how often it comes in a row
// (0: once), and the number and decision after the last of them.
type lawStep struct {
	in    tickInput
	times int
	want  float64
	why   Decision
}

// runSteps drives a fresh law through the rows.
func runSteps(t *testing.T, cfg Config, rows []lawStep) {
	t.Helper()
	p, err := cfg.resolve()
	if err != nil {
		t.Fatal(err)
	}
	g := newGradient(&p)
	for i, row := range rows {
		var got float64
		var why Decision
		for range max(1, row.times) {
			got, why = g.step(row.in)
		}
		if !near(got, row.want, 1e-6) || why != row.why {
			t.Errorf("row %d (%d × p50 %v, %d of %d over the SLO): %.6g %v, want %.6g %v",
				i, max(1, row.times), row.in.p50, row.in.overSLO, row.in.samples, got, why, row.want, row.why)
		}
	}
}

func TestSlowStartDoublesUntilTheCeiling(t *testing.T) {
	runSteps(t, Config{MinRate: 10, MaxRate: 500, InitialRate: 10}, []lawStep{
		{full(20 * ms), 1, 20, SlowStart},
		{full(20 * ms), 1, 40, SlowStart},
		{full(20 * ms), 1, 80, SlowStart},
		{full(20 * ms), 1, 160, SlowStart},
		{full(20 * ms), 1, 320, SlowStart},
		{full(20 * ms), 1, 500, SlowStart},
		{full(20 * ms), 100, 500, SlowStart},
	})
}

func TestSlowStartFromTheDefaultInitialRate(t *testing.T) {
	runSteps(t, Config{MinRate: 10, MaxRate: 500}, []lawStep{
		{tickInput{}, 1, 62.5, Blind},
		{full(20 * ms), 2, 250, SlowStart},
		{full(20 * ms), 1, 500, SlowStart},
	})
}

func TestWithoutSlowStartTheSameClimbTakesEightyTicks(t *testing.T) {
	runSteps(t, Config{MinRate: 10, MaxRate: 500, InitialRate: 10, SlowStartGain: 1}, []lawStep{
		{full(20 * ms), 6, 10 * math.Pow(1.05, 6), Probe},
		{full(20 * ms), 74, 10 * math.Pow(1.05, 80), Probe}, // 495.6
		{full(20 * ms), 1, 500, Probe},
	})
}

func TestSlowStartGainScalesTheClimb(t *testing.T) {
	runSteps(t, Config{MinRate: 10, MaxRate: 500, InitialRate: 10, SlowStartGain: 3}, []lawStep{
		{full(20 * ms), 3, 270, SlowStart},
		{full(20 * ms), 1, 500, SlowStart},
	})
}

func TestSlowStartNeverComesBackAfterABackoff(t *testing.T) {
	runSteps(t, instant(Config{MaxRate: 500, InitialRate: 100}), []lawStep{
		{full(20 * ms), 1, 200, SlowStart},
		{full(60 * ms), 1, 140, Backoff},
		{full(20 * ms), 1, 147, Probe},
		{full(20 * ms), 1, 154.35, Probe},
		{full(20 * ms), 1000, 500, Probe},
		{full(60 * ms), 30, 1, Backoff},
		{full(20 * ms), 2, 1.1025, Probe},
	})
}

func TestATailBackoffEndsSlowStartToo(t *testing.T) {
	tail := full(20 * ms)
	tail.overSLO = 2
	runSteps(t, Config{MaxRate: 500, InitialRate: 100, SLOTarget: 200 * ms}, []lawStep{
		{full(20 * ms), 1, 200, SlowStart},
		{tail, 1, 140, TailBackoff},
		{full(20 * ms), 1, 147, Probe},
	})
}

func TestRecoverRampMultipliesAgainWhileLatencyIsLow(t *testing.T) {
	cfg := instant(Config{MinRate: 20, MaxRate: 500, InitialRate: 500, RecoverRamp: 0.5})
	runSteps(t, cfg, []lawStep{
		{full(20 * ms), 1, 500, SlowStart},
		{full(60 * ms), 30, 20, Backoff},
		// 20 ms is half of the window of 40 ms: on the line counts.
		{full(20 * ms), 1, 40, Recover},
		{full(20 * ms), 1, 80, Recover},
		{full(21 * ms), 1, 84, Probe},
		{full(20 * ms), 2, 336, Recover},
		{full(20 * ms), 1, 500, Recover},
	})
	cfg.RecoverRamp = 0
	runSteps(t, cfg, []lawStep{
		{full(20 * ms), 1, 500, SlowStart},
		{full(60 * ms), 30, 20, Backoff},
		{full(20 * ms), 1, 21, Probe},
		{full(20 * ms), 65, 20 * math.Pow(1.05, 66), Probe}, // 500.4 without the clamp
	}[:3])
}

func TestRecoverRampReadsTheTicksOwnMedian(t *testing.T) {
	// fast is still above the line for several ticks after the dip is over; the
	// healthy ticks among them must multiply.
	p, err := Config{MaxRate: 500, InitialRate: 500, RecoverRamp: 0.5}.resolve()
	if err != nil {
		t.Fatal(err)
	}
	g := newGradient(&p)
	for range 20 {
		g.step(full(20 * ms))
	}
	for range 40 {
		g.step(full(200 * ms))
	}
	for tick := range 60 {
		before := g.target
		got, why := g.step(full(20 * ms))
		if why == Hold || why == Backoff {
			continue
		}
		if g.fast <= g.baseline {
			t.Fatalf("tick %d: fast %g has reached the baseline, so this proves nothing", tick, g.fast)
		}
		if why != Recover || got != 2*before {
			t.Fatalf("tick %d: the first step up is %g → %g %v, want a doubling", tick, before, got, why)
		}
		return
	}
	t.Fatal("no step up within 60 healthy ticks")
}

func TestDeadbandHolds(t *testing.T) {
	// Baseline 20 ms: the window is 40 ms, its deadband starts at 32 ms.
	runSteps(t, instant(Config{MaxRate: 500, InitialRate: 100, SlowStartGain: 1}), []lawStep{
		{full(20 * ms), 1, 105, Probe},
		{full(31900 * time.Microsecond), 1, 110.25, Probe},
		{full(32100 * time.Microsecond), 1, 110.25, Hold},
		{full(36 * ms), 50, 110.25, Hold},
		{full(39900 * time.Microsecond), 1, 110.25, Hold},
		{full(44 * ms), 1, 99.225, Backoff},
	})
	runSteps(t, instant(Config{MaxRate: 500, InitialRate: 100, SlowStartGain: 1, Deadband: 0.5}), []lawStep{
		{full(20 * ms), 1, 105, Probe},
		{full(20200 * time.Microsecond), 1, 105, Hold},
		{full(39900 * time.Microsecond), 1, 105, Hold},
	})
}

func TestBackoffIsProportionalAndCapped(t *testing.T) {
	for _, tt := range []struct {
		name string
		cfg  Config
		p50  time.Duration
		want float64 // from 100
	}{
		{"a tenth over the window", Config{}, 44 * ms, 90},
		{"a quarter over", Config{}, 50 * ms, 75},
		{"just under the cap", Config{}, 51600 * time.Microsecond, 71},
		{"at the cap", Config{}, 52 * ms, 70},
		{"far over", Config{}, 60 * time.Second, 70},
		{"twice the gain", Config{Gain: 2}, 44 * ms, 80},
		{"half the gain", Config{Gain: 0.5}, 44 * ms, 95},
		{"a deeper cap", Config{DownStep: 0.6}, 60 * ms, 50},
		{"a wider window", Config{TargetInflation: 2}, 66 * ms, 90},
		{"the SLO caps the window", Config{SLOTarget: 40 * ms}, 35200 * time.Microsecond, 90},
		{"the SLO does not lift it", Config{SLOTarget: time.Second}, 44 * ms, 90},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.cfg.MaxRate, tt.cfg.InitialRate, tt.cfg.SlowStartGain = 105, 100, 1
			runSteps(t, instant(tt.cfg), []lawStep{
				{full(20 * ms), 1, 105, Probe},
				{full(tt.p50), 1, 105 * tt.want / 100, Backoff},
			})
		})
	}
}

func TestTheTailGuardCounts(t *testing.T) {
	// The nearest-rank p99 of n samples lies over the SLO when at least
	// n - ⌈0.99 n⌉ + 1 of them do; a single one never is a tail.
	for n := 1; n <= 1000; n++ {
		for _, over := range []int{0, 1, 2, 3, n/100 - 1, n / 100, n/100 + 1, n/100 + 2, n} {
			if over < 0 || over > n {
				continue
			}
			rank := (99*n + 99) / 100
			want := over >= 2 && over > n-rank
			p, err := Config{MaxRate: 500, InitialRate: 100, SLOTarget: 200 * ms}.resolve()
			if err != nil {
				t.Fatal(err)
			}
			g := newGradient(&p)
			in := tickInput{samples: n, reached: n, p50: 20 * ms, p99: 20 * ms, overSLO: over}
			got, why := g.step(in)
			if want && (why != TailBackoff || !near(got, 70, 1e-9)) || !want && why == TailBackoff {
				t.Fatalf("%d of %d over the SLO: %g %v, want tail %t", over, n, got, why, want)
			}
		}
	}
}

func TestTheTailGuardCutsFullyWhateverTheMedian(t *testing.T) {
	tail := full(20 * ms)
	tail.overSLO = 2
	hot := full(41 * ms)
	hot.overSLO = 2
	for _, anchor := range []Anchor{AnchorBaseline, AnchorSLO} {
		cfg := instant(Config{MaxRate: 500, InitialRate: 100, SLOTarget: 200 * ms, Anchor: anchor,
			DownStep: 0.5, BackoffTicks: 1, RecoverTicks: 1})
		runSteps(t, cfg, []lawStep{
			{full(20 * ms), 1, 200, SlowStart},
			{tail, 1, 100, TailBackoff},
			{hot, 1, 50, TailBackoff},
		})
	}
}

func TestWithoutAnSLOThereIsNoTailGuard(t *testing.T) {
	tail := full(20 * ms)
	tail.overSLO, tail.p99 = 50, time.Minute
	runSteps(t, Config{MaxRate: 500, InitialRate: 100}, []lawStep{{tail, 1, 200, SlowStart}})
}

func TestAgreementBeforeTheFirstStepDown(t *testing.T) {
	cfg := instant(Config{MaxRate: 500, InitialRate: 100, SLOTarget: time.Second, SlowStartGain: 1, BackoffTicks: 3})
	tail := full(20 * ms)
	tail.overSLO = 2
	runSteps(t, cfg, []lawStep{
		{full(20 * ms), 1, 105, Probe},
		{full(60 * ms), 2, 105, Hold},
		{full(60 * ms), 1, 73.5, Backoff},
		{full(60 * ms), 1, 51.45, Backoff}, // goes on agreeing: every further tick steps
		{full(36 * ms), 1, 51.45, Hold},    // the deadband breaks the agreement
		{full(60 * ms), 2, 51.45, Hold},
		{full(20 * ms), 1, 54.0225, Probe}, // and so does a tick of the other kind
		{full(60 * ms), 2, 54.0225, Hold},
		{tickInput{}, 5, 54.0225, Blind}, // a blind tick changes nothing
		{tail, 1, 37.81575, TailBackoff}, // the tail guard is a congested tick like any other
	})
}

func TestAgreementBeforeTheFirstStepUp(t *testing.T) {
	cfg := instant(Config{MaxRate: 500, InitialRate: 100, SlowStartGain: 1, RecoverTicks: 3})
	runSteps(t, cfg, []lawStep{
		{full(20 * ms), 2, 100, Hold},
		{full(20 * ms), 1, 105, Probe},
		{full(20 * ms), 1, 110.25, Probe},
		{full(36 * ms), 1, 110.25, Hold},
		{full(20 * ms), 2, 110.25, Hold},
		{full(44 * ms), 1, 99.225, Backoff},
		{full(20 * ms), 2, 99.225, Hold},
		{tickInput{}, 5, 99.225, Blind},
		{full(20 * ms), 1, 104.18625, Probe},
	})
}

func TestATickThatOnlyCountsTowardsAgreementKeepsSlowStart(t *testing.T) {
	cfg := instant(Config{MaxRate: 500, InitialRate: 100, BackoffTicks: 2})
	runSteps(t, cfg, []lawStep{
		{full(20 * ms), 1, 200, SlowStart},
		{full(60 * ms), 1, 200, Hold}, // no backoff yet
		{full(20 * ms), 1, 400, SlowStart},
		{full(60 * ms), 2, 280, Backoff},
		{full(20 * ms), 1, 294, Probe},
	})
}

func TestTheSLOAnchorAsksForTwoTicks(t *testing.T) {
	cfg := instant(Config{MaxRate: 500, InitialRate: 100, SLOTarget: 100 * ms, Anchor: AnchorSLO})
	runSteps(t, cfg, []lawStep{
		{full(20 * ms), 1, 100, Hold},
		{full(20 * ms), 1, 200, SlowStart},
		{full(90 * ms), 1, 200, Hold},
		{full(90 * ms), 1, 175, Backoff}, // 90 ms is an eighth over 80 ms
		{full(70 * ms), 1, 175, Hold},    // between 64 ms and 80 ms
		{full(63 * ms), 2, 183.75, Probe},
	})
}

func TestTheSLOAnchorDoesNotLookAtTheBaseline(t *testing.T) {
	cfg := Config{MaxRate: 500, InitialRate: 500, SLOTarget: 200 * ms, Anchor: AnchorSLO}
	runSteps(t, cfg, []lawStep{
		{full(time.Millisecond), 20, 500, SlowStart},
		{full(120 * ms), 500, 500, SlowStart},
	})
}

func TestTheBaselineRisesAtMostMaxBaselineRiseATick(t *testing.T) {
	for _, tt := range []struct {
		rise float64 // 0: the default
		want float64 // the baseline's growth in a minute
	}{
		{0, 1.127},
		{0.001, 1.271},
	} {
		p, err := Config{MaxRate: 500, MaxBaselineRise: tt.rise}.resolve()
		if err != nil {
			t.Fatal(err)
		}
		g := newGradient(&p)
		g.step(full(20 * ms))
		for range 240 {
			before := g.baseline
			g.step(full(10 * time.Second))
			if g.baseline > before*(1+p.maxBaselineRise)*(1+1e-12) {
				t.Fatalf("one tick lifts the baseline from %g to %g", before, g.baseline)
			}
		}
		if got := g.baseline / float64(20*ms); !near(got, tt.want, 0.001) {
			t.Errorf("MaxBaselineRise %g: × %.4f in a minute, want × %.3f", p.maxBaselineRise, got, tt.want)
		}
	}
}

func TestTheBaselineFallsWithTheFastHalfLifeAndRisesWithTheSlow(t *testing.T) {
	p, err := Config{MaxRate: 500, SlowHalfLife: 10 * time.Second, MaxBaselineRise: 1}.resolve()
	if err != nil {
		t.Fatal(err)
	}
	g := newGradient(&p)
	g.step(full(100 * ms))
	for range 4 { // one second
		g.step(full(20 * ms))
	}
	if !near(g.baseline, float64(60*ms), 1e-9) || !near(g.fast, float64(60*ms), 1e-9) {
		t.Errorf("a second after 100 → 20 ms: baseline %v, fast %v, want 60 ms",
			time.Duration(g.baseline), time.Duration(g.fast))
	}
	for range 200 {
		g.step(full(20 * ms))
	}
	for range 40 { // ten seconds
		g.step(full(30 * ms))
	}
	if !near(g.baseline, float64(25*ms), 1e-9) {
		t.Errorf("ten seconds after 20 → 30 ms: baseline %v, want 25 ms", time.Duration(g.baseline))
	}
}

func TestABlindTickChangesNothing(t *testing.T) {
	p, err := Config{MaxRate: 500, InitialRate: 100}.resolve()
	if err != nil {
		t.Fatal(err)
	}
	g := newGradient(&p)
	g.step(full(20 * ms))
	g.step(full(30 * ms))
	before := *g
	for range 1000 {
		if got, why := g.step(tickInput{admitted: 5, inFlight: 5, aborted: 3, binding: true}); got != before.target || why != Blind {
			t.Fatalf("a tick without samples: %g %v, want %g blind", got, why, before.target)
		}
	}
	if *g != before {
		t.Errorf("a thousand blind ticks changed the law:\n%+v\n%+v", before, *g)
	}
}

// observe feeds n calls of d to a limiter that nobody has started.
func observe(l *Limiter, n int, d time.Duration) {
	for range n {
		l.Observe(d)
	}
}

// tickOf feeds n calls of d, makes one step and returns what Stats says.
func tickOf(l *Limiter, n int, d time.Duration) Stats {
	observe(l, n, d)
	l.step()
	return l.Stats()
}

func TestBaselineAnchorCollapsesOnBenignRise(t *testing.T) {
	clock := NewVirtualClock(time.Unix(0, 0))
	lim := New(Config{MinRate: 10, MaxRate: 500, InitialRate: 500, SLOTarget: 200 * ms, Clock: clock})
	lim.Start()
	defer lim.Stop()
	tick := func(d time.Duration) {
		observe(lim, 100, d)
		clock.Advance(250 * ms)
	}
	until := func(d time.Duration, rate float64) (ticks int) {
		for lim.Rate() != rate && ticks < 1000 {
			tick(d)
			ticks++
		}
		return ticks
	}
	for range 40 {
		tick(20 * ms)
	}
	if got := lim.Rate(); got != 500 {
		t.Fatalf("rate %g at 20 ms, want 500", got)
	}
	if w := lim.Stats().Window; !near(float64(w), float64(40*ms), 0.02) {
		t.Fatalf("window %v, want 40 ms: the SLO can only lower it", w)
	}
	if n := until(50*ms, 10); n < 24 || n > 28 {
		t.Errorf("500 → 10 took %d ticks, want 26 ± 2", n)
	}
	for range 20 {
		tick(50 * ms)
		if got := lim.Rate(); got != 10 {
			t.Fatalf("rate %g while 50 ms go on, want 10", got)
		}
	}
	if n := until(20*ms, 500); n < 84 || n > 92 {
		t.Errorf("10 → 500 took %d ticks, want 88 ± 4", n)
	}
}

func TestSLOAnchorIgnoresBenignRise(t *testing.T) {
	clock := NewVirtualClock(time.Unix(0, 0))
	lim := New(Config{MinRate: 10, MaxRate: 500, InitialRate: 500, SLOTarget: 200 * ms, Anchor: AnchorSLO, Clock: clock})
	lim.Start()
	defer lim.Stop()
	for tick := range 500 {
		d := 20 * ms
		if tick >= 40 {
			d = 50 * ms
		}
		observe(lim, 100, d)
		clock.Advance(250 * ms)
		if got := lim.Rate(); got != 500 {
			t.Fatalf("tick %d: rate %g, want 500", tick, got)
		}
	}
	s := lim.Stats()
	if s.Window != 160*ms {
		t.Errorf("window %v, want 160 ms", s.Window)
	}
	if s.Decisions[Backoff]+s.Decisions[TailBackoff] != 0 {
		t.Errorf("%d backoffs and %d tail backoffs, want none", s.Decisions[Backoff], s.Decisions[TailBackoff])
	}
}

func TestUnavailableCutsFully(t *testing.T) {
	for _, anchor := range []Anchor{AnchorBaseline, AnchorSLO} {
		t.Run(anchor.String(), func(t *testing.T) {
			lim := New(Config{MaxRate: 500, InitialRate: 500, SLOTarget: 200 * ms, Anchor: anchor,
				BackoffTicks: 1, RecoverTicks: 1})
			for range 20 {
				tickOf(lim, 100, 20*ms)
			}
			for range 20 {
				lim.Unavailable()
			}
			lim.step()
			s := lim.Stats()
			if !near(s.Target, 350, 1e-9) || s.Decision != TailBackoff {
				t.Errorf("a tick of lost calls: %g %v, want 350 tail_backoff", s.Target, s.Decision)
			}
			// 1.25 × 200 ms lies above twice the window of 40 and 160 ms for the
			// first anchor, and below for the second.
			want := 250 * ms
			if anchor == AnchorSLO {
				want = 320 * ms
			}
			if !near(float64(s.P50), float64(want), 0.02) || s.Samples != 20 {
				t.Errorf("%d samples of %v, want 20 of %v", s.Samples, s.P50, want)
			}
		})
	}
}

func TestUnavailableWithoutAnSLOReachesTheFullCut(t *testing.T) {
	lim := New(Config{MinRate: 20, MaxRate: 500, InitialRate: 500})
	for range 20 {
		tickOf(lim, 100, 20*ms)
	}
	var fullCut int
	for tick := range 16 {
		before := lim.Rate()
		for range 20 {
			lim.Unavailable()
		}
		lim.step()
		if s := lim.Stats(); !near(float64(s.P50), float64(2*s.Window), 0.03) {
			t.Fatalf("tick %d: sample of %v, want twice the window of %v", tick, s.P50, s.Window)
		}
		if r := lim.Rate() / before; near(r, 0.7, 1e-9) {
			fullCut++
		} else if r > 1 {
			t.Fatalf("tick %d: lost calls raise the rate from %g to %g", tick, before, lim.Rate())
		}
	}
	if fullCut < 5 || lim.Rate() != 20 {
		t.Errorf("rate %g after 16 ticks of lost calls, %d of them at the full cut", lim.Rate(), fullCut)
	}
}

func TestUnavailableBeforeAnyAnchorIsNoSample(t *testing.T) {
	lim := New(Config{MaxRate: 500, InitialRate: 50})
	for range 30 {
		for range 100 {
			lim.Unavailable()
		}
		lim.step()
	}
	s := lim.Stats()
	if s.Target != 50 || s.Decision != Blind || s.Samples != 0 || s.Baseline != 0 {
		t.Errorf("%g %v with %d samples and baseline %v, want 50 blind and nothing known",
			s.Target, s.Decision, s.Samples, s.Baseline)
	}
	if s.Unreachable != 3000 {
		t.Errorf("Unreachable = %d, want 3000", s.Unreachable)
	}
	// The first real sample is the anchor, not what came before it.
	if s := tickOf(lim, 100, 20*ms); !near(float64(s.Baseline), float64(20*ms), 0.02) {
		t.Errorf("baseline %v after the first real tick, want 20 ms", s.Baseline)
	}
}

func TestUnavailableDoesNotLiftTheBaselineFasterThanAnythingElse(t *testing.T) {
	lim := New(Config{MaxRate: 500, SLOTarget: 10 * time.Second})
	tickOf(lim, 100, 20*ms)
	before := lim.Stats().Baseline
	for tick := range 1000 {
		for range 100 {
			lim.Unavailable()
		}
		lim.step()
		after := lim.Stats().Baseline
		if float64(after) > float64(before)*1.0005+1 {
			t.Fatalf("tick %d: baseline %v → %v", tick, before, after)
		}
		before = after
	}
}

func TestOneUnavailableAmongFewCallsIsNoTail(t *testing.T) {
	lim := New(Config{MaxRate: 500, InitialRate: 500, SLOTarget: 200 * ms})
	for tick := range 400 {
		observe(lim, 9, 20*ms)
		lim.Unavailable()
		lim.step()
		if got := lim.Rate(); got != 500 {
			t.Fatalf("tick %d: rate %g, want 500", tick, got)
		}
	}
}

func TestThinTicksBetweenFullOnesDoNotMoveTheBaseline(t *testing.T) {
	lim := New(Config{MinRate: 10, MaxRate: 500, InitialRate: 500})
	for tick := range 400 { // 100 s
		var s Stats
		if tick%2 == 0 {
			s = tickOf(lim, 1, 200*time.Microsecond)
		} else {
			s = tickOf(lim, 200, 50*ms)
		}
		if s.Decision == Backoff || s.Target != 500 {
			t.Fatalf("tick %d: %g %v with fast %v and baseline %v", tick, s.Target, s.Decision, s.Fast, s.Baseline)
		}
		if tick > 0 && !near(float64(s.Baseline), float64(50*ms), 0.02) {
			t.Fatalf("tick %d: baseline %v, want 50 ms", tick, s.Baseline)
		}
	}
}

func TestTheFastAverageWeighsAThinTickByItsShare(t *testing.T) {
	weight := 1 - math.Exp2(-0.25)
	for n := 1; n <= 10; n++ {
		lim := New(Config{MaxRate: 500})
		before := float64(tickOf(lim, 100, 20*ms).Fast)
		s := tickOf(lim, n, 100*ms)
		want := before + weight*min(1, float64(n)/8)*(float64(s.P50)-before)
		if !near(float64(s.Fast), want, 1e-6) {
			t.Errorf("%d samples of 100 ms move fast to %v, want %v", n, s.Fast, time.Duration(want))
		}
	}
}

func TestThinSamplesMoveTheBaselineTogetherAndOnce(t *testing.T) {
	lim := New(Config{MaxRate: 500})
	start := tickOf(lim, 100, 40*ms).Baseline
	for round := range 2 {
		// A third of the calls is very fast: each alone would pull.
		for i := range minSettled - 1 {
			d := 20 * ms
			if i%3 == 0 {
				d = ms
			}
			if s := tickOf(lim, 1, d); s.Baseline != start {
				t.Fatalf("round %d: thin tick %d moved the baseline from %v to %v", round, i, start, s.Baseline)
			}
		}
		s := tickOf(lim, 1, 20*ms)
		want := float64(start) + (1-math.Exp2(-0.25))*(float64(20*ms)-float64(start))
		if !near(float64(s.Baseline), want, 0.02) {
			t.Errorf("round %d: baseline %v after %d calls, want %v: one step from %v towards 20 ms",
				round, s.Baseline, minSettled, time.Duration(want), start)
		}
		start = s.Baseline
	}
}

func TestAThinFirstTickIsOnlyAGuess(t *testing.T) {
	lim := New(Config{MaxRate: 500})
	if s := tickOf(lim, 1, ms); !near(float64(s.Baseline), float64(ms), 0.02) || !near(float64(s.Fast), float64(ms), 0.02) {
		t.Errorf("baseline %v, fast %v after one call of 1 ms", s.Baseline, s.Fast)
	}
	if s := tickOf(lim, 100, 30*ms); !near(float64(s.Baseline), float64(30*ms), 0.02) {
		t.Errorf("baseline %v after a hundred calls of 30 ms, want 30 ms", s.Baseline)
	}
}

// worsePair returns a tick and one that is worse: not one of its numbers is
// better.
func worsePair(rng *rand.Rand) (a, b tickInput) {
	n := 1 + rng.IntN(300)
	p50 := time.Duration(math.Exp(rng.Float64()*18)) * time.Microsecond / 10
	a = tickInput{samples: n, reached: n, p50: p50, p99: 2 * p50, overSLO: rng.IntN(1 + n/50)}
	if n >= minSettled {
		a.settled = p50
	}
	b = a
	b.p50 += time.Duration(rng.ExpFloat64() * float64(p50))
	b.p99 = 2 * b.p50
	b.overSLO = min(n, a.overSLO+rng.IntN(4))
	if n >= minSettled {
		b.settled = b.p50
	}
	return a, b
}

// randomConfig returns a config of AnchorBaseline or AnchorSLO that is valid
// anywhere in the documented ranges.
func randomConfig(rng *rand.Rand) Config {
	between := func(lo, hi float64) float64 { return lo * math.Pow(hi/lo, rng.Float64()) }
	duration := func(lo, hi time.Duration) time.Duration {
		return min(max(time.Duration(between(float64(lo), float64(hi))), lo), hi)
	}
	cfg := Config{MaxRate: between(0.001, 1e9), Anchor: Anchor(rng.IntN(2))}
	if rng.IntN(2) == 0 {
		cfg.MinRate = min(max(cfg.MaxRate*between(1e-6, 1), 0.001), cfg.MaxRate)
		cfg.InitialRate = cfg.MinRate + rng.Float64()*(cfg.MaxRate-cfg.MinRate)
		cfg.InitialRate = min(max(cfg.InitialRate, cfg.MinRate), cfg.MaxRate)
	}
	if cfg.Anchor == AnchorSLO || rng.IntN(2) == 0 {
		cfg.SLOTarget = duration(time.Microsecond, time.Hour)
	}
	maybe := func(f func()) {
		if rng.IntN(2) == 0 {
			f()
		}
	}
	maybe(func() { cfg.Tick = duration(time.Millisecond, time.Minute) })
	maybe(func() { cfg.FastHalfLife = duration(1, 24*time.Hour) })
	maybe(func() { cfg.SlowHalfLife = duration(max(1, cfg.FastHalfLife, time.Second), 24*time.Hour) })
	maybe(func() { cfg.TargetInflation = between(1e-9, 1000) })
	maybe(func() { cfg.Deadband = between(1e-9, 0.999999) })
	maybe(func() { cfg.Gain = between(1e-9, 100) })
	maybe(func() { cfg.UpStep = between(1e-9, 10) })
	maybe(func() { cfg.DownStep = between(1e-9, 0.999999) })
	maybe(func() { cfg.SlowStartGain = between(1, 100) })
	maybe(func() { cfg.RecoverRamp = between(1e-9, 1) })
	maybe(func() { cfg.MaxBaselineRise = between(1e-12, 1) })
	maybe(func() { cfg.BackoffTicks = 1 + rng.IntN(5) })
	maybe(func() { cfg.RecoverTicks = 1 + rng.IntN(5) })
	return cfg
}

// The direction of every step follows from fast and the window, for ten
// thousand configs; and with the window fixed, as it is under AnchorSLO, worse
// latency never gives a higher number.
func TestTheStepGoesTheRightWay(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 10_000 {
		cfg := randomConfig(rng)
		p, err := cfg.resolve()
		if err != nil {
			t.Fatalf("config %d: %v\n%+v", i, err, cfg)
		}
		g := newGradient(&p)
		for range rng.IntN(30) {
			in, _ := worsePair(rng)
			g.step(in)
		}
		other := *g
		old := g.target
		good, bad := worsePair(rng)
		first, why := g.step(good)
		high := g.window()
		switch {
		case g.fast >= high && first > old:
			t.Fatalf("config %d: fast %g ≥ high %g raises %g to %g (%v)\n%+v", i, g.fast, high, old, first, why, cfg)
		case g.fast <= high*(1-p.deadband) && why != TailBackoff && first < old:
			t.Fatalf("config %d: fast %g ≤ low lowers %g to %g (%v)\n%+v", i, g.fast, old, first, why, cfg)
		case !(first >= p.min && first <= p.max):
			t.Fatalf("config %d: %g outside [%g, %g]\n%+v", i, first, p.min, p.max, cfg)
		}
		second, whyBad := other.step(bad)
		if cfg.Anchor == AnchorSLO && second > first {
			t.Fatalf("config %d: p50 %v gives %g (%v), the worse %v gives %g (%v)\n%+v",
				i, good.p50, first, why, bad.p50, second, whyBad, cfg)
		}
	}
}

// Under AnchorBaseline the same holds with the defaults as long as the tick is
// no better than the baseline: below it, the baseline itself follows.
func TestWorseLatencyNeverGivesAHigherRate(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range 10_000 {
		p, err := Config{MinRate: 1, MaxRate: 1000, SLOTarget: time.Duration(rng.IntN(2)) * 300 * ms}.resolve()
		if err != nil {
			t.Fatal(err)
		}
		g := newGradient(&p)
		for range rng.IntN(40) {
			in, _ := worsePair(rng)
			g.step(in)
		}
		good, bad := worsePair(rng)
		if float64(good.p50) < g.baseline {
			continue
		}
		other := *g
		first, why := g.step(good)
		second, whyBad := other.step(bad)
		if second > first {
			t.Fatalf("case %d: p50 %v gives %g (%v), the worse %v gives %g (%v)",
				i, good.p50, first, why, bad.p50, second, whyBad)
		}
	}
}

// Any sequence of calls keeps the number finite and inside its bounds, in the
// law and in the actuator, with any valid config.
func FuzzTheTargetStaysInBounds(f *testing.F) {
	f.Add(uint64(1), []byte("\x00\x00\x00\x00\x01\xff\xff\xff\x02\x80\x00\x00\x03\x00\x00\x00\x04\x10\x10\x10"))
	f.Add(uint64(2), []byte{})
	f.Add(uint64(7), []byte("\x00\x01\x00\x00\x00\x02\x00\x00\x05\x00\x00\x00\x00\x7f\x7f\x7f\x05\x05\x05\x05"))
	f.Fuzz(func(t *testing.T, seed uint64, ops []byte) {
		cfg := randomConfig(rand.New(rand.NewPCG(seed, 0)))
		lim := New(cfg)
		lo, hi := lim.Config().MinRate, lim.Config().MaxRate
		for ; len(ops) >= 4; ops = ops[4:] {
			arg := binary.BigEndian.Uint32(ops) & 0xffffff
			// From a nanosecond to beyond the histogram's end.
			d := time.Duration(math.Exp2(float64(arg) / 0x1000000 * 62))
			switch ops[0] % 7 {
			case 0:
				observe(lim, 1+int(arg%9), d)
			case 1:
				lim.Unavailable()
			case 2:
				lim.Record(Aborted, d)
			case 3:
				lim.Observe(-d)
			case 4:
				lim.ObserveTruncated(d)
			default:
				lim.step()
				s := lim.Stats()
				if !(s.Target >= lo && s.Target <= hi) || s.Target != lim.Rate() {
					t.Fatalf("target %g, rate %g, want both in [%g, %g]", s.Target, lim.Rate(), lo, hi)
				}
				if s.Baseline < 0 || s.Fast < 0 || s.Window < 0 || s.P50 > s.P99 {
					t.Fatalf("impossible signals: %+v", s)
				}
				if s.Samples == 0 && (s.P50 != 0 || s.P99 != 0 || s.Decision != Blind) {
					t.Fatalf("a tick without samples: %+v", s)
				}
			}
		}
	})
}
