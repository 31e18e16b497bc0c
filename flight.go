package agilelimiter

import (
	"sync/atomic"
	"time"
)

// notCounted stands for the calls in flight where the actuator does not count
// them: they are then those admitted less those recorded.
const notCounted = -1

// area is the time integral of the calls in flight, one atomic add per call at
// each end. The integral over [0, t] is the sum of the ends, less the sum of
// the starts, plus t for every call still open. All times are counted from
// origin, which every drain moves up to the present: an add that races with a
// drain is then wrong by one call for one tick, where absolute times would be
// wrong by one call since the beginning of time.
type area struct {
	origin atomic.Int64 // nanoseconds since New
	sum    atomic.Int64 // call-nanoseconds
}

func (a *area) start(now time.Duration) { a.sum.Add(a.origin.Load() - int64(now)) }
func (a *area) end(now time.Duration)   { a.sum.Add(int64(now) - a.origin.Load()) }

// drain returns the time since the last drain and the time average of the calls
// in flight over it, open being their number now.
func (a *area) drain(now time.Duration, open int) (elapsed time.Duration, inFlight float64) {
	elapsed = now - time.Duration(a.origin.Swap(int64(now)))
	sum := a.sum.Swap(0)
	if elapsed <= 0 {
		return 0, float64(open)
	}
	return elapsed, max(0, float64(sum)/float64(elapsed)+float64(open))
}

// maxOpenAge is how old the open calls may be on average before some are taken
// for calls that a caller has admitted by hand and never reported the end of.
// It lies above every latency that SLOTarget allows.
const maxOpenAge = 2 * time.Minute

// ages tells open calls from lost ones. What the calls in flight have spent so
// far is the integral of their number less the durations of those that ended;
// divided by their number it is their mean age, and lost calls only grow older.
type ages struct {
	ended atomic.Int64 // nanoseconds of the calls that ended since the last drain
	spent float64      // nanoseconds that the open calls have spent so far
}

// drain returns how many of the open calls are to be written off. inFlight is
// their time average over the elapsed time.
func (a *ages) drain(elapsed time.Duration, inFlight float64, open int) int {
	ended := float64(a.ended.Swap(0))
	a.spent += inFlight*float64(elapsed) - ended
	if open <= 0 || elapsed <= 0 {
		a.spent = 0
		return 0
	}
	if a.spent/float64(open) <= float64(maxOpenAge) {
		return 0
	}
	// By Little's law the calls that do end are ended/elapsed in number.
	a.spent = 0
	return max(0, open-int(ended/float64(elapsed))-1)
}
