package httpserver_test

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"agilelimiter"
	"agilelimiter/httpserver"
)

func newLimiter(limit int) *agilelimiter.ConcurrencyLimiter {
	return agilelimiter.NewConcurrency(agilelimiter.ConcurrencyConfig{MinLimit: limit, MaxLimit: limit})
}

// counts is the part of Stats that says how calls ended.
type counts struct {
	InFlight                                                 int
	Admitted, Shed, Reached, Unreachable, Aborted, Truncated uint64
}

func countsOf(lim *agilelimiter.ConcurrencyLimiter) counts {
	s := lim.Stats()
	return counts{s.InFlight, s.Admitted, s.Shed, s.Reached, s.Unreachable, s.Aborted, s.Truncated}
}

func wantCounts(t *testing.T, lim *agilelimiter.ConcurrencyLimiter, want counts) {
	t.Helper()
	if got := countsOf(lim); got != want {
		t.Errorf("counts = %+v, want %+v", got, want)
	}
}

// protocols are what a net/http server speaks; the last is HTTP/2 without TLS.
var protocols = []string{"HTTP/1.1", "HTTP/2", "h2c"}

// serve starts a real server on loopback and returns its address and a client
// that speaks the protocol.
func serve(t *testing.T, protocol string, h http.Handler) (url string, client *http.Client) {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	switch protocol {
	case "HTTP/1.1":
		srv.Start()
		client = srv.Client()
	case "HTTP/2":
		srv.EnableHTTP2 = true
		srv.StartTLS()
		client = srv.Client()
	case "h2c":
		p := new(http.Protocols)
		p.SetUnencryptedHTTP2(true)
		srv.Config.Protocols = p
		srv.Start()
		client = &http.Client{Transport: &http.Transport{Protocols: p}}
		t.Cleanup(client.CloseIdleConnections)
	}
	t.Cleanup(srv.Close)
	return srv.URL, client
}

// settle waits until every admitted call has ended: a client has its response a
// little before the handler has returned.
func settle(t *testing.T, lim *agilelimiter.ConcurrencyLimiter) {
	t.Helper()
	for range 5000 {
		s := lim.Stats()
		if s.InFlight == 0 && s.Reached+s.Unreachable+s.Aborted == s.Admitted {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("calls still in flight: %+v", countsOf(lim))
}

func get(t *testing.T, client *http.Client, url string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// call is what a verdict was told.
type call struct {
	status int
	header http.Header
	d      time.Duration
}

// recording returns a verdict that notes what it is told.
func recording(calls *[]call) httpserver.Option {
	var mu sync.Mutex
	return httpserver.WithVerdict(func(r *http.Request, status int, h http.Header, d time.Duration) agilelimiter.Outcome {
		mu.Lock()
		defer mu.Unlock()
		*calls = append(*calls, call{status, h.Clone(), d})
		return httpserver.DefaultVerdict(r, status, h, d)
	})
}
