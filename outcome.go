package agilelimiter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"time"
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
	// Its duration is a sample.
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

// DefaultClassify is the default of Config.Classify. It judges err by the first
// line that fits:
//
//   - Aborted: a limiter's own refusal (IsRefusal), or context.Canceled: the
//     caller gave up.
//   - Unreachable: no connection could be made (a *net.OpError of "dial", a
//     *net.DNSError, ECONNREFUSED, EHOSTUNREACH, ENETUNREACH), its time-out
//     included. The call never arrived.
//   - Reached: any other time-out (IsTimeout). The resource had the call for at
//     least that long.
//   - Unreachable: the network failed (a *url.Error of net/http's client, any
//     other *net.OpError, ECONNRESET, ECONNABORTED, EPIPE). There is no answer.
//     A host that resets every call after a millisecond must not look fast.
//   - Aborted: a URL that could not be parsed (a *url.Error of "parse"): nothing
//     was sent.
//   - Aborted: io.EOF, io.ErrUnexpectedEOF and net.ErrClosed. The error alone
//     does not tell whether this is the end of a stream, a connection that was
//     closed on this side, or a broken server.
//   - Reached: every other error. The resource answered, with an error.
//
// The Do forms see one thing more: a call whose context's deadline is over when
// it fails is a time-out, whatever its error says.
//
// A Classify of your own judges what only you can know and leaves the rest to
// DefaultClassify:
//
//	Classify: func(err error) agilelimiter.Outcome {
//		if errors.Is(err, errBreakerOpen) {
//			return agilelimiter.Unreachable // it never arrived
//		}
//		return agilelimiter.DefaultClassify(err)
//	}
func DefaultClassify(err error) Outcome {
	switch {
	case err == nil:
		return Reached
	case IsRefusal(err), errors.Is(err, context.Canceled):
		return Aborted
	case noConnection(err):
		return Unreachable
	case IsTimeout(err):
		return Reached
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		if u.Op == "parse" {
			return Aborted
		}
		return Unreachable
	}
	if cutOff(err) {
		return Aborted
	}
	if _, ok := errors.AsType[*net.OpError](err); ok || isAny(err, networkErrnos[:]) {
		return Unreachable
	}
	return Reached
}

// noConnection reports whether err says that there was no connection to send
// the call on.
func noConnection(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return true
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return true
	}
	return isAny(err, connectErrnos[:])
}

// cutOff reports whether err says only that a connection or a stream has ended.
func cutOff(err error) bool {
	return errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

func isAny(err error, targets []error) bool {
	for _, t := range targets {
		if errors.Is(err, t) {
			return true
		}
	}
	return false
}

// Interrupted tells whether the caller cancelled ctx or its time ran out; at
// most one of the two is true. A cancellation whose cause (context.Cause) is a
// time-out is a time-out, and so is a deadline that has passed although ctx has
// not noticed yet. It is for adapters: an error alone does not tell, because
// many drivers have words of their own for both.
func Interrupted(ctx context.Context) (cancelled, timedOut bool) {
	switch err := ctx.Err(); {
	case err == nil:
		deadline, ok := ctx.Deadline()
		return false, ok && !time.Now().Before(deadline)
	case errors.Is(err, context.DeadlineExceeded), IsTimeout(context.Cause(ctx)):
		return false, true
	default:
		return true, false
	}
}

// judge says what a call proves that failed with err under the caller's ctx;
// truncated says that its own time-out ended it. It runs user code.
func judge(ctx context.Context, err error, classify func(error) Outcome) (o Outcome, truncated bool) {
	if IsRefusal(err) {
		return Aborted, false // also for a Classify that does not know refusals
	}
	cancelled, timedOut := Interrupted(ctx)
	if cancelled {
		return Aborted, false
	}
	if timedOut && DefaultClassify(err) == Aborted {
		err = context.DeadlineExceeded // cancelled or closed is what the driver saw of it
	}
	return classify(err), timedOut || IsTimeout(err)
}
