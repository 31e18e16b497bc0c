package httpdebug_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"agilelimiter"
	"agilelimiter/httpdebug"
)

// report is the JSON as a reader of the package comment would declare it.
type report struct {
	Time, Started time.Time
	Seq           uint64
	Limiters      []struct {
		Name, Kind, Unit, Anchor string
		Tick                     float64 `json:"tick_seconds"`
		SLO                      float64 `json:"slo_seconds"`
		Span                     float64 `json:"span_seconds"`
		Elapsed                  float64 `json:"elapsed_seconds"`
		Age                      float64 `json:"age_seconds"`
		Stats                    map[string]any
		Notes                    []struct{ Level, Text string }
		Decisions                []struct {
			Decision, Reason string
			Count            uint64
			Last             float64 `json:"last_seconds"`
			Before           float64 `json:"target_before"`
			After            float64 `json:"target_after"`
		}
		Points struct {
			Elapsed  []float64 `json:"elapsed_seconds"`
			Target   []float64
			InFlight []int `json:"in_flight"`
			Waiting  []int
			Admitted []float64 `json:"admitted_per_second"`
			Shed     []float64 `json:"shed_per_second"`
			Samples  []int
			P99      []float64 `json:"p99_seconds"`
			Fast     []float64 `json:"fast_seconds"`
			Baseline []float64 `json:"baseline_seconds"`
			Window   []float64 `json:"window_seconds"`
			Decision []string
		}
	}
}

// get asks page; header is "Name: value" pairs.
func get(t *testing.T, page http.Handler, method, target string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	req := httptest.NewRequest(method, target, nil)
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	page.ServeHTTP(w, req)
	return w
}

