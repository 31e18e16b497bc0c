package agilelimiter

import (
	"context"
	"errors"
	"sync"
	"time"
)

// actuator enforces one number, the rate or the limit, and knows its own hard
// ceiling. It knows nothing of latency.
type actuator interface {
	set(target float64)
	// setBounds puts a new floor and ceiling in force at once and moves the
	// number to the nearest of them if it lies outside.
	setBounds(lo, hi float64)
	// setShadow switches the shadow mode, in which the actuator keeps books of
	// whom it would delay or refuse and lets everybody through.
	setShadow(on bool)
	settings() (lo, hi float64, shadow bool)
	// pause lets nobody depart for d from now. A longer pause wins; 0 ends it.
	pause(d time.Duration)
	// drain returns the calls admitted since New, the calls in flight or
	// notCounted, and whether the actuator was binding since the last drain:
	// somebody was refused, gave up or waits now. paused: a pause was in force
	// at some time since then.
	drain() (admitted uint64, open int, binding, paused bool)
	report(*Stats) // the gauges and counters it knows
}

// core joins recorder, law and actuator: what the two limiters share.
type core struct {
	params // constant, but for min and max: step writes them, with mu held
	time   timebase
	rec    recorder
	loop   loop
	law    law
	act    actuator
	area   *area // under AnchorKnee only
	ages   ages
	ended  bool // a call has ended so far
	first  bool // the next tick is the first one after a Start

	mu   sync.Mutex // guards last, and params.min and max against Config
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

// restart forgets what was recorded while the loop stood still: it is of unknown
// age and no evidence. It stays counted. The loop calls it; no step is running.
func (c *core) restart() {
	c.measure()
	c.rec.forget()
	c.first = true
}

// newLaw returns the control law that the anchor asks for.
func newLaw(p *params, rate bool) law {
	if p.anchor == AnchorKnee {
		return newKnee(p, rate)
	}
	return newGradient(p)
}

// measure drains recorder and actuator: all that happened since the last drain.
func (c *core) measure() (in tickInput) {
	// Ends before admissions: a call that comes and goes in between then counts
	// as open for a tick. The other way round it would seem to have ended
	// without an admission, and be written off.
	ended := c.rec.ended()
	admitted, open, binding, paused := c.act.drain()
	counted := open != notCounted
	if !counted {
		open = c.rec.open(admitted, ended)
	}
	in = c.rec.drain(c.law.synthetic(), admitted)
	in.binding, in.paused = binding, paused
	in.inFlight, in.inFlightEnd = float64(open), open
	if c.area != nil {
		c.measureFlight(&in, open, counted)
	}
	return in
}

// step is one tick: drain, decide, apply, publish. The loop calls it, or a test.
func (c *core) step() {
	in := c.measure()
	c.rebound()
	why := Hold
	if in.paused {
		// Silence that we keep ourselves is no evidence, and the next tick has
		// nothing to compare its calls in flight with.
		c.first = true
	} else {
		in.first, c.first = c.first, false
		var target float64
		target, why = c.law.step(in)
		c.act.set(target)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	r := &c.last
	r.why, r.samples, r.p50, r.p99 = why, in.samples, in.p50, in.p99
	r.baseline, r.fast, r.window = c.law.signals()
	r.binding = in.binding
	r.decisions[why]++
}

// setBounds is SetBounds of both limiters. The actuator holds the bounds in
// force; the law hears of them at its next step.
func (c *core) setBounds(n names, lo, hi float64) error {
	var faults faultList
	n.checkBounds(&lo, &hi, &faults)
	if len(faults) > 0 {
		return errors.Join(faults...)
	}
	c.act.setBounds(lo, hi)
	return nil
}

// pause is Pause of both limiters.
func (c *core) pause(d time.Duration) {
	if d < 0 {
		panic("agilelimiter: Pause: negative duration " + d.String() + ", want 0 (end the pause) or more")
	}
	c.act.pause(d)
}

// rebound tells the law, which shares c.params, the bounds in force.
func (c *core) rebound() {
	lo, hi, _ := c.act.settings()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.min, c.max = lo, hi
}

// inForce returns the parameters with the bounds and the mode in force. The
// initial value is moved between the bounds, so that they make a valid config.
func (c *core) inForce() params {
	lo, hi, shadow := c.act.settings()
	c.mu.Lock()
	p := c.params
	c.mu.Unlock()
	p.min, p.max, p.shadow = lo, hi, shadow
	p.initial = min(max(p.initial, lo), hi)
	return p
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
	// Ends before admissions, as in measure.
	ended := c.rec.report(&s)
	c.act.report(&s)
	if s.InFlight == notCounted {
		s.InFlight = c.rec.inFlight(s.Admitted, ended)
	}
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
