package limiterotel_test

import (
	"context"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/embedded"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"agilelimiter"
	limiterotel "agilelimiter/contrib/otel"
)

// scripted is a Source that says what it is told and counts how often.
type scripted struct {
	stats agilelimiter.Stats
	calls int
}

func (s *scripted) Stats() agilelimiter.Stats { s.calls++; return s.stats }

type wrappedLimit struct {
	*agilelimiter.ConcurrencyLimiter
}

func busyStats() agilelimiter.Stats {
	s := agilelimiter.Stats{
		Target: 37.5, Min: 5, Max: 200, InFlight: 4, Waiting: 6, PeakInFlight: 9, Binding: true, Samples: 12,
		P50: 20 * time.Millisecond, P99: 90 * time.Millisecond,
		Baseline: 18 * time.Millisecond, Fast: 21 * time.Millisecond, Window: 36 * time.Millisecond,
		Admitted: 1000, Shed: 30, Reached: 950, Truncated: 8, Overflow: 3, Unreachable: 25, Aborted: 21,
		ThrottleWait: 1500 * time.Millisecond, Lateness: 3 * time.Millisecond, LatenessLost: 4 * time.Second,
		Shadow: true, Paused: 5 * time.Second, WouldWait: 61, WouldShed: 62, WouldWaitTime: 63 * time.Second,
	}
	s.Decisions[agilelimiter.Probe] = 60
	s.Decisions[agilelimiter.Restore] = 10
	return s
}

// newExporter returns an exporter and the reader of its SDK.
func newExporter(t *testing.T) (*limiterotel.Exporter, *sdkmetric.ManualReader) {
	t.Helper()
	reader := sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	e, err := limiterotel.New(provider.Meter("test"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	return e, reader
}

// point is one exported value.
type point struct {
	unit, kind string
	value      float64
}

// collect returns the points by name, limiter and decision: "shed api", or
// "decisions api probe".
func collect(t *testing.T, reader *sdkmetric.ManualReader) map[string]point {
	t.Helper()
	var data metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &data); err != nil {
		t.Fatal(err)
	}
	points := map[string]point{}
	add := func(m metricdata.Metrics, kind string, set attribute.Set, value float64) {
		key := strings.TrimPrefix(m.Name, "agilelimiter.")
		for _, name := range []attribute.Key{"limiter", "decision"} {
			if v, ok := set.Value(name); ok {
				key += " " + v.AsString()
			}
		}
		if m.Description == "" {
			t.Errorf("%s has no description", m.Name)
		}
		points[key] = point{m.Unit, kind, value}
	}
	sum := func(monotonic bool) string {
		if monotonic {
			return "counter"
		}
		return "up-down"
	}
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch d := m.Data.(type) {
			case metricdata.Gauge[float64]:
				for _, p := range d.DataPoints {
					add(m, "gauge", p.Attributes, p.Value)
				}
			case metricdata.Sum[float64]:
				for _, p := range d.DataPoints {
					add(m, sum(d.IsMonotonic), p.Attributes, p.Value)
				}
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					add(m, sum(d.IsMonotonic), p.Attributes, float64(p.Value))
				}
			default:
				t.Errorf("%s is a %T", m.Name, d)
			}
		}
	}
	return points
}

// common is what both kinds export of busyStats.
func common(limiter string) map[string]point {
	want := map[string]point{
		"concurrency.usage": {"{request}", "up-down", 4},
		"binding":           {"1", "gauge", 1},
		"latency.slo":       {"s", "gauge", 0.1},
		"latency.baseline":  {"s", "gauge", 0.018},
		"latency.fast":      {"s", "gauge", 0.021},
		"latency.window":    {"s", "gauge", 0.036},
		"latency.p50":       {"s", "gauge", 0.02},
		"latency.p99":       {"s", "gauge", 0.09},
		"admitted":          {"{request}", "counter", 1000},
		"shed":              {"{request}", "counter", 30},
		"samples":           {"{request}", "counter", 950},
		"truncated":         {"{request}", "counter", 8},
		"overflow":          {"{request}", "counter", 3},
		"unreachable":       {"{request}", "counter", 25},
		"aborted":           {"{request}", "counter", 21},
		"shadow":            {"1", "gauge", 1},
		"paused":            {"s", "gauge", 5},
		"would.wait":        {"{request}", "counter", 61},
		"would.shed":        {"{request}", "counter", 62},
	}
	named := map[string]point{}
	for name, p := range want {
		named[name+" "+limiter] = p
	}
	stats := busyStats()
	for d := range agilelimiter.NumDecisions {
		named["decisions "+limiter+" "+agilelimiter.Decision(d).String()] = point{"{decision}", "counter", float64(stats.Decisions[d])}
	}
	return named
}

