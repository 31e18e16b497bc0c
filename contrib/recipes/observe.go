package recipes

import (
	"context"
	"expvar"
	"log/slog"

	"agilelimiter"
)

// LogTicks is for Config.OnTick: it writes a line when the reason of the steps
// changes, and not one per tick. The limiter calls it from one goroutine at a
// time.
func LogTicks(log *slog.Logger) func(agilelimiter.Stats) {
	last := agilelimiter.Decision(0)
	return func(s agilelimiter.Stats) {
		if s.Decision == last && s.Ticks > 1 {
			return
		}
		last = s.Decision
		level := slog.LevelInfo
		switch s.Decision {
		case agilelimiter.Backoff, agilelimiter.TailBackoff, agilelimiter.Outage:
			level = slog.LevelWarn
		}
		log.Log(context.Background(), level, "limiter",
			"decision", s.Decision.String(), "target", s.Target, "in_flight", s.InFlight,
			"samples", s.Samples, "p50", s.P50, "p99", s.P99, "window", s.Window, "shed", s.Shed)
	}
}

// Publish shows a limiter under /debug/vars. Publishing a name twice panics.
func Publish(name string, lim interface{ Stats() agilelimiter.Stats }) {
	expvar.Publish(name, expvar.Func(func() any {
		s := lim.Stats()
		return map[string]any{
			"target":      s.Target,
			"in_flight":   s.InFlight,
			"waiting":     s.Waiting,
			"decision":    s.Decision.String(),
			"samples":     s.Samples,
			"p50_seconds": s.P50.Seconds(),
			"p99_seconds": s.P99.Seconds(),
			"admitted":    s.Admitted,
			"shed":        s.Shed,
		}
	}))
}
