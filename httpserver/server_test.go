package httpserver_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"agilelimiter"
	"agilelimiter/httpserver"
)

func newRequest(method string) *http.Request { return httptest.NewRequest(method, "/path?q=1", nil) }

func respond(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(status) }
}

func TestAdmitsUpToTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := newLimiter(10)
		h := httpserver.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Second)
		}), lim)
		var wg sync.WaitGroup
		var shed atomic.Int32
		for range 11 {
			wg.Go(func() {
				rec := httptest.NewRecorder()
				h.ServeHTTP(rec, newRequest(http.MethodGet))
				if rec.Code == http.StatusTooManyRequests {
					shed.Add(1)
				}
			})
		}
		synctest.Wait()
		if n := lim.InFlight(); n != 10 || shed.Load() != 1 {
			t.Errorf("in flight %d, shed %d, want 10 and 1", n, shed.Load())
		}
		wg.Wait()
		wantCounts(t, lim, counts{Admitted: 10, Shed: 1, Reached: 10})
	})
}

func TestHandlingTimeIsMeasured(t *testing.T) {
	clock := agilelimiter.NewVirtualClock(time.Unix(0, 0))
	lim := agilelimiter.NewConcurrency(agilelimiter.ConcurrencyConfig{MaxLimit: 10, Clock: clock})
	lim.Start()
	defer lim.Stop()
	var calls []call
	h := httpserver.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		clock.Advance(70 * time.Millisecond)
	}), lim, recording(&calls))
	h.ServeHTTP(httptest.NewRecorder(), newRequest(http.MethodGet))
	if len(calls) != 1 || calls[0].d != 70*time.Millisecond {
		t.Errorf("the verdict was told %+v, want once 70ms", calls)
	}
	clock.Advance(180 * time.Millisecond)
	if s := lim.Stats(); s.Samples != 1 || s.P99 < 68*time.Millisecond || s.P99 > 72*time.Millisecond {
		t.Errorf("Samples %d, P99 %v, want 1 and 70ms", s.Samples, s.P99)
	}
}

func TestRefusal(t *testing.T) {
	full := newLimiter(1)
	full.TryTake()
	never := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a shed request reached the handler") })
	verdict := httpserver.WithVerdict(func(*http.Request, int, http.Header, time.Duration) agilelimiter.Outcome {
		t.Error("a shed request was judged")
		return agilelimiter.Reached
	})
	problem := httpserver.WithShedHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintf(w, `{"title":"busy","instance":%q}`, r.URL.Path)
	}))
	for _, c := range []struct {
		what             string
		opts             []httpserver.Option
		status           int
		retryAfter, body string
	}{
		{"default", nil, 429, "", "Too Many Requests\n"},
		{"1 ns", []httpserver.Option{httpserver.WithRetryAfter(1)}, 429, "1", "Too Many Requests\n"},
		{"up to a second", []httpserver.Option{httpserver.WithRetryAfter(time.Second * 2 / 3)}, 429, "1", "Too Many Requests\n"},
		{"0", []httpserver.Option{httpserver.WithRetryAfter(time.Second), httpserver.WithRetryAfter(0)}, 429, "", "Too Many Requests\n"},
		{"503", []httpserver.Option{httpserver.WithStatus(503)}, 503, "", "Service Unavailable\n"},
		{"own body", []httpserver.Option{httpserver.WithRetryAfter(time.Millisecond), problem}, 503, "1", `{"title":"busy","instance":"/path"}`},
	} {
		rec := httptest.NewRecorder()
		httpserver.Wrap(never, full, append(c.opts, verdict)...).ServeHTTP(rec, newRequest(http.MethodGet))
		_, has := rec.Header()["Retry-After"]
		if rec.Code != c.status || rec.Header().Get("Retry-After") != c.retryAfter || has != (c.retryAfter != "") || rec.Body.String() != c.body {
			t.Errorf("%s: %d, Retry-After %q, %q", c.what, rec.Code, rec.Header().Get("Retry-After"), rec.Body)
		}
	}
	wantCounts(t, full, counts{InFlight: 1, Admitted: 1, Shed: 6})
}