func wantPoints(t *testing.T, got, want map[string]point) {
	t.Helper()
	for k, p := range want {
		if g, ok := got[k]; !ok || g != p {
			t.Errorf("%s: got %+v (there: %v), want %+v", k, g, ok, p)
		}
	}
	for k := range got {
		if _, ok := want[k]; !ok {
			t.Errorf("unexpected %s: %+v", k, got[k])
		}
	}
}

func TestValues(t *testing.T) {
	e, reader := newExporter(t)
	rate, limit := &scripted{stats: busyStats()}, &scripted{stats: busyStats()}
	slo := limiterotel.WithSLOTarget(100 * time.Millisecond)
	if err := errors.Join(
		e.Add("orders", rate, limiterotel.WithKind(limiterotel.Rate), slo),
		e.Add("api", limit, limiterotel.WithKind(limiterotel.Limit), slo),
	); err != nil {
		t.Fatal(err)
	}
	want := common("orders")
	for k, p := range common("api") {
		want[k] = p
	}
	want["rate.limit orders"] = point{"{request}/s", "gauge", 37.5}
	want["rate.floor orders"] = point{"{request}/s", "gauge", 5}
	want["rate.ceiling orders"] = point{"{request}/s", "gauge", 200}
	want["waiting orders"] = point{"{request}", "up-down", 6}
	want["wait orders"] = point{"s", "counter", 1.5}
	want["lateness orders"] = point{"s", "gauge", 0.003}
	want["lateness.lost orders"] = point{"s", "counter", 4}
	want["would.wait.time orders"] = point{"s", "counter", 63}
	want["concurrency.limit api"] = point{"{request}", "gauge", 37.5}
	want["concurrency.floor api"] = point{"{request}", "gauge", 5}
	want["concurrency.ceiling api"] = point{"{request}", "gauge", 200}
	want["concurrency.peak api"] = point{"{request}", "gauge", 9}
	if rate.calls != 1 {
		t.Errorf("Add read the source %d times, want once", rate.calls)
	}
	rate.calls, limit.calls = 0, 0
	wantPoints(t, collect(t, reader), want)
	if rate.calls != 1 || limit.calls != 1 {
		t.Errorf("%d and %d Stats calls for one collection", rate.calls, limit.calls)
	}
}

// The package comment lists the instruments and no others.
func TestDocumented(t *testing.T) {
	e, reader := newExporter(t)
	e.Add("a", &scripted{stats: busyStats()}, limiterotel.WithKind(limiterotel.Rate), limiterotel.WithSLOTarget(time.Second))
	e.Add("b", &scripted{stats: busyStats()}, limiterotel.WithKind(limiterotel.Limit))
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var listed, got []string
	for _, m := range regexp.MustCompile(`(?m)^//\tagilelimiter\.(\S+) +(\S+) +(\S+) `).FindAllStringSubmatch(string(doc), -1) {
		listed = append(listed, strings.Join(m[1:], " "))
	}
	for key, p := range collect(t, reader) {
		name, _, _ := strings.Cut(key, " ")
		got = append(got, name+" "+p.unit+" "+p.kind)
	}
	slices.Sort(listed)
	slices.Sort(got)
	if got = slices.Compact(got); !slices.Equal(listed, got) {
		t.Errorf("doc.go lists\n%s\nexported are\n%s", strings.Join(listed, "\n"), strings.Join(got, "\n"))
	}
}

func TestUnknownLatenciesAreNotObserved(t *testing.T) {
	e, reader := newExporter(t)
	if err := e.Add("fresh", agilelimiter.New(agilelimiter.Config{MaxRate: 80})); err != nil {
		t.Fatal(err)
	}
	got := collect(t, reader)
	for k := range got {
		if strings.HasPrefix(k, "latency.") {
			t.Errorf("%s is observed before the first sample", k)
		}
	}
	if p := got["rate.limit fresh"]; p.value != 10 {
		t.Errorf("rate %v, want 10", p.value)
	}
}

func TestKindComesFromTheSource(t *testing.T) {
	e, reader := newExporter(t)
	limit := agilelimiter.NewConcurrency(agilelimiter.ConcurrencyConfig{MaxLimit: 8, SLOTarget: 2 * time.Second})
	if err := errors.Join(e.Add("limit", limit), e.Add("wrapped", wrappedLimit{limit})); err != nil {
		t.Fatal(err)
	}
	got := collect(t, reader)
	for _, name := range []string{"limit", "wrapped"} {
		if p := got["concurrency.limit "+name]; p.value != 1 {
			t.Errorf("limit of %s: %+v, want 1", name, p)
		}
		if p := got["latency.slo "+name]; p.value != 2 {
			t.Errorf("SLO of %s: %+v, want 2", name, p)
		}
	}
}

