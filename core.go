package agilelimiter

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// actuator enforces one number, the rate or the limit, and knows its own hard
// ceiling. It knows nothing of latency.
type actuator interface {
	set(target float64)
	// drain returns the calls admitted since New, the calls in flight or
	// notCounted, and whether the actuator was binding since the last drain:
	// somebody was refused, gave up or waits now.
	drain() (admitted uint64, open int, binding bool)
	report(*Stats) // the gauges and counters it knows
}

// core joins recorder, law and actuator: what the two limiters share.
type core struct {
	params
	time  timebase
	rec   recorder
	loop  loop
	law   law
	act   actuator
	area  *area // under AnchorKnee only
	ages  ages
	ended bool // a call has ended so far
	// stale: the next tick holds what was recorded while the loop stood still.
	stale atomic.Bool

	mu   sync.Mutex // guards last
	last tickReport
}

// tickReport is what Stats tells of the steps.
type tickReport struct {
	why                    Decision
	binding                bool
	samples                int
	p50, p99               time.Duration
	baseline, fast, window time.Duration
	decisions              [NumDecisions]uint64
}

// init prepares everything but the law, which install brings: it keeps a pointer
// to c.params.
func (c *core) init(p params, act actuator) {
	c.params, c.act = p, act
	c.time.init(p.clock)
	if p.anchor == AnchorKnee {
		c.area = new(area)
	}
	c.rec.init(p.slo)
	c.loop.init(&c.time, p.tick, c)
}

// install puts the law in and its first number in force.
func (c *core) install(l law) {
	c.law = l
	c.act.set(l.start())
}

// start starts the loop. After a stop, the tick that comes first is of unknown
// age and no evidence; what it counts stays counted.
func (c *core) start() {
	if resumed := c.loop.start(); resumed {
		c.stale.Store(true)
	}
}

// newLaw returns the control law that the anchor asks for.
func newLaw(p *params, rate bool) law {
	if p.anchor == AnchorKnee {
		return newKnee(p, rate)
	}
	return newGradient(p)
}

// step is one tick: drain, decide, apply, publish. The loop calls it, or a test.
func (c *core) step() {
	// Ends before admissions: a call that comes and goes in between then counts
	// as open for a tick. The other way round it would seem to have ended
	// without an admission, and be written off.
	ended := c.rec.ended()
	admitted, open, binding := c.act.drain()
	counted := open != notCounted
	if !counted {
		open = c.rec.open(admitted, ended)
	}
	in := c.rec.drain(c.law.synthetic(), admitted)
	in.binding = binding
	in.inFlight, in.inFlightEnd = float64(open), open
	if c.area != nil {
		c.measureFlight(&in, open, counted)
	}
	why := Blind
	if !c.stale.Swap(false) {
		var target float64
		target, why = c.law.step(in)
		c.act.set(target)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	r := &c.last
	r.why, r.samples, r.p50, r.p99 = why, in.samples, in.p50, in.p99
	r.baseline, r.fast, r.window = c.law.signals()
	r.binding = binding
	r.decisions[why]++
}

// ticked is called by the loop after each step, outside every lock.
func (c *core) ticked() {
	if c.onTick != nil {
		c.onTick(c.stats())
	}
}

// measureFlight fills in the time average of the calls in flight. Where they
// are not counted, it leaves out those that will never report their end.
func (c *core) measureFlight(in *tickInput, open int, counted bool) {
	elapsed, inFlight := c.area.drain(c.time.now(), open)
	if !counted {
		lost := c.ages.drain(elapsed, inFlight, open)
		c.rec.writeOff(lost)
		inFlight, open = inFlight-float64(lost), open-lost
	}
	in.inFlight, in.inFlightEnd = max(0, inFlight), open
	c.ended = c.ended || in.reached+in.unreachable+in.aborted > 0
	if !c.ended {
		// Taken and never ended so far: more likely a caller who reports no
		// ends than a downstream that has stalled.
		in.inFlight, in.inFlightEnd = 0, 0
	}
}

func (c *core) stats() Stats {
	c.mu.Lock()
	r := c.last
	c.mu.Unlock()
	s := Stats{
		Decision: r.why, Binding: r.binding, Samples: r.samples,
		P50: r.p50, P99: r.p99, Baseline: r.baseline, Fast: r.fast, Window: r.window,
		Decisions: r.decisions,
	}
	for _, n := range r.decisions {
		s.Ticks += n
	}
	c.act.report(&s)
	c.rec.report(&s)
	return s
}

// judge says what a finished call proves, see the function of that name.
func (c *core) judge(ctx context.Context, err error) (o Outcome, truncated bool) {
	if err == nil {
		return Reached, false
	}
	return judge(ctx, err, c.classify)
}

// record counts one finished call.
func (c *core) record(o Outcome, d time.Duration, truncated bool) {
	switch {
	case o == Unreachable:
		c.rec.unreachable.Add(1)
	case o == Aborted || d < 0:
		c.rec.aborted.Add(1)
	default:
		if truncated {
			c.rec.truncated.Add(1)
		}
		c.rec.observe(d)
	}
}
