// Package httpclient puts an agilelimiter.Limiter into an http.Client: Wrap
// paces the requests of a transport and feeds their round trips back.
//
// A round trip begins when the slot is granted and ends when the response
// header is there. Time spent reading the body is not seen: it depends on how
// fast the caller reads as much as on the downstream. UntilBody keeps the call in
// flight for as long.
//
// One admitted request can be more than one on the wire, because http.Transport
// repeats some by itself: a request whose idle connection turns out to be closed,
// and one that an HTTP/2 server refuses with REFUSED_STREAM or GOAWAY, several
// times and with growing pauses. Wrap does not see that: it takes one slot, and
// the round trip is the sum. If no repetition helps, the error is Unreachable.
//
// Where to wrap, from the outside in:
//
//	circuit breaker > retries > Wrap > tracing, authentication > http.Transport
//
// Inside retries: every attempt then takes a slot and is a round trip of its own.
// Around the retries a round trip would be the sum of the attempts and their
// pauses, and attempts that were refused would not be seen.
//
// Outside tracing: a span then does not contain the wait for a slot.
//
// Inside a breaker: calls that the breaker refuses then neither wait nor count.
package httpclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"agilelimiter"
)

// Option changes what Wrap does.
type Option func(*transport)

// WithVerdict replaces DefaultVerdict by v. A nil v panics.
func WithVerdict(v Verdict) Option {
	if v == nil {
		panic("agilelimiter/httpclient: WithVerdict: nil Verdict")
	}
	return func(t *transport) { t.verdict = v }
}

// Wrap returns a RoundTripper that takes a slot of lim for every request, hands
// the request to rt and reports to lim what came of it. A nil rt means
// http.DefaultTransport; a nil lim or Option panics. The result has the methods
// CloseIdleConnections, forwarded to rt, and Unwrap, which returns rt. It is
// safe for concurrent use if rt is.
//
// Waiting for the slot honours the request's context. If that ends first, or
// its deadline cannot be met by the queue, the error matches
// agilelimiter.ErrWait as well as context.Canceled or context.DeadlineExceeded;
// a full queue is agilelimiter.ErrQueueFull. The request was not sent then, its
// body is closed and no slot is used up. The deprecated Request.Cancel does not
// end the wait by itself; http.Client.Timeout does, it sets a deadline too.
//
// A request that went out is judged once, by the Verdict; Config.Classify is not
// consulted. Not judged, but counted as Aborted, are requests that the caller
// cancelled before there was a response, those that a limiter further in refused
// (agilelimiter.IsRefusal), and those in which rt or the Verdict panicked; the
// panic goes on, and a response that is there is closed. A deadline,
// http.Client.Timeout or a cancellation whose cause is a time-out is not a
// cancellation: the downstream had the request for all that time. Judged Reached,
// it is reported by ObserveTruncated. An undefined Outcome counts as Reached.
//
// The request is handed on as it is, and so are the response with its Body and
// the error; UntilBody alone wraps the Body. Only what the contract of RoundTripper rules out is set right: a
// response that comes with an error is closed and dropped, and neither response
// nor error becomes an error.
func Wrap(rt http.RoundTripper, lim *agilelimiter.Limiter, opts ...Option) http.RoundTripper {
	if lim == nil {
		panic("agilelimiter/httpclient: Wrap: nil Limiter")
	}
	if rt == nil {
		rt = http.DefaultTransport
	}
	t := &transport{base: rt, lim: lim, verdict: DefaultVerdict}
	for _, o := range opts {
		if o == nil {
			panic("agilelimiter/httpclient: Wrap: nil Option")
		}
		o(t)
	}
	return t
}

