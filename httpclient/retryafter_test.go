package httpclient_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agilelimiter"
	"agilelimiter/httpclient"
)

func TestRetryAfterPauses(t *testing.T) { // FR19
	const most = time.Minute
	now := time.Now().UTC()
	at := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	for _, tt := range []struct {
		status int
		header string
		date   string
		want   time.Duration
	}{
		{429, "30", "", 30 * time.Second},
		{503, "30", "", 30 * time.Second},
		{429, " 30\t", "", 30 * time.Second},
		{429, "007", "", 7 * time.Second},
		{429, "60", "", most},
		{429, "61", "", most}, // capped from here on
		{429, "1000000000", "", most},
		{429, "9223372036854775807", "", most},
		{429, "99999999999999999999999999999", "", most},
		{429, at(30 * time.Second), at(0), 30 * time.Second},
		// The downstream's clock goes wrong, but its two times agree.
		{429, at(-time.Hour + 30*time.Second), at(-time.Hour), 30 * time.Second},
		{429, at(1000 * time.Hour), at(0), most},
		{429, "Fri, 31 Dec 9999 23:59:59 GMT", at(0), most},
		{503, now.Add(30 * time.Second).Format(time.RFC850), at(0), 30 * time.Second},
		{503, now.Add(30 * time.Second).Format(time.ANSIC), at(0), 30 * time.Second},
		{429, at(24 * time.Hour), "yesterday", most}, // a broken Date: our clock

		{200, "30", "", 0},
		{404, "30", "", 0},
		{502, "30", "", 0},
		{301, "30", "", 0},
		{429, "", "", 0},
		{429, "0", "", 0},
		{429, "-1", "", 0},
		{429, "+30", "", 0},
		{429, "1.5", "", 0},
		{429, "1e9", "", 0},
		{429, "0x1f", "", 0},
		{429, "30s", "", 0},
		{429, "soon", "", 0},
		{429, "30, 40", "", 0},
		{429, "٣٠", "", 0},
		{429, at(0), at(0), 0},
		{429, at(-time.Hour), at(0), 0},
		{429, at(-time.Hour), "", 0},
		{429, "Fri, 31 Feb 2030 23:59:59 GMT", at(0), 0},
	} {
		lim := agilelimiter.New(agilelimiter.Config{MinRate: 10, MaxRate: 10, Clock: agilelimiter.NewVirtualClock(now)})
		rt := httpclient.Wrap(roundTripperFunc(func(*http.Request) (*http.Response, error) {
			h := http.Header{"Retry-After": {tt.header}}
			if tt.date != "" {
				h.Set("Date", tt.date)
			}
			return &http.Response{StatusCode: tt.status, Header: h, Body: http.NoBody}, nil
		}), lim, httpclient.WithRetryAfter(most))
		if _, err := rt.RoundTrip(newRequest(t, nil)); err != nil {
			t.Fatal(err)
		}
		if got := lim.Stats().Paused; got != tt.want {
			t.Errorf("%d with Retry-After %q and Date %q: paused for %v, want %v", tt.status, tt.header, tt.date, got, tt.want)
		}
	}
}

func TestRetryAfterIsNotReadUnlessAskedFor(t *testing.T) {
	lim := fixed(10)
	rt := httpclient.Wrap(roundTripperFunc(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"30"}}, Body: http.NoBody}, nil
	}), lim)
	if _, err := rt.RoundTrip(newRequest(t, nil)); err != nil || lim.Stats().Paused != 0 {
		t.Errorf("%v, paused for %v", err, lim.Stats().Paused)
	}
}

// A response without a header map, and an error in place of a response.
func TestRetryAfterOfNothing(t *testing.T) {
	for _, rt := range []roundTripperFunc{
		func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 429, Body: http.NoBody}, nil
		},
		func(*http.Request) (*http.Response, error) { return nil, errors.New("reset") },
		func(*http.Request) (*http.Response, error) { return nil, nil },
	} {
		lim := fixed(10)
		httpclient.Wrap(rt, lim, httpclient.WithRetryAfter(time.Minute)).RoundTrip(newRequest(t, nil))
		if got := lim.Stats().Paused; got != 0 {
			t.Errorf("paused for %v", got)
		}
	}
}

func TestWithRetryAfterPanics(t *testing.T) {
	for _, max := range []time.Duration{0, -time.Second} {
		func() {
			defer func() {
				want := fmt.Sprintf("agilelimiter/httpclient: WithRetryAfter: max is %v, want more than 0", max)
				if got := recover(); got != want {
					t.Errorf("panic %v, want %q", got, want)
				}
			}()
			httpclient.WithRetryAfter(max)
		}()
	}
}

// A real server that answers 429 with Retry-After: 30. In the silence it gets
// the requests that were in flight, and no other.
func TestARealServerGetsItsSilence(t *testing.T) { // FR19
	const inFlight, later = 5, 20
	var served atomic.Int32
	var refusing atomic.Bool
	refusing.Store(true)
	arrived, answer := make(chan struct{}, inFlight), make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		if refusing.Load() {
			arrived <- struct{}{}
			<-answer
			w.Header().Set("Retry-After", "30")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer srv.Close()

	clock := agilelimiter.NewVirtualClock(time.Now())
	lim := agilelimiter.New(agilelimiter.Config{MinRate: 20, MaxRate: 1000, InitialRate: 1000, SLOTarget: time.Second, Clock: clock})
	lim.Start()
	defer lim.Stop()
	client := &http.Client{Transport: httpclient.Wrap(srv.Client().Transport, lim, httpclient.WithRetryAfter(time.Minute))}
	var statuses [inFlight + later]int
	var calls sync.WaitGroup
	call := func(i int) {
		calls.Go(func() {
			resp, err := client.Get(srv.URL)
			if err != nil {
				t.Error(err)
				return
			}
			resp.Body.Close()
			statuses[i] = resp.StatusCode
		})
	}
	for i := range inFlight {
		call(i)
		for lim.Stats().Admitted < uint64(i+1) {
			runtime.Gosched()
			if lim.Waiting() > 0 {
				clock.Advance(time.Millisecond)
			}
		}
	}
	for range inFlight {
		<-arrived
	}
	close(answer)
	calls.Wait() // all five are refused, and each asks for silence
	refusing.Store(false)
	rate := lim.Rate()
	for i := range later {
		call(inFlight + i)
	}
	for lim.Waiting() < later {
		runtime.Gosched()
	}
	if _, err := client.Transport.RoundTrip(shortLived(t, srv.URL)); !errors.Is(err, agilelimiter.ErrWait) {
		t.Errorf("a request without patience: %v, want a refusal", err)
	}
	clock.Advance(30*time.Second - 1)
	if n := served.Load(); n != inFlight || lim.Waiting() != later {
		t.Errorf("%d requests at the server in the silence, want the %d in flight; %d wait, want %d", n, inFlight, lim.Waiting(), later)
	}
	clock.Advance(time.Second)
	calls.Wait()
	for i, status := range statuses {
		if want := map[bool]int{true: 429, false: 200}[i < inFlight]; status != want {
			t.Errorf("request %d: status %d, want %d", i, status, want)
		}
	}
	if got := lim.Rate(); got != rate {
		t.Errorf("rate %g behind the pause, %g before", got, rate)
	}
}

// shortLived is a request with a deadline within the pause.
func shortLived(t *testing.T, url string) *http.Request {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, strings.NewReader(""))
	if err != nil {
		t.Fatal(err)
	}
	return req
}
