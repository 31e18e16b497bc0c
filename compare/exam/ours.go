package exam

import (
	"math"
	"slices"
	"strings"
	"time"

	"agilelimiter"
)

// setting is what the arms of ours differ in.
type setting struct {
	name   string
	anchor agilelimiter.Anchor
	slo    bool
	ramp   float64
}

var settings = []setting{
	{"baseline", agilelimiter.AnchorBaseline, true, 0},
	{"baseline-ramp", agilelimiter.AnchorBaseline, true, 0.5},
	{"baseline-noslo", agilelimiter.AnchorBaseline, false, 0},
	{"slo", agilelimiter.AnchorSLO, true, 0},
	{"slo-ramp", agilelimiter.AnchorSLO, true, 0.5},
	{"knee", agilelimiter.AnchorKnee, true, 0},
	{"knee-noslo", agilelimiter.AnchorKnee, false, 0},
}

// Ours returns every anchor on both actuators, with the SLO and, where the
// anchor allows it, without, and RecoverRamp as an option of the two anchors
// that have it.
func Ours() (arms []Arm) {
	for _, how := range settings {
		arms = append(arms,
			Arm{Name: "rate-" + how.name, Ours: true, waits: true, make: func(n *run, i int) limiter {
				return newPaced(n, n.clocks[i], n.spec.Fleet, how)
			}},
			Arm{Name: "limit-" + how.name, Ours: true, make: func(n *run, i int) limiter {
				return newGate(n, n.clocks[i], n.spec.Fleet, how)
			}})
	}
	return arms
}

// howOf returns the setting of an arm of ours.
func howOf(arm string) setting {
	_, name, _ := strings.Cut(arm, "-")
	return settings[slices.IndexFunc(settings, func(s setting) bool { return s.name == name })]
}

func ourArm(name string) (Arm, bool) {
	i := slices.IndexFunc(Ours(), func(a Arm) bool { return a.Name == name })
	if i < 0 {
		return Arm{}, false
	}
	return Ours()[i], true
}

// calls are the admitted calls of one of our limiters, by slot of the run's table.
type calls struct{ open []*agilelimiter.Call }

func (c *calls) begin(id int32, call *agilelimiter.Call) {
	if n := int(id) + 1; n > len(c.open) {
		c.open = append(c.open, make([]*agilelimiter.Call, n-len(c.open))...)
	}
	c.open[id] = call
}

// done applies the evidence rule.
func (c *calls) done(id int32, o outcome, rtt time.Duration) {
	switch call := c.open[id]; o {
	case answered:
		call.End(agilelimiter.Reached, rtt)
	case hitSaid, gone:
		call.End(agilelimiter.Aborted, rtt)
	case errored, refused, busy:
		call.End(agilelimiter.Unreachable, rtt)
	case timedOut:
		call.EndTruncated(rtt)
	}
}

// rateConfig is what a user of the rate configures for one of so many instances.
func (n *run) rateConfig(fleet int, how setting) agilelimiter.Config {
	s := n.spec
	right := s.rightRate() / float64(fleet)
	c := agilelimiter.Config{
		MaxRate: bounded(right*s.Max, 0.001, 1e9), Anchor: how.anchor, RecoverRamp: how.ramp,
	}
	c.MinRate = bounded(right*s.Min, 0.001, c.MaxRate)
	c.InitialRate = bounded(right*s.Start, c.MinRate, c.MaxRate)
	if how.slo {
		c.SLOTarget = s.SLO
	}
	return c
}

// paced is our Limiter. Its callers stand in the queue of the run, because Take
// would block it; it is told what it would have seen of them.
type paced struct {
	*agilelimiter.Limiter
	calls
	run      *run
	last     int64 // the last planned departure
	interval int64
}

func newPaced(n *run, clock *clock, fleet int, how setting) limiter {
	c := n.rateConfig(fleet, how)
	c.Clock = clock
	p := &paced{Limiter: agilelimiter.New(c), run: n, last: math.MinInt64 / 2}
	p.ticked()
	return p
}

func bounded(x, lo, hi float64) float64 { return min(max(x, lo), hi) }

func (p *paced) start() { p.Start() }

func (p *paced) take(id int32) bool {
	call, ok := p.TryAdmit()
	if ok {
		p.begin(id, &call)
		p.last = p.run.now
	}
	return ok
}

func (p *paced) due() int64 { return p.last + p.interval }

// wait is what TakeContext goes by when its context has a deadline.
func (p *paced) wait(ahead int) int64 {
	return max(0, p.due()-p.run.now) + int64(min(1e18, float64(ahead)*float64(p.interval)))
}

func (p *paced) done(id int32, o outcome, rtt time.Duration) {
	if f := p.run.spec.Forgotten; f > 0 && p.run.oddments.chance(f) {
		return
	}
	p.calls.done(id, o, rtt)
}

func (p *paced) target() float64 { return p.Rate() }

// ticking says that callers wait, by a call that is refused, as a queue would.
func (p *paced) ticking(waiting bool) {
	if waiting {
		p.TryTake()
	}
}

func (p *paced) ticked() { p.interval = int64(1e9/p.Rate()) + 1 }

func (p *paced) gaveUp() { p.TryTake() }

// bounds are the limits that one of so many instances is told: floor, ceiling
// and start.
func (n *run) bounds(fleet int) (least, most, start int) {
	right := n.spec.rightLimit() / float64(fleet)
	whole := func(x, lo, hi float64) int { return int(bounded(math.Round(x), lo, hi)) }
	most = whole(right*n.spec.Max, 1, math.MaxInt32)
	least = whole(right*n.spec.Min, 1, float64(most))
	return least, most, whole(right*n.spec.Start, float64(least), float64(most))
}

func (n *run) limits() (least, most, start int) { return n.bounds(n.spec.Fleet) }

// gate is our ConcurrencyLimiter: callers are refused at once.
type gate struct {
	*agilelimiter.ConcurrencyLimiter
	calls
}

func newGate(n *run, clock *clock, fleet int, how setting) limiter {
	cfg := agilelimiter.ConcurrencyConfig{Anchor: how.anchor, RecoverRamp: how.ramp, Clock: clock}
	cfg.MinLimit, cfg.MaxLimit, cfg.InitialLimit = n.bounds(fleet)
	if how.slo {
		cfg.SLOTarget = n.spec.SLO
	}
	return &gate{ConcurrencyLimiter: agilelimiter.NewConcurrency(cfg)}
}

func (g *gate) start()     { g.Start() }
func (g *gate) due() int64 { return never }

func (g *gate) take(id int32) bool {
	call, ok := g.TryAdmit()
	if ok {
		g.begin(id, &call)
	}
	return ok
}

func (g *gate) target() float64 { return float64(g.Limit()) }

// guard puts a limiter of ours in front of the service itself. It refuses at
// once, a rate like a limit.
func (n *run) guard(s *Spec) {
	a, _ := ourArm(s.Behind)
	how := howOf(a.Name)
	c := &clock{run: n, instance: -1}
	if a.waits {
		n.guarded = newPaced(n, c, 1, how)
	} else {
		n.guarded = newGate(n, c, 1, how)
	}
	n.guarded.(starter).start()
}