// FR26: who was shed together shall not come back together.
func TestRetryAfterIsSpread(t *testing.T) {
	full := newLimiter(1)
	full.TryTake()
	draw := func(d time.Duration, n int) (seen map[int64]int, mean float64) {
		h := httpserver.Wrap(http.NotFoundHandler(), full, httpserver.WithRetryAfter(d))
		seen = map[int64]int{}
		for range n {
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, newRequest(http.MethodGet))
			seconds, err := strconv.ParseInt(rec.Header().Get("Retry-After"), 10, 64)
			if err != nil {
				t.Fatalf("%v: %v", d, err)
			}
			seen[seconds]++
			mean += float64(seconds) / float64(n)
		}
		return seen, mean
	}
	for _, c := range []struct {
		d            time.Duration
		least, most  int64
		mean, margin float64 // five standard deviations of the mean of 1000 draws
	}{
		{time.Second, 1, 2, 1.5, 0.08},
		{1500 * time.Millisecond, 1, 3, 2, 0.13},
		{10 * time.Second, 6, 15, 10.5, 0.46},
		{time.Hour, 1801, 5400, 3600.5, 165},
		{1<<63 - 1, 4611686018, 13835058056, 9223372036.8, 4.3e8},
	} {
		seen, mean := draw(c.d, 1000)
		for s := range seen {
			if s < c.least || s > c.most {
				t.Errorf("%v: Retry-After %d, want %d to %d", c.d, s, c.least, c.most)
			}
		}
		if want := min(c.most-c.least+1, 500); int64(len(seen)) < want {
			t.Errorf("%v: %d different values, want %d at least", c.d, len(seen), want)
		}
		if mean < c.mean-c.margin || mean > c.mean+c.margin {
			t.Errorf("%v: a mean of %g, want %g", c.d, mean, c.mean)
		}
	}
}

func TestRetryAfterOfTheHandlerIsItsOwn(t *testing.T) {
	rec := httptest.NewRecorder()
	httpserver.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "120")
		w.WriteHeader(http.StatusServiceUnavailable)
	}), newLimiter(1), httpserver.WithRetryAfter(time.Second)).ServeHTTP(rec, newRequest(http.MethodGet))
	if got := rec.Header().Get("Retry-After"); got != "120" {
		t.Errorf("Retry-After %q, want the handler's 120", got)
	}
}

func TestShedHeadKeepsTheConnection(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			full := newLimiter(1)
			full.TryTake()
			var conns sync.Map
			h := httpserver.Wrap(http.NotFoundHandler(), full, httpserver.WithRetryAfter(time.Millisecond))
			url, client := serve(t, protocol, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				conns.Store(r.RemoteAddr, true)
				h.ServeHTTP(w, r)
			}))
			for range 3 {
				resp, err := client.Head(url)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "1" || len(body) != 0 || err != nil {
					t.Errorf("%d, Retry-After %q, body %q, %v", resp.StatusCode, resp.Header.Get("Retry-After"), body, err)
				}
			}
			n := 0
			conns.Range(func(any, any) bool { n++; return true })
			if n != 1 {
				t.Errorf("%d connections for three requests, want one kept alive", n)
			}
		})
	}
}

func TestPanicsGiveTheSlotBack(t *testing.T) {
	cause := errors.New("boom")
	for _, c := range []struct {
		what  string
		value any
		h     http.Handler
		v     httpserver.Verdict
	}{
		{"handler", cause, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(cause) }), httpserver.DefaultVerdict},
		{"http.ErrAbortHandler", http.ErrAbortHandler, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			panic(http.ErrAbortHandler)
		}), httpserver.DefaultVerdict},
		{"verdict", cause, respond(200), func(*http.Request, int, http.Header, time.Duration) agilelimiter.Outcome { panic(cause) }},
	} {
		t.Run(c.what, func(t *testing.T) {
			lim := newLimiter(5)
			h := httpserver.Wrap(c.h, lim, httpserver.WithVerdict(c.v))
			for range 50 {
				func() {
					defer func() {
						if got := recover(); got != c.value {
							t.Errorf("recovered %v, want %v", got, c.value)
						}
					}()
					h.ServeHTTP(httptest.NewRecorder(), newRequest(http.MethodGet))
				}()
			}
			wantCounts(t, lim, counts{Admitted: 50, Aborted: 50})
			for range 5 {
				if !lim.TryTake() {
					t.Fatal("a slot is lost")
				}
			}
		})
	}
	t.Run("Goexit", func(t *testing.T) {
		lim := newLimiter(5)
		done := make(chan struct{})
		go func() {
			defer close(done)
			httpserver.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { runtime.Goexit() }), lim).
				ServeHTTP(httptest.NewRecorder(), newRequest(http.MethodGet))
		}()
		<-done
		wantCounts(t, lim, counts{Admitted: 1, Aborted: 1})
	})
}

