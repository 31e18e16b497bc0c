package limiterprom_test

import (
	"bufio"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"agilelimiter"
	limiterprom "agilelimiter/contrib/prometheus"
)

// scripted is a Source that says what it is told and counts how often.
type scripted struct {
	stats agilelimiter.Stats
	calls int
}

func (s *scripted) Stats() agilelimiter.Stats { s.calls++; return s.stats }

// wrapped is how users put more around a limiter.
type (
	wrappedRate  struct{ *agilelimiter.Limiter }
	wrappedLimit struct {
		*agilelimiter.ConcurrencyLimiter
	}
)

func busyStats() agilelimiter.Stats {
	s := agilelimiter.Stats{
		Target: 37.5, Min: 5, Max: 200, InFlight: 4, Waiting: 6, PeakInFlight: 9, Binding: true,
		Decision: agilelimiter.Probe, Samples: 12,
		P50: 20 * time.Millisecond, P99: 90 * time.Millisecond,
		Baseline: 18 * time.Millisecond, Fast: 21 * time.Millisecond, Window: 36 * time.Millisecond,
		Admitted: 1000, Shed: 30, Reached: 950, Truncated: 8, Overflow: 3, Unreachable: 25, Aborted: 21,
		ThrottleWait: 1500 * time.Millisecond, Lateness: 3 * time.Millisecond, LatenessLost: 4 * time.Second,
		Shadow: true, Paused: 5 * time.Second, WouldWait: 61, WouldShed: 62, WouldWaitTime: 63 * time.Second, Ticks: 77,
	}
	s.Decisions[agilelimiter.Blind] = 7
	s.Decisions[agilelimiter.Probe] = 60
	s.Decisions[agilelimiter.Restore] = 10
	return s
}

// scrape fetches what a registry serves over HTTP and returns its series.
func scrape(t *testing.T, r *prometheus.Registry) map[string]string {
	t.Helper()
	srv := httptest.NewServer(promhttp.HandlerFor(r, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	defer srv.Close()
	resp, err := http.Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("scrape: %s", resp.Status)
	}
	series := map[string]string{}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if line := lines.Text(); !strings.HasPrefix(line, "#") {
			key, value, _ := strings.Cut(strings.TrimPrefix(line, "agilelimiter_"), "} ")
			series[key+"}"] = value
		}
	}
	return series
}

func wantSeries(t *testing.T, got, want map[string]string) {
	t.Helper()
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s = %q, want %q", k, got[k], v)
		}
	}
	for k, v := range got {
		if _, ok := want[k]; !ok {
			t.Errorf("unexpected series %s %s", k, v)
		}
	}
}

// decisions are the decision series of a limiter with counts other than 0.
func decisions(limiter string, counts map[string]string) map[string]string {
	out := map[string]string{}
	for d := range agilelimiter.NumDecisions {
		name := agilelimiter.Decision(d).String()
		value := counts[name]
		if value == "" {
			value = "0"
		}
		out[`decisions_total{decision="`+name+`",limiter="`+limiter+`"}`] = value
	}
	return out
}

func TestRateOverHTTP(t *testing.T) {
	source := &scripted{stats: busyStats()}
	r := prometheus.NewRegistry()
	r.MustRegister(limiterprom.NewCollector("orders", source,
		limiterprom.WithKind(limiterprom.Rate), limiterprom.WithSLOTarget(100*time.Millisecond)))
	if source.calls != 1 {
		t.Errorf("NewCollector read the source %d times, want once", source.calls)
	}
	source.calls = 0
	got := scrape(t, r)
	if source.calls != 1 {
		t.Errorf("%d Stats calls for one scrape", source.calls)
	}
	want := decisions("orders", map[string]string{"blind": "7", "probe": "60", "restore": "10"})
	for k, v := range map[string]string{
		"rate_limit_requests_per_second": "37.5", "rate_floor_requests_per_second": "5",
		"rate_ceiling_requests_per_second": "200",
		"in_flight_requests":               "4", "waiting_requests": "6", "binding": "1",
		"slo_target_seconds": "0.1", "baseline_latency_seconds": "0.018",
		"fast_latency_seconds": "0.021", "window_latency_seconds": "0.036",
		"admitted_total": "1000", "shed_total": "30", "samples_total": "950", "truncated_total": "8", "overflow_total": "3",
		"unreachable_total": "25", "aborted_total": "21", "wait_seconds_total": "1.5",
		"lateness_seconds": "0.003", "lateness_lost_seconds_total": "4", "shadow": "1", "paused_seconds": "5",
		"would_wait_total": "61", "would_shed_total": "62", "would_wait_seconds_total": "63",
		"p50_latency_seconds": "0.02", "p99_latency_seconds": "0.09",
	} {
		want[k+`{limiter="orders"}`] = v
	}
	wantSeries(t, got, want)
}

