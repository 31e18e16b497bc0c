package agilelimiter

import "time"

// tickInput is what one tick saw: all that a control law knows of the world.
// A new signal enters here.
type tickInput struct {
	samples  int           // latencies recorded, synthetic ones included
	p50, p99 time.Duration // of the samples; 0 when there are none
	// settled is a median of at least minSettled latencies, synthetic ones left
	// out; where ticks are thin, of several ticks together. 0: none yet.
	settled time.Duration
	overSLO int // samples above SLOTarget

	reached     int // calls that ended with a latency
	truncated   int // those of reached that their own time-out ended
	unreachable int
	aborted     int
	admitted    int

	inFlight    float64 // calls in flight, time average
	inFlightEnd int     // calls in flight when the tick ended
	binding     bool    // somebody was refused, gave up or still waits

	paused bool // a pause was in force: core does not show this tick to the law
	first  bool // the first tick after a Start: nothing to compare in-flight with
}

// minSettled is how many samples make a median that may move the baseline.
//
// Of exponential latencies, the median of eight scatters by half of itself, and
// a baseline that falls 300 times faster than it rises follows the lowest of
// them: at eight calls a tick it settled at 3 ms where the median was 15 ms, and
// the floor was never left again. Of 40 it scatters by a fifth.
const minSettled = 40

// fullTick is how many samples give a tick its full weight in the fast average.
const fullTick = 8

// law is a control law: it turns what a tick saw into the next number. It has
// no clock, no lock, no goroutine and no unit; the same inputs give the same
// numbers. Its methods are called by one goroutine at a time.
type law interface {
	// start returns the number before the first step.
	start() float64
	// step returns the number from now on, within [min, max], and why.
	step(in tickInput) (target float64, why Decision)
	// synthetic is the latency that stands for a call which never arrived. 0:
	// the law has nothing to anchor it to, or takes such calls as they are.
	synthetic() time.Duration
	// signals returns the law's view of latency for Stats.
	signals() (baseline, fast, window time.Duration)
}

// gradient is the law of AnchorBaseline and AnchorSLO. Each tick:
//
//	fast     EWMA of p50, half-life FastHalfLife
//	baseline EWMA of p50 that falls with FastHalfLife, rises with SlowHalfLife
//	         and by at most MaxBaselineRise
//	high     baseline × (1 + TargetInflation), at most 0.8 × SLOTarget
//	         (AnchorSLO: 0.8 × SLOTarget outright)
//	low      high × (1 - Deadband)
//
//	fast ≤ low    healthy:   × (1 + UpStep), or × SlowStartGain
//	fast ≥ high   congested: × (1 - min(DownStep, Gain × (fast - high)/high))
//	in between    hold
//	too many samples over SLOTarget: congested, × (1 - DownStep)
//
// Down is fast and up is slow because overshooting costs everybody and
// undershooting costs a few ticks.
type gradient struct {
	*params
	fastWeight, riseWeight float64 // EWMA weights of a full tick

	target         float64 // inside [min, max]
	baseline, fast float64 // nanoseconds; 0 before the first sample
	settled        bool    // baseline has taken a median of minSettled samples
	age            float64 // ticks with samples since baseline took one
	cold           bool    // no backoff so far
	healthyTicks   int     // ticks in a row that agreed on up
	congestedTicks int     // ticks in a row that agreed on down
}

func newGradient(p *params) *gradient {
	return &gradient{
		params:     p,
		fastWeight: decay(p.tick, p.fastHalfLife),
		riseWeight: decay(p.tick, p.slowHalfLife),
		target:     p.initial,
		cold:       true,
	}
}

// sloShare is the part of SLOTarget at which the window ends: backing off only
// at the SLO itself would be too late for the calls already sent.
const sloShare = 0.8

// window returns the upper edge of the tolerated latency, 0 if nothing is known.
func (g *gradient) window() float64 {
	slo := sloShare * float64(g.slo)
	high := g.baseline * (1 + g.inflation)
	if g.anchor == AnchorSLO || slo > 0 && (g.baseline == 0 || high > slo) {
		return slo
	}
	return high
}

