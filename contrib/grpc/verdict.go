package limitergrpc

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"agilelimiter"
)

// Verdict says what one finished call proves. code is the status code of err,
// codes.OK for nil, and codes.DeadlineExceeded where the call's deadline ended it
// and err says Canceled; d is the time from the slot to the end. It runs once per
// call that was admitted, not cancelled by its caller and not refused by a limiter
// further in (agilelimiter.IsRefusal), outside every lock. A panic in it passes on, and the call counts as Aborted.
//
// To extend a default verdict, judge what you know and leave it the rest:
//
//	func myVerdict(code codes.Code, err error, d time.Duration) agilelimiter.Outcome {
//		if errors.Is(err, ErrBreakerOpen) {
//			return agilelimiter.Unreachable
//		}
//		return limitergrpc.DefaultClientVerdict(code, err, d)
//	}
type Verdict func(code codes.Code, err error, d time.Duration) agilelimiter.Outcome

// DefaultClientVerdict judges by the first line that fits:
//
//   - Aborted: a refusal by a limiter of ours further in
//     (agilelimiter.IsRefusal). It says nothing about the downstream.
//   - Unreachable: Unavailable (no connection, or it was lost) and
//     ResourceExhausted (somebody refused the call without doing the work).
//   - Aborted: Canceled, by whomever.
//   - Reached: everything else, OK and DeadlineExceeded included.
//
// Two cases it cannot tell apart: ResourceExhausted is also how grpc-go reports
// a message above its size limit, and a deadline that passes while the connection
// is still being made looks like one that passes later. Neither is taken for a
// fast answer.
func DefaultClientVerdict(code codes.Code, err error, _ time.Duration) agilelimiter.Outcome {
	switch {
	case err != nil && agilelimiter.IsRefusal(err):
		return agilelimiter.Aborted
	case code == codes.Unavailable, code == codes.ResourceExhausted:
		return agilelimiter.Unreachable
	case code == codes.Canceled:
		return agilelimiter.Aborted
	}
	return agilelimiter.Reached
}

// DefaultServerVerdict judges a handler's answer as DefaultClientVerdict would
// judge it on the other side: a handler that says Unavailable or
// ResourceExhausted has refused, or its own downstream was not there.
func DefaultServerVerdict(code codes.Code, err error, d time.Duration) agilelimiter.Outcome {
	return DefaultClientVerdict(code, err, d)
}

// evidence is the policy of one interceptor. A nil stream is what makes streams
// Aborted.
type evidence struct {
	unary, stream Verdict
	maxPause      time.Duration // a client's: 0: pushback is not read
}

// finding is what a finished call proves; truncated stands for Reached with a
// duration that is only a lower bound.
type finding struct {
	outcome   agilelimiter.Outcome
	truncated bool
}

var aborted = finding{outcome: agilelimiter.Aborted}

// judge applies v to a call that its caller has not cancelled. timedOut says
// that the call's own deadline ended it. A nil v means no evidence, and so does
// a refusal of a limiter further in.
func judge(v Verdict, err error, timedOut bool, d time.Duration) finding {
	if v == nil || err != nil && agilelimiter.IsRefusal(err) {
		return aborted
	}
	code := codeOf(err)
	if timedOut && code == codes.Canceled {
		code = codes.DeadlineExceeded // what the handler saw of it is the reset
	}
	timedOut = err != nil && (timedOut || code == codes.DeadlineExceeded || agilelimiter.IsTimeout(err))
	o := v(code, err, d)
	return finding{o, timedOut && o != agilelimiter.Unreachable && o != agilelimiter.Aborted}
}

// codeOf is status.Code that also knows the context errors, as grpc-go does when
// a handler returns one.
func codeOf(err error) codes.Code {
	if s, ok := status.FromError(err); ok {
		return s.Code()
	}
	return status.FromContextError(err).Code()
}

// sink is what both limiters take evidence by.
type sink interface {
	Record(agilelimiter.Outcome, time.Duration)
	ObserveTruncated(time.Duration)
}

func (f finding) report(to sink, d time.Duration) {
	if f.truncated {
		to.ObserveTruncated(d)
	} else {
		to.Record(f.outcome, d)
	}
}

// budget is the time that a call's context leaves it when it starts.
type budget struct {
	deadline time.Time
	length   time.Duration
	set      bool
}

func budgetOf(ctx context.Context) (b budget) {
	if b.deadline, b.set = ctx.Deadline(); b.set {
		b.length = time.Until(b.deadline)
	}
	return b
}

// nearlyUsed reports whether at most a tenth is left.
func (b budget) nearlyUsed() bool {
	return b.set && time.Until(b.deadline) <= b.length/10
}
