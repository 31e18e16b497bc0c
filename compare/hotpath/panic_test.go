package hotpath

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"agilelimiter"
	"agilelimiter/httpclient"
	"agilelimiter/httpserver"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/zeromicro/go-zero/core/load"
	"github.com/zeromicro/go-zero/core/stat"
	"github.com/zeromicro/go-zero/rest/handler"
)

const (
	panicSlots = 1000 // slots of the limiter
	panicCalls = 1000 // calls that panic, one after the other
)

// A panicArm runs a callback inside a limiter of panicSlots slots. Limiters
// that only hand out a permit are not here: with them it is the caller's own
// defer that decides.
type panicArm struct {
	name string
	// start returns call, which runs one callback inside the limiter, and
	// lost, which tells how many slots are not free while nobody runs.
	start func(tb testing.TB) (call func(fn func()), lost func() int)
	// want is the number of slots lost, as observed in the versions that
	// go.mod pins.
	want int
}

var panicArms = []panicArm{
	{"failsafe executor, adaptive", func(testing.TB) (func(func()), func() int) {
		l := adaptivelimiter.NewBuilder[any]().WithLimits(panicSlots, panicSlots, panicSlots).Build()
		e := failsafe.With[any](l)
		return func(fn func()) { _ = e.Run(func() error { fn(); return nil }) }, l.Inflight
	}, panicCalls},
	{"failsafe executor, bulkhead", func(testing.TB) (func(func()), func() int) {
		bh := bulkhead.NewBuilder[any](panicSlots).Build()
		e := failsafe.With[any](bh)
		return func(fn func()) { _ = e.Run(func() error { fn(); return nil }) },
			func() int { return panicSlots - acquirable(panicSlots, bh.TryAcquirePermit, bh.ReleasePermit) }
	}, panicCalls},
	{"failsafehttp.NewHandler, adaptive", func(testing.TB) (func(func()), func() int) {
		l := failsafePanicHTTP()
		return serve(func(h http.Handler) http.Handler { return failsafehttp.NewHandler(h, l) }), l.Inflight
	}, panicCalls},
	{"failsafehttp.NewRoundTripper, adaptive", func(tb testing.TB) (func(func()), func() int) {
		l := failsafePanicHTTP()
		return send(tb, func(rt http.RoundTripper) http.RoundTripper {
			return failsafehttp.NewRoundTripper(rt, l)
		}), l.Inflight
	}, panicCalls},
	{"chi middleware.Throttle", func(testing.TB) (func(func()), func() int) {
		h := middleware.Throttle(panicSlots)
		return serve(h), func() int { return panicSlots - servable(h) }
	}, 0},
	{"go-zero rest SheddingHandler", func(testing.TB) (func(func()), func() int) {
		s := &countingShedder{Shedder: goZero(neverBusy)}
		h := handler.SheddingHandler(s, stat.NewMetrics("panics"))
		return serve(h), func() int { return s.open }
	}, 0},
}

// oursPanicking: a limit has slots, a rate has calls in flight, which
// AnchorKnee steers by; both must be given back.
var oursPanicking = []panicArm{
	{"agilelimiter ConcurrencyLimiter.Do", func(tb testing.TB) (func(func()), func() int) {
		l := ourConcurrency(tb, panicSlots, agilelimiter.AnchorBaseline)
		return func(fn func()) { _ = l.Do(func() error { fn(); return nil }) },
			func() int { return panicSlots - acquirable(panicSlots, l.TryTake, l.Release) }
	}, 0},
	{"agilelimiter ConcurrencyLimiter.DoContext", func(tb testing.TB) (func(func()), func() int) {
		l := ourConcurrency(tb, panicSlots, agilelimiter.AnchorKnee)
		return func(fn func()) {
			_ = l.DoContext(tb.Context(), func(context.Context) error { fn(); return nil })
		}, func() int { return panicSlots - acquirable(panicSlots, l.TryTake, l.Release) }
	}, 0},
	{"agilelimiter Do[T]", func(tb testing.TB) (func(func()), func() int) {
		l := ourConcurrency(tb, panicSlots, agilelimiter.AnchorBaseline)
		return func(fn func()) { _, _ = agilelimiter.Do(l, func() (int, error) { fn(); return 0, nil }) },
			l.InFlight
	}, 0},
	{"agilelimiter httpserver.Wrap", func(tb testing.TB) (func(func()), func() int) {
		l := ourConcurrency(tb, panicSlots, agilelimiter.AnchorBaseline)
		return serve(func(h http.Handler) http.Handler { return httpserver.Wrap(h, l) }),
			func() int { return panicSlots - acquirable(panicSlots, l.TryTake, l.Release) }
	}, 0},
	{"agilelimiter httpclient.Wrap", func(tb testing.TB) (func(func()), func() int) {
		l := ourRate(tb, agilelimiter.AnchorKnee)
		return send(tb, func(rt http.RoundTripper) http.RoundTripper { return httpclient.Wrap(rt, l) }), l.InFlight
	}, 0},
	{"agilelimiter Limiter.Do", func(tb testing.TB) (func(func()), func() int) {
		l := ourRate(tb, agilelimiter.AnchorKnee)
		return func(fn func()) { _ = l.Do(func() error { fn(); return nil }) }, l.InFlight
	}, 0},
}