// read returns page's JSON; unknown fields fail the test.
func read(t *testing.T, page http.Handler, query string) report {
	t.Helper()
	w := get(t, page, "GET", "/debug?format=json"+query)
	if w.Code != http.StatusOK {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	var out report
	dec := json.NewDecoder(w.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&out); err != nil {
		t.Fatal(err)
	}
	return out
}

// ticker stands in for a limiter: it makes up Stats and hands them to an OnTick.
type ticker struct {
	clock  *agilelimiter.VirtualClock
	tick   time.Duration
	onTick func(agilelimiter.Stats)
	stats  agilelimiter.Stats
}

func newTicker(page *httpdebug.Page, name string, tick time.Duration) *ticker {
	clock := agilelimiter.NewVirtualClock(time.Unix(1000, 0))
	cfg := page.Watch(name, agilelimiter.Config{MaxRate: 500, Clock: clock, Tick: tick, SLOTarget: 200 * time.Millisecond})
	return &ticker{
		clock: clock, tick: tick, onTick: cfg.OnTick,
		stats: agilelimiter.Stats{Target: 100, Min: 20, Max: 500},
	}
}

// step lets a tick pass in which change has happened.
func (k *ticker) step(change func(*agilelimiter.Stats)) {
	k.clock.Advance(k.tick)
	k.stats.Decision = agilelimiter.Hold
	k.stats.Samples, k.stats.P99 = 10, 50*time.Millisecond
	if change != nil {
		change(&k.stats)
	}
	k.stats.Ticks++
	k.stats.Decisions[k.stats.Decision]++
	k.onTick(k.stats)
}

func TestWatchFillsInWhatTheConfigKnows(t *testing.T) {
	page := httpdebug.New()
	clock := agilelimiter.NewVirtualClock(time.Unix(0, 0))
	lim := agilelimiter.New(page.Watch("out", agilelimiter.Config{
		MinRate: 20, MaxRate: 500, SLOTarget: 200 * time.Millisecond, Anchor: agilelimiter.AnchorKnee, Clock: clock,
	}))
	lim.Start()
	in := agilelimiter.NewConcurrency(page.WatchConcurrency("in", agilelimiter.ConcurrencyConfig{
		MaxLimit: 64, Tick: time.Second, Clock: clock,
	}))
	in.Start()
	clock.Advance(2 * time.Second)

	got := read(t, page, "")
	if len(got.Limiters) != 2 {
		t.Fatalf("%d limiters, want 2", len(got.Limiters))
	}
	out := got.Limiters[0]
	if out.Name != "out" || out.Kind != "rate" || out.Unit != "req/s" || out.Anchor != "knee" ||
		out.Tick != 0.25 || out.SLO != 0.2 || out.Span != 300 || out.Elapsed != 2 || out.Age != 0 {
		t.Errorf("rate: %+v", out)
	}
	limit := got.Limiters[1]
	if limit.Name != "in" || limit.Kind != "limit" || limit.Unit != "calls" || limit.Anchor != "baseline" ||
		limit.Tick != 1 || limit.SLO != 0 || limit.Span != 600 {
		t.Errorf("limit: %+v", limit)
	}
	if n, m := len(out.Points.Target), len(limit.Points.Target); n != 4 || m != 2 {
		t.Errorf("%d and %d points, want 4 of half a second and 2 of a second", n, m)
	}
	if got, want := out.Stats["target"], lim.Stats().Target; got != want {
		t.Errorf("target %v, want %v", got, want)
	}
}

func TestWatchCallsTheOldOnTick(t *testing.T) {
	page := httpdebug.New()
	var rates, limits []float64
	cfg := page.Watch("a", agilelimiter.Config{MaxRate: 1, OnTick: func(s agilelimiter.Stats) { rates = append(rates, s.Target) }})
	ccfg := page.WatchConcurrency("b", agilelimiter.ConcurrencyConfig{MaxLimit: 1, OnTick: func(s agilelimiter.Stats) { limits = append(limits, s.Target) }})
	cfg.OnTick(agilelimiter.Stats{Target: 7})
	ccfg.OnTick(agilelimiter.Stats{Target: 8})
	if !slices.Equal(rates, []float64{7}) || !slices.Equal(limits, []float64{8}) {
		t.Errorf("passed on %v and %v", rates, limits)
	}
	got := read(t, page, "")
	if a, b := got.Limiters[0].Stats["target"], got.Limiters[1].Stats["target"]; a != 7.0 || b != 8.0 {
		t.Errorf("recorded %v and %v", a, b)
	}
}

func TestWatchPanics(t *testing.T) {
	for name, c := range map[string]struct {
		f    func(*httpdebug.Page)
		want string
	}{
		"empty": {
			func(p *httpdebug.Page) { p.Watch("", agilelimiter.Config{MaxRate: 1}) },
			"httpdebug: a limiter needs a name",
		},
		"twice": {
			func(p *httpdebug.Page) {
				p.Watch("a", agilelimiter.Config{MaxRate: 1})
				p.Watch("a", agilelimiter.Config{MaxRate: 1})
			},
			`httpdebug: a limiter named "a" is watched already`,
		},
		"one of each kind": {
			func(p *httpdebug.Page) {
				p.Watch("a", agilelimiter.Config{MaxRate: 1})
				p.WatchConcurrency("a", agilelimiter.ConcurrencyConfig{MaxLimit: 1})
			},
			`httpdebug: a limiter named "a" is watched already`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if got := recover(); got != c.want {
					t.Errorf("panic %v, want %q", got, c.want)
				}
			}()
			c.f(httpdebug.New())
		})
	}
}

// A config that is refused takes no name: the next try with a right one is the
// first.
func TestWatchTakesNoNameForAWrongConfig(t *testing.T) {
	page := httpdebug.New()
	for _, watch := range []func(name string){
		func(name string) { page.Watch(name, agilelimiter.Config{MaxRate: -1}) },
		func(name string) { page.WatchConcurrency(name, agilelimiter.ConcurrencyConfig{}) },
	} {
		func() {
			defer func() {
				if err, ok := recover().(error); !ok || !strings.HasPrefix(err.Error(), "agilelimiter: Max") {
					t.Errorf("panic %v, want the error of Validate", err)
				}
			}()
			watch("a")
		}()
	}
	if got := read(t, page, ""); len(got.Limiters) != 0 {
		t.Errorf("%d limiters on the page, want none", len(got.Limiters))
	}
	page.Watch("a", agilelimiter.Config{MaxRate: 1})
}

