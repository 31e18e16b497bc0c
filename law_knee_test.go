package agilelimiter

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// steadyKnee is a law at rest: 100 calls a tick of 250 ms, 8 of them in flight,
// so 400/s at 20 ms. The sums stand where such ticks leave them.
func steadyKnee(rate bool, slo time.Duration) *knee {
	p := &params{anchor: AnchorKnee, tick: 250 * time.Millisecond, min: 1, max: 1000, initial: 100, slo: slo}
	k := newKnee(p, rate)
	k.target = 400
	if !rate {
		k.target = 40
	}
	k.sumDelivered, k.sumInFlight, k.sumTime, k.sumReturned = 200, 4, 0.5, 200
	k.base, k.seen, k.cold, k.idle, k.prevEnd = 0.02, 20, false, 40, 8
	k.window = 0.03 // 1.5 × base
	if slo > 0 {
		k.window = 0.45 * slo.Seconds()
	}
	k.topTarget, k.topRet = k.target, 400
	return k
}

// steadyTick leaves a steadyKnee's sums as they are.
func steadyTick() tickInput {
	return tickInput{
		admitted: 100, reached: 100, inFlight: 8, inFlightEnd: 8, binding: true, p99: 60 * time.Millisecond,
	}
}

// at sets latency, keeping the rest: in flight by Little's law, sums included.
func (k *knee) at(latency float64, in *tickInput) {
	in.inFlight = 400 * latency
	in.inFlightEnd = int(math.Round(in.inFlight))
	k.prevEnd = in.inFlightEnd
	k.sumInFlight = in.inFlight * 0.5
}

const kneeSLO = 200 * time.Millisecond

