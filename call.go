package agilelimiter

import (
	"sync/atomic"
	"time"
)

// Call is one admitted call, from Admit or TryAdmit to End. It is what Do and
// the adapters of this module are built on, and what an adapter of your own
// needs: it knows when the call was admitted, and it ends at most once.
//
//	call, err := lim.Admit(ctx)
//	if err != nil {
//		return err
//	}
//	resp, err := send(ctx)
//	call.End(verdict(resp, err), call.Age())
//
// Every admitted Call must be ended; a deferred End(Aborted, 0) after the real
// one does no harm. Until then it counts as in flight, and a
// ConcurrencyLimiter's slot stays taken. A second end does nothing: it never
// gives back the slot of somebody else.
//
// The zero Call was never admitted; ending it does nothing. The methods of one
// Call are safe for concurrent use. A Call must not be copied.
type Call struct {
	core  *core
	sem   *semaphore // nil: a rate
	start time.Duration
	epoch uint32
	state atomic.Uint32
}

// The states of a Call.
const (
	callOpen     uint32 = iota
	callAnswered        // the evidence is in, the slot is still taken
	callEnded
)

// Age returns the time since the call was admitted, on the limiter's clock: the
// duration to hand to End. It is 0 for the zero Call.
func (c *Call) Age() time.Duration {
	if c.core == nil {
		return 0
	}
	return c.core.time.now() - c.start
}

// End ends the call: it counts its Outcome, feeds the duration d back where the
// call Reached the resource, and gives the slot back. An undefined Outcome
// counts as Reached, a negative d as Aborted.
func (c *Call) End(o Outcome, d time.Duration) { c.finish(o, d, false) }

// EndTruncated ends a call that its own time-out ended after d: the resource
// had it for at least so long. See ObserveTruncated.
func (c *Call) EndTruncated(d time.Duration) { c.finish(Reached, d, true) }

// Answer is the first half of End: it feeds the evidence back and keeps the
// slot until Release. It is for calls whose answer is known before they are
// over: a response whose body is still being read.
func (c *Call) Answer(o Outcome, d time.Duration) {
	if c.core != nil && c.state.CompareAndSwap(callOpen, callAnswered) {
		c.core.held.Add(1)
		c.core.answer(c.epoch, o, d, false)
	}
}

// Release is the second half of End: it gives the slot back. A call that was
// not answered before counts as Aborted.
func (c *Call) Release() { c.finish(Aborted, 0, false) }

func (c *Call) finish(o Outcome, d time.Duration, truncated bool) {
	if c.core == nil {
		return
	}
	switch c.state.Swap(callEnded) {
	case callEnded:
		return
	case callOpen:
		c.core.answer(c.epoch, o, d, truncated)
	case callAnswered:
		c.core.held.Add(-1)
	}
	if c.sem != nil {
		c.sem.release()
	}
}