func TestEveryStatIsSent(t *testing.T) {
	page := httpdebug.New()
	k := newTicker(page, "a", 250*time.Millisecond)
	k.step(func(s *agilelimiter.Stats) {
		*s = agilelimiter.Stats{
			Target: 1, Min: 2, Max: 3, InFlight: 4, PeakInFlight: 5, Waiting: 6, Binding: true, Paused: 22 * time.Second,
			Shadow: true, WouldWait: 23, WouldShed: 24, WouldWaitTime: 25 * time.Second,
			Decision: agilelimiter.Probe, Samples: 7, P50: 8 * time.Second, P99: 9 * time.Second,
			Fast: 10 * time.Second, Baseline: 11 * time.Second, Window: 12 * time.Second,
			Admitted: 13, Shed: 14, Reached: 15, Unreachable: 16, Aborted: 17, Truncated: 18, Overflow: 20,
			ThrottleWait: 19 * time.Second, Lateness: 20 * time.Second, LatenessLost: 21 * time.Second, Ticks: 19,
		}
	})
	want := map[string]any{
		"target": 1.0, "min": 2.0, "max": 3.0, "in_flight": 4.0, "peak_in_flight": 5.0, "waiting": 6.0,
		"binding": true, "paused_seconds": 22.0,
		"shadow": true, "would_wait": 23.0, "would_shed": 24.0, "would_wait_seconds": 25.0, "decision": "probe", "samples": 7.0, "p50_seconds": 8.0, "p99_seconds": 9.0,
		"fast_seconds": 10.0, "baseline_seconds": 11.0, "window_seconds": 12.0, "admitted": 13.0,
		"shed": 14.0, "reached": 15.0, "unreachable": 16.0, "aborted": 17.0, "truncated": 18.0, "overflow": 20.0,
		"throttle_wait_seconds": 19.0, "lateness_seconds": 20.0, "lateness_lost_seconds": 21.0, "ticks": 20.0,
	}
	if got := read(t, page, "").Limiters[0].Stats; !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	// One field of Stats, Decisions, is told by the report's decisions.
	if n := reflect.TypeFor[agilelimiter.Stats]().NumField(); len(want) != n-1 {
		t.Errorf("Stats has %d fields, %d are sent", n, len(want)+1)
	}
}

func TestJSONOfNothingHasNoNull(t *testing.T) {
	page := httpdebug.New()
	if body := get(t, page, "GET", "/?format=json").Body.String(); !strings.Contains(body, `"limiters":[]`) {
		t.Errorf("empty page: %s", body)
	}
	page.Watch("a", agilelimiter.Config{MaxRate: 1})
	if body := get(t, page, "GET", "/?format=json").Body.String(); strings.Contains(body, "null") {
		t.Errorf("before the first tick: %s", body)
	}
}

func TestFormat(t *testing.T) {
	page := httpdebug.New()
	for _, c := range []struct {
		target, accept string
		code           int
		contentType    string
	}{
		{"/", "", 200, "text/html; charset=utf-8"},
		{"/", "*/*", 200, "text/html; charset=utf-8"},
		{"/", "text/html,application/json", 200, "text/html; charset=utf-8"},
		{"/", "application/json", 200, "application/json"},
		{"/", "Application/JSON;q=0.9, */*;q=0.1", 200, "application/json"},
		{"/?format=html", "application/json", 200, "text/html; charset=utf-8"},
		{"/?format=json", "text/html", 200, "application/json"},
		{"/?format=json&after=7", "", 200, "application/json"},
		{"/?format=xml", "", 400, "text/plain; charset=utf-8"},
		{"/?format=json&after=x", "", 400, "text/plain; charset=utf-8"},
		{"/?format=json&after=-1", "", 400, "text/plain; charset=utf-8"},
	} {
		w := get(t, page, "GET", c.target, "Accept: "+c.accept)
		if w.Code != c.code || w.Header().Get("Content-Type") != c.contentType {
			t.Errorf("%s with Accept %q: %d %s, want %d %s", c.target, c.accept,
				w.Code, w.Header().Get("Content-Type"), c.code, c.contentType)
		}
		if got := w.Header().Get("Cache-Control"); got != "no-store" {
			t.Errorf("%s: Cache-Control %q", c.target, got)
		}
	}
}

