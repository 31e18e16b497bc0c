package httpdebug_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"agilelimiter"
	"agilelimiter/httpdebug"
)

func allow(*http.Request) error { return nil }

// controlled is a page with a rate named "r" and a limit named "l" that it may
// change, and a third, "other", that it may not.
func controlled(opts ...httpdebug.Option) (*httpdebug.Page, *agilelimiter.Limiter, *agilelimiter.ConcurrencyLimiter) {
	page := httpdebug.New(opts...)
	clock := agilelimiter.NewVirtualClock(time.Unix(0, 0))
	r := agilelimiter.New(page.Watch("r", agilelimiter.Config{MinRate: 10, MaxRate: 100, InitialRate: 50, Clock: clock}))
	l := agilelimiter.NewConcurrency(page.WatchConcurrency("l", agilelimiter.ConcurrencyConfig{MinLimit: 10, MaxLimit: 100, InitialLimit: 50, Clock: clock}))
	page.Watch("other", agilelimiter.Config{MaxRate: 1})
	page.Control("r", r)
	page.ControlConcurrency("l", l)
	return page, r, l
}

// post sends a change as curl would; header lines are "Name: value".
func post(page http.Handler, body string, header ...string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(http.MethodPost, "http://admin.test/debug", strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	page.ServeHTTP(w, req)
	return w
}

// state is what a request may change.
type state struct {
	min, max float64
	paused   time.Duration
	shadow   bool
}

func stateOf(lim interface{ Stats() agilelimiter.Stats }) state {
	s := lim.Stats()
	return state{s.Min, s.Max, s.Paused, s.Shadow}
}

func TestChangesAreMade(t *testing.T) {
	for _, name := range []string{"r", "l"} {
		page, r, l := controlled(httpdebug.WithControls(allow))
		for _, tt := range []struct {
			body string
			want state
		}{
			{`"min": 20, "max": 200`, state{20, 200, 0, false}},
			{`"pause_seconds": 30`, state{20, 200, 30 * time.Second, false}},
			{`"pause_seconds": 0`, state{20, 200, 0, false}},
			{`"shadow": true`, state{20, 200, 0, true}},
			{`"shadow": false`, state{20, 200, 0, false}},
			{`"pause_seconds": 86400`, state{20, 200, 24 * time.Hour, false}},
		} {
			w := post(page, `{"limiter": "`+name+`", `+tt.body+`}`)
			if w.Code != http.StatusNoContent || w.Body.Len() != 0 {
				t.Errorf("%s, %s: %d %s", name, tt.body, w.Code, w.Body)
			}
			changed, other := stateOf(r), stateOf(l)
			if name == "l" {
				changed, other = other, changed
			}
			if changed != tt.want || other != (state{10, 100, 0, false}) {
				t.Errorf("%s, %s: %+v and the other %+v, want %+v", name, tt.body, changed, other, tt.want)
			}
		}
	}
}

func TestWrongChangesChangeNothing(t *testing.T) {
	page, r, l := controlled(httpdebug.WithControls(allow))
	for _, tt := range []struct {
		body string
		code int
		says string
	}{
		{`{"limiter": "r", "min": 20, "max": 10}`, 400, "min is 20, want 0.001 to max = 10"},
		{`{"limiter": "r", "min": 20, "max": 2e9}`, 400, "max is 2e+09"},
		{`{"limiter": "l", "min": 1.5, "max": 10}`, 400, "min is 1.5, want a whole number"},
		{`{"limiter": "l", "min": 1, "max": 1e300}`, 400, "max is 1e+300, want a whole number"},
		{`{"limiter": "l", "min": 0, "max": 10}`, 400, "min is 0, want 1 to max = 10"},
		{`{"limiter": "r", "min": 20}`, 400, "min and max must come together"},
		{`{"limiter": "r", "min": null, "max": 3}`, 400, "min and max must come together"},
		{`{"limiter": "r", "pause_seconds": -1}`, 400, "pause_seconds is -1, want 0"},
		{`{"limiter": "r", "pause_seconds": 86401}`, 400, "pause_seconds is 86401, want 0"},
		{`{"limiter": "r", "pause_seconds": 1e999}`, 400, "the body is no change"},
		{`{"limiter": "r", "pause_seconds": "30"}`, 400, "the body is no change"},
		{`{"limiter": "r", "pause_seconds": 1, "shadow": true}`, 400, "one change at a time"},
		{`{"limiter": "r", "min": 1, "max": 2, "shadow": true}`, 400, "one change at a time"},
		{`{"limiter": "r"}`, 400, "one change at a time"},
		{`{"limiter": "r", "rate": 3}`, 400, "the body is no change"},
		{`{"limiter": "x", "shadow": true}`, 404, `no limiter named "x" can be changed`},
		{`{"limiter": "other", "shadow": true}`, 404, `no limiter named "other" can be changed`},
		{`{}`, 404, "no limiter"},
		{``, 400, "the body is no change"},
		{`{"limiter": "` + strings.Repeat("r", 5000) + `"}`, 400, "the body is no change"},
	} {
		w := post(page, tt.body)
		if w.Code != tt.code || !strings.Contains(w.Body.String(), tt.says) {
			t.Errorf("%.60s: %d %s, want %d and %q", tt.body, w.Code, w.Body, tt.code, tt.says)
		}
	}
	want := state{10, 100, 0, false}
	if stateOf(r) != want || stateOf(l) != want {
		t.Errorf("changed: %+v, %+v", stateOf(r), stateOf(l))
	}
}

func TestWhoMayNotChange(t *testing.T) {
	const body = `{"limiter": "r", "shadow": true}`
	var asked int
	ask := func(req *http.Request) error {
		asked++
		if req.Header.Get("Authorization") != "Bearer admin" {
			return errors.New("who are you?")
		}
		return nil
	}
	page, r, _ := controlled(httpdebug.WithControls(ask))
	for _, tt := range []struct {
		name   string
		header []string
		code   int
		asked  int
	}{
		{"nobody", nil, 403, 1},
		{"another site", []string{"Authorization: Bearer admin", "Sec-Fetch-Site: cross-site"}, 403, 0},
		{"another site of an old browser", []string{"Authorization: Bearer admin", "Origin: http://evil.test"}, 403, 0},
		{"a site beside", []string{"Authorization: Bearer admin", "Sec-Fetch-Site: same-site"}, 403, 0},
		{"a form", []string{"Authorization: Bearer admin", "Content-Type: text/plain"}, 415, 1},
		{"another form", []string{"Authorization: Bearer admin", "Content-Type: application/x-www-form-urlencoded"}, 415, 1},
		{"no type", []string{"Authorization: Bearer admin", "Content-Type: "}, 415, 1},
	} {
		asked = 0
		w := post(page, body, tt.header...)
		if w.Code != tt.code || asked != tt.asked || stateOf(r).shadow {
			t.Errorf("%s: %d %s, authorize asked %d times, shadow %t; want %d and %d", tt.name, w.Code, w.Body, asked, stateOf(r).shadow, tt.code, tt.asked)
		}
	}
	for _, header := range [][]string{
		{"Authorization: Bearer admin"},
		{"Authorization: Bearer admin", "Sec-Fetch-Site: same-origin", "Content-Type: application/json; charset=utf-8"},
	} {
		r.SetShadow(false)
		if w := post(page, body, header...); w.Code != 204 || !stateOf(r).shadow {
			t.Errorf("the page itself: %d %s", w.Code, w.Body)
		}
	}
}

// Without WithControls there is no way to change anything.
func TestNothingCanBeChangedByDefault(t *testing.T) {
	page, r, _ := controlled()
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
		req := httptest.NewRequest(method, "http://admin.test/debug", strings.NewReader(`{"limiter": "r", "shadow": true}`))
		req.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		page.ServeHTTP(w, req)
		if w.Code != 405 || w.Header().Get("Allow") != "GET, HEAD" || stateOf(r).shadow {
			t.Errorf("%s: %d, Allow %q, shadow %t", method, w.Code, w.Header().Get("Allow"), stateOf(r).shadow)
		}
	}
	for _, l := range read(t, page, "").Limiters {
		if l.Controls {
			t.Errorf("%s is shown with controls", l.Name)
		}
	}
}