func TestRemoveAndShutdown(t *testing.T) {
	e, reader := newExporter(t)
	lim := agilelimiter.New(agilelimiter.Config{MaxRate: 80})
	if err := errors.Join(e.Add("a", lim), e.Add("b", lim)); err != nil {
		t.Fatal(err)
	}
	if !e.Remove("a") || e.Remove("a") {
		t.Error("Remove does not tell what was there")
	}
	got := collect(t, reader)
	if _, ok := got["admitted a"]; ok {
		t.Error("a is still observed")
	}
	if _, ok := got["admitted b"]; !ok {
		t.Error("b is gone too")
	}
	if err := e.Add("a", lim); err != nil {
		t.Errorf("a removed name is free again: %v", err)
	}
	for range 2 {
		if err := e.Shutdown(); err != nil {
			t.Error(err)
		}
	}
	if got := collect(t, reader); len(got) != 0 {
		t.Errorf("observed after Shutdown: %v", got)
	}
	if e.Remove("b") {
		t.Error("b outlived Shutdown")
	}
	if err := e.Add("c", lim); err == nil {
		t.Error("Add after Shutdown succeeded")
	}
}

func TestBadArguments(t *testing.T) {
	e, reader := newExporter(t)
	lim := agilelimiter.New(agilelimiter.Config{MaxRate: 80})
	var typedNil *agilelimiter.Limiter
	if err := e.Add("taken", lim); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		says string
		err  error
	}{
		{"needs a name", e.Add("", lim)},
		{`limiter "taken" is there already`, e.Add("taken", lim)},
		{`nil source for limiter "x"`, e.Add("x", nil)},
		{`nil source for limiter "x"`, e.Add("x", typedNil)},
		{"use WithKind", e.Add("x", &scripted{})},
		{"use WithKind", e.Add("x", &scripted{}, limiterotel.WithKind(9))},
		{"nil Option", e.Add("x", lim, nil)},
	} {
		if tt.err == nil || !strings.Contains(tt.err.Error(), tt.says) {
			t.Errorf("error %v, want one that says %q", tt.err, tt.says)
		}
	}
	if _, ok := collect(t, reader)["admitted x"]; ok {
		t.Error("a limiter was added in spite of its error")
	}
	if _, err := limiterotel.New(nil); err == nil {
		t.Error("nil Meter: no error")
	}
}

// stubborn is a meter that makes no instrument of one name, and registrations
// that fail or cannot be undone.
type stubborn struct {
	metric.Meter
	name          string
	noCallback    bool
	unregistering int
}

var errMeter = errors.New("the meter will not")

func (m *stubborn) Float64ObservableGauge(name string, opts ...metric.Float64ObservableGaugeOption) (metric.Float64ObservableGauge, error) {
	if name == m.name {
		return nil, errMeter
	}
	return m.Meter.Float64ObservableGauge(name, opts...)
}

func (m *stubborn) RegisterCallback(metric.Callback, ...metric.Observable) (metric.Registration, error) {
	if m.noCallback {
		return nil, errMeter
	}
	return registration{meter: m}, nil
}

type registration struct {
	embedded.Registration
	meter *stubborn
}

func (r registration) Unregister() error { r.meter.unregistering++; return errMeter }

func TestMeterFails(t *testing.T) {
	if _, err := limiterotel.New(&stubborn{Meter: noop.Meter{}, name: "agilelimiter.rate.floor"}); !errors.Is(err, errMeter) {
		t.Errorf("no instrument: %v", err)
	}
	if _, err := limiterotel.New(&stubborn{Meter: noop.Meter{}, noCallback: true}); !errors.Is(err, errMeter) {
		t.Errorf("no callback: %v", err)
	}
	m := &stubborn{Meter: noop.Meter{}}
	e, err := limiterotel.New(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Shutdown(); !errors.Is(err, errMeter) {
		t.Errorf("Shutdown: %v", err)
	}
	if err := e.Shutdown(); err != nil || m.unregistering != 1 {
		t.Errorf("second Shutdown: %v, unregistered %d times", err, m.unregistering)
	}
}

func TestConcurrentUse(t *testing.T) {
	e, reader := newExporter(t)
	lim := agilelimiter.NewConcurrency(agilelimiter.ConcurrencyConfig{MaxLimit: 8})
	var wg sync.WaitGroup
	for _, name := range []string{"a", "b", "c"} {
		wg.Go(func() {
			for range 50 {
				if err := e.Add(name, lim); err != nil {
					t.Error(err)
				}
				e.Remove(name)
			}
		})
	}
	wg.Go(func() {
		for range 50 {
			var data metricdata.ResourceMetrics
			if err := reader.Collect(context.Background(), &data); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
}
