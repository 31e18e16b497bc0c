// Package httpserver puts an agilelimiter.ConcurrencyLimiter in front of an
// http.Handler: Wrap admits as many requests at once as the limiter allows,
// answers the others with 429 at once, and feeds back how long the admitted
// ones took.
//
// Apply it once, around everything that competes for the same resources, and
// mount what must stay readable while the service is saturated (health checks,
// StatsHandler, metrics) outside of it.
//
// With http.TimeoutHandler the order matters: put Wrap inside,
//
//	http.TimeoutHandler(httpserver.Wrap(h, lim), time.Second, "")
//
// The slot is then held until the handler has really returned, and a request that
// ran out of time is evidence. The other way round the slot is free as soon as the
// 503 is out, but the handler goes on working. Nothing then bounds how many such
// handlers run.
//
// Limits for the request's body belong outside of Wrap:
//
//	http.MaxBytesHandler(httpserver.Wrap(h, lim), 1<<20)
//
// http.MaxBytesReader tells the server by a private method of its ResponseWriter
// to close the connection after a body that is too long. No wrapper can pass that
// on. Inside of Wrap the body is limited all the same, but the server then reads
// up to 256 KB of the rest to keep the connection.
//
// A slot is held as long as the handler runs, and a handler that reads a slow
// upload or writes to a slow reader runs as long as its client likes. A few
// hundred such clients hold every slot. Remedies, best first: let a proxy in front
// buffer requests and responses; set http.Server's ReadTimeout and WriteTimeout,
// or a deadline a request by http.ResponseController; give uploads, downloads and
// streams a limiter of their own, whose verdict is Aborted.
//
// A request whose client leaves proves nothing and counts as Aborted. If clients
// leave before the service is slower than it should be, the requests that an
// overload slows down are all Aborted, and the limiter sees only the fast ones.
// So give requests a deadline in the service that is shorter than the clients'
// own: a TimeoutHandler, or a context deadline in a middleware around Wrap. A
// request that such a deadline ends is evidence.
package httpserver

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"agilelimiter"
)

// Option changes what Wrap does.
type Option func(*handler)

// WithVerdict replaces DefaultVerdict by v. A nil v panics.
func WithVerdict(v Verdict) Option {
	if v == nil {
		panic("agilelimiter/httpserver: WithVerdict: nil Verdict")
	}
	return func(h *handler) { h.verdict = v }
}

// WithRetryAfter adds a Retry-After header to refusals. Each refusal draws its own
// delay, evenly from [d/2, 3d/2), in whole seconds rounded up, so that clients who
// were shed together do not come back together. A limiter that follows latency
// does not know when there will be room, so d is yours to choose. 0, the default,
// means no header; a negative d panics.
func WithRetryAfter(d time.Duration) Option {
	if d < 0 {
		panic(fmt.Sprintf("agilelimiter/httpserver: WithRetryAfter(%v): must not be negative", d))
	}
	return func(h *handler) { h.retryAfter = d }
}

// spread draws a delay evenly from [d/2, 3d/2), in seconds rounded up, at least
// one. d is above 0.
func spread(d time.Duration) int64 {
	ns := uint64(d/2) + rand.Uint64N(uint64(d)) // up to 3/2 of the longest Duration
	return max(1, int64((ns+uint64(time.Second)-1)/uint64(time.Second)))
}

// WithStatus changes the status of refusals, 429 Too Many Requests by default;
// 503 Service Unavailable is the other usual one. A status outside [400, 599]
// panics.
func WithStatus(status int) Option {
	if status < 400 || status > 599 {
		panic(fmt.Sprintf("agilelimiter/httpserver: WithStatus(%d): must lie in [400, 599]", status))
	}
	return func(h *handler) { h.status = status }
}

// WithShedHandler lets refused answer the requests that were not admitted, in
// place of the plain text default. It gets the server's own ResponseWriter, with
// Retry-After set if there is one, and must write the status itself: WithStatus
// does not apply. It runs without a slot, so it should be quick. A nil refused
// panics.
func WithShedHandler(refused http.Handler) Option {
	if refused == nil {
		panic("agilelimiter/httpserver: WithShedHandler: nil Handler")
	}
	return func(h *handler) { h.refused = refused }
}