func TestKneeRules(t *testing.T) {
	both := []bool{true, false}
	rate, limit := []bool{true}, []bool{false}
	slo := []time.Duration{kneeSLO}
	none := []time.Duration{0}
	either := []time.Duration{0, kneeSLO}
	tests := []struct {
		when  string
		on    []bool // rate
		slos  []time.Duration
		given func(k *knee, in *tickInput)
		want  func(k *knee) float64 // of the number before; k is the law after
		why   Decision
		check func(k *knee) bool
	}{
		// 1. Outage and resume.
		{"more calls refused than answered", both, either,
			func(k *knee, in *tickInput) { in.unreachable = 101; k.cold = true; k.test.kind = timedTest },
			func(k *knee) float64 { return 0.5 }, Outage,
			func(k *knee) bool { return k.memory == k.topTarget && !k.cold && k.test.kind == noTest }},
		{"as many refused as answered", both, either,
			func(k *knee, in *tickInput) { in.unreachable = 100 }, nil, Probe,
			func(k *knee) bool { return k.memory == 0 }},
		{"more calls timed out than answered", both, either,
			func(k *knee, in *tickInput) { in.truncated = 51 },
			func(k *knee) float64 { return 0.5 }, Outage, nil},
		{"a rate remembers no more than what came back", rate, either,
			func(k *knee, in *tickInput) { in.unreachable = 101; k.topRet = 333 },
			func(k *knee) float64 { return 0.5 }, Outage,
			func(k *knee) bool { return k.memory == 333 }},
		{"a limit remembers itself, whatever came back", limit, either,
			func(k *knee, in *tickInput) { in.unreachable = 101; k.topRet = 3 },
			func(k *knee) float64 { return 0.5 }, Outage,
			func(k *knee) bool { return k.memory == 40 }},
		{"the outage goes on: the memory stays", both, either,
			func(k *knee, in *tickInput) {
				in.reached, in.unreachable, in.inFlightEnd = 0, 9, 0
				k.memory = 777
			},
			func(k *knee) float64 { return 0.5 }, Outage,
			func(k *knee) bool { return k.memory == 777 }},
		{"nobody asks in the outage", both, either,
			func(k *knee, in *tickInput) { *in = tickInput{}; k.memory = 777 },
			func(k *knee) float64 { return 1 }, Outage,
			func(k *knee) bool { return k.memory == 777 }},
		{"nothing ends in the outage: a rate goes on down", rate, either,
			func(k *knee, in *tickInput) { in.reached = 0; k.memory = 777 },
			func(k *knee) float64 { return 0.5 }, Outage,
			func(k *knee) bool { return k.memory == 777 && k.stuck == 8 && k.prevEnd == 0 }},
		{"a limit too, but those that hang do not hold its slots", limit, either,
			func(k *knee, in *tickInput) { in.reached = 0; k.memory = 777 },
			func(k *knee) float64 { return 28.0 / 40 }, Outage,
			func(k *knee) bool { return k.memory == 777 && k.stuck == 8 && k.target == 20 }},
		{"nothing ends for longer than it ever took", both, either,
			func(k *knee, in *tickInput) {
				in.reached = 0
				k.patience, k.silent = 0.5, 0.26
			},
			func(k *knee) float64 {
				if k.rate {
					return 0.5
				}
				return 28.0 / 40
			}, Outage,
			func(k *knee) bool { return k.memory == k.topTarget && k.silent == 0 }},
		{"not yet longer", rate, either,
			func(k *knee, in *tickInput) {
				in.reached, in.inFlight, in.inFlightEnd = 0, 58, 108
				k.patience, k.silent = 0.5, 0.25
			},
			nil, Backoff, func(k *knee) bool { return k.memory == 0 && k.silent == 0.5 }},
		{"an end breaks the silence", both, either,
			func(k *knee, in *tickInput) { k.patience, k.silent = 0.5, 9 },
			nil, Probe, func(k *knee) bool { return k.memory == 0 && k.silent == 0 }},
		{"nothing was in flight before: no silence", both, slo,
			func(k *knee, in *tickInput) { in.reached, k.prevEnd = 0, 0; k.patience, k.silent = 0.5, 9 },
			nil, Probe, func(k *knee) bool { return k.memory == 0 && k.silent == 0 }},
		{"nobody asks: no silence", both, either,
			func(k *knee, in *tickInput) {
				in.reached, in.admitted, in.binding = 0, 0, false
				k.patience, k.silent = 0.5, 9
			},
			nil, Hold, func(k *knee) bool { return k.memory == 0 && k.silent == 0 }},
		{"what the outage swallowed is no longer in flight", both, slo,
			func(k *knee, in *tickInput) {
				in.inFlight, in.inFlightEnd, in.p50, k.stuck = 108, 108, 15*time.Millisecond, 100
			},
			nil, Probe, func(k *knee) bool { return k.stuck == 100 && k.prevEnd == 8 && k.inFlight == 8 }},
		{"its time-outs are old news", both, slo,
			func(k *knee, in *tickInput) {
				in.inFlight, in.inFlightEnd, k.stuck = 58, 58, 250
				in.reached, in.truncated, in.overSLO = 300, 200, 200
			},
			nil, Probe, func(k *knee) bool { return k.stuck == 50 && k.inFlight == 8 && k.overRun == 0 && k.memory == 0 }},
		{"unless they answer after all", both, slo, // 100 in 0.25 s, of 260 ms each: 104 are alive
			func(k *knee, in *tickInput) {
				in.inFlight, in.inFlightEnd, in.p50, k.stuck = 108, 108, 260*time.Millisecond, 100
			},
			nil, Backoff, func(k *knee) bool { return k.stuck == 4 }},
		{"one call comes back", both, either,
			func(k *knee, in *tickInput) { in.reached = 1; k.memory = 10 * k.target },
			func(k *knee) float64 { return 5 }, Resume,
			func(k *knee) bool {
				return k.memory == 0 && k.sumDelivered == 0 && k.sumInFlight == 0 && k.sumTime == 0 && k.sumReturned == 0
			}},
		{"resume never cuts", both, either,
			func(k *knee, in *tickInput) { in.reached = 1; k.memory = k.target },
			func(k *knee) float64 { return 1 }, Resume, nil},

		// 2. Blind.
		{"nothing sent, nothing in flight, nothing ended", both, either,
			func(k *knee, in *tickInput) { *in = tickInput{binding: true} },
			func(k *knee) float64 { return 1 }, Blind, nil},
		{"too few calls to say anything", both, either,
			func(k *knee, in *tickInput) {
				*in = tickInput{admitted: 3, inFlight: 3, inFlightEnd: 3, binding: true}
				k.sumDelivered, k.sumReturned = 0.5, 0.5
			},
			func(k *knee) float64 { return 1 }, Blind, nil},
		{"nothing ends any more", rate, either, // not blind: the step cuts
			func(k *knee, in *tickInput) { in.reached, in.inFlight, in.inFlightEnd = 0, 58, 108 }, nil, Backoff,
			func(k *knee) bool { return k.target < 300 }},

		// 4. The end of slow start.
		{"slow start sends one call in a hundred over the SLO", rate, slo,
			func(k *knee, in *tickInput) { k.cold = true; in.overSLO = 2 },
			func(k *knee) float64 { return 0.5 }, TailBackoff, func(k *knee) bool { return !k.cold }},
		{"half of what comes back, if that is less", rate, slo,
			func(k *knee, in *tickInput) { k.cold = true; in.overSLO = 2; k.target = 800 },
			func(k *knee) float64 { return 0.25 }, TailBackoff, nil},
		{"a limit only leaves slow start", limit, slo,
			func(k *knee, in *tickInput) { k.cold = true; in.overSLO = 2 },
			nil, Probe, func(k *knee) bool { return !k.cold && k.target > 40 }},
		{"one call over the SLO is noise", both, slo,
			func(k *knee, in *tickInput) { k.cold = true; in.overSLO = 1 },
			func(k *knee) float64 { return 1.5 }, SlowStart, func(k *knee) bool { return k.cold }},
		{"latency within one standard error of the target", both, slo,
			func(k *knee, in *tickInput) { k.cold = true; k.at(0.09*(1+0.99/math.Sqrt(200)), in) }, nil, Backoff,
			func(k *knee) bool { return k.cold }},
		{"latency beyond one standard error", both, slo,
			func(k *knee, in *tickInput) { k.cold = true; k.at(0.09*(1+1.05/math.Sqrt(200)), in) }, nil, Backoff,
			func(k *knee) bool { return !k.cold }},

		// 6. The step.
		{"the callers do not use what they have", both, either,
			func(k *knee, in *tickInput) { in.binding = false },
			func(k *knee) float64 { return 1 }, Hold, nil},
		{"slow start", both, either,
			func(k *knee, in *tickInput) { k.cold = true },
			func(k *knee) float64 { return 1.5 }, SlowStart, nil},
		{"slow start with one sample", both, slo,
			func(k *knee, in *tickInput) {
				k.cold = true
				*in = tickInput{admitted: 1, reached: 1, binding: true}
			},
			func(k *knee) float64 { return 1.25 }, SlowStart, nil},
		{"slow start after a deep dip", both, slo,
			func(k *knee, in *tickInput) { k.topTarget = 2.02 * k.target },
			func(k *knee) float64 { return 1.5 }, SlowStart, nil},
		{"not after a shallow one", both, slo,
			func(k *knee, in *tickInput) { k.topTarget = 1.98 * k.target }, nil, Probe, nil},
		{"not near the target", both, slo,
			func(k *knee, in *tickInput) { k.cold = true; k.at(0.046, in) }, nil, Probe, nil},
		{"not with calls over the SLO", both, slo,
			func(k *knee, in *tickInput) { k.topTarget = 3 * k.target; in.overSLO = 3 }, nil, Probe, nil},
		{"limit up: by target/latency, at most double, and one call", limit, slo, // 90/20
			nil, func(k *knee) float64 { return (40 + 0.5*(40*1+1)) / 40 }, Probe, nil},
		{"limit up near the target", limit, slo,
			func(k *knee, in *tickInput) { k.at(0.075, in) },
			func(k *knee) float64 { return (40 + 0.5*(40*0.2+1)) / 40 }, Probe, nil},
		{"limit down: to the calls that the target allows", limit, slo,
			func(k *knee, in *tickInput) { k.target = 60; k.topTarget = 60; k.at(0.1, in) },
			func(k *knee) float64 { return (60 + 0.5*(400*0.09-60)) / 60 }, Backoff, nil},
		{"limit down never goes up", limit, slo,
			func(k *knee, in *tickInput) { k.target = 20; k.topTarget = 20; k.at(0.1, in) },
			func(k *knee) float64 { return 1 }, Backoff, nil},
		{"rate up: the missing calls, by the loop's delay", rate, slo,
			nil, func(k *knee) float64 { return (400 + (36.5-8)*0.25/(0.27*0.27)) / 400 }, Probe, nil},
		{"rate: what piled up is taken off", rate, slo,
			func(k *knee, in *tickInput) { k.prevEnd = 2 },
			func(k *knee) float64 { return (400 - 0.5*6/0.25 + (36.5-8)*0.25/(0.27*0.27)) / 400 }, Probe, nil},
		{"rate down", rate, slo,
			func(k *knee, in *tickInput) { k.at(0.1, in) },
			func(k *knee) float64 { return (400 + (36.5-40)*0.25/(0.35*0.35)) / 400 }, Backoff, nil},
		{"rate down: from what was really sent", rate, slo,
			func(k *knee, in *tickInput) { k.target = 800; k.topTarget = 800; in.admitted = 110; k.at(0.1, in) },
			func(k *knee) float64 { return (440 + (36.5-40)*0.25/(0.35*0.35)) / 800 }, Backoff, nil},
		{"rate: with three hits set aside for each miss everything counts four times", rate, slo,
			func(k *knee, in *tickInput) { in.aborted = 300; k.sumReturned = 800; k.topRet = 1600; k.prevEnd = 2 },
			func(k *knee) float64 {
				return max((400-0.5*4*6/0.25+4*(36.5-8)*0.25/(0.27*0.27))/400, 2)
			}, Probe, nil},
		{"rate: never below half of what comes back", rate, slo,
			func(k *knee, in *tickInput) { in.inFlight, in.inFlightEnd = 8, 1000 },
			func(k *knee) float64 { return 0.5 }, Backoff, nil},
		{"rate: a tail that the mean does not show", rate, slo,
			func(k *knee, in *tickInput) {
				k.overRun, k.window, in.overSLO = 1, 0.0201, 3
				in.inFlightEnd, k.prevEnd = 13, 13
			},
			func(k *knee) float64 { return (320 + (12+0.5-13)*0.25/(0.27*0.27)) / 400 }, TailBackoff,
			func(k *knee) bool { return k.window == 0.03 }}, // 1.5 × base
		{"rate without an SLO: the target is 1.5 × base", rate, none,
			nil, func(k *knee) float64 { return (400 + (12.5-8)*0.25/(0.27*0.27)) / 400 }, Probe, nil},
	}
	for _, test := range tests {
		for _, rate := range test.on {
			for _, slo := range test.slos {
				k, in := steadyKnee(rate, slo), steadyTick()
				if test.given != nil {
					test.given(k, &in)
				}
				before := k.target
				got, why := k.step(in)
				if test.want != nil {
					if want := min(max(before*test.want(k), k.min), k.max); math.Abs(got-want) > 1e-9*want {
						t.Errorf("%s (rate %v, SLO %v): %v → %v, want %v", test.when, rate, slo, before, got, want)
					}
				}
				if why != test.why {
					t.Errorf("%s (rate %v, SLO %v): %v, want %v", test.when, rate, slo, why, test.why)
				}
				if test.check != nil && !test.check(k) {
					t.Errorf("%s (rate %v, SLO %v): the state is %+v", test.when, rate, slo, *k)
				}
			}
		}
	}
}