// The client must see that the answer was cut off.
func TestAbortHandler(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			lim := newLimiter(5)
			url, client := serve(t, protocol, httpserver.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				io.WriteString(w, "half")
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			}), lim))
			resp, err := client.Get(url)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if resp.StatusCode != 200 || string(body) != "half" || err == nil {
				t.Errorf("%d, %q, err %v, want 200, half and an error", resp.StatusCode, body, err)
			}
			settle(t, lim)
			wantCounts(t, lim, counts{Admitted: 1, Aborted: 1})
		})
	}
}

// It is the one panic that net/http does not log, and stays that.
func TestAbortHandlerIsSilent(t *testing.T) {
	var logged strings.Builder
	lim := newLimiter(5)
	srv := httptest.NewUnstartedServer(httpserver.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		panic(http.ErrAbortHandler)
	}), lim))
	srv.Config.ErrorLog = log.New(&logged, "", 0)
	srv.Start()
	if resp, err := srv.Client().Get(srv.URL); err == nil {
		resp.Body.Close()
		t.Errorf("status %d, want none", resp.StatusCode)
	}
	srv.Close() // waits for the connection, and so for the log
	if logged.String() != "" {
		t.Errorf("logged %q, want nothing", logged.String())
	}
}

func TestClientsThatLeave(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			n := 500
			if protocol == "HTTP/2" {
				n = 50 // each of them a TLS handshake
			}
			lim := newLimiter(n)
			var inside sync.WaitGroup
			inside.Add(n)
			url, client := serve(t, protocol, httpserver.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				inside.Done()
				<-r.Context().Done()
			}), lim, httpserver.WithVerdict(func(*http.Request, int, http.Header, time.Duration) agilelimiter.Outcome {
				t.Error("the verdict was called for a client that left")
				return agilelimiter.Reached
			})))
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for range n {
				wg.Go(func() {
					req, _ := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
					if resp, err := client.Do(req); err == nil {
						resp.Body.Close()
						t.Error("an answer from a handler that gives none")
					}
				})
			}
			inside.Wait()
			if got := lim.InFlight(); got != n {
				t.Errorf("InFlight() = %d, want %d", got, n)
			}
			cancel()
			wg.Wait()
			settle(t, lim)
			wantCounts(t, lim, counts{Admitted: uint64(n), Aborted: uint64(n)})
			for range n {
				if !lim.TryTake() {
					t.Fatal("a slot is lost")
				}
			}
		})
	}
}

// A deadline is the service's own patience, not a client that left.
func TestDeadlineIsEvidence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := newLimiter(5)
		var calls []call
		h := httpserver.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			w.WriteHeader(http.StatusGatewayTimeout)
		}), lim, recording(&calls))
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		h.ServeHTTP(httptest.NewRecorder(), newRequest(http.MethodGet).WithContext(ctx))
		if len(calls) != 1 || calls[0].status != 504 || calls[0].d != 300*time.Millisecond {
			t.Errorf("the verdict was told %+v, want a 504 after 300ms", calls)
		}
		wantCounts(t, lim, counts{Admitted: 1, Reached: 1, Truncated: 1})
	})
}

// A cancellation whose cause is a time-out is that patience too.
func TestCauseIsEvidence(t *testing.T) {
	lim := newLimiter(5)
	h := httpserver.Wrap(http.NotFoundHandler(), lim)
	for _, cause := range []error{fmt.Errorf("budget: %w", context.DeadlineExceeded), errors.New("client left")} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		h.ServeHTTP(httptest.NewRecorder(), newRequest(http.MethodGet).WithContext(ctx))
	}
	wantCounts(t, lim, counts{Admitted: 2, Reached: 1, Truncated: 1, Aborted: 1})
}

