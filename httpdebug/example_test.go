package httpdebug_test

import (
	"fmt"
	"net/http/httptest"
	"time"

	"agilelimiter"
	"agilelimiter/httpdebug"
)

// A page is an http.Handler; mount it on an admin listener, never on a public
// one: http.Handle("/debug/limiters", page).
func ExamplePage() {
	clock := agilelimiter.NewVirtualClock(time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC))
	page := httpdebug.New()
	lim := agilelimiter.New(page.Watch("payments", agilelimiter.Config{MinRate: 20, MaxRate: 500, Clock: clock}))
	lim.Start()
	defer lim.Stop()
	clock.Advance(time.Second)

	w := httptest.NewRecorder()
	page.ServeHTTP(w, httptest.NewRequest("GET", "/debug/limiters", nil))
	fmt.Println(w.Code, w.Header().Get("Content-Type"), w.Header().Get("Cache-Control"))
	// Output: 200 text/html; charset=utf-8 no-store
}