func TestKneeWeightOfATick(t *testing.T) {
	for _, test := range []struct {
		when                       string
		admitted, reached, aborted int
		delivered, returned        float64 // sums before
		want                       float64
	}{
		{"two ticks of memory where calls are many", 100, 100, 0, 200, 200, 0.5},
		{"twenty samples of memory where they are few", 4, 4, 0, 40, 40, 0.2},
		{"at most forty ticks", 0, 0, 0, 2, 2, 1.0 / 40},
		{"admitted calls count before they end", 6, 0, 0, 40, 40, 0.3},
		{"but only those that will become samples", 100, 1, 99, 1, 50, 0.1},
		{"before anything has returned all of them", 7, 1, 0, 0, 0, 0.35},
	} {
		k := steadyKnee(true, kneeSLO)
		k.sumDelivered, k.sumReturned = test.delivered, test.returned
		k.step(tickInput{admitted: test.admitted, reached: test.reached, aborted: test.aborted,
			inFlight: 1, inFlightEnd: 1, binding: true})
		wantD := test.delivered*(1-test.want) + float64(test.reached)
		if math.Abs(k.alpha-test.want) > 1e-12 || math.Abs(k.sumDelivered-wantD) > 1e-9 {
			t.Errorf("%s: weight %v, delivered %v; want %v and %v", test.when, k.alpha, k.sumDelivered, test.want, wantD)
		}
	}
}