// Wrap returns a Handler that runs next for the requests that lim admits and
// sheds the others at once, by default with 429. A nil next, lim or Option
// panics.
//
// The slot is held until next returns. The Verdict then judges the request,
// once, and the time that next took is fed back. Not judged, but counted as
// Aborted, are requests whose client has left meanwhile (the request's context
// was cancelled) and those in which next or the Verdict panicked or called
// runtime.Goexit; the panic goes on, http.ErrAbortHandler too. A context
// deadline that ran out, http.TimeoutHandler's say, is not a client that left, and
// neither is a cancellation whose cause is a time-out (context.Cause): judged
// Reached, such a request is reported by ObserveTruncated. An undefined Outcome
// counts as Reached. Shed requests are neither measured nor judged.
//
// The ResponseWriter that next gets offers of http.Flusher, http.Hijacker,
// http.Pusher and io.ReaderFrom exactly what the server's own offers, and the
// rest of it by Unwrap through http.ResponseController.
func Wrap(next http.Handler, lim *agilelimiter.ConcurrencyLimiter, opts ...Option) http.Handler {
	if next == nil {
		panic("agilelimiter/httpserver: Wrap: nil Handler")
	}
	if lim == nil {
		panic("agilelimiter/httpserver: Wrap: nil ConcurrencyLimiter")
	}
	h := &handler{next: next, lim: lim, verdict: DefaultVerdict, status: http.StatusTooManyRequests}
	for _, o := range opts {
		if o == nil {
			panic("agilelimiter/httpserver: Wrap: nil Option")
		}
		o(h)
	}
	return h
}

// Middleware is Wrap in the shape that routers take: chi's Use, echo's
// WrapMiddleware. All handlers that it wraps share lim's budget. It panics where
// Wrap would.
func Middleware(lim *agilelimiter.ConcurrencyLimiter, opts ...Option) func(http.Handler) http.Handler {
	// Found here and not when the first route is mounted.
	Wrap(http.NotFoundHandler(), lim, opts...)
	return func(next http.Handler) http.Handler { return Wrap(next, lim, opts...) }
}

type handler struct {
	next       http.Handler
	lim        *agilelimiter.ConcurrencyLimiter
	verdict    Verdict
	refused    http.Handler // nil: plain text
	status     int
	retryAfter time.Duration // 0: none
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	call, ok := h.lim.TryAdmit()
	if !ok {
		h.shed(w, r)
		return
	}
	ended := false
	// Deferred, so that a panic or Goexit gives the slot back too, without
	// evidence. It is not recovered.
	defer func() {
		if !ended {
			defer call.Release() // where it is the Clock that panics
			call.End(agilelimiter.Aborted, call.Age())
		}
	}()
	watched, watch := observe(w, r)
	h.next.ServeHTTP(watched, r)
	d := call.Age()
	if outcome, truncated := h.judge(r, watch, d); truncated {
		call.EndTruncated(d)
	} else {
		call.End(outcome, d)
	}
	ended = true
}

// judge returns what a finished request proves; truncated stands for Reached
// with a duration that is only a lower bound.
func (h *handler) judge(r *http.Request, w *writer, d time.Duration) (o agilelimiter.Outcome, truncated bool) {
	if r.Context().Err() != nil {
		var cancelled bool
		if cancelled, truncated = agilelimiter.Interrupted(r.Context()); cancelled {
			return agilelimiter.Aborted, false
		}
	}
	o = h.verdict(r, w.final(), w.Header(), d)
	return o, truncated && o != agilelimiter.Unreachable && o != agilelimiter.Aborted
}

func (h *handler) shed(w http.ResponseWriter, r *http.Request) {
	if h.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(spread(h.retryAfter), 10))
	}
	if h.refused != nil {
		h.refused.ServeHTTP(w, r)
		return
	}
	http.Error(w, http.StatusText(h.status), h.status)
}
