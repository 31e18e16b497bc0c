package agilelimiter

import (
	"math"
	"time"
)

// knee is the law of AnchorKnee. Two signals say that the number is too high:
// latency above the window, and a share of bad calls (refused, lost) above its
// normal. Either one cuts the number toward what is really served. A signal
// that stays up is asked by an experiment, a short deep cut: if it falls with
// the load, the load was ours; if not, the cut is undone and the signal's
// normal moves.
//
// The law is in four parts, each with its own state:
//
//	measured    what the calls showed lately          law_measure.go
//	normal      latency and bad share without us      law_normal.go
//	experiment  the deep cut that asks whose it is    law_experiment.go
//	knee        the next number                       this file
//
// docs/control-law.md has the formulas and each constant's reason. Times are in
// seconds, throughputs in calls per second.
type knee struct {
	*params
	rate   bool    // drives a rate, not a limit
	target float64 // inside [min, max]

	m measured
	n normal
	e experiment
	c ceiling

	cold   bool    // slow start: no limit was met so far
	topUse float64 // the most that was used lately, see used
	top    float64 // the highest number lately
	memory float64 // the number before an outage; 0: no outage
}

func newKnee(p *params, rate bool) *knee {
	k := &knee{params: p, rate: rate, target: p.initial, cold: true}
	k.m.init(p.slo.Seconds())
	k.n.init(p.slo.Seconds())
	return k
}

func (k *knee) start() float64 { return k.target }

// synthetic is 0: the law counts lost calls, it needs no latency for them.
func (k *knee) synthetic() time.Duration { return 0 }

func (k *knee) cutoff() time.Duration { return seconds(k.m.cut) }

func (k *knee) signals() (baseline, fast, window time.Duration) {
	return seconds(k.n.base), seconds(k.m.latency), seconds(k.n.window)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// step returns the next number. A limit admits beside it the calls that hold a
// slot and are too old to say anything.
func (k *knee) step(in tickInput) (float64, Decision) {
	k.target = min(max(k.target, k.min), k.max) // SetBounds may have moved them
	if in.elapsed <= 0 {
		return k.gate(), Blind
	}
	x, why := k.next(in)
	k.target = min(max(x, k.min), k.max)
	return k.gate(), why
}

func (k *knee) gate() float64 {
	if k.rate {
		return k.target
	}
	return min(k.target+float64(k.m.stuck), k.max)
}

func (k *knee) next(in tickInput) (float64, Decision) {
	known := k.m.add(in)
	if k.outage(in) {
		return k.halve(in), Outage
	}
	if k.memory > 0 {
		return k.resume(), Resume
	}
	if !known {
		return k.target, Blind
	}
	k.n.update(&k.m, in, k.atFloor(), k.learning())
	k.c.age(in.elapsed)
	if x, why := k.experimenting(in); why != Hold {
		return min(x, k.bound()), why
	}
	k.remember(in.elapsed)
	if x, cut := k.cutLosses(); cut {
		return x, LossBackoff
	}
	x, why := k.move(in)
	if b := k.bound(); x > b {
		return max(b, min(x, k.target)), why
	}
	return x, why
}

// learning reports that no limit was met so far, so that the latency is not our
// queue. Slow start ends a tick late: a latency that rises by more than chance
// is not learnt any more.
func (k *knee) learning() bool {
	chance := 1 + 4/math.Sqrt(max(k.m.sumEnded, 1))
	return k.cold && k.m.latency < k.n.base*chance
}

// atFloor reports that there is nothing left to cut.
func (k *knee) atFloor() bool { return k.target <= 1.01*k.min || !k.rate && k.target < 2 }

// used is what of the number was used: calls sent per second, or calls in flight.
func (k *knee) used() float64 {
	if k.rate {
		return k.m.sent
	}
	return k.m.inFlight
}

// ended is what of it came back: calls that ended per second, or calls in flight.
func (k *knee) ended() float64 {
	if k.rate {
		return k.m.sumAll / max(k.m.sumTime, 1e-9)
	}
	return k.m.inFlight
}

// remember keeps what was used lately: a maximum of which half is forgotten in
// half a minute.
func (k *knee) remember(elapsed float64) {
	keep := math.Exp2(-elapsed / max(30, 10*k.m.latency))
	k.top = max(keep*k.top, k.target)
	k.topUse = max(keep*k.topUse, k.used())
}

// before is the number to return to after an outage or an experiment in vain:
// no more than was used, because an idle number may stand anywhere above.
func (k *knee) before() float64 { return min(k.top, max(k.topUse*1.2, k.min)) }

// move is the ordinary step: close the gap between the calls in flight and the
// calls that the window allows.
func (k *knee) move(in tickInput) (float64, Decision) {
	late := k.slo > 0 && float64(in.overSLO) > max(1, 0.02*float64(in.reached))
	if k.cold {
		oneSigma := 1 + 1/math.Sqrt(k.m.sumEnded)
		k.cold = !late && k.m.latency <= k.n.window*oneSigma
	}
	if k.slo == 0 && !k.n.known && k.m.inFlight >= 2 {
		return k.target, Hold // from inside a queue of our own the base cannot be seen
	}
	want := max(k.m.delivered*k.n.window, 1)
	gap := want + 0.5 - k.m.own
	if k.m.mixed > 0.3 { // too many of those in flight will never be answers
		gap = k.m.delivered*(k.n.window-k.m.latency) + 0.5
	}
	if gap > 0 && (!k.m.binding || k.rate && k.ended() < k.target/2) {
		return k.target, Hold // the callers do not use what they have: no evidence
	}
	if gap < 0 && k.rate && k.m.alpha < 0.1 && k.m.latency < k.n.window && -gap < math.Sqrt(max(k.m.own, 1)) {
		return k.target, Hold // within chance
	}
	roomy := k.m.latency < max(k.n.window/2, min(1.4*k.n.base, k.n.window))
	if gap > 0 && !late && roomy && (k.cold || k.target < k.top/2) {
		grow := min(math.Pow(1.5, min(in.elapsed, 0.25)/0.25), 1+float64(in.reached+in.aborted)/4)
		if k.rate { // at least one call at a time, as a limit has it
			return max(k.target*grow, min(1/k.m.latency, 4*k.target)), SlowStart
		}
		return k.target * grow, SlowStart
	}
	if k.rate {
		return k.moveRate(in, gap)
	}
	return k.moveLimit(want)
}

func (k *knee) moveLimit(want float64) (float64, Decision) {
	if k.m.latency > k.n.window { // down: from what is used
		return k.target + k.m.alpha*(min(k.target, want)-k.target), Backoff
	}
	return k.target + k.m.alpha*(k.target*min(k.n.window/k.m.latency-1, 1)+1), Probe
}

// moveRate is a PI step: take off what piled up, add what is missing, with the
// gains of a loop whose delay is a tick to act and a latency to see.
func (k *knee) moveRate(in tickInput, gap float64) (float64, Decision) {
	x := k.target
	if gap <= 0 {
		x = min(x, max(float64(in.admitted)/in.elapsed, k.m.returned)) // down: from what was really sent
	}
	perCall := k.m.returned / k.m.delivered / (1 - min(k.n.bad, 0.95)) // calls sent for an answer
	delay := in.elapsed + k.m.latency
	growth := k.m.growth
	if k.m.mixed > 0.3 {
		growth = 0
	}
	x += perCall * (gap*in.elapsed/(delay*delay) - k.m.alpha*growth/in.elapsed)
	x = max(x, k.m.returned/2)
	if x < k.target {
		return x, Backoff
	}
	return x, Probe
}