func TestKneeLearnsTheBase(t *testing.T) {
	for _, test := range []struct {
		when    string
		latency float64
		given   func(k *knee)
		want    float64
	}{
		{"far below: at once", 0.013, nil, 0.013},
		{"below: a tenth of the way", 0.018, nil, 0.0198},
		{"a little above: a fortieth of the way", 0.024, nil, 0.0201},
		{"far above: not at all", 0.026, nil, 0.02},
		{"far above at the floor: it is not our queue", 0.026,
			func(k *knee) { k.target, k.sumInFlight, k.sumDelivered = 1, 0.5, 0.5/0.026 }, 0.02 + 0.05*0.5*0.006},
		{"below, but from too few samples", 0.018,
			func(k *knee) { k.sumDelivered, k.sumReturned = 20, 20; k.sumInFlight, k.sumTime = 0.36, 10 },
			0.02 + 0.05*0.1*(0.018-0.02)},
	} {
		k, in := steadyKnee(true, 0), steadyTick()
		k.at(test.latency, &in)
		if test.given != nil {
			test.given(k)
			// A tick that leaves the sums as they are.
			alpha := 0.5
			if k.sumTime == 10 {
				alpha, in.reached, in.admitted = 0.1, 2, 2
			} else {
				in.reached = int(k.sumDelivered / 2)
				k.sumDelivered, k.sumReturned = 2*float64(in.reached), 2*float64(in.reached)
				k.sumInFlight = test.latency * k.sumDelivered
			}
			in.inFlight = k.sumInFlight * alpha / 0.25
			in.inFlightEnd = int(in.inFlight)
		}
		k.step(in)
		if math.Abs(k.base-test.want) > 1e-9 {
			t.Errorf("%s: latency %v makes %v of 0.02, want %v", test.when, k.latency, k.base, test.want)
		}
	}
}

func TestKneeFirstTicks(t *testing.T) {
	first := func(rate bool, slo time.Duration, n int, latency float64) *knee {
		p := &params{anchor: AnchorKnee, tick: 250 * time.Millisecond, min: 2, max: 1000, initial: 100, slo: slo}
		k := newKnee(p, rate)
		k.step(tickInput{admitted: n, reached: n, inFlight: float64(n) * latency / 0.25, binding: true})
		return k
	}
	// A first tick with more than 12 samples sets the base all the same.
	for _, rate := range []bool{true, false} {
		for _, n := range []int{1, 12, 13, 20, 21, 500} {
			if k := first(rate, 0, n, 0.02); math.Abs(k.base-0.02) > 1e-12 {
				t.Errorf("rate %v: a first tick of %d samples makes the base %v, want 0.02", rate, n, k.base)
			}
		}
		// With an SLO what is learnt inside somebody's queue is at most a third of it.
		if k := first(rate, kneeSLO, 50, 0.5); math.Abs(k.base-0.2/3) > 1e-12 {
			t.Errorf("rate %v: base %v out of a queue, want a third of the SLO", rate, k.base)
		}
	}
	// A limit without an SLO begins at its floor, until it has ten samples.
	p := &params{anchor: AnchorKnee, tick: 250 * time.Millisecond, min: 2, max: 1000, initial: 100}
	k := newKnee(p, false)
	for i, want := range []float64{2, 2, 20} {
		got, why := k.step(tickInput{admitted: 4, reached: 4, inFlight: 0.32, binding: true})
		if got != want || why != Calibrate {
			t.Errorf("calibration, tick %d: %v (%v), want %v", i, got, why, want)
		}
	}
	p.initial = 7
	k = newKnee(p, false)
	if got, _ := k.step(tickInput{admitted: 10, reached: 10, inFlight: 1, binding: true}); got != 7 {
		t.Errorf("calibration ends at %v, want Initial = 7", got)
	}
	if k := newKnee(p, true); k.target != 7 {
		t.Errorf("a rate starts at %v, want Initial", k.target)
	}
	p.slo = kneeSLO
	if k := newKnee(p, false); k.target != 7 {
		t.Errorf("a limit with an SLO starts at %v, want Initial", k.target)
	}
}

