package exam

import (
	"fmt"
	"os"
	"math"
	"strings"
	"time"

	"agilelimiter"
)

// Ours returns every anchor on both actuators, with the SLO and, where the
// anchor allows it, without.
func Ours() (arms []Arm) {
	for _, v := range []struct {
		name   string
		anchor agilelimiter.Anchor
		slo    bool
	}{
		{"knee", agilelimiter.AnchorKnee, true},
		{"knee-noslo", agilelimiter.AnchorKnee, false},
		{"baseline", agilelimiter.AnchorBaseline, true},
		{"baseline-noslo", agilelimiter.AnchorBaseline, false},
		{"slo", agilelimiter.AnchorSLO, true},
	} {
		arms = append(arms,
			Arm{Name: "rate-" + v.name, waits: true, make: func(n *run, i int) limiter {
				return newPaced(n, i, v.anchor, v.slo)
			}},
			Arm{Name: "limit-" + v.name, make: func(n *run, i int) limiter {
				return newGate(n, n.clocks[i], n.spec.Fleet, v.anchor, v.slo)
			}})
	}
	return arms
}

func ourArm(name string) (Arm, bool) {
	for _, a := range Ours() {
		if a.Name == name {
			return a, true
		}
	}
	return Arm{}, false
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

// paced is our Limiter. Its callers stand in the queue of the run, because Take
// would block it; it is told what it would have seen of them.
type paced struct {
	*agilelimiter.Limiter
	calls
	run      *run
	last     int64 // the last planned departure
	interval int64
}

func newPaced(n *run, i int, anchor agilelimiter.Anchor, slo bool) limiter {
	s := n.spec
	right := s.rightRate() / float64(s.Fleet)
	c := agilelimiter.Config{
		MaxRate: bounded(right*s.Max, 0.001, 1e9), Anchor: anchor, Clock: n.clocks[i],
	}
	c.MinRate = bounded(right*s.Min, 0.001, c.MaxRate)
	if f := os.Getenv("AGL_TRACE"); f != "" && i == 0 {
		c.OnTick = func(t agilelimiter.Stats) { fmt.Fprintf(os.Stderr, "%7.2f n=%.4g %-12v D%d un%d ab%d tr%d infl=%d F=%.4g W=%.4g Wt=%.4g p50=%.4g bind=%v shed=%d\n", float64(n.now)/1e9, t.Target, t.Decision, t.Reached, t.Unreachable, t.Aborted, t.Truncated, t.InFlight, t.Baseline.Seconds(), t.Fast.Seconds(), t.Window.Seconds(), t.P50.Seconds(), t.Binding, t.Shed) }
	}
	c.InitialRate = bounded(right*s.Start, c.MinRate, c.MaxRate)
	if slo {
		c.SLOTarget = s.SLO
	}
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

func newGate(n *run, c *clock, fleet int, anchor agilelimiter.Anchor, slo bool) limiter {
	cfg := agilelimiter.ConcurrencyConfig{Anchor: anchor, Clock: c}
	cfg.MinLimit, cfg.MaxLimit, cfg.InitialLimit = n.bounds(fleet)
	if f := os.Getenv("AGL_TRACE"); f != "" {
		cfg.OnTick = func(t agilelimiter.Stats) { fmt.Fprintf(os.Stderr, "%7.2f n=%.4g %-12v D%d un%d ab%d tr%d infl=%d F=%.4g W=%.4g Wt=%.4g p50=%.4g bind=%v shed=%d\n", float64(n.now)/1e9, t.Target, t.Decision, t.Reached, t.Unreachable, t.Aborted, t.Truncated, t.InFlight, t.Baseline.Seconds(), t.Fast.Seconds(), t.Window.Seconds(), t.P50.Seconds(), t.Binding, t.Shed) }
	}
	if slo {
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
	anchor := agilelimiter.AnchorKnee
	switch {
	case strings.Contains(a.Name, "baseline"):
		anchor = agilelimiter.AnchorBaseline
	case strings.HasSuffix(a.Name, "-slo"):
		anchor = agilelimiter.AnchorSLO
	}
	slo := !strings.HasSuffix(a.Name, "-noslo")
	c := &clock{run: n, instance: -1}
	if a.waits {
		n.clocks = append(n.clocks, c)
		p := newPaced(n, len(n.clocks)-1, anchor, slo).(*paced)
		p.Start()
		n.guarded = p
		return
	}
	g := newGate(n, c, 1, anchor, slo).(*gate)
	g.Start()
	n.guarded = g
}
