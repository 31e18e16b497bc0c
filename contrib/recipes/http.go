package recipes

import (
	"context"
	"net/http"
	"strings"
	"time"

	"agilelimiter"
	"agilelimiter/httpclient"
	"agilelimiter/httpserver"
)

// NewClient paces everything that the client sends. The Timeout bounds the wait
// for a slot too: it is the deadline that every request needs.
func NewClient(lim *agilelimiter.Limiter) *http.Client {
	return &http.Client{
		Transport: httpclient.Wrap(http.DefaultTransport, lim),
		Timeout:   2 * time.Second,
	}
}

// NewServer sheds what the service cannot take. Health checks and the limiter's
// figures stay outside, and so does the limit for request bodies.
func NewServer(api http.Handler, lim *agilelimiter.ConcurrencyLimiter) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, r *http.Request) {})
	mux.Handle("/stats", httpserver.StatsHandler(lim))
	limited := httpserver.Wrap(api, lim, httpserver.WithRetryAfter(time.Second))
	mux.Handle("/", http.MaxBytesHandler(limited, 1<<20))
	return mux
}

// WithDeadline gives every request a time limit that its handler can see. Put it
// around Wrap, shorter than the clients' patience.
func WithDeadline(h http.Handler, patience time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		h.ServeHTTP(w, r.WithContext(ctx))
	})
}

// ServiceVerdict knows what this service answers without working, and which of
// its responses last for as long as the client likes.
func ServiceVerdict(r *http.Request, status int, h http.Header, d time.Duration) agilelimiter.Outcome {
	switch {
	case r.Method == http.MethodOptions: // CORS preflight
		return agilelimiter.Aborted
	case httpserver.IsCacheHitHeader(h):
		return agilelimiter.Aborted
	case strings.HasPrefix(h.Get("Content-Type"), "text/event-stream"):
		return agilelimiter.Aborted
	}
	return httpserver.DefaultVerdict(r, status, h, d)
}

// SeparateStreams gives streams a fixed budget of their own. Min equal to Max is
// a plain limit: nothing of a stream's length reaches the controller.
func SeparateStreams(streams, api http.Handler, lim *agilelimiter.ConcurrencyLimiter) http.Handler {
	budget := agilelimiter.NewConcurrency(agilelimiter.ConcurrencyConfig{MinLimit: 1000, MaxLimit: 1000})
	mux := http.NewServeMux()
	mux.Handle("/events", httpserver.Wrap(streams, budget))
	mux.Handle("/", httpserver.Wrap(api, lim, httpserver.WithVerdict(ServiceVerdict)))
	return mux
}