// FR02: a body limit outside of Wrap closes the connection after a body that is
// too long, as it does without Wrap. Inside it still limits the body.
func TestBodyLimits(t *testing.T) {
	read := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		}
	})
	for _, c := range []struct {
		what    string
		handler func(lim *agilelimiter.ConcurrencyLimiter) http.Handler
		close   bool
	}{
		{"outside", func(lim *agilelimiter.ConcurrencyLimiter) http.Handler {
			return http.MaxBytesHandler(httpserver.Wrap(read, lim), 10)
		}, true},
		{"inside", func(lim *agilelimiter.ConcurrencyLimiter) http.Handler {
			return httpserver.Wrap(http.MaxBytesHandler(read, 10), lim)
		}, false},
		{"in the handler", func(lim *agilelimiter.ConcurrencyLimiter) http.Handler {
			return httpserver.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Body = http.MaxBytesReader(w, r.Body, 10)
				read(w, r)
			}), lim)
		}, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			lim := newLimiter(5)
			srv := httptest.NewServer(c.handler(lim))
			defer srv.Close()
			resp, err := srv.Client().Post(srv.URL, "", strings.NewReader(strings.Repeat("x", 1000)))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusRequestEntityTooLarge || resp.Close != c.close {
				t.Errorf("status %d, Connection: close %t, want 413 and %t", resp.StatusCode, resp.Close, c.close)
			}
			settle(t, lim)
			wantCounts(t, lim, counts{Admitted: 1, Reached: 1})
		})
	}
}

func TestTimeoutHandlerOnEitherSide(t *testing.T) {
	const patience = 100 * time.Millisecond
	slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { time.Sleep(time.Second) }) // heeds no context
	t.Run("Wrap inside: the slot is held while the work goes on", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			lim := newLimiter(5)
			h := http.TimeoutHandler(httpserver.Wrap(slow, lim), patience, "")
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, newRequest(http.MethodGet))
			if rec.Code != 503 || lim.InFlight() != 1 {
				t.Errorf("status %d, InFlight %d after the time-out, want 503 and 1", rec.Code, lim.InFlight())
			}
			time.Sleep(time.Second)
			wantCounts(t, lim, counts{Admitted: 1, Reached: 1, Truncated: 1})
		})
	})
	t.Run("Wrap outside: it is not, and the 503 is congestion", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			lim := newLimiter(5)
			rec := httptest.NewRecorder()
			httpserver.Wrap(http.TimeoutHandler(slow, patience, ""), lim).ServeHTTP(rec, newRequest(http.MethodGet))
			if rec.Code != 503 {
				t.Errorf("status %d, want 503", rec.Code)
			}
			wantCounts(t, lim, counts{Admitted: 1, Unreachable: 1})
			time.Sleep(time.Second) // the handler, which nobody counts any more
		})
	})
}

// Half of the requests fail at once. That is no sign of health: the limit must
// not end higher than the honest half alone would put it.
func TestFastFailuresDoNotRaiseTheLimit(t *testing.T) {
	run := func(failing bool) (limit int) {
		synctest.Test(t, func(t *testing.T) {
			lim := agilelimiter.NewConcurrency(agilelimiter.ConcurrencyConfig{MaxLimit: 200, InitialLimit: 50, SLOTarget: 55 * time.Millisecond})
			lim.Start()
			defer lim.Stop()
			h := httpserver.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					time.Sleep(20 * time.Microsecond)
					w.WriteHeader(http.StatusServiceUnavailable)
					return
				}
				time.Sleep(50 * time.Millisecond)
			}), lim)
			for range 40 { // 5 a tick
				h.ServeHTTP(httptest.NewRecorder(), newRequest(http.MethodGet))
				if failing {
					h.ServeHTTP(httptest.NewRecorder(), newRequest(http.MethodPost))
				}
			}
			limit = lim.Limit()
		})
		return limit
	}
	honest, mixed := run(false), run(true)
	if mixed > honest {
		t.Errorf("limit %d with fast failures, %d without", mixed, honest)
	}
	// The window is 44 ms: both halves say congestion, every time.
	if honest >= 50 || mixed >= 50 {
		t.Errorf("limits %d and %d, want both below the start of 50", honest, mixed)
	}
}

