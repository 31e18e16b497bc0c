package httpserver_test

import (
	"encoding/json"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"agilelimiter"
	"agilelimiter/httpserver"
)

func readStats(t *testing.T, lim httpserver.Source) (fields map[string]any) {
	t.Helper()
	rec := httptest.NewRecorder()
	httpserver.StatsHandler(lim).ServeHTTP(rec, newRequest(http.MethodGet))
	if rec.Code != 200 {
		t.Fatalf("status %d: %s", rec.Code, rec.Body)
	}
	for name, want := range map[string]string{
		"Content-Type":           "application/json",
		"Cache-Control":          "no-store",
		"X-Content-Type-Options": "nosniff",
		"Content-Length":         strconv.Itoa(rec.Body.Len()),
	} {
		if got := rec.Header().Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if err := json.Unmarshal(rec.Body.Bytes(), &fields); err != nil {
		t.Fatalf("%v in %s", err, rec.Body)
	}
	return fields
}

// source is a Source with given Stats.
type source struct{ stats agilelimiter.Stats }

func (s source) Stats() agilelimiter.Stats { return s.stats }

func TestStatsFields(t *testing.T) {
	s := agilelimiter.Stats{
		Target: 12.5, Min: 1, Max: 500, InFlight: 7, Waiting: 3, Paused: 11 * time.Second, Shadow: true,
		WouldWait: 12, WouldShed: 13, WouldWaitTime: 14 * time.Second,
		Decision: agilelimiter.SlowStart, Samples: 40,
		P50: 20 * time.Millisecond, P99: 1500 * time.Millisecond, Baseline: 250 * time.Microsecond,
		Fast: time.Second, Window: time.Nanosecond,
		PeakInFlight: 9, Binding: true, Lateness: 3 * time.Millisecond,
		Admitted: 1, Shed: 2, Reached: 1 << 53, Unreachable: 4, Aborted: 5, Truncated: 6, Overflow: 9,
		ThrottleWait: 90 * time.Second, LatenessLost: 7 * time.Second, Ticks: 8,
	}
	for d := range s.Decisions {
		s.Decisions[d] = uint64(100 + d)
	}
	decisions := map[string]any{}
	for d := range agilelimiter.NumDecisions {
		decisions[agilelimiter.Decision(d).String()] = float64(100 + d)
	}
	want := map[string]any{
		"target": 12.5, "min": 1.0, "max": 500.0, "in_flight": 7.0, "waiting": 3.0, "paused_seconds": 11.0, "shadow": true,
		"would_wait": 12.0, "would_shed": 13.0, "would_wait_seconds": 14.0,
		"decision": "slow_start", "samples": 40.0,
		"p50_seconds": 0.02, "p99_seconds": 1.5, "baseline_seconds": 0.00025,
		"fast_seconds": 1.0, "window_seconds": 1e-9,
		"peak_in_flight": 9.0, "binding": true, "lateness_seconds": 0.003,
		"admitted": 1.0, "shed": 2.0, "reached": float64(1 << 53), "unreachable": 4.0, "aborted": 5.0, "truncated": 6.0, "overflow": 9.0,
		"throttle_wait_seconds": 90.0, "lateness_lost_seconds": 7.0, "ticks": 8.0,
		"decisions": decisions,
	}
	if got := readStats(t, source{s}); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// Every field stands in the doc comment, and nothing else.
func TestStatsFieldsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("stats.go")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, m := range regexp.MustCompile(`(?m)^//\t([a-z0-9_]+(?:, [a-z0-9_]+)*)  `).FindAllStringSubmatch(string(text), -1) {
		documented = append(documented, regexp.MustCompile(`, `).Split(m[1], -1)...)
	}
	var written []string
	for _, lim := range []httpserver.Source{newLimiter(1), agilelimiter.New(agilelimiter.Config{MaxRate: 1})} {
		for name := range readStats(t, lim) {
			if !slices.Contains(written, name) {
				written = append(written, name)
			}
		}
	}
	slices.Sort(documented)
	slices.Sort(written)
	if !slices.Equal(documented, written) {
		t.Errorf("documented %v\nwritten    %v", documented, written)
	}
}

// Nothing in a fresh limiter is NaN, which JSON cannot say.
func TestStatsOfAFreshLimiter(t *testing.T) {
	clock := agilelimiter.NewVirtualClock(time.Unix(0, 0))
	inbound := agilelimiter.NewConcurrency(agilelimiter.ConcurrencyConfig{MaxLimit: 80, Clock: clock})
	outbound := agilelimiter.New(agilelimiter.Config{MaxRate: 80, Clock: clock})
	for _, started := range []bool{false, true} {
		if started {
			inbound.Start()
			defer inbound.Stop()
			outbound.Start()
			defer outbound.Stop()
			clock.Advance(time.Second)
		}
		in, out := readStats(t, inbound), readStats(t, outbound)
		if in["limit"] != 10.0 || in["target"] != 10.0 || in["decision"] != "blind" || in["p99_seconds"] != 0.0 {
			t.Errorf("started %v: %v", started, in)
		}
		if _, has := in["rate"]; has {
			t.Error("a rate of a ConcurrencyLimiter")
		}
		if out["rate"] != 10.0 || out["target"] != 10.0 {
			t.Errorf("started %v: %v", started, out)
		}
		if _, has := out["limit"]; has {
			t.Error("a limit of a Limiter")
		}
	}
}

// After each step every way of asking gives the same answer.
func TestStatsAgree(t *testing.T) {
	clock := agilelimiter.NewVirtualClock(time.Unix(0, 0))
	inbound := agilelimiter.NewConcurrency(agilelimiter.ConcurrencyConfig{MaxLimit: 300, InitialLimit: 3, SlowStartGain: 1.3, Clock: clock})
	outbound := agilelimiter.New(agilelimiter.Config{MaxRate: 300, InitialRate: 3, SlowStartGain: 1.3, Clock: clock})
	inbound.Start()
	defer inbound.Stop()
	outbound.Start()
	defer outbound.Stop()
	moved := map[float64]bool{}
	for step := range 50 {
		d := 20 * time.Millisecond
		if step%20 > 14 {
			d = 200 * time.Millisecond
		}
		for range 10 {
			inbound.Observe(d)
			outbound.Observe(d)
		}
		clock.Advance(250 * time.Millisecond)
		in, out := readStats(t, inbound), readStats(t, outbound)
		if in["limit"] != float64(inbound.Limit()) || in["target"] != inbound.Stats().Target || in["ticks"] != float64(step+1) {
			t.Fatalf("step %d: JSON %v and %v, Limit() %v, Stats %v", step, in["limit"], in["target"], inbound.Limit(), inbound.Stats().Target)
		}
		if out["rate"] != outbound.Rate() || out["target"] != outbound.Stats().Target {
			t.Fatalf("step %d: JSON %v, Rate() %v, Stats %v", step, out["rate"], outbound.Rate(), outbound.Stats().Target)
		}
		moved[outbound.Rate()] = true
	}
	if len(moved) < 20 {
		t.Errorf("the rate took only %d values: the test shows nothing", len(moved))
	}
}

// A Source of somebody else's may hold what JSON cannot say.
func TestStatsThatJSONCannotSay(t *testing.T) {
	rec := httptest.NewRecorder()
	httpserver.StatsHandler(source{agilelimiter.Stats{Target: math.NaN()}}).ServeHTTP(rec, newRequest(http.MethodGet))
	if rec.Code != 500 || rec.Body.String() != "json: unsupported value: NaN\n" {
		t.Errorf("%d %q, want a 500 that says why", rec.Code, rec.Body)
	}
}

func TestStatsMethods(t *testing.T) {
	url, client := serve(t, "HTTP/1.1", httpserver.StatsHandler(newLimiter(3)))
	for _, c := range []struct {
		method string
		status int
		body   bool
	}{
		{http.MethodGet, 200, true},
		{http.MethodHead, 200, false},
		{http.MethodPost, 405, true},
		{http.MethodPut, 405, true},
		{http.MethodDelete, 405, true},
		{http.MethodOptions, 405, true},
	} {
		req, _ := http.NewRequestWithContext(t.Context(), c.method, url, nil)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != c.status || (len(body) > 0) != c.body {
			t.Errorf("%s: %d, %q, %v", c.method, resp.StatusCode, body, err)
		}
		wantAllow := ""
		if c.status == 405 {
			wantAllow = "GET, HEAD"
			if string(body) != "Method Not Allowed\n" {
				t.Errorf("%s: body %q", c.method, body)
			}
		} else if resp.ContentLength <= 2 {
			t.Errorf("%s: Content-Length %d", c.method, resp.ContentLength)
		}
		if got := resp.Header.Get("Allow"); got != wantAllow {
			t.Errorf("%s: Allow %q, want %q", c.method, got, wantAllow)
		}
	}
}

// Outside of Wrap the figures stay readable while everything else is shed.
func TestStatsOfASaturatedService(t *testing.T) {
	full := newLimiter(1)
	full.TryTake()
	mux := http.NewServeMux()
	mux.Handle("/stats", httpserver.StatsHandler(full))
	mux.Handle("/", httpserver.Wrap(http.NotFoundHandler(), full))
	url, client := serve(t, "HTTP/1.1", mux)
	if resp, _ := get(t, client, url+"/x"); resp.StatusCode != 429 {
		t.Errorf("status %d, want 429", resp.StatusCode)
	}
	resp, body := get(t, client, url+"/stats")
	var s struct {
		Limit    int    `json:"limit"`
		InFlight int    `json:"in_flight"`
		Shed     uint64 `json:"shed"`
	}
	if err := json.Unmarshal([]byte(body), &s); err != nil || resp.StatusCode != 200 || s.Limit != 1 || s.InFlight != 1 || s.Shed != 1 {
		t.Errorf("%d, %+v, %v", resp.StatusCode, s, err)
	}
}
