package agilelimiter

import (
	"fmt"
	"time"
)

// Decision is the reason of a controller step: why the rate or limit moved, or
// why it did not. The comments name the Anchor that can decide so.
type Decision uint8

const (
	// Blind: the tick brought no samples, nothing changed. Also the value
	// before the first tick. All anchors.
	Blind Decision = iota
	// Hold: latency lies in the deadband, agreement is still missing, the limiter
	// was paused, or (under AnchorKnee) the callers do not use what they have.
	// All anchors.
	Hold
	// Probe: healthy, one additive-like step up. All anchors.
	Probe
	// SlowStart: healthy and no congestion seen so far, a multiplicative step
	// up. All anchors.
	SlowStart
	// Recover: the multiplicative step returned after a dip (RecoverRamp).
	// AnchorBaseline and AnchorSLO.
	Recover
	// Backoff: congested, a step down in proportion to the excess. All anchors.
	Backoff
	// TailBackoff: too many calls over SLOTarget, a step down. All anchors.
	TailBackoff
	// Outage: most calls were lost; the number is remembered and halved.
	// AnchorKnee.
	Outage
	// Resume: the first real answer after an outage; half of the remembered
	// number at least. AnchorKnee.
	Resume
	// Calibrate: learning the latency without a queue at the floor.
	// AnchorKnee, a limit without SLOTarget.
	Calibrate
	// Test: a short deep cut is asking whether latency follows in-flight.
	// AnchorKnee.
	Test
	// Restore: it does not, the queue is not ours; the cut is undone.
	// AnchorKnee.
	Restore
	// Drained: it does, the queue was ours and is gone. AnchorKnee.
	Drained

	// NumDecisions is the number of decisions, the length of Stats.Decisions.
	NumDecisions int = iota
)

var decisionNames = [NumDecisions]string{
	"blind", "hold", "probe", "slow_start", "recover", "backoff", "tail_backoff",
	"outage", "resume", "calibrate", "test", "restore", "drained",
}

// String returns the decision in lower case with underscores, as metrics and
// JSON use it: "slow_start".
func (d Decision) String() string {
	if int(d) < NumDecisions {
		return decisionNames[d]
	}
	return fmt.Sprintf("decision(%d)", uint8(d))
}

// Stats is a snapshot of a limiter: gauges as of now, the values of the last
// tick, and counters since New. It is one comparable value and shares nothing
// with the limiter. Each of the three groups is consistent in itself; a step that
// comes while it is taken may show in one and not yet in another. The one that
// OnTick gets is of one step.
//
// Scrapers are slower than ticks, so rates belong to the counters; the last
// tick's values are for a look, a plot or OnTick. Alert on Samples == 0 for
// more than a few ticks: a limiter without samples holds its number, and a
// frozen rate and a steady one look alike.
type Stats struct {
	// Target is the number in force now: requests per second for a Limiter,
	// calls in flight for a ConcurrencyLimiter, which admits its whole part.
	Target float64
	// Min and Max are the floor and the ceiling of Target, in its unit.
	Min, Max float64
	// InFlight is the number of calls admitted and not yet ended. A Limiter
	// driven by hand knows of an end only by Observe, Unavailable or Record;
	// ends without an admission hide later admissions until the next tick.
	InFlight int
	// Waiting is the number of callers in a Limiter's queue; always 0 for a
	// ConcurrencyLimiter, which never lets anybody wait.
	Waiting int

	// Shadow says that the limiter only keeps books, see SetShadow.
	Shadow bool
	// Paused is how much longer a Pause lasts; 0 when there is none.
	Paused time.Duration

	// Decision is the reason of the last step.
	Decision Decision
	// Samples is the number of latencies the last step saw, synthetic ones
	// (see Unavailable) included.
	Samples int
	// P50 and P99 are the nearest-rank quantiles of those samples, within 2 %
	// from 1 µs to 1 h; 0 when there were none. See Overflow.
	P50, P99 time.Duration
	// Baseline is the latency without our own queue as far as it is known: the
	// slow EWMA, or under AnchorKnee the learnt base latency. 0: not known yet.
	Baseline time.Duration
	// Fast is the latency now: the fast EWMA of P50, or under AnchorKnee the
	// smoothed in-flight over throughput, which includes calls still open.
	Fast time.Duration
	// Window is the tolerated latency: at or above it the limiter backs off.
	// Under AnchorKnee it is the latency that the law steers to.
	Window time.Duration
	// PeakInFlight is the most calls that a ConcurrencyLimiter had in flight at
	// once during the last tick, 0 before the first; always 0 for a Limiter.
	PeakInFlight int
	// Binding says that somebody was refused, gave up waiting or still waited
	// when the last tick ended: the limiter, not the callers, set the pace.
	Binding bool

	// Lateness is the most that a Limiter was late by during the last tick: how
	// long after its slot the timer fired or the granted caller ran. See
	// Config.MaxLateness. Always 0 for a ConcurrencyLimiter.
	Lateness time.Duration

	// Admitted counts the calls let through.
	Admitted uint64
	// Shed counts the calls refused, and those that gave up while waiting. Not
	// counted are refusals of a Limiter's TryTake, and callers whose context had
	// ended before they came.
	Shed uint64
	// Reached, Unreachable and Aborted count the finished calls by outcome.
	// A negative duration handed to Observe counts as Aborted. The counters are
	// right as long as ticks, or for admissions looks at Stats, come at least
	// once in four billion calls.
	Reached, Unreachable, Aborted uint64
	// Truncated counts those of Reached that their own time-out ended.
	Truncated uint64
	// Overflow counts those of Reached that took longer than an hour. P50 and P99
	// read them as an hour; how many lie over SLOTarget stays exact.
	Overflow uint64
	// ThrottleWait is the time all admitted callers together spent waiting, 292
	// years at most.
	ThrottleWait time.Duration
	// WouldWait and WouldShed count, in shadow mode only, the calls that would
	// have waited and been admitted, and those that would have been refused.
	// WouldWaitTime is how long the former would have waited together so far. All
	// three are estimates: whoever waits or is refused sends less.
	WouldWait, WouldShed uint64
	WouldWaitTime        time.Duration
	// LatenessLost is the time of a Limiter's schedule that is lost for good,
	// because it was late by more than Config.MaxLateness while somebody waited.
	// In a minute in which it grows by 6 s, a tenth of the rate was lost.
	LatenessLost time.Duration
	// Ticks counts the controller's steps, Decisions the same by reason; index
	// it with a Decision. Decisions[Restore] growing without end under
	// AnchorKnee means an SLOTarget below the latency without load.
	Ticks     uint64
	Decisions [NumDecisions]uint64
}