// One connection of ten minutes among calls of ten milliseconds.
func TestHijackedConnectionIsNoSample(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := newLimiter(100)
		lim.Start()
		defer lim.Stop()
		h := httpserver.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				time.Sleep(10 * time.Millisecond)
				return
			}
			if _, _, err := w.(http.Hijacker).Hijack(); err != nil {
				t.Error(err)
			}
			time.Sleep(10*time.Minute + 15*time.Millisecond)
		}), lim)
		var long sync.WaitGroup
		long.Go(func() { h.ServeHTTP(hijackable{httptest.NewRecorder()}, newRequest(http.MethodConnect)) })
		time.Sleep(10 * time.Minute)
		for range 10 {
			h.ServeHTTP(httptest.NewRecorder(), newRequest(http.MethodGet))
		}
		long.Wait() // it ended in the middle of this tick
		time.Sleep(250 * time.Millisecond)
		for lim.Stats().Samples == 0 {
			t.Fatal("the tick with the samples has passed by")
		}
		if s := lim.Stats(); s.Samples != 10 || s.P99 > 10200*time.Microsecond {
			t.Errorf("Samples %d, P99 %v, want 10 and 10ms", s.Samples, s.P99)
		}
		wantCounts(t, lim, counts{Admitted: 11, Reached: 10, Aborted: 1})
	})
}

func TestVerdictMayUseTheLimiter(t *testing.T) {
	lim := newLimiter(8)
	lim.Start()
	defer lim.Stop()
	h := httpserver.Wrap(respond(200), lim, httpserver.WithVerdict(
		func(*http.Request, int, http.Header, time.Duration) agilelimiter.Outcome {
			if lim.Limit() != 8 || lim.InFlight() < 1 || lim.Stats().Target != 8 {
				t.Error("wrong figures inside the verdict")
			}
			lim.Observe(time.Millisecond)
			return agilelimiter.Aborted
		}))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				h.ServeHTTP(httptest.NewRecorder(), newRequest(http.MethodGet))
			}
		})
	}
	wg.Wait()
	wantCounts(t, lim, counts{Admitted: 400, Reached: 400, Aborted: 400})
}

