package agilelimiter

import "math"

const (
	oneInThousand = 6.9 // -ln(0.001): a run of losses that is no chance
	leastProbe    = 1.0 // call a second: the least that finds the end of an outage in time
)

// outage reports that nothing but losses came back for longer than chance
// explains, or that nothing came back at all although it was due.
func (k *knee) outage(in tickInput) bool {
	own, lost := in.reached-in.truncated, in.unreachable+in.truncated
	if own > 0 || in.aborted > 3*lost {
		k.m.lossRun = 0
		return false
	}
	k.m.lossRun += float64(lost)
	return k.memory > 0 || k.m.lossRun >= 3 && k.m.lossRun*-math.Log(max(k.m.lossBefore, k.n.bad)) > oneInThousand || k.m.silent()
}

// halve halves the number every quarter of a second in which calls are lost or
// overdue, down to one call a second, or to the floor where that is higher.
func (k *knee) halve(in tickInput) float64 {
	if k.memory == 0 {
		k.memory = k.target
		if k.topUse > 0 {
			k.memory = k.before()
		}
		k.e = experiment{}
		k.cold = false
		if k.c.time < 0.5 {
			k.c = ceiling{} // its losses were the beginning of the outage
		}
	}
	k.m.outageCut = k.m.overdueAge
	if in.unreachable+in.truncated == 0 && k.m.quiet == 0 {
		return k.target // nothing was asked: nothing is proved
	}
	return max(k.target*math.Exp2(-min(in.elapsed, 1)/0.25), min(k.memory/2, leastProbe))
}

// resume brings half of the number back. What the outage did to latency and
// losses is forgotten.
func (k *knee) resume() float64 {
	x := max(k.target, k.memory/2)
	k.top, k.topUse = max(k.top, k.memory), max(k.topUse, k.memory)
	k.memory = 0
	k.m.forget()
	return x
}