// TestPanics sends a thousand calls that panic through each limiter, lets a
// caller further up recover them, as net/http's server does, and counts the
// slots that are still taken when nothing runs any more.
func TestPanics(t *testing.T) {
	var table strings.Builder
	fmt.Fprintf(&table, "| limiter | slots lost of %d after %d panics |\n|---|---|\n", panicSlots, panicCalls)
	for _, a := range slices.Concat(oursPanicking, panicArms) {
		call, lost := a.start(t)
		if n := lost(); n != 0 {
			t.Fatalf("%s: %d slots taken before anything ran", a.name, n)
		}
		for i := range panicCalls {
			if got := recovered(func() { call(func() { panic(i) }) }); got != any(i) {
				t.Fatalf("%s: the caller recovered %v, want the callback's own panic value %d", a.name, got, i)
			}
		}
		got := lost()
		if got != a.want {
			t.Errorf("%s: %d slots lost, want %d", a.name, got, a.want)
		}
		fmt.Fprintf(&table, "| %s | %d |\n", a.name, got)
	}
	t.Logf("\n%s", table.String())
}

func recovered(fn func()) (value any) {
	defer func() { value = recover() }()
	fn()
	return nil
}

// acquirable counts how many of n slots can be had at once, and gives them
// back.
func acquirable(n int, try func() bool, release func()) (got int) {
	for got < n && try() {
		got++
	}
	for range got {
		release()
	}
	return got
}

// serve runs fn as the handler inside the middleware.
func serve(wrap func(http.Handler) http.Handler) func(fn func()) {
	var current func()
	h := wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { current() }))
	return func(fn func()) {
		current = fn
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	}
}

// servable counts how many requests the middleware lets in one inside the
// other before one is refused.
func servable(wrap func(http.Handler) http.Handler) (in int) {
	var h http.Handler
	h = wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		in++
		h.ServeHTTP(w, r)
	}))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	return in
}

type panickingTransport struct{ fn *func() }

func (t panickingTransport) RoundTrip(*http.Request) (*http.Response, error) {
	(*t.fn)()
	return nil, http.ErrAbortHandler
}

// send runs fn as the transport under the wrapper.
func send(tb testing.TB, wrap func(http.RoundTripper) http.RoundTripper) func(fn func()) {
	var current func()
	rt := wrap(panickingTransport{&current})
	return func(fn func()) {
		current = fn
		req, err := http.NewRequest(http.MethodGet, "http://localhost/", nil)
		if err != nil {
			tb.Fatal(err)
		}
		resp, err := rt.RoundTrip(req)
		if err == nil {
			tb.Error(resp.Body.Close())
		}
	}
}

func failsafePanicHTTP() adaptivelimiter.AdaptiveLimiter[*http.Response] {
	return adaptivelimiter.NewBuilder[*http.Response]().WithLimits(panicSlots, panicSlots, panicSlots).Build()
}

// countingShedder counts what the middleware took from a go-zero shedder and
// did not end, which the shedder itself does not tell.
type countingShedder struct {
	load.Shedder
	open int
}

func (s *countingShedder) Allow() (load.Promise, error) {
	p, err := s.Shedder.Allow()
	if err == nil {
		s.open++
	}
	return countedPromise{p, s}, err
}

type countedPromise struct {
	load.Promise
	s *countingShedder
}

func (p countedPromise) Pass() { p.s.open--; p.Promise.Pass() }
func (p countedPromise) Fail() { p.s.open--; p.Promise.Fail() }