func TestKneeTarget(t *testing.T) {
	k := steadyKnee(false, kneeSLO)
	k.at(0.05, &tickInput{})
	over := func(n int) float64 {
		in := steadyTick()
		in.inFlight, in.inFlightEnd = 20, 20
		in.overSLO = n
		k.step(in)
		return k.window
	}
	want := 0.09
	for i, test := range []struct {
		over int
		want float64
	}{
		{3, 0.09},          // one bad tick is noise
		{3, 0.9 * 0.05},    // the lower of target and latency
		{3, 0.81 * 0.05},   // ten per cent a tick
		{2, 0.81 * 0.0505}, // 2 % is not too many; back up by one per cent
		{0, 0.81 * 0.05 * 1.01 * 1.01},
	} {
		if got := over(test.over); math.Abs(got-test.want) > 1e-6 {
			t.Errorf("tick %d with %d of 100 over the SLO: target %v, want %v (was %v)", i, test.over, got, test.want, want)
		}
		want = test.want
	}
	for range 30 {
		over(50)
	}
	if k.window < 0.05/1.5*0.9 || k.window > 0.05/1.5 {
		t.Errorf("after 30 bad ticks the target is %v: the latency of 50 ms is beyond 1.5 of it, and lower it may not go", k.window)
	}
	for range 30 {
		k.at(0.03, &tickInput{})
		in := steadyTick()
		in.inFlight, in.inFlightEnd, in.overSLO = 12, 12, 50
		k.step(in)
	}
	if low := 1.5 * k.base; math.Abs(k.window-low) > 1e-9 {
		t.Errorf("after 30 bad ticks the target is %v, want 1.5 × base = %v", k.window, low)
	}
	for range 300 {
		over(0)
	}
	if math.Abs(k.window-0.09) > 1e-9 {
		t.Errorf("after 300 good ticks the target is %v, want 0.45 of the SLO", k.window)
	}
	k.base = 0.1
	if got := k.ceiling(); math.Abs(got-0.13) > 1e-9 {
		t.Errorf("the highest target over a base of 100 ms is %v, want base + 0.15 of the SLO", got)
	}
	for _, test := range []struct {
		base    float64
		vainRun int
		want    float64
	}{
		{0.139, 0, 0.169},
		{0.141, 0, 0.09}, // no room below the SLO: a fleet's queue, perhaps
		{0.3, 2, 0.09},
		{0.3, 3, 0.33}, // no, the SLO cannot be met
	} {
		k.base, k.vainRun = test.base, test.vainRun
		if got := k.ceiling(); math.Abs(got-test.want) > 1e-9 {
			t.Errorf("the highest target over a base of %v s after %d verdicts is %v, want %v", test.base, test.vainRun, got, test.want)
		}
	}
	k.base, k.vainRun = 0.139, 3
	k.step(steadyTick())
	if k.vainRun != 0 {
		t.Errorf("with a base below 0.7 of the SLO again, %d verdicts are still counted", k.vainRun)
	}
}

// hotKnee is a law that sees more latency than it wants, just before a test.
func hotKnee(rate bool, slo time.Duration, latency float64) (*knee, tickInput) {
	k, in := steadyKnee(rate, slo), steadyTick()
	k.at(latency, &in)
	k.heat = hotTicks - 1
	in.p99 = seconds(latency)
	return k, in
}

func TestKneeDrainTestBegins(t *testing.T) {
	for _, test := range []struct {
		when  string
		given func(k *knee, in *tickInput)
		want  testKind
	}{
		{"latency has been too high for eight ticks", func(k *knee, in *tickInput) {}, latencyTest},
		{"for seven", func(k *knee, in *tickInput) { k.heat-- }, noTest},
		{"only a little too high", func(k *knee, in *tickInput) { k.at(0.095, in) }, noTest},
		{"the cut has become deep", func(k *knee, in *tickInput) {
			k.at(0.088, in)
			k.topTarget, k.topRet = k.target/0.59, 400/0.69
		}, latencyTest},
		{"deep, but calls come back as before", func(k *knee, in *tickInput) {
			k.at(0.088, in)
			k.topTarget, k.topRet = k.target/0.59, 400/0.71
		}, noTest},
		{"deep, but latency is low", func(k *knee, in *tickInput) {
			k.at(0.085, in)
			k.topTarget, k.topRet = k.target/0.59, 400/0.69
		}, noTest},
		{"it is time, and the base eats the target", func(k *knee, in *tickInput) {
			k.base, k.window, k.idle = 0.08, 0.11, 1
			k.at(0.08, in)
		}, timedTest},
		{"it is time, but the SLO's own share is the target", func(k *knee, in *tickInput) {
			k.idle = 1
			k.at(0.08, in)
		}, noTest},
		{"it is time, but nobody waits", func(k *knee, in *tickInput) {
			k.base, k.window, k.idle, in.binding = 0.08, 0.11, 1, false
			k.at(0.08, in)
		}, noTest},
	} {
		for _, rate := range []bool{true, false} {
			k, in := hotKnee(rate, kneeSLO, 0.12)
			test.given(k, &in)
			before := k.target
			got, why := k.step(in)
			if k.test.kind != test.want || (why == Test) != (test.want != noTest) {
				t.Errorf("%s (rate %v): test %v, decision %v, want %v", test.when, rate, k.test.kind, why, test.want)
			}
			use := 400.0
			if !rate {
				use = in.inFlight
			}
			if want := min(before, min(k.back(), use)/2); why == Test && math.Abs(got-want) > 1e-9 {
				t.Errorf("%s (rate %v): cut to %v, want half of what is used, %v", test.when, rate, got, want)
			}
		}
	}
}

