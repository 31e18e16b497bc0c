package agilelimiter_test

// The ways of use that the project was founded on, letter by letter: each of
// them has to go on compiling.

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"agilelimiter"
)

var (
	errBreakerOpen = errors.New("breaker open")
	calls          int
)

func doRequest(context.Context) error { calls++; return nil }

func handle(http.ResponseWriter, *http.Request) error { calls++; return nil }

func report(time.Duration) {}

func TestSeedOutbound(t *testing.T) {
	ctx := t.Context()
	calls = 0

	lim := agilelimiter.New(agilelimiter.Config{
		MinRate:     20,                     // never go below this many req/s
		MaxRate:     500,                    // hard ceiling you promise the downstream
		InitialRate: 50,                     // optional; defaults to MaxRate/8
		SLOTarget:   200 * time.Millisecond, // optional: p99 tail guard
	})
	lim.Start()
	defer lim.Stop()

	err := lim.Do(func() error { return doRequest(ctx) })
	if err != nil || calls != 1 || lim.Stats().Reached != 1 || lim.Rate() != 50 {
		t.Errorf("%v after %d calls, %+v", err, calls, lim.Stats())
	}
}

func TestSeedGeneric(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	client := server.Client()
	req, err := http.NewRequest(http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	lim := agilelimiter.New(agilelimiter.Config{MaxRate: 500})

	resp, err := agilelimiter.Do(lim, func() (*http.Response, error) {
		return client.Do(req)
	})
	if err != nil || resp.StatusCode != http.StatusNotFound {
		t.Fatalf("%v, %v", resp, err)
	}
	resp.Body.Close()
}

func TestSeedByHand(t *testing.T) {
	ctx := t.Context()
	lim := agilelimiter.New(agilelimiter.Config{MaxRate: 500})

	t0 := lim.Take()    // planned send time (blocks until granted)
	start := time.Now() // actually sent
	err := doRequest(ctx)
	lim.Observe(time.Since(start)) // downstream RTT -> drives the controller
	report(time.Since(t0))         // CO-safe end-to-end metric -> reporting only

	if s := lim.Stats(); err != nil || s.Reached != 1 || s.Admitted != 1 || s.InFlight != 0 {
		t.Errorf("%v, %+v", err, s)
	}
	lim.Take()
	lim.Unavailable()
	if s := lim.Stats(); s.Unreachable != 1 || s.InFlight != 0 {
		t.Errorf("%+v", s)
	}
}

func TestSeedClassify(t *testing.T) {
	lim := agilelimiter.New(agilelimiter.Config{
		MinRate:   20,
		MaxRate:   500,
		SLOTarget: 200 * time.Millisecond,
		Classify: func(err error) agilelimiter.Outcome {
			switch {
			case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, errBreakerOpen):
				return agilelimiter.Unreachable // never arrived
			case errors.Is(err, context.Canceled):
				return agilelimiter.Aborted // not the downstream's opinion
			default:
				return agilelimiter.Reached // timeout, 5xx: it answered
			}
		},
	})
	for _, err := range []error{errBreakerOpen, syscall.ECONNREFUSED, context.Canceled, context.DeadlineExceeded, errors.New("500")} {
		lim.Do(func() error { return err })
	}
	if s := lim.Stats(); s.Unreachable != 2 || s.Aborted != 1 || s.Reached != 2 || s.Truncated != 1 {
		t.Errorf("%+v", s)
	}
}

func TestSeedInbound(t *testing.T) {
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)

	lim := agilelimiter.NewConcurrency(agilelimiter.ConcurrencyConfig{
		MinLimit:     10,                     // never admit fewer than this many concurrent
		MaxLimit:     500,                    // hard ceiling you promise the service
		InitialLimit: 50,                     // optional; defaults to MaxLimit/8
		SLOTarget:    200 * time.Millisecond, // optional: p99 tail guard
	})
	lim.Start()
	defer lim.Stop()

	for range 50 {
		lim.TryTake()
	}
	err := lim.Do(func() error { return handle(w, r) })
	if errors.Is(err, agilelimiter.ErrOverloaded) {
		http.Error(w, "overloaded", http.StatusTooManyRequests)
	}
	if w.Code != http.StatusTooManyRequests || lim.Limit() != 50 || lim.InFlight() != 50 {
		t.Errorf("status %d at limit %d with %d in flight", w.Code, lim.Limit(), lim.InFlight())
	}
}

func TestSeedInboundByHand(t *testing.T) {
	lim := agilelimiter.NewConcurrency(agilelimiter.ConcurrencyConfig{MaxLimit: 1})
	serve := func(w http.ResponseWriter, r *http.Request) {
		if !lim.TryTake() {
			http.Error(w, "overloaded", http.StatusTooManyRequests)
			return
		}
		defer lim.Release() // released even if the handler panics
		start := time.Now()
		handle(w, r)
		lim.Observe(time.Since(start)) // this request's handling time -> drives the controller
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
		w := httptest.NewRecorder()
		serve(w, r)
		if w.Code != want {
			t.Errorf("status %d, want %d", w.Code, want)
		}
		if want == http.StatusOK {
			lim.TryTake()
		}
	}
	lim.Unavailable()
	if s := lim.Stats(); s.Reached != 1 || s.Unreachable != 1 || s.Shed != 1 {
		t.Errorf("%+v", s)
	}
}

func TestSeedAnchorsAndKnobs(t *testing.T) {
	for _, cfg := range []agilelimiter.Config{
		{MaxRate: 500, Anchor: agilelimiter.AnchorBaseline, RecoverRamp: 0.5, SlowStartGain: 2.0},
		{MaxRate: 500, Anchor: agilelimiter.AnchorSLO, SLOTarget: 200 * time.Millisecond, BackoffTicks: 2, RecoverTicks: 2},
		{MaxRate: 500, TargetInflation: 1, Deadband: 0.2, Gain: 1, UpStep: 0.05, DownStep: 0.3, MaxBaselineRise: 0.0005},
	} {
		if err := cfg.Validate(); err != nil {
			t.Error(err)
		}
	}
	if agilelimiter.New(agilelimiter.Config{MaxRate: 500}).Stats().Samples != 0 {
		t.Error("a fresh limiter has samples")
	}
}
