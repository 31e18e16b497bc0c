package httpserver_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"agilelimiter"
	"agilelimiter/httpserver"
)

func ExampleWrap() {
	lim := agilelimiter.NewConcurrency(agilelimiter.ConcurrencyConfig{MaxLimit: 500, SLOTarget: 200 * time.Millisecond})
	lim.Start()
	defer lim.Stop()

	api := http.NewServeMux()
	api.HandleFunc("/api/things", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "things") })

	mux := http.NewServeMux()
	mux.Handle("/stats", httpserver.StatsHandler(lim)) // outside, so that it is never shed
	mux.Handle("/", httpserver.Wrap(api, lim, httpserver.WithRetryAfter(time.Second)))

	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/things", nil))
	fmt.Println(w.Code, w.Body, lim.Stats().Reached)
	// Output: 200 things 1
}

func ExampleWithShedHandler() {
	lim := agilelimiter.NewConcurrency(agilelimiter.ConcurrencyConfig{MaxLimit: 1})
	busy := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, `{"title":"busy, please come back"}`)
	})
	h := httpserver.Wrap(http.NotFoundHandler(), lim,
		httpserver.WithRetryAfter(500*time.Millisecond), httpserver.WithShedHandler(busy))

	lim.TryTake() // somebody holds the only slot
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	fmt.Println(w.Code, w.Header().Get("Retry-After"), w.Body)
	// Output: 503 1 {"title":"busy, please come back"}
}
