package arm

import (
	"time"

	"github.com/go-kratos/aegis/ratelimit"
	"github.com/go-kratos/aegis/ratelimit/bbr"

	"agilelimiter/compare/plant"
)

// kratos is the BBR limiter of go-kratos. Its law works only while the CPU of
// the own machine is busy; the threshold is set to 0, so that it always does.
type kratos struct{ *bbr.BBR }

func newKratos(Env) Limiter { return kratos{bbr.NewLimiter(bbr.WithCPUThreshold(0))} }

func (k kratos) Acquire() (Done, bool) {
	done, err := k.Allow()
	if err != nil {
		return nil, false
	}
	return func(plant.Outcome, time.Duration) { done(ratelimit.DoneInfo{}) }, true
}

func (k kratos) Target() float64 { return float64(k.Stat().MaxInFlight) }
func (k kratos) Stop()           {}
