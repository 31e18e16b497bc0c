package exam

import (
	"math"
	"time"
)

// oracle paces the calls of the whole fleet at a share of the true capacity at
// every instant. It knows nothing of chance: which calls will be long is hidden
// from it too. With nothing short it lets everything through.
type oracle struct {
	run    *run
	share  float64
	free   bool    // nothing is short
	credit float64 // of one departure, at most 1
	last   int64
	look   int64 // how often the capacity is looked at when nothing can be sent
	most   int   // working calls at once, for a service that slows down; 0: any
	open   int
}

// oracleShares are tried in this order; the lower ones only where the first one
// leaves much late or refused. 95 % leaves the queue that 100 % would build up.
var oracleShares = []float64{0.95, 0.85, 0.7, 0.5}

// oracleArm is the oracle at one share of the capacity; 0: it lets everything
// through.
func oracleArm(share float64) Arm {
	return Arm{Name: "oracle", waits: true, whole: true, frees: true, make: func(n *run, _ int) limiter {
		o := &oracle{run: n, share: share, credit: 1, free: share == 0}
		o.look = max(ns(n.spec.Length)/20_000, ns(time.Millisecond))
		if s := n.spec; s.USL != (USL{}) {
			if _, k := s.best(s.Workers); k < s.Workers {
				o.most = int(math.Ceil(float64(k) * s.latency().Seconds() / s.Service.Mean.Seconds()))
			}
		}
		return o
	}}
}

// plenty reports that nothing is ever short.
func (s *Spec) plenty() bool {
	const steps = 1000
	if len(s.Faults) > 0 || s.Queue >= 0 {
		return false
	}
	for i := range int64(steps) {
		if s.short(ns(s.Length) / steps * i) {
			return false
		}
	}
	return s.average() < calm*s.capacity(0)
}

func (o *oracle) target() float64 {
	if o.run.gradual {
		return o.share * o.run.spec.capacity(o.run.now)
	}
	return o.share * o.run.capacity
}

func (o *oracle) earn() {
	o.credit = min(1, o.credit+o.target()*float64(o.run.now-o.last)/1e9)
	o.last = o.run.now
}

func (o *oracle) take(id int32) bool {
	if o.free {
		return true
	}
	o.earn()
	if o.credit < 1-1e-9 || o.target() == 0 || o.most > 0 && o.open >= o.most {
		return false
	}
	o.credit--
	if o.run.calls[id].what == work {
		o.open++
	}
	return true
}

func (o *oracle) due() int64 {
	if o.free {
		return o.run.now
	}
	o.earn()
	rate := o.target()
	switch {
	case rate == 0:
		return o.run.now + o.look
	case o.most > 0 && o.open >= o.most:
		return never
	case o.credit >= 1-1e-9:
		return o.run.now
	}
	return o.run.now + min(o.look, int64((1-o.credit)/rate*1e9)+1)
}

func (o *oracle) done(id int32, _ outcome, _ time.Duration) {
	if o.run.calls[id].what == work {
		o.open--
	}
}