func TestLimitOverHTTP(t *testing.T) {
	source := &scripted{stats: busyStats()}
	r := prometheus.NewRegistry()
	r.MustRegister(limiterprom.NewCollector("api", source, limiterprom.WithKind(limiterprom.Limit)))
	got := scrape(t, r)
	for k, want := range map[string]string{
		"concurrency_limit": "37.5", "concurrency_floor": "5", "concurrency_ceiling": "200",
		"peak_in_flight_requests": "9", "in_flight_requests": "4",
		"rate_limit_requests_per_second": "", "waiting_requests": "", "wait_seconds_total": "", "slo_target_seconds": "",
		"lateness_seconds": "", "would_wait_total": "", "shadow": "1", "paused_seconds": "5", "would_shed_total": "62",
	} {
		if v := got[k+`{limiter="api"}`]; v != want {
			t.Errorf("%s = %q, want %q", k, v, want)
		}
	}
}

// What is not known yet is missing, never 0, which would be a very fast dependency,
// and never NaN.
func TestUnknownLatencies(t *testing.T) {
	lim := agilelimiter.New(agilelimiter.Config{MaxRate: 80})
	r := prometheus.NewRegistry()
	r.MustRegister(limiterprom.NewCollector("fresh", lim))
	got := scrape(t, r)
	for _, name := range []string{"baseline", "fast", "window", "p50", "p99"} {
		if v, ok := got[name+`_latency_seconds{limiter="fresh"}`]; ok {
			t.Errorf("%s is exported as %s before the first sample", name, v)
		}
	}
	for k, v := range got {
		if v == "NaN" {
			t.Errorf("%s is NaN", k)
		}
	}
	if v := got[`rate_limit_requests_per_second{limiter="fresh"}`]; v != "10" {
		t.Errorf("rate %q, want 10", v)
	}
}

func TestKindComesFromTheSource(t *testing.T) {
	rate := agilelimiter.New(agilelimiter.Config{MaxRate: 80, SLOTarget: time.Second})
	limit := agilelimiter.NewConcurrency(agilelimiter.ConcurrencyConfig{MaxLimit: 8, SLOTarget: 2 * time.Second})
	r := prometheus.NewRegistry()
	for name, source := range map[string]limiterprom.Source{
		"rate": rate, "wrapped rate": wrappedRate{rate}, "limit": limit, "wrapped limit": &wrappedLimit{limit},
	} {
		r.MustRegister(limiterprom.NewCollector(name, source))
	}
	got := scrape(t, r)
	for _, want := range []struct{ key, value string }{
		{`rate_limit_requests_per_second{limiter="rate"}`, "10"},
		{`rate_limit_requests_per_second{limiter="wrapped rate"}`, "10"},
		{`concurrency_limit{limiter="limit"}`, "1"},
		{`concurrency_limit{limiter="wrapped limit"}`, "1"},
		{`slo_target_seconds{limiter="wrapped rate"}`, "1"},
		{`slo_target_seconds{limiter="wrapped limit"}`, "2"},
	} {
		if got[want.key] != want.value {
			t.Errorf("%s = %q, want %q", want.key, got[want.key], want.value)
		}
	}
}

