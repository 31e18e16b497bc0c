package arm

import (
	"context"
	"time"

	"agilelimiter"
	"agilelimiter/compare/plant"
)

// ours returns every anchor on both actuators, with and without an SLO target
// where the anchor allows it, and RecoverRamp as an option of the two anchors
// that have it.
func ours() (arms []Arm) {
	type variant struct {
		name   string
		anchor agilelimiter.Anchor
		slo    bool
		ramp   float64
	}
	for _, v := range []variant{
		{"baseline", agilelimiter.AnchorBaseline, true, 0},
		{"baseline-ramp", agilelimiter.AnchorBaseline, true, 0.5},
		{"baseline-noslo", agilelimiter.AnchorBaseline, false, 0},
		{"slo", agilelimiter.AnchorSLO, true, 0},
		{"slo-ramp", agilelimiter.AnchorSLO, true, 0.5},
		{"knee", agilelimiter.AnchorKnee, true, 0},
		{"knee-noslo", agilelimiter.AnchorKnee, false, 0},
	} {
		arms = append(arms,
			Arm{"rate-" + v.name, func(env Env) Limiter {
				return newPaced(agilelimiter.Config{
					MinRate: env.MinRate, MaxRate: env.MaxRate, InitialRate: env.InitialRate,
					SLOTarget: target(v.slo, env), Anchor: v.anchor, RecoverRamp: v.ramp,
				}, env.Wait)
			}},
			Arm{"limit-" + v.name, func(env Env) Limiter {
				return newGate(agilelimiter.ConcurrencyConfig{
					MinLimit: env.MinLimit, MaxLimit: env.MaxLimit, InitialLimit: env.InitialLimit,
					SLOTarget: target(v.slo, env), Anchor: v.anchor, RecoverRamp: v.ramp,
				})
			}})
	}
	return arms
}

func target(slo bool, env Env) time.Duration {
	if slo {
		return env.SLO
	}
	return 0
}

// evidence is the manual path of both of our limiters.
type evidence interface {
	Observe(time.Duration)
	ObserveTruncated(time.Duration)
	Unavailable()
	Record(agilelimiter.Outcome, time.Duration)
}

// report applies the evidence rule.
func report(l evidence, o plant.Outcome, rtt time.Duration) {
	switch o {
	case plant.OK:
		l.Observe(rtt)
	case plant.MarkedHit:
		l.Record(agilelimiter.Aborted, rtt)
	case plant.Refused, plant.Busy:
		l.Unavailable()
	case plant.TimedOut:
		l.ObserveTruncated(rtt)
	}
}

// paced is our Limiter: callers wait, but no longer than they may.
type paced struct {
	*agilelimiter.Limiter
	wait time.Duration
}

func newPaced(cfg agilelimiter.Config, wait time.Duration) Limiter {
	l := agilelimiter.New(cfg)
	l.Start()
	return paced{l, wait}
}

func (p paced) Acquire() (Done, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), p.wait)
	defer cancel()
	if _, err := p.TakeContext(ctx); err != nil {
		return nil, false
	}
	return func(o plant.Outcome, rtt time.Duration) { report(p, o, rtt) }, true
}

func (p paced) Target() float64 { return p.Rate() }

// gate is our ConcurrencyLimiter: callers are refused at once.
type gate struct {
	*agilelimiter.ConcurrencyLimiter
}

func newGate(cfg agilelimiter.ConcurrencyConfig) Limiter {
	l := agilelimiter.NewConcurrency(cfg)
	l.Start()
	return gate{l}
}

func (g gate) Acquire() (Done, bool) {
	if !g.TryTake() {
		return nil, false
	}
	return func(o plant.Outcome, rtt time.Duration) {
		report(g, o, rtt)
		g.Release()
	}, true
}

func (g gate) Target() float64 { return float64(g.Limit()) }