func TestKneeDrainTestVerdicts(t *testing.T) {
	// The sums remember two ticks, so a latency needs a few to be seen. Each
	// tick of a test halves what is in flight, down to a share.
	run := func(k *knee, in tickInput, share float64, latency func(inFlight float64) float64) (float64, Decision, int) {
		got, why := k.step(in)
		ticks := 1
		for open := in.inFlight; why == Test && ticks < 1000; ticks++ {
			before := open
			open = max(open/2, in.inFlight*share)
			// What ends beyond what is sent is the fall; their mean is the
			// flow that belongs to the calls in flight.
			tick := in
			tick.inFlight, tick.inFlightEnd = (before+open)/2, int(open)
			flow := tick.inFlight / latency(tick.inFlight) * 0.25
			tick.reached = int(math.Round(flow + (before-open)/2))
			tick.admitted = int(math.Round(flow - (before-open)/2))
			got, why = k.step(tick)
		}
		return got, why, ticks
	}
	for _, rate := range []bool{true, false} {
		// Latency does not follow: not our queue.
		k, in := hotKnee(rate, kneeSLO, 0.12)
		before := k.target
		got, why, ticks := run(k, in, 0.1, func(float64) float64 { return 0.12 })
		if why != Restore || math.Abs(got-before) > 0.05*before || math.Abs(k.base-0.12) > 0.01 {
			t.Errorf("rate %v: latency stays: %v, number %v of %v, base %v; want restore and base 0.12", rate, why, got, before, k.base)
		}
		if ticks < 3 || ticks > 6 {
			t.Errorf("rate %v: the test took %d ticks, want one latency and two ticks more", rate, ticks)
		}
		if k.idle != nextTimedTest || k.heat != 0 || k.test.kind != noTest {
			t.Errorf("rate %v: after the verdict idle %d, heat %v, test %v", rate, k.idle, k.heat, k.test.kind)
		}

		// Latency follows: our queue, and the base stays.
		k, in = hotKnee(rate, kneeSLO, 0.12)
		got, why, _ = run(k, in, 0.1, func(open float64) float64 { return open / 400 })
		if why != Drained || k.base > 0.02 {
			t.Errorf("rate %v: latency follows: %v, base %v; want drained and base 0.02", rate, why, k.base)
		}
		if want := 0.7 * 400; rate && math.Abs(got-want) > 1e-9 {
			t.Errorf("a drained rate goes on at %v, want 0.7 of the use before, %v", got, want)
		}
		if k.idle != nextTimedTest {
			t.Errorf("rate %v: the next timed test is in %d ticks, want %d", rate, k.idle, nextTimedTest)
		}

		// A timed test never raises the base.
		k, in = hotKnee(rate, 0, 0.03)
		k.heat, k.idle = 0, 1
		got, why, _ = run(k, in, 0.1, func(float64) float64 { return 0.03 })
		if why != Restore || k.base != 0.02 {
			t.Errorf("rate %v: a timed test in vain: %v, number %v, base %v; want restore and 0.02", rate, why, got, k.base)
		}
		// But it lowers it: there was more to drain than we knew.
		k, in = hotKnee(rate, 0, 0.1)
		k.heat, k.idle, k.base, k.window = 0, 1, 0.1, 0.15
		_, why, _ = run(k, in, 0.6, func(float64) float64 { return 0.075 })
		if why != Drained || math.Abs(k.base-k.latency) > 1e-9 || k.base > 0.09 || k.idle != 2 {
			t.Errorf("rate %v: a timed test that drained: %v, base %v, latency %v, next in %d ticks; want drained, the latency, 2",
				rate, why, k.base, k.latency, k.idle)
		}

		// Nothing falls: no verdict, the number comes back and the base stays.
		k, in = hotKnee(rate, kneeSLO, 0.12)
		before = k.target
		why, ticks = Test, 0
		for ; why == Test && ticks < 1000; ticks++ {
			got, why = k.step(in)
		}
		if why != Restore || math.Abs(got-before) > 1e-9 || k.base != 0.02 {
			t.Errorf("rate %v: in flight stays: %v, number %v of %v, base %v; want restore and 0.02", rate, why, got, before, k.base)
		}
		if most := int(math.Ceil((3*0.12 + 10*0.25) / 0.25)); ticks > most+1 {
			t.Errorf("rate %v: a test without a verdict took %d ticks, want at most %d", rate, ticks, most+1)
		}
	}
}

// Late calls keep the old latencies in flight while the cut goes on: latency
// that fell by a third is then proof enough.
func TestKneeDrainTestWithLateCalls(t *testing.T) {
	for _, late := range []bool{false, true} {
		k := steadyKnee(true, kneeSLO)
		in := steadyTick()
		k.test = drainTest{kind: latencyTest, inFlight0: 80, latency: 0.12, age: 2, samples: 50, used: 400, late: late}
		k.target = 200
		// A quarter of the calls in flight, two thirds of the latency.
		k.sumInFlight, k.sumDelivered, k.sumReturned = 10, 125, 125
		in.inFlight, in.inFlightEnd, in.reached, in.admitted = 20, 20, 62, 62
		_, why := k.step(in)
		want := Restore // ln(2/3) > 0.5 × ln(1/4)
		if late {
			want = Drained // ln(2/3) < 0.5 × ln(1/2)
		}
		if why != want {
			t.Errorf("late %v: %v, want %v (latency %v, in flight %v)", late, why, want, k.latency, k.inFlight)
		}
	}
}

// fluid is the downstream of the closed form: what comes back is mu, what is in
// flight grows by what is sent beyond it.
type fluid struct {
	mu, tick float64
	open     float64
	sent     float64 // fractions of a call carried over
}

func (f *fluid) tickAt(rate float64) tickInput {
	before := f.open
	f.open = max(0, f.open+f.tick*(rate-f.mu))
	f.sent += rate * f.tick
	n := math.Floor(f.sent)
	f.sent -= n
	in := tickInput{
		admitted: int(n), reached: int(f.mu * f.tick), binding: true,
		inFlight: (before + f.open) / 2, inFlightEnd: int(math.Round(f.open)),
	}
	in.p99 = seconds(in.inFlight / f.mu)
	return in
}

