package arm

import (
	"context"
	"time"

	"golang.org/x/time/rate"
)

// xtime is golang.org/x/time/rate at a fixed rate, FixedShare of the capacity
// at the start, with the smallest burst. Wait fails at once when the deadline
// cannot be met.
type xtime struct {
	*rate.Limiter
	wait time.Duration
}

func newXTime(env Env) Limiter {
	return xtime{rate.NewLimiter(rate.Limit(FixedShare*env.StartCapacity), 1), env.Wait}
}

func (x xtime) Acquire() (Done, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), x.wait)
	defer cancel()
	return ignore, x.Wait(ctx) == nil
}

func (x xtime) Target() float64 { return float64(x.Limit()) }
func (x xtime) Stop()           {}