func TestUndefinedOutcomeIsReached(t *testing.T) {
	lim := newLimiter(1)
	odd := httpserver.WithVerdict(func(*http.Request, int, http.Header, time.Duration) agilelimiter.Outcome { return 77 })
	httpserver.Wrap(respond(200), lim, odd).ServeHTTP(httptest.NewRecorder(), newRequest(http.MethodGet))
	wantCounts(t, lim, counts{Admitted: 1, Reached: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	httpserver.Wrap(respond(200), lim, odd).ServeHTTP(httptest.NewRecorder(), newRequest(http.MethodGet).WithContext(ctx))
	wantCounts(t, lim, counts{Admitted: 2, Reached: 2, Truncated: 1})
}

func TestMiddlewareSharesOneBudget(t *testing.T) {
	lim := newLimiter(1)
	mw := httpserver.Middleware(lim, httpserver.WithStatus(503))
	inner := mw(respond(200))
	outer := mw(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { inner.ServeHTTP(w, r) }))
	rec := httptest.NewRecorder()
	outer.ServeHTTP(rec, newRequest(http.MethodGet))
	if rec.Code != 503 {
		t.Errorf("status %d, want 503: the outer one holds the only slot", rec.Code)
	}
	wantCounts(t, lim, counts{Admitted: 1, Shed: 1, Unreachable: 1})
}

func TestMisuse(t *testing.T) {
	lim, h := newLimiter(1), http.NotFoundHandler()
	for _, c := range []struct {
		want string
		do   func()
	}{
		{"Wrap: nil Handler", func() { httpserver.Wrap(nil, lim) }},
		{"Wrap: nil ConcurrencyLimiter", func() { httpserver.Wrap(h, nil) }},
		{"Wrap: nil ConcurrencyLimiter", func() { httpserver.Middleware(nil) }},
		{"Wrap: nil Option", func() { httpserver.Wrap(h, lim, nil) }},
		{"Wrap: nil Option", func() { httpserver.Middleware(lim, nil) }},
		{"WithVerdict: nil Verdict", func() { httpserver.WithVerdict(nil) }},
		{"WithShedHandler: nil Handler", func() { httpserver.WithShedHandler(nil) }},
		{"WithRetryAfter(-1s): must not be negative", func() { httpserver.WithRetryAfter(-time.Second) }},
		{"WithStatus(0): must lie in [400, 599]", func() { httpserver.WithStatus(0) }},
		{"WithStatus(200): must lie in [400, 599]", func() { httpserver.WithStatus(200) }},
		{"WithStatus(600): must lie in [400, 599]", func() { httpserver.WithStatus(600) }},
		{"StatsHandler: nil limiter", func() { httpserver.StatsHandler(nil) }},
		{"StatsHandler: nil limiter", func() { httpserver.StatsHandler((*agilelimiter.Limiter)(nil)) }},
		{"StatsHandler: nil limiter", func() { httpserver.StatsHandler((*agilelimiter.ConcurrencyLimiter)(nil)) }},
	} {
		func() {
			defer func() {
				if got, want := recover(), "agilelimiter/httpserver: "+c.want; got != want {
					t.Errorf("panic %v, want %q", got, want)
				}
			}()
			c.do()
		}()
	}
}

func TestDefaultVerdict(t *testing.T) {
	for status, want := range map[int]agilelimiter.Outcome{
		0:   agilelimiter.Aborted,
		101: agilelimiter.Aborted,
		200: agilelimiter.Reached,
		202: agilelimiter.Reached,
		204: agilelimiter.Reached,
		304: agilelimiter.Reached,
		401: agilelimiter.Reached,
		404: agilelimiter.Reached,
		429: agilelimiter.Unreachable,
		500: agilelimiter.Reached,
		501: agilelimiter.Reached,
		502: agilelimiter.Unreachable,
		503: agilelimiter.Unreachable,
		504: agilelimiter.Reached,
		599: agilelimiter.Reached,
	} {
		// A cache hit is a line of the user's, so the header makes no difference.
		for _, h := range []http.Header{nil, {"X-Cache": {"HIT"}}} {
			if got := httpserver.DefaultVerdict(newRequest(http.MethodGet), status, h, time.Millisecond); got != want {
				t.Errorf("%d: %v, want %v", status, got, want)
			}
		}
	}
}

func TestIsCacheHitHeader(t *testing.T) {
	for _, c := range []struct {
		h    http.Header
		want bool
	}{
		{nil, false},
		{http.Header{"X-Cache": {"HIT"}}, true},
		{http.Header{"X-Cache": {"MISS"}}, false},
		{http.Header{"X-Cache-Status": {"HIT"}}, true},
		{http.Header{"Cf-Cache-Status": {"HIT"}}, true},
		{http.Header{"X-From-Cache": {"1"}}, true},
		{http.Header{"Cache-Status": {"app; hit"}}, true},
		{http.Header{"Age": {"10"}}, true},
		{http.Header{"Age": {"0"}}, false},
	} {
		if got := httpserver.IsCacheHitHeader(c.h); got != c.want {
			t.Errorf("%v: %v, want %v", c.h, got, c.want)
		}
	}
}

func TestOneAllocation(t *testing.T) {
	h := httpserver.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), newLimiter(1))
	w, r := &nullWriter{header: http.Header{}}, newRequest(http.MethodGet)
	if n := testing.AllocsPerRun(1000, func() { h.ServeHTTP(w, r) }); n != 1 {
		t.Errorf("%v allocations per request, want 1", n)
	}
}

// A handler may let go of its writer to a goroutine that outlives the request;
// what that sends must not turn up in the next response.
func TestLeakedWriterTouchesNobodyElse(t *testing.T) {
	lim := newLimiter(1)
	var leaked http.ResponseWriter
	var calls []call
	h := httpserver.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if leaked == nil {
			leaked = w
			return
		}
		leaked.WriteHeader(http.StatusTeapot)
		io.WriteString(leaked, "late")
		io.WriteString(w, "second")
	}), lim, recording(&calls))
	first, second := httptest.NewRecorder(), httptest.NewRecorder()
	h.ServeHTTP(first, newRequest(http.MethodGet))
	h.ServeHTTP(second, newRequest(http.MethodGet))
	if second.Body.String() != "second" || len(calls) != 2 || calls[1].status != 200 {
		t.Errorf("second response %q, verdicts %+v", second.Body, calls)
	}
}

