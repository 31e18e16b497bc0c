package agilelimiter

import (
	"context"
	"errors"
	"fmt"
)

// Outcome says what one finished call proves about the resource being protected.
//
// A duration is evidence only while it measures that resource. The question is
// not whether a call failed but whether it arrived: a 500 after 80 ms of work is
// an honest latency, a refused connection after 50 µs is not a fast answer but
// no answer at all. Deciding it needs the response, so the decision belongs to
// the caller (Config.Classify, or a Verdict of the HTTP adapters) and never to
// the controller.
type Outcome uint8

const (
	// Reached: the resource did the work, or had the call for all that time.
	// Its duration is a sample. The default for every error, time-outs included,
	// but for refusals of our own limiters (IsRefusal).
	Reached Outcome = iota
	// Unreachable: the call never arrived, or was refused without any work
	// (connection refused, no such host, 503 from a proxy, an open breaker).
	// Its duration is ignored; the call itself counts as congestion.
	Unreachable
	// Aborted: the call says nothing about the resource (the caller gave up, a
	// cache answered, a health probe). It is counted and otherwise forgotten.
	Aborted
)

// String returns "reached", "unreachable" or "aborted". An undefined Outcome is
// treated as Reached everywhere and prints with its number.
func (o Outcome) String() string {
	switch o {
	case Reached:
		return "reached"
	case Unreachable:
		return "unreachable"
	case Aborted:
		return "aborted"
	}
	return fmt.Sprintf("outcome(%d)", uint8(o))
}

// ErrOverloaded is returned by ConcurrencyLimiter's Do forms when the limit is
// reached: the call was shed and fn did not run.
var ErrOverloaded = errors.New("agilelimiter: overloaded")

// ErrQueueFull is returned by Limiter's Do forms and TakeContext when
// Config.MaxWaiting callers wait already: the call was shed and fn did not run.
var ErrQueueFull = errors.New("agilelimiter: queue full")

// ErrWait is what every wait for a slot that ended without one matches with
// errors.Is, and so does a ConcurrencyLimiter's refusal of a context that had
// ended already. The context's own error is in the same chain, so that
// errors.Is(err, context.Canceled) and context.DeadlineExceeded keep working.
var ErrWait = errors.New("agilelimiter: no slot")

// waitError joins ErrWait with the context error that ended the wait.
type waitError struct {
	msg   string
	cause error
}

func (e *waitError) Error() string        { return e.msg }
func (e *waitError) Unwrap() error        { return e.cause }
func (e *waitError) Is(target error) bool { return target == ErrWait }

// Timeout makes a wait that a deadline ended look like any other time-out to
// net and net/http callers.
func (e *waitError) Timeout() bool { return errors.Is(e.cause, context.DeadlineExceeded) }

// IsRefusal reports whether err is a limiter's own refusal, from this limiter
// or from one nested further in: ErrOverloaded, ErrQueueFull or ErrWait. Such a
// call never started, so it says nothing about the resource behind it.
func IsRefusal(err error) bool {
	return errors.Is(err, ErrOverloaded) || errors.Is(err, ErrQueueFull) || errors.Is(err, ErrWait)
}

// IsTimeout reports whether err says that a time-out ended the call: it is
// context.DeadlineExceeded or something in its chain has Timeout() true. The
// duration of such a call is a lower bound: "at least that long".
func IsTimeout(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	// Not errors.AsType: it would stop at the first Timeout method, and that of
	// a url.Error looks only one level deep.
	for err != nil {
		if t, ok := err.(interface{ Timeout() bool }); ok && t.Timeout() {
			return true
		}
		if many, ok := err.(interface{ Unwrap() []error }); ok {
			for _, one := range many.Unwrap() {
				if IsTimeout(one) {
					return true
				}
			}
			return false
		}
		err = errors.Unwrap(err)
	}
	return false
}
