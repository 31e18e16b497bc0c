package arm

import (
	"context"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"

	"agilelimiter/compare/plant"
)

// failsafe is failsafe-go's adaptive limiter with its defaults, but for the
// bounds, which all arms share. It is told of a call's end in the way that
// suits it best: a permit is dropped whenever the duration is no evidence, as
// the documentation of Permit says.
type failsafe struct {
	adaptivelimiter.AdaptiveLimiter[any]
	wait time.Duration // 0: refuses at once
}

func newFailsafe(env Env) Limiter {
	return failsafe{adaptivelimiter.NewBuilder[any]().
		WithLimits(uint(env.MinLimit), uint(env.MaxLimit), uint(env.InitialLimit)).
		Build(), 0}
}

func newFailsafeWait(env Env) Limiter {
	f := newFailsafe(env).(failsafe)
	f.wait = env.Wait
	return f
}

func (f failsafe) Acquire() (Done, bool) {
	permit, ok := f.TryAcquirePermit()
	if !ok && f.wait > 0 {
		var err error
		permit, err = f.AcquirePermitWithMaxWait(context.Background(), f.wait)
		ok = err == nil
	}
	if !ok {
		return nil, false
	}
	return func(o plant.Outcome, _ time.Duration) {
		if o == plant.OK {
			permit.Record()
		} else {
			permit.Drop()
		}
	}, true
}

func (f failsafe) Target() float64 { return float64(f.Limit()) }
func (f failsafe) Stop()           {}
