package agilelimiter

import "math"

// experiment is a short deep cut that asks whether a signal falls with our load.
// It has three phases: the number is halved until in flight has fallen; one
// latency passes, so that what ends was sent during the cut; what ends then is
// the evidence.
type experiment struct {
	kind         experimentKind
	time         float64 // since it began
	idle         float64 // since the last one ended
	used, before float64 // what was used when it began, and the number to return to

	// What the signals were; the highest until in flight has fallen.
	inFlight, latency, bad, late float64

	waited float64  // seconds since in flight has fallen
	fresh  bool     // the evidence is coming in
	saw    evidence // since then
}

// evidence is what ended during an experiment.
type evidence struct {
	ticks, inFlight    float64
	ended, sumLatency  float64
	answers, bad, late float64
}

type experimentKind uint8

const (
	noExperiment experimentKind = iota
	latencyExperiment
	badExperiment
	lateExperiment
	timedExperiment
)

const (
	experimentFall = 0.6  // in flight must have fallen to this share
	elasticity     = 0.5  // half-way between all ours (1) and not ours (0)
	latencySamples = 10   // a mean within a third
	oursShare      = 0.25 // of the bad share, if it is ours, is left by a halved load
	certainty      = 3    // log-likelihood: wrong once in twenty
)

// experimenting runs the experiment. Hold means that none is running.
func (k *knee) experimenting(in tickInput) (float64, Decision) {
	e := &k.e
	if e.kind == noExperiment {
		e.idle += in.elapsed
		kind := k.wantsExperiment()
		if kind == noExperiment {
			return 0, Hold
		}
		used := k.use()
		if k.m.latency <= k.n.window {
			used = k.wasUsed() // no queue: what was sent will come back
		}
		*e = experiment{kind: kind, inFlight: k.m.inFlight, latency: k.m.latency, bad: k.m.badShare, late: k.m.sumLate / max(k.m.sumEnded, 1), used: min(used, k.target), before: k.before()}
	}
	e.time += in.elapsed
	lag := max(k.m.latency, in.p99.Seconds())
	// A call that was young when it began counts to its end.
	young, _ := in.ages.between(0, k.m.cut+e.time)
	inFlight := float64(young + in.held)
	switch {
	case e.fresh:
		e.saw.add(in, inFlight)
	case e.waited > 0 || e.kind == badExperiment || inFlight <= max(experimentFall*e.inFlight, 1):
		e.waited += in.elapsed
		old, _ := in.ages.between(e.waited, k.m.cut+e.time)
		e.fresh = float64(old) <= 0.1*e.inFlight && e.waited > min(lag, e.latency)
	default:
		e.inFlight = max(e.inFlight, inFlight)
		e.latency = max(e.latency, k.m.latency)
	}
	ours, done := e.verdict()
	if !done && e.time <= 4*max(lag, e.latency)+3 {
		if e.waited > 0 {
			return k.target, Test
		}
		again := math.Floor(e.time / (2*max(lag, e.latency) + 1))
		return min(k.target, e.used*math.Exp2(-1-again)), Test
	}
	return k.judge(ours, done)
}

func (s *evidence) add(in tickInput, inFlight float64) {
	s.ticks++
	s.inFlight += inFlight
	s.ended += float64(in.reached)
	s.sumLatency += in.latencySum
	s.answers += float64(in.reached + in.unreachable)
	s.bad += float64(in.unreachable + in.truncated)
	s.late += float64(in.overSLO)
}

// verdict says whether the signal fell with the load, once that can be said.
func (e *experiment) verdict() (ours, done bool) {
	s := &e.saw
	switch e.kind {
	case badExperiment:
		return sequential(s.bad, s.answers, e.bad)
	case lateExperiment:
		return sequential(s.late, s.ended, e.late)
	}
	if s.ended < latencySamples {
		return false, false
	}
	fall := max(1, s.inFlight/s.ticks) / max(1, e.inFlight)
	return math.Log(s.sumLatency/s.ended/e.latency) <= elasticity*math.Log(min(max(fall, 0.5), 1)), true
}

// sequential tests whether the share of counted is still what it was, or a
// quarter of that: Wald's test for Poisson counts.
func sequential(counted, of, share float64) (fallen, done bool) {
	llr := counted*math.Log(oursShare) + (1-oursShare)*of*share
	return llr > 0, math.Abs(llr) >= certainty
}

// judge ends the experiment.
func (k *knee) judge(ours, done bool) (float64, Decision) {
	e := k.e
	k.e = experiment{}
	k.n.hot, k.n.badTime, k.n.lateTime = 0, 0, 0
	k.m.forget()
	if done && (e.kind == latencyExperiment || e.kind == timedExperiment) && ours {
		k.n.base += 0.5 * (e.saw.sumLatency/e.saw.ended - k.n.base)
	}
	if ours {
		k.top, k.topUse = e.used, e.used
		return 0.7 * e.used, Drained
	}
	if done {
		switch e.kind {
		case badExperiment:
			k.n.bad = max(e.bad, e.saw.bad/e.saw.answers)
			k.c = ceiling{}
			k.cold = true // no limit was met
		case lateExperiment:
			k.n.lateNormal = max(e.late, e.saw.late/e.saw.ended)
			k.n.scale = 1
		case latencyExperiment:
			k.n.foreign = min(e.saw.sumLatency/e.saw.ended, 2*max(k.n.base, k.n.foreign))
			k.n.base = max(k.n.base, k.n.foreign)
		}
	}
	return e.before, Restore
}

// wantsExperiment says whether one begins now.
func (k *knee) wantsExperiment() experimentKind {
	deep := k.wasUsed() < 0.6*k.topUse && k.target < 0.6*k.top
	switch {
	case k.n.badTime > max(1, 2*k.m.latency) || k.n.badTime > 0 && (deep || k.m.alpha < 0.1):
		return badExperiment
	case k.m.sumEnded < 5:
		return noExperiment
	case k.n.hot > max(2, 3*k.m.latency) || k.n.hot > 0 && deep && k.m.latency > k.n.window:
		return latencyExperiment
	case k.n.lateTime > max(3, 6*k.m.latency):
		return lateExperiment
	case k.slo == 0 && k.m.binding && k.e.idle > max(10, 40*k.m.latency):
		return timedExperiment
	}
	return noExperiment
}
