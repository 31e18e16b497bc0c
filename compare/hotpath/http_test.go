package hotpath

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/go-chi/httprate"
)

// handlerRow: one request through an http.Handler that answers 204. The
// floor is the bare handler; an arm's own cost is the difference, and
// measured-floor's is the least of an adaptive one.
var handlerRow = row{"Handler", slices.Concat([]arm{
	handlerArm("floor", func(h http.Handler) http.Handler { return h }),
	handlerArm("measured-floor", func(h http.Handler) http.Handler {
		m := newMeasure()
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			m.do(func() error { h.ServeHTTP(w, r); return nil })
		})
	}),
	handlerArm("chi-throttle", middleware.Throttle(roomy)),
	handlerArm("httprate-all", httprate.LimitBy(1<<40, time.Hour, httprate.Key("*"))),
	handlerArm("httprate-endpoint", httprate.LimitBy(1<<40, time.Hour, httprate.KeyByEndpoint)),
	handlerArm("failsafehttp", func(h http.Handler) http.Handler {
		return failsafehttp.NewHandler(h, failsafeAdaptiveHTTP())
	}),
}, oursHandler)}

// transportRow: one request through an http.RoundTripper whose answer costs
// nothing. The floor is the bare transport; measured-floor is again the least
// that an adaptive one adds.
var transportRow = row{"Transport", slices.Concat([]arm{
	transportArm("floor", func(rt http.RoundTripper) http.RoundTripper { return rt }),
	transportArm("measured-floor", func(rt http.RoundTripper) http.RoundTripper {
		return measuredTransport{rt, newMeasure()}
	}),
	transportArm("failsafehttp", func(rt http.RoundTripper) http.RoundTripper {
		return failsafehttp.NewRoundTripper(rt, failsafeAdaptiveHTTP())
	}),
}, oursTransport)}

func failsafeAdaptiveHTTP() adaptivelimiter.AdaptiveLimiter[*http.Response] {
	return adaptivelimiter.NewBuilder[*http.Response]().WithLimits(roomy, roomy, roomy).Build()
}

// sink is a ResponseWriter that remembers the status only.
type sink struct {
	header http.Header
	status int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) Write(p []byte) (int, error) { return len(p), nil }
func (s *sink) WriteHeader(status int)      { s.status = status }

var noContent = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusNoContent)
})

func handlerArm(name string, wrap func(http.Handler) http.Handler) arm {
	return arm{name, func(testing.TB) func() worker { return handlerWorkers(wrap(noContent)) }}
}

func handlerWorkers(h http.Handler) func() worker {
	return func() worker {
		req := httptest.NewRequest(http.MethodGet, "/things", nil)
		w := &sink{header: http.Header{}}
		return func(n int) (served int) {
			for range n {
				w.status = 0
				h.ServeHTTP(w, req)
				if w.status == http.StatusNoContent {
					served++
				}
			}
			return served
		}
	}
}

// echo answers with the response that the request brings along, so that the
// transport allocates nothing and callers share nothing. The body is set
// anew each time because a wrapper may put its own around it.
type echo struct{}

func (echo) RoundTrip(req *http.Request) (*http.Response, error) {
	resp := req.Response
	resp.Body = http.NoBody
	return resp, nil
}

func transportArm(name string, wrap func(http.RoundTripper) http.RoundTripper) arm {
	return arm{name, func(testing.TB) func() worker { return transportWorkers(wrap(echo{})) }}
}

func transportWorkers(rt http.RoundTripper) func() worker {
	return func() worker {
		req, err := http.NewRequest(http.MethodGet, "http://localhost/things", nil)
		if err != nil {
			panic(err)
		}
		req.Response = &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Request: req}
		return func(n int) (served int) {
			for range n {
				resp, err := rt.RoundTrip(req)
				if err != nil || resp.StatusCode != http.StatusOK {
					continue
				}
				if resp.Body.Close() == nil {
					served++
				}
			}
			return served
		}
	}
}

type measuredTransport struct {
	rt http.RoundTripper
	m  *measure
}

func (t measuredTransport) RoundTrip(req *http.Request) (resp *http.Response, err error) {
	t.m.do(func() error {
		resp, err = t.rt.RoundTrip(req)
		return err
	})
	return resp, err
}