func (g *gradient) signals() (baseline, fast, window time.Duration) {
	return time.Duration(g.baseline), time.Duration(g.fast), time.Duration(g.window())
}

func (g *gradient) start() float64 { return g.target }

// synthetic lies above the window and above the SLO, so that a tick made of
// such samples earns the full DownStep from the proportional cut (at the
// default Gain) and from the tail guard alike.
func (g *gradient) synthetic() time.Duration {
	if g.baseline == 0 && g.slo == 0 {
		return 0
	}
	return time.Duration(max(2*g.window(), 1.25*float64(g.slo)))
}

func (g *gradient) step(in tickInput) (float64, Decision) {
	g.target = min(max(g.target, g.min), g.max) // SetBounds may have moved them
	if in.samples == 0 {
		return g.target, Blind
	}
	g.observe(in)
	high := g.window()
	low := high * (1 - g.deadband)
	// Of fewer than a hundred samples the p99 is the largest one. With -30 %
	// and +5 % one slow call in eight ticks would then walk the target to its
	// floor, so a single one is never a tail. From a hundred on this is the
	// nearest-rank p99.
	tail := g.slo > 0 && in.overSLO > max(1, in.samples/100)

	switch {
	case tail || g.fast >= high:
		g.healthyTicks = 0
		g.congestedTicks++
		if g.congestedTicks < g.backoffTicks {
			return g.target, Hold
		}
		g.cold = false
		cut, why := min(g.downStep, g.gain*(g.fast-high)/high), Backoff
		if tail {
			cut, why = g.downStep, TailBackoff
		}
		return g.move(1 - cut), why
	case g.fast <= low:
		g.congestedTicks = 0
		g.healthyTicks++
		if g.healthyTicks < g.recoverTicks {
			return g.target, Hold
		}
		// A gain of 1 turns slow start off, not growth.
		multiply := max(g.slowStartGain, 1+g.upStep)
		switch {
		case g.cold:
			return g.move(multiply), g.orProbe(SlowStart)
		// The tick's own p50: at 0.5 under AnchorBaseline the line is the
		// baseline itself, which fast only approaches from above.
		case float64(in.p50) <= g.recoverRamp*high:
			return g.move(multiply), g.orProbe(Recover)
		}
		return g.move(1 + g.upStep), Probe
	}
	g.healthyTicks, g.congestedTicks = 0, 0
	return g.target, Hold
}

// orProbe names a step that multiplies by no more than UpStep what it is.
func (g *gradient) orProbe(why Decision) Decision {
	if g.slowStartGain <= 1+g.upStep {
		return Probe
	}
	return why
}

// observe moves the two averages. A thin tick must not weigh like a full one:
// it moves fast by its share, and the baseline, which falls fast and rises
// slowly, not at all. Single calls would otherwise pull the baseline to the
// fastest of them, and at the floor every ordinary call would be congestion
// for ever.
func (g *gradient) observe(in tickInput) {
	p50, settled := float64(in.p50), float64(in.settled)
	if g.fast == 0 {
		g.fast = p50
	}
	g.fast = ewma(g.fast, p50, g.fastWeight*min(1, float64(in.samples)/fullTick))
	if g.baseline == 0 {
		switch {
		case settled > 0:
			g.baseline, g.settled = settled, true
		case in.unreachable == 0 || g.slo == 0: // no synthetic sample in p50
			g.baseline = p50
		}
		return
	}
	g.age++
	if settled == 0 {
		return
	}
	age := g.age
	g.age = 0
	if !g.settled {
		// Seeded by a thin tick; the first real median replaces the guess.
		g.baseline, g.settled = settled, true
		return
	}
	g.baseline = asymmetricEWMA(g.baseline, settled, g.fastWeight, min(1, age*g.riseWeight), age*g.maxBaselineRise)
}

func (g *gradient) move(factor float64) float64 {
	g.target = min(max(g.target*factor, g.min), g.max)
	return g.target
}
