package agilelimiter

import "math"

// experiment is a short deep cut that asks whether a signal falls with our load.
// It has three phases: the number is halved until in flight has fallen; the
// calls sent before that end; what ends then is the evidence.
type experiment struct {
	kind         experimentKind
	time         float64 // since it began
	idle         float64 // since the last one ended
	used, before float64 // what was used when it began, and the number to return to

	// What the signals were: in flight the highest until it has fallen, latency
	// the highest of the calls sent before that.
	inFlight, latency, bad, late float64

	waited float64 // seconds since in flight has fallen
	fresh  bool    // the calls sent before that have ended
	saw    evidence
}

// evidence is what ended during the last phase.
type evidence struct {
	ticks, inFlight    float64
	ended, sumLatency  float64
	answers, bad, late float64
}

type experimentKind uint8

const (
	noExperiment      experimentKind = iota
	latencyExperiment                // latency stays above the window
	badExperiment                    // too many calls stay refused or lost
	lateExperiment                   // too many calls stay over the SLO
	timedExperiment                  // without an SLO: a look for a queue that was always there
)

const (
	experimentFall    = 0.6  // in flight must have fallen to this share
	elasticity        = 0.5  // half-way between all ours (1) and not ours (0)
	latencySamples    = 10   // a mean within a third
	oursShare         = 0.25 // of the bad share is left by a halved load, if it is ours
	longestExperiment = 300  // seconds
	certainty         = 3    // log-likelihood: wrong once in twenty
	afterDrain        = 0.7  // of what was used: the queue is gone, and what came back is the capacity
	deep              = 0.6  // of what was used lately: a cut this deep is asked about at once
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
		k.begin(kind)
	}
	e.time += in.elapsed
	lag := max(k.m.latency, in.p99.Seconds())
	e.look(in, &k.m, lag)
	ours, done := e.verdict()
	if longest := min(4*max(lag, e.latency)+3, longestExperiment); done || e.time > longest {
		return k.judge(ours, done)
	}
	if e.waited > 0 {
		return k.target, Test
	}
	again := math.Floor(e.time / (2*max(lag, e.latency) + 1))
	return min(k.target, e.used*math.Exp2(-1-again)), Test
}

func (k *knee) begin(kind experimentKind) {
	used := k.ended()
	if k.m.latency <= k.n.window {
		used = k.used() // no queue: what was sent will come back
	}
	k.e = experiment{
		kind: kind, used: min(used, k.target), before: max(k.before(), k.target),
		inFlight: k.m.inFlight, latency: k.m.latency,
		bad: k.m.badShare, late: k.m.sumLate / max(k.m.sumEnded, 1),
	}
}

// look moves the experiment through its phases.
func (e *experiment) look(in tickInput, m *measured, lag float64) {
	// A call that was young when it began counts to its end.
	oldest := m.cut + e.time
	inFlight := float64(in.ages.between(0, oldest) + in.held)
	// Where most calls are cut a latency can fall and not show it.
	fallen := inFlight <= max(experimentFall*e.inFlight, 1) && m.latency < 0.5*m.cut
	switch {
	case e.fresh:
		e.saw.add(in, inFlight)
	case e.waited > 0 || e.kind == badExperiment || fallen:
		e.waited += in.elapsed
		left := in.ages.between(e.waited, oldest)
		e.fresh = float64(left) <= 0.1*e.inFlight && e.waited > min(lag, e.latency)
	default:
		e.inFlight = max(e.inFlight, inFlight)
	}
	if !e.fresh { // the calls that end were sent before
		e.latency = max(e.latency, m.latency)
	}
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
// Late calls are ours too if only their latency fell: it may still lie above
// the SLO.
func (e *experiment) verdict() (ours, done bool) {
	s := &e.saw
	if e.kind == badExperiment {
		return sequential(s.bad, s.answers, e.bad)
	}
	if s.ended < latencySamples {
		return false, false
	}
	fall := max(1, s.inFlight/s.ticks) / max(1, e.inFlight)
	fell := math.Log(s.sumLatency/s.ended/e.latency) <= elasticity*math.Log(min(max(fall, 0.5), 1))
	if e.kind == lateExperiment && !fell {
		return sequential(s.late, s.ended, e.late)
	}
	return fell, true
}

// sequential tests whether the share of counted is still what it was, or a
// quarter of that: Wald's test for Poisson counts.
func sequential(counted, of, share float64) (fallen, done bool) {
	llr := counted*math.Log(oursShare) + (1-oursShare)*of*share
	return llr > 0, math.Abs(llr) >= certainty
}

// judge ends the experiment. Ours: the number goes to what was used, less the
// queue. Not ours: the cut is undone and the normal moves. Without a verdict in
// time the cut is undone.
func (k *knee) judge(ours, done bool) (float64, Decision) {
	e := k.e
	k.e = experiment{}
	k.n.hot, k.n.badTime, k.n.lateTime = 0, 0, 0
	k.m.forget()
	latency := e.saw.sumLatency / max(e.saw.ended, 1)
	if ours {
		if e.kind == timedExperiment || e.kind == latencyExperiment && latency < k.n.base {
			k.n.base += 0.5 * (latency - k.n.base)
		}
		k.top, k.topUse = e.used, e.used
		return afterDrain * e.used, Drained
	}
	if done {
		switch e.kind {
		case badExperiment:
			k.n.bad = max(e.bad, e.saw.bad/e.saw.answers)
			k.c = ceiling{}
			k.cold = true // no limit was met
		case lateExperiment:
			k.n.late = max(e.late, e.saw.late/e.saw.ended)
			k.n.scale = 1
		case latencyExperiment:
			k.n.foreign = latency
			if k.slo == 0 { // at most double: in a fleet the others fill what we leave
				k.n.foreign = min(latency, 2*max(k.n.base, k.n.foreign))
			}
			k.n.base = max(k.n.base, k.n.foreign)
		}
	}
	return e.before, Restore
}

// wantsExperiment says whether one begins now.
func (k *knee) wantsExperiment() experimentKind {
	isDeep := k.used() < deep*k.topUse && k.target < deep*k.top
	thin := k.m.alpha < 0.1 // a cut tick by tick would be many on the same few calls
	switch {
	case k.n.badTime > max(1, 2*k.m.latency) || k.n.badTime > 0 && (isDeep || thin):
		return badExperiment
	case k.m.sumEnded < 5:
		return noExperiment
	case k.n.hot > max(2, 3*k.m.latency) || k.n.hot > 0 && isDeep:
		return latencyExperiment
	case k.n.lateTime > max(3, 6*k.m.latency):
		return lateExperiment
	case k.slo == 0 && k.m.binding && k.e.idle > max(10, 40*k.m.latency):
		return timedExperiment
	}
	return noExperiment
}