func TestMethods(t *testing.T) {
	server := httptest.NewServer(httpdebug.New())
	defer server.Close()
	for _, c := range []struct {
		method string
		code   int
		allow  string
	}{
		{"GET", 200, ""}, {"HEAD", 200, ""},
		{"POST", 405, "GET, HEAD"}, {"DELETE", 405, "GET, HEAD"}, {"OPTIONS", 405, "GET, HEAD"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != c.code || resp.Header.Get("Allow") != c.allow || resp.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d, Allow %q, Cache-Control %q", c.method, resp.StatusCode, resp.Header.Get("Allow"), resp.Header.Get("Cache-Control"))
		}
		if c.code == 200 && resp.ContentLength < 1000 {
			t.Errorf("%s: Content-Length %d", c.method, resp.ContentLength)
		}
	}
}

// TestPolicyNamesWhatIsSent hashes what a browser would.
func TestPolicyNamesWhatIsSent(t *testing.T) {
	w := get(t, httpdebug.New(), "GET", "/")
	policy := w.Header().Get("Content-Security-Policy")
	if !strings.HasPrefix(policy, "default-src 'none';") {
		t.Errorf("policy %q", policy)
	}
	for _, element := range []string{"script", "style"} {
		found := regexp.MustCompile(`(?s)<`+element+`>(.*?)</`+element+`>`).FindAllStringSubmatch(w.Body.String(), -1)
		if len(found) != 1 {
			t.Fatalf("%d %s elements, want 1", len(found), element)
		}
		sum := sha256.Sum256([]byte(found[0][1]))
		want := fmt.Sprintf("%s-src 'sha256-%s'", element, base64.StdEncoding.EncodeToString(sum[:]))
		if !strings.Contains(policy, want) {
			t.Errorf("policy %q lacks %q", policy, want)
		}
	}
	if body := w.Body.String(); regexp.MustCompile(`(?i)(src|href)="?(https?:)?//|\son\w+=|\sstyle="|\{\{`).MatchString(body) {
		t.Error("the page refers to something outside, has an inline handler or style, or an unfilled place")
	}
}

func TestNamesAreEscaped(t *testing.T) {
	page := httpdebug.New()
	name := `<script>alert("x")</script>&'{{style}}`
	page.Watch(name, agilelimiter.Config{MaxRate: 1})
	body := get(t, page, "GET", "/").Body.String()
	want := `<th scope="row">&lt;script&gt;alert(&#34;x&#34;)&lt;/script&gt;&amp;&#39;{{style}}</th>`
	if !strings.Contains(body, want) || strings.Contains(body, "<script>alert") {
		t.Errorf("want %s in\n%s", want, body[strings.Index(body, "<noscript>"):])
	}
	if got := read(t, page, "").Limiters[0].Name; got != name {
		t.Errorf("JSON name %q", got)
	}
}

func TestReasonsAreComplete(t *testing.T) {
	for d, reason := range httpdebug.Reasons {
		if !strings.HasSuffix(reason, ".") {
			t.Errorf("%v: %q is no sentence", agilelimiter.Decision(d), reason)
		}
		if d > 0 && httpdebug.Weight[d] == 0 {
			t.Errorf("%v has no weight", agilelimiter.Decision(d))
		}
	}
}
