package httpclient_test

import (
	"io"
	"log"
	"net/http"
	"sync/atomic"
	"testing"

	"agilelimiter"
)

type roundTripperFunc func(*http.Request) (*http.Response, error)

func (f roundTripperFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// fixed returns a limiter that stays at rate.
func fixed(rate float64) *agilelimiter.Limiter {
	return agilelimiter.New(agilelimiter.Config{MinRate: rate, MaxRate: rate, InitialRate: rate})
}

func newRequest(t testing.TB, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://downstream.test/path?q=1", body)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// trackedBody counts how often it is closed.
type trackedBody struct {
	io.Reader
	closed atomic.Int32
}

func (b *trackedBody) Close() error { b.closed.Add(1); return nil }

func ok(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody}, nil
}

// counts is the part of Stats that says how calls ended.
type counts struct{ Admitted, Shed, Reached, Unreachable, Aborted, Truncated uint64 }

func countsOf(lim *agilelimiter.Limiter) counts {
	s := lim.Stats()
	return counts{s.Admitted, s.Shed, s.Reached, s.Unreachable, s.Aborted, s.Truncated}
}

func wantCounts(t *testing.T, lim *agilelimiter.Limiter, want counts) {
	t.Helper()
	if got := countsOf(lim); got != want {
		t.Errorf("counts = %+v, want %+v", got, want)
	}
}

var discardLog = log.New(io.Discard, "", 0)