func TestOtherMethodsChangeNothing(t *testing.T) {
	page, r, _ := controlled(httpdebug.WithControls(allow))
	for _, method := range []string{"PUT", "PATCH", "DELETE"} {
		if w := get(t, page, method, "/debug", "Content-Type: application/json"); w.Code != 405 || w.Header().Get("Allow") != "GET, HEAD, POST" {
			t.Errorf("%s: %d, Allow %q", method, w.Code, w.Header().Get("Allow"))
		}
	}
	get(t, page, "GET", `/debug?limiter=r&shadow=true&min=20&max=30`)
	if got := stateOf(r); got != (state{10, 100, 0, false}) {
		t.Errorf("a GET changed it: %+v", got)
	}
	var shown []bool
	for _, l := range read(t, page, "").Limiters {
		shown = append(shown, l.Controls)
	}
	if len(shown) != 3 || !shown[0] || !shown[1] || shown[2] {
		t.Errorf("controls shown: %v, want them for the two that were handed over", shown)
	}
}

func TestControlPanics(t *testing.T) {
	page, r, l := controlled()
	for name, f := range map[string]func(){
		"nil authorize":     func() { httpdebug.WithControls(nil) },
		"nil option":        func() { httpdebug.New(nil) },
		"nil limiter":       func() { page.Control("r", nil) },
		"nil limit":         func() { page.ControlConcurrency("l", nil) },
		"unknown name":      func() { page.Control("x", r) },
		"a rate as a limit": func() { page.ControlConcurrency("r", l) },
		"a limit as a rate": func() { page.Control("l", r) },
	} {
		func() {
			defer func() {
				if s, _ := recover().(string); !strings.HasPrefix(s, "httpdebug: ") {
					t.Errorf("%s: panic %q", name, s)
				}
			}()
			f()
		}()
	}
}

func TestNotesTellShadowPauseAndLateness(t *testing.T) {
	page := httpdebug.New()
	k := newTicker(page, "a", 250*time.Millisecond)
	k.step(func(s *agilelimiter.Stats) {
		s.Shadow, s.WouldWait, s.WouldShed, s.Paused = true, 12, 3, 30*time.Second
		s.Lateness, s.LatenessLost = 25*time.Millisecond, 2*time.Second
	})
	var texts []string
	for _, n := range read(t, page, "").Limiters[0].Notes {
		texts = append(texts, n.Text)
	}
	all := strings.Join(texts, "\n")
	for _, want := range []string{
		"Shadow mode: nobody is delayed or refused. 12 calls would have waited, 3 would have been refused.",
		"Paused for another 30 s: nobody is let through.",
		"The limiter's own timer is late by up to 25ms: the machine is busy, and 2s of the schedule are lost so far.",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("notes lack %q:\n%s", want, all)
		}
	}
}