func TestServerSentEvents(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			lim := newLimiter(5)
			next := make(chan struct{})
			url, client := serve(t, protocol, httpserver.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				rc := http.NewResponseController(w)
				if err := rc.SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
					t.Error(err)
				}
				if err := rc.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
					t.Error(err)
				}
				for i := range 4 {
					fmt.Fprintf(w, "data: %d\n", i)
					if i%2 == 0 {
						w.(http.Flusher).Flush()
					} else if err := rc.Flush(); err != nil {
						t.Error(err)
					}
					<-next // so an event arrives before the next is written, or never
				}
			}), lim))
			resp, err := client.Get(url)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			lines := bufio.NewScanner(resp.Body)
			for i := range 4 {
				if !lines.Scan() || lines.Text() != fmt.Sprintf("data: %d", i) {
					t.Fatalf("event %d: %q, %v", i, lines.Text(), lines.Err())
				}
				next <- struct{}{}
			}
			settle(t, lim)
			wantCounts(t, lim, counts{Admitted: 1, Reached: 1}) // the default, see the docs for streams
		})
	}
}

func TestFullDuplex(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			url, client := serve(t, protocol, httpserver.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				rc := http.NewResponseController(w)
				if err := rc.EnableFullDuplex(); err != nil {
					t.Error(err)
				}
				rc.Flush()
				in := bufio.NewReader(r.Body)
				for {
					line, err := in.ReadString('\n')
					if err != nil {
						return
					}
					io.WriteString(w, strings.ToUpper(line))
					rc.Flush()
				}
			}), newLimiter(5)))
			body, feed := io.Pipe()
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, url, body)
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			out := bufio.NewReader(resp.Body)
			for _, word := range []string{"one\n", "two\n"} {
				io.WriteString(feed, word)
				if got, err := out.ReadString('\n'); got != strings.ToUpper(word) {
					t.Fatalf("%q, %v, want %q", got, err, strings.ToUpper(word))
				}
			}
			feed.Close()
		})
	}
}

func TestTrailers(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			url, client := serve(t, protocol, httpserver.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Trailer", "X-Sum")
				io.WriteString(w, "body")
				w.Header().Set("X-Sum", "42")
				w.Header().Set(http.TrailerPrefix+"X-Late", "yes")
			}), newLimiter(5)))
			resp, body := get(t, client, url)
			if body != "body" || resp.Trailer.Get("X-Sum") != "42" || resp.Trailer.Get("X-Late") != "yes" {
				t.Errorf("body %q, trailers %v", body, resp.Trailer)
			}
		})
	}
}

// A Clock that panics takes no slot with it, neither before the handler nor
// behind it.
func TestAPanickingClockCostsNoSlot(t *testing.T) {
	clock := &fragileClock{VirtualClock: agilelimiter.NewVirtualClock(time.Unix(0, 0))}
	lim := agilelimiter.NewConcurrency(agilelimiter.ConcurrencyConfig{MinLimit: 1, MaxLimit: 1, Clock: clock})
	for _, inside := range []bool{false, true} {
		h := httpserver.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { clock.broken.Store(true) }), lim)
		clock.broken.Store(!inside)
		func() {
			defer func() {
				if recover() != "broken" {
					t.Error("the panic did not pass on")
				}
			}()
			h.ServeHTTP(httptest.NewRecorder(), newRequest("GET"))
		}()
		clock.broken.Store(false)
		if n := lim.InFlight(); n != 0 {
			t.Errorf("%d in flight, want 0", n)
		}
	}
	wantCounts(t, lim, counts{Admitted: 1, Aborted: 1})
}

// fragileClock panics while it is broken.
type fragileClock struct {
	*agilelimiter.VirtualClock
	broken atomic.Bool
}

func (c *fragileClock) Now() time.Time {
	if c.broken.Load() {
		panic("broken")
	}
	return c.VirtualClock.Now()
}