// With x = I - mu × Wt the loop of law and fluid is, in ticks,
//
//	x″ = x′ + a (x′ - x) - b x′,  a = 1 - 1/2,  b = (T/tau)²
//
// whose roots are real, so that nothing rings, for b ≤ (1 - √a)², tau ≥ 3.41 T.
// Below they are complex with a modulus of √a: each swing is at most 0.41 of the
// one before, at tau = T.
func TestKneeClosedForm(t *testing.T) {
	const mu, T = 1e6, 0.25
	for _, delay := range []float64{1.05, 1.2, 1.5, 2, 2.5, 3, 3.4, 3.5, 4, 5, 8, 12} { // tau/T
		target := (delay - 1) * T
		for _, start := range []float64{0.8, 1.05, 1.2} { // × the calls in flight to hold
			p := &params{anchor: AnchorKnee, tick: 250 * time.Millisecond, min: 1, max: 1e9, initial: mu,
				slo: seconds(target / sloTarget)}
			k := newKnee(p, true)
			f := &fluid{mu: mu, tick: T, open: start * mu * target}
			k.cold, k.seen, k.base, k.window = false, learnSamples, target/2, target
			k.sumDelivered, k.sumReturned, k.sumTime = 2*mu*T, 2*mu*T, 2*T
			k.sumInFlight, k.prevEnd, k.topTarget, k.topRet = 2*T*f.open, int(f.open), mu, mu
			k.idle = 1000 // a look at the step, not at the tests

			rate, want := mu, mu*target
			var swings []float64 // the largest deviation between two crossings
			last := f.open - want
			peak := math.Abs(last)
			for range 800 {
				k.heat = 0
				rate, _ = k.step(f.tickAt(rate))
				x := f.open - want
				if x*last < 0 {
					swings = append(swings, peak)
					peak = 0
				}
				peak = max(peak, math.Abs(x))
				last = x
			}
			if math.Abs(last) > 1e-3*want || math.Abs(rate-mu) > 1e-3*mu {
				t.Errorf("tau %v T from %v: in flight %v of %v, rate %v of %v", delay, start, f.open, want, rate, mu)
			}
			// What is below a thousandth is rounding and the half call of e.
			most := 0.5
			if delay > 3.42 {
				most = 0.02
			}
			for i := 1; i < len(swings) && swings[i] > 1e-3*want; i++ {
				if swings[i] > most*swings[i-1] {
					t.Errorf("tau %v T from %v: swings %v, want each at most %v of the one before", delay, start, swings[:i+1], most)
				}
			}
		}
	}
}

// 2000 hits/s that are set aside say nothing about 100 misses/s; the number
// counts both, the law steers by the misses.
func TestKneeWithHitsSetAside(t *testing.T) {
	const mu, T = 100.0, 0.25
	p := &params{anchor: AnchorKnee, tick: 250 * time.Millisecond, min: 1, max: 1e5, initial: 200, slo: kneeSLO}
	k := newKnee(p, true)
	open, rate := 2.0, 200.0
	for range 400 {
		before := open
		misses := rate / 20
		served := min(mu*T, open+misses*T)
		open = max(misses*0.02, open+misses*T-served)
		in := tickInput{
			admitted: int(rate * T), reached: int(served), aborted: int(served * 19), binding: true,
			inFlight: (before + open) / 2, inFlightEnd: int(open), p99: 100 * time.Millisecond,
		}
		rate, _ = k.step(in)
	}
	if rate < 0.9*20*mu || rate > 1.15*20*mu {
		t.Errorf("95 %% hits, %v misses/s of capacity: the rate is %v, want about %v", mu, rate, 20*mu)
	}
}

// At the floor with one call in flight there is no queue of ours: a latency that
// has risen is learnt, or the number would stay there for ever. Whether there is
// one call must not hang on the last bit of a quotient, whatever came before.
func TestKneeLeavesTheFloor(t *testing.T) {
	for _, tick := range []time.Duration{250 * time.Millisecond, 100 * time.Millisecond, 30 * time.Millisecond, 7 * time.Millisecond} {
		for history := 1; history <= 40; history++ {
			p := &params{anchor: AnchorKnee, tick: tick, min: 1, max: 100, initial: 10, slo: 2 * time.Second}
			k := newKnee(p, false)
			k.target, k.seen, k.cold, k.base, k.window, k.idle = 1, 20, false, 0.02, 0.9, 1000
			before := tickInput{admitted: 30, reached: 30, inFlight: 1 + float64(history)/7, inFlightEnd: 2}
			for range history {
				k.step(before)
				k.target, k.base, k.window = 1, 0.02, 0.9
			}
			learnt := 0
			for range 1000 {
				base := k.base
				k.target = 1
				k.step(tickInput{admitted: 2, reached: 2, inFlight: 1, inFlightEnd: 1})
				if k.base != base {
					learnt++
				}
			}
			// The history has faded after 300 ticks of a tenth each.
			if learnt < 500 {
				t.Fatalf("tick %v, %d ticks of history: one call in flight at the floor (%v), latency %v, and the base moved in %d of 1000 ticks, to %v",
					tick, history, k.inFlight, k.latency, learnt, k.base)
			}
		}
	}
}

// Refusals and hangs of every length: the number is halved each tick, held at
// the floor, and back at half at the first answer.
func TestKneeOutages(t *testing.T) {
	storm := func(n int) tickInput { return tickInput{admitted: n, unreachable: n, binding: true} }
	// The time-outs of a hang, each 50 times the SLO.
	timeouts := func(n int) tickInput {
		return tickInput{admitted: n, reached: n, truncated: n, overSLO: n, binding: true,
			inFlight: float64(40 * n), inFlightEnd: 40 * n, p50: 50 * kneeSLO, p99: 50 * kneeSLO}
	}
	for name, lost := range map[string]func(int) tickInput{"refusal": storm, "hang": timeouts} {
		for _, rate := range []bool{true, false} {
			for _, ticks := range []int{1, 2, 5, 40, 400} {
				k := steadyKnee(rate, kneeSLO)
				before := k.target
				want := before
				for range ticks {
					want = max(want/2, k.min)
					in := lost(10)
					got, why := k.step(in)
					if !rate {
						got -= float64(in.inFlightEnd) // calls that hang do not count
					}
					if got != want || why != Outage {
						t.Fatalf("%s, rate %v: %v (%v), want %v", name, rate, got, why, want)
					}
				}
				in := lost(0)
				in.reached, in.admitted = 1, 1
				got, why := k.step(in)
				if why != Resume || got != max(before/2, want) {
					t.Errorf("%s of %d ticks, rate %v: %v (%v) at the first answer, want %v", name, ticks, rate, got, why, before/2)
				}
			}
		}
	}
}