func TestLint(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(
		limiterprom.NewCollector("orders", &scripted{stats: busyStats()}, limiterprom.WithKind(limiterprom.Rate), limiterprom.WithSLOTarget(time.Second)),
		limiterprom.NewCollector("api", &scripted{stats: busyStats()}, limiterprom.WithKind(limiterprom.Limit)),
	)
	problems, err := testutil.GatherAndLint(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestNameTaken(t *testing.T) {
	lim := agilelimiter.New(agilelimiter.Config{MaxRate: 80})
	other := agilelimiter.New(agilelimiter.Config{MaxRate: 80})
	limit := agilelimiter.NewConcurrency(agilelimiter.ConcurrencyConfig{MaxLimit: 8})
	r := prometheus.NewRegistry()
	if err := limiterprom.Register(r, "orders", lim); err != nil {
		t.Fatal(err)
	}
	err := limiterprom.Register(r, "orders", other)
	if !errors.As(err, &prometheus.AlreadyRegisteredError{}) || !strings.Contains(err.Error(), `"orders"`) {
		t.Errorf("same name, same kind: %v", err)
	}
	if err := limiterprom.Register(r, "orders", limit); err == nil || !strings.Contains(err.Error(), `"orders"`) {
		t.Errorf("same name, other kind: %v", err)
	}
	if err := limiterprom.Register(r, "billing", other); err != nil {
		t.Errorf("other name: %v", err)
	}
	scrape(t, r)
}

func TestBadArguments(t *testing.T) {
	lim := agilelimiter.New(agilelimiter.Config{MaxRate: 80})
	var typedNil *agilelimiter.ConcurrencyLimiter
	for _, tt := range []struct {
		what, says string
		f          func()
	}{
		{"empty name", "needs a name", func() { limiterprom.NewCollector("", lim) }},
		{"nil source", `nil source for limiter "x"`, func() { limiterprom.NewCollector("x", nil) }},
		{"typed nil", `nil source for limiter "x"`, func() { limiterprom.NewCollector("x", typedNil) }},
		{"embedded nil", "", func() { limiterprom.NewCollector("x", wrappedRate{}) }},
		{"unknown kind", "use WithKind", func() { limiterprom.NewCollector("x", &scripted{}) }},
		{"nil option", "nil Option", func() { limiterprom.NewCollector("x", lim, nil) }},
		{"bad kind", "unknown Kind 9", func() { limiterprom.WithKind(9) }},
		{"negative SLO", "negative target", func() { limiterprom.WithSLOTarget(-1) }},
	} {
		t.Run(tt.what, func(t *testing.T) {
			defer func() {
				r := recover()
				if msg, _ := r.(string); r == nil || !strings.Contains(msg, tt.says) {
					t.Errorf("panic %v, want one that says %q", r, tt.says)
				}
			}()
			tt.f()
		})
	}
}

// A service answers in 75 to 125 ms whatever is in flight, and the SLO is 50 ms.
// The rule AgilelimiterEndlessRestores knows that by these two figures:
//
//	go test -run TestRestoresWithoutEnd -v .
func TestRestoresWithoutEnd(t *testing.T) {
	clock := agilelimiter.NewVirtualClock(time.Unix(0, 0))
	lim := agilelimiter.NewConcurrency(agilelimiter.ConcurrencyConfig{
		MinLimit: 2, MaxLimit: 64, SLOTarget: 50 * time.Millisecond, Anchor: agilelimiter.AnchorKnee, Clock: clock,
	})
	lim.Start()
	defer lim.Stop()
	offer := func(length time.Duration) {
		const gap = time.Millisecond
		for i := range int(length / gap) {
			if lim.TryTake() {
				d := 75*time.Millisecond + time.Duration(i%51)*time.Millisecond
				clock.AfterFunc(d, func() { lim.Release(); lim.Observe(d) })
			}
			clock.Advance(gap)
		}
	}
	offer(time.Minute)
	before := lim.Stats()
	offer(2 * time.Minute)
	after := lim.Stats()
	share := float64(after.Decisions[agilelimiter.Restore]-before.Decisions[agilelimiter.Restore]) / float64(after.Ticks-before.Ticks)
	t.Logf("restores: %.1f %% of the ticks; baseline %v, SLO 50ms", 100*share, after.Baseline.Round(time.Millisecond))
	if !(share > 0.01) {
		t.Errorf("restores are %.4f of the ticks; the rule needs more than 0.01", share)
	}
	if after.Baseline <= 50*time.Millisecond {
		t.Errorf("baseline %v is not above the SLO", after.Baseline)
	}
}

// exported are the names that both kinds of collector can export.
func exported(t *testing.T) []string {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(
		limiterprom.NewCollector("a", &scripted{stats: busyStats()}, limiterprom.WithKind(limiterprom.Rate), limiterprom.WithSLOTarget(time.Second)),
		limiterprom.NewCollector("b", &scripted{stats: busyStats()}, limiterprom.WithKind(limiterprom.Limit)),
	)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range families {
		names = append(names, f.GetName())
	}
	return slices.Sorted(slices.Values(names))
}
