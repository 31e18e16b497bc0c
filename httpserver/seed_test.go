package httpserver_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"agilelimiter"
	"agilelimiter/httpserver"
)

func getThings(w http.ResponseWriter, r *http.Request) {}

// The snippets of the project's description, as they stand there. The server
// runs in a function that nobody calls: the snippet names a fixed port.
func seedServer() {
	lim := agilelimiter.NewConcurrency(agilelimiter.ConcurrencyConfig{
		MaxLimit:     500,
		InitialLimit: 50,
		SLOTarget:    200 * time.Millisecond,
	})
	lim.Start()
	defer lim.Stop()

	mux := http.NewServeMux()
	mux.HandleFunc("/api/things", getThings)
	http.ListenAndServe(":8080", httpserver.Wrap(mux, lim,
		httpserver.WithRetryAfter(time.Second))) // sends Retry-After on a 429
}

var _ = seedServer

var _ httpserver.Verdict = func(r *http.Request, status int, h http.Header, d time.Duration) agilelimiter.Outcome {
	return agilelimiter.Reached
}

func TestSeedVerdict(t *testing.T) {
	lim := newLimiter(10)
	mux := http.NewServeMux()
	mux.HandleFunc("/cached", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Cache", "HIT")
	})
	mux.HandleFunc("/", getThings)
	h := httpserver.Wrap(mux, lim, httpserver.WithVerdict(
		func(r *http.Request, status int, h http.Header, d time.Duration) agilelimiter.Outcome {
			switch {
			case strings.HasPrefix(r.URL.Path, "/health"), r.URL.Path == "/metrics":
				return agilelimiter.Aborted // cheap by design, and noisy on a quiet service
			case r.Method == http.MethodOptions:
				return agilelimiter.Aborted // CORS preflight
			case httpserver.IsCacheHitHeader(h):
				return agilelimiter.Aborted
			default:
				return httpserver.DefaultVerdict(r, status, h, d)
			}
		}))
	url, client := serve(t, "HTTP/1.1", h)
	for _, path := range []string{"/health", "/healthz", "/metrics", "/cached", "/api/things"} {
		get(t, client, url+path)
	}
	settle(t, lim)
	wantCounts(t, lim, counts{Admitted: 5, Aborted: 4, Reached: 1})

	mux2 := http.NewServeMux()
	mux2.Handle("/stats", httpserver.StatsHandler(lim))
	url, client = serve(t, "HTTP/1.1", mux2)
	if resp, body := get(t, client, url+"/stats"); resp.StatusCode != 200 || !strings.Contains(body, `"limit": 10,`) {
		t.Errorf("%d: %s", resp.StatusCode, body)
	}
}