type transport struct {
	base     http.RoundTripper
	lim      *agilelimiter.Limiter
	verdict  Verdict
	maxPause time.Duration // 0: Retry-After is not read

	untilBody bool
}

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	// The call stays on the stack, unless it outlives this function in a body.
	var here agilelimiter.Call
	call := &here
	var b *body
	if t.untilBody {
		b = new(body)
		call = &b.call
	}
	var err error
	if *call, err = t.lim.Admit(req.Context()); err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, err
	}
	ended := false
	var resp *http.Response
	// Deferred, so that a panic or Goexit in the transport or the verdict ends
	// the call too. It is not recovered. A response is then lost to the caller, so
	// it is closed here.
	defer func() {
		if !ended {
			defer call.Release() // where it is the Clock that panics
			if resp != nil && resp.Body != nil {
				defer resp.Body.Close()
			}
			call.End(agilelimiter.Aborted, call.Age())
		}
	}()
	resp, err = t.base.RoundTrip(req)
	d := call.Age()
	if resp != nil && err != nil {
		if resp.Body != nil {
			resp.Body.Close()
		}
		resp = nil
	}
	if t.maxPause > 0 && resp != nil {
		if pause := pauseFor(resp, t.maxPause); pause > 0 {
			t.lim.Pause(pause)
		}
	}
	outcome, truncated := t.judge(req, resp, err, d)
	switch {
	case truncated:
		call.EndTruncated(d)
	case b != nil && holds(resp):
		call.Answer(outcome, d)
		b.ReadCloser = resp.Body
		resp.Body = b
	default:
		call.End(outcome, d)
	}
	ended = true
	if resp == nil && err == nil {
		// http.Client would blame this package for it.
		err = fmt.Errorf("agilelimiter/httpclient: %T returned neither a response nor an error", t.base)
	}
	return resp, err
}

// judge returns what the round trip proves; truncated stands for Reached with a
// duration that is only a lower bound.
func (t *transport) judge(req *http.Request, resp *http.Response, err error, d time.Duration) (o agilelimiter.Outcome, truncated bool) {
	timedOut := false
	if err != nil {
		var cancelled bool
		if cancelled, timedOut = ended(req, err); cancelled || agilelimiter.IsRefusal(err) {
			return agilelimiter.Aborted, false
		}
		if timedOut {
			err = asTimeout(err)
		}
	}
	o = t.verdict(resp, err, d)
	return o, timedOut && o != agilelimiter.Unreachable && o != agilelimiter.Aborted
}

// ended tells whether the caller cancelled the failed request or its time ran
// out. The error alone does not tell: for http.Client.Timeout the transport
// sees a closed Request.Cancel beside the context's deadline, and whichever
// comes first names the error, "net/http: request canceled" among them.
func ended(req *http.Request, err error) (cancelled, timedOut bool) {
	ctx := req.Context()
	if cancelled, timedOut = agilelimiter.Interrupted(ctx); cancelled || timedOut {
		return cancelled, timedOut
	}
	select {
	//lint:ignore SA1019 http.Client.Timeout sets it
	case <-req.Cancel: // nil, and so never ready, for most requests
		deadline, ok := ctx.Deadline()
		timedOut = ok && !time.Now().Before(deadline)
		return !timedOut, timedOut
	default:
	}
	// A layer below may run the request under a context of its own: one of two
	// hedged attempts, say.
	return errors.Is(err, context.Canceled), agilelimiter.IsTimeout(err)
}

// asTimeout returns err as the Verdict shall see it when the request's time is
// over.
func asTimeout(err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return context.DeadlineExceeded
	case agilelimiter.IsTimeout(err):
		return err
	}
	return timeoutError{err}
}

// timeoutError is an error that does not know itself that it is a time-out.
type timeoutError struct{ error }

func (e timeoutError) Unwrap() error        { return e.error }
func (e timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }
func (e timeoutError) Timeout() bool        { return true }

// CloseIdleConnections makes http.Client.CloseIdleConnections reach the
// transport below.
func (t *transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// Unwrap returns the transport below.
func (t *transport) Unwrap() http.RoundTripper { return t.base }
