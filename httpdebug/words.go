package httpdebug

import (
	"fmt"
	"strconv"
	"time"

	"agilelimiter"
)

// reasons says in words what each decision means.
var reasons = [agilelimiter.NumDecisions]string{
	agilelimiter.Blind:       "No samples in this tick, so nothing was changed.",
	agilelimiter.Hold:        "Latency is where it should be, or callers do not use what they have.",
	agilelimiter.Probe:       "Healthy: a small step up, to see whether there is more room.",
	agilelimiter.SlowStart:   "Healthy and no congestion in the way: a large step up.",
	agilelimiter.Recover:     "Well below the window again after a dip: a large step up.",
	agilelimiter.Backoff:     "Congested: a step down in proportion to the excess.",
	agilelimiter.TailBackoff: "Too many calls took longer than the SLO: a step down.",
	agilelimiter.Outage:      "Most calls were lost: the number is remembered and halved.",
	agilelimiter.Resume:      "First real answer after an outage: half of the remembered number is back.",
	agilelimiter.LossBackoff: "More calls than normal are refused or lost: a step down to what is served.",
	agilelimiter.Test:        "A short deep cut, to see whether latency or losses follow the calls in flight.",
	agilelimiter.Restore:     "The cut left latency and losses as they were: not our doing, the cut is undone.",
	agilelimiter.Drained:     "The cut brought latency or losses down: they were our doing.",
}

// weight ranks decisions: of the ticks merged into one point, the one with most
// to tell is shown. Losing calls beats going down beats a test beats going up.
var weight = [agilelimiter.NumDecisions]uint8{
	agilelimiter.Blind:       0,
	agilelimiter.Hold:        1,
	agilelimiter.Probe:       2,
	agilelimiter.Recover:     3,
	agilelimiter.SlowStart:   3,
	agilelimiter.LossBackoff: 8,
	agilelimiter.Test:        5,
	agilelimiter.Drained:     6,
	agilelimiter.Restore:     6,
	agilelimiter.Resume:      6,
	agilelimiter.Backoff:     7,
	agilelimiter.TailBackoff: 8,
	agilelimiter.Outage:      9,
}

// note is a sentence about a state that somebody should know of.
type note struct {
	Level string `json:"level"` // "warn" or "info"
	Text  string `json:"text"`
}

// blindFor is how long samples must be missing before it is worth a word: a few
// ticks without any are ordinary at low loads.
const blindFor = 2 * time.Second

// notes says what in s deserves attention; none is the good case.
func (s *snapshot) notes() []note {
	out := []note{}
	add := func(level, format string, args ...any) {
		out = append(out, note{level, fmt.Sprintf(format, args...)})
	}
	if !s.ticked {
		add("warn", "No step yet: Start has not been called, or the first tick is still to come.")
		return out
	}
	if s.age > max(blindFor, 3*s.tick) {
		add("warn", "No step for %s: the limiter is stopped. Everything below is as of then.", spell(s.age))
	}
	st, unit := &s.stats, s.unit
	switch {
	case s.blind < max(blindFor, 3*s.tick):
	case s.unheard:
		add("warn", "Blind for %s: calls are let through, but no latency is reported back, so the %s stands still.",
			spell(s.blind), s.kind)
	default:
		add("info", "No calls for %s; the %s stands still.", spell(s.blind), s.kind)
	}
	if st.Shadow {
		add("info", "Shadow mode: nobody is delayed or refused. %d calls would have waited, %d would have been refused.", st.WouldWait, st.WouldShed)
	}
	if st.Paused > 0 {
		add("warn", "Paused for another %s: nobody is let through.", spell(st.Paused))
	}
	if st.Lateness > 10*time.Millisecond && st.LatenessLost > 0 {
		add("warn", "The limiter's own timer is late by up to %s: the machine is busy, and %s of the schedule are lost so far.",
			st.Lateness.Round(time.Millisecond), st.LatenessLost.Round(time.Millisecond))
	}
	switch {
	case st.Min == st.Max:
		add("info", "Floor and ceiling are the same: the %s is fixed.", s.kind)
	case st.Target <= st.Min:
		add("warn", "At the floor of %s %s.", number(st.Min), unit)
	case st.Target >= st.Max && st.Binding:
		add("info", "At the ceiling of %s %s, and callers want more.", number(st.Max), unit)
	}
	if s.slo > 0 && st.Baseline > s.slo {
		add("warn", "The latency without our queue is above the SLO: no %s can keep it.", s.kind)
	}
	return out
}

// spell prints d in its largest sensible unit.
func spell(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	}
	return fmt.Sprintf("%.0f h", d.Hours())
}

// number prints x with as many digits as a reader needs.
func number(x float64) string {
	if x >= 100 {
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	return strconv.FormatFloat(x, 'g', 3, 64)
}