func TestKneeSignals(t *testing.T) {
	k := steadyKnee(true, kneeSLO)
	k.step(steadyTick())
	base, fast, window := k.signals()
	if base.Round(time.Microsecond) != 20*time.Millisecond || fast.Round(time.Microsecond) != 20*time.Millisecond ||
		window.Round(time.Microsecond) != 90*time.Millisecond {
		t.Errorf("signals are %v, %v, %v; want 20 ms, 20 ms, 90 ms", base, fast, window)
	}
	if k.synthetic() != 0 {
		t.Errorf("a lost call is a sample of %v, want none: it is counted", k.synthetic())
	}
}

// soundKnee steps two instances and reports whether they agree on a finite
// number inside the bounds.
func soundKnee(t *testing.T, a, b *knee, in tickInput) float64 {
	t.Helper()
	x, why := a.step(in)
	y, whyB := b.step(in)
	if !(x >= a.min && x <= a.max) {
		t.Fatalf("%+v makes the number %v (%v), outside [%v, %v]", in, x, why, a.min, a.max)
	}
	if x != y || why != whyB {
		t.Fatalf("two instances with the same ticks say %v (%v) and %v (%v)", x, why, y, whyB)
	}
	for name, v := range map[string]float64{"base": a.base, "window": a.window, "latency": a.latency,
		"delivered": a.sumDelivered, "returned": a.sumReturned, "memory": a.memory} {
		if !(v >= 0 && v <= math.MaxFloat64) {
			t.Fatalf("%+v makes %s %v", in, name, v)
		}
	}
	return x
}

func TestKneeIsSound(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for range 100 {
		rate := r.IntN(2) == 0
		p := kneeParams(r, rate)
		a, b, world := newKnee(p, rate), newKnee(p, rate), newKneeWorld(r, p, rate)
		for range 500 {
			soundKnee(t, a, b, world.next(a.target, a.sloSec))
		}
	}
}

func FuzzKneeIsSound(f *testing.F) {
	f.Add(uint8(0), []byte("twenty bytes a tick make several of them, so this is a start for the corpus"))
	f.Add(uint8(3), make([]byte, 200))
	f.Fuzz(func(t *testing.T, config uint8, data []byte) {
		rate := config&1 != 0
		p := &params{anchor: AnchorKnee, tick: time.Duration(1+int(config>>4)*70) * time.Millisecond, min: 1, max: 1e6, initial: 50}
		if config&2 != 0 {
			p.slo = time.Duration(1+int(config>>2&3)) * 90 * time.Millisecond
		}
		a, b := newKnee(p, rate), newKnee(p, rate)
		for ; len(data) >= 20; data = data[20:] {
			n := func(i int) int { // 0 to 2^31, small numbers as often as large ones
				v := binary.LittleEndian.Uint16(data[2*i:])
				return int(v&0x7ff) << (v >> 11 & 15) >> 1
			}
			in := tickInput{
				admitted: n(0), reached: n(1), unreachable: n(2), aborted: n(3),
				inFlight: float64(n(4)) / 7, inFlightEnd: n(5), p99: time.Duration(n(6)) * time.Microsecond,
				binding: data[19]&1 != 0,
			}
			in.truncated = min(in.reached, n(7))
			in.overSLO = min(in.reached, n(8))
			soundKnee(t, a, b, in)
		}
	})
}

// The reason of an ordinary step agrees with where the number went.
func TestKneeDecisionsAgreeWithTheDirection(t *testing.T) {
	for _, c := range []struct {
		why      Decision
		from, to float64
		want     Decision
	}{
		{Backoff, 10, 11, Probe}, {TailBackoff, 10, 11, Probe}, {Probe, 10, 9, Backoff},
		{Backoff, 10, 9, Backoff}, {TailBackoff, 10, 9, TailBackoff}, {Probe, 10, 11, Probe},
		{Backoff, 1, 1, Backoff}, {Probe, 100, 100, Probe}, // at the floor, at the ceiling
		{Outage, 10, 5, Outage}, {Restore, 5, 10, Restore}, {SlowStart, 10, 15, SlowStart},
	} {
		if got := named(c.why, c.from, c.to); got != c.want {
			t.Errorf("%v from %v to %v is called %v, want %v", c.why, c.from, c.to, got, c.want)
		}
	}
}

// Calls in flight at the first tick after a Start have not grown: there is
// nothing to compare them with.
func TestKneeTakesTheFirstTickForNoGrowth(t *testing.T) {
	p, err := Config{MaxRate: 1000, InitialRate: 100, SLOTarget: time.Second, Anchor: AnchorKnee}.resolve()
	if err != nil {
		t.Fatal(err)
	}
	in := tickInput{reached: 100, samples: 100, p50: 20 * ms, p99: 30 * ms, admitted: 100, inFlight: 10, inFlightEnd: 10, binding: true}
	steady, restarted := newKnee(&p, true), newKnee(&p, true)
	for range 10 {
		steady.step(in)
		restarted.step(in)
	}
	restarted.prevEnd, restarted.silent = 0, 3600 // as an hour ago
	in.first = true
	want, _ := steady.step(in)
	if got, why := restarted.step(in); got != want || restarted.silent != 0 {
		t.Errorf("%g (%v), want %g as without a restart", got, why, want)
	}
}
