package limiterprom

import (
	"fmt"
	"math"
	"reflect"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"agilelimiter"
)

// Source is what a collector reads: a *agilelimiter.Limiter, a
// *agilelimiter.ConcurrencyLimiter, or something around one of them.
type Source interface{ Stats() agilelimiter.Stats }

// Kind says what Stats.Target is.
type Kind uint8

const (
	Rate  Kind = iota + 1 // requests per second, of a Limiter
	Limit                 // calls in flight, of a ConcurrencyLimiter
)

// Option changes what NewCollector exports.
type Option func(*collector)

// WithKind tells the kind of a source that has no Config method to tell it. A k
// other than Rate and Limit panics.
func WithKind(k Kind) Option {
	if k != Rate && k != Limit {
		panic(fmt.Sprintf("%sWithKind: unknown Kind %d", prefix, k))
	}
	return func(c *collector) { c.kind = k }
}

// WithSLOTarget tells the SLOTarget of a source that has no Config method to tell
// it. 0 means none; a negative d panics.
func WithSLOTarget(d time.Duration) Option {
	if d < 0 {
		panic(fmt.Sprintf("%sWithSLOTarget: negative target %v", prefix, d))
	}
	return func(c *collector) { c.slo = d }
}

const prefix = "agilelimiter/contrib/prometheus: "

// NewCollector returns a collector for source, whose series carry the label
// limiter with the value name. It calls source.Stats once per scrape, and once
// now; the collector is safe for concurrent use if source is.
//
// Both limiters, and types that embed them, have a Config method by which the
// collector knows the kind and the SLOTarget. For other sources say WithKind.
//
// It panics if name is empty, if source is nil or a nil pointer, if an option is
// nil, and if the kind is not known. A name that is taken already is an error of
// the registry: see Register.
func NewCollector(name string, source Source, opts ...Option) prometheus.Collector {
	if name == "" {
		panic(prefix + "NewCollector: a limiter needs a name")
	}
	if isNil(source) {
		panic(fmt.Sprintf("%sNewCollector: nil source for limiter %q", prefix, name))
	}
	c := &collector{source: source}
	switch s := source.(type) {
	case interface{ Config() agilelimiter.Config }:
		c.kind, c.slo = Rate, s.Config().SLOTarget
	case interface {
		Config() agilelimiter.ConcurrencyConfig
	}:
		c.kind, c.slo = Limit, s.Config().SLOTarget
	}
	for _, o := range opts {
		if o == nil {
			panic(prefix + "NewCollector: nil Option")
		}
		o(c)
	}
	if c.kind == 0 {
		panic(fmt.Sprintf("%sNewCollector: %T of limiter %q does not tell whether it is a rate or a limit; use WithKind", prefix, source, name))
	}
	source.Stats() // what is wrong with it shall show here, not in a scrape
	c.describe(name)
	return c
}

// Register makes a collector as NewCollector does and registers it with r. The
// error of a name that is taken says which; it wraps the registry's own, a
// prometheus.AlreadyRegisteredError if the two limiters are of one kind.
func Register(r prometheus.Registerer, name string, source Source, opts ...Option) error {
	if err := r.Register(NewCollector(name, source, opts...)); err != nil {
		return fmt.Errorf("%slimiter %q: %w", prefix, name, err)
	}
	return nil
}

func isNil(source Source) bool {
	if source == nil {
		return true
	}
	v := reflect.ValueOf(source)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

type collector struct {
	source  Source
	kind    Kind
	slo     time.Duration
	metrics []metric

	decisions *prometheus.Desc
}

// metric is a series with one value: all but the one that has a label more.
type metric struct {
	desc *prometheus.Desc
	typ  prometheus.ValueType
	// value returns NaN where there is nothing to export.
	value func(*agilelimiter.Stats) float64
}

// describe lists what c exports. A help text must not depend on the kind: one
// registry may hold both.
func (c *collector) describe(name string) {
	labels := prometheus.Labels{"limiter": name}
	desc := func(metric, help string, variable ...string) *prometheus.Desc {
		return prometheus.NewDesc("agilelimiter_"+metric, help, variable, labels)
	}
	gauge := func(name, help string, value func(*agilelimiter.Stats) float64) {
		c.metrics = append(c.metrics, metric{desc(name, help), prometheus.GaugeValue, value})
	}
	counter := func(name, help string, value func(*agilelimiter.Stats) float64) {
		c.metrics = append(c.metrics, metric{desc(name, help), prometheus.CounterValue, value})
	}
	type stats = agilelimiter.Stats

	target := func(s *stats) float64 { return s.Target }
	floor := func(s *stats) float64 { return s.Min }
	ceiling := func(s *stats) float64 { return s.Max }
	if c.kind == Rate {
		gauge("rate_limit_requests_per_second", "Rate in force.", target)
		gauge("rate_floor_requests_per_second", "Lowest rate that the controller may set.", floor)
		gauge("rate_ceiling_requests_per_second", "Highest rate that the controller may set.", ceiling)
		gauge("waiting_requests", "Callers waiting for a slot.", func(s *stats) float64 { return float64(s.Waiting) })
		counter("wait_seconds_total", "Time that admitted callers together spent waiting for a slot.",
			func(s *stats) float64 { return s.ThrottleWait.Seconds() })
		gauge("lateness_seconds", "Most that the limiter's own timer was late by during the last tick.",
			func(s *stats) float64 { return s.Lateness.Seconds() })
		counter("lateness_lost_seconds_total", "Time of the schedule lost because the limiter's own timer was late.",
			func(s *stats) float64 { return s.LatenessLost.Seconds() })
		counter("would_wait_total", "Calls that would have waited, counted in shadow mode.",
			func(s *stats) float64 { return float64(s.WouldWait) })
		counter("would_wait_seconds_total", "Time that they would have waited together.",
			func(s *stats) float64 { return s.WouldWaitTime.Seconds() })
	} else {
		gauge("concurrency_limit", "Limit of calls in flight in force, before rounding down.", target)
		gauge("concurrency_floor", "Lowest limit that the controller may set.", floor)
		gauge("concurrency_ceiling", "Highest limit that the controller may set.", ceiling)
		gauge("peak_in_flight_requests", "Most calls in flight at once during the last tick.",
			func(s *stats) float64 { return float64(s.PeakInFlight) })
	}
	gauge("in_flight_requests", "Calls admitted and not yet ended.", func(s *stats) float64 { return float64(s.InFlight) })
	gauge("shadow", "1 in shadow mode, where nobody is delayed or refused, else 0.", func(s *stats) float64 {
		if s.Shadow {
			return 1
		}
		return 0
	})
	gauge("paused_seconds", "How much longer a pause lasts.", func(s *stats) float64 { return s.Paused.Seconds() })
	counter("would_shed_total", "Calls that would have been refused, counted in shadow mode.",
		func(s *stats) float64 { return float64(s.WouldShed) })
	gauge("binding", "1 if somebody was refused, gave up waiting or still waited when the last tick ended, else 0.",
		func(s *stats) float64 {
			if s.Binding {
				return 1
			}
			return 0
		})
	gauge("slo_target_seconds", "Latency that calls should stay below.", func(*stats) float64 { return known(c.slo) })
	gauge("baseline_latency_seconds", "Latency without our own queue, as far as it is known.",
		func(s *stats) float64 { return known(s.Baseline) })
	gauge("fast_latency_seconds", "Latency now, smoothed.", func(s *stats) float64 { return known(s.Fast) })
	gauge("window_latency_seconds", "Tolerated latency: at or above it the limiter backs off.",
		func(s *stats) float64 { return known(s.Window) })
	gauge("p50_latency_seconds", "Median latency of the last tick.", func(s *stats) float64 { return known(s.P50) })
	gauge("p99_latency_seconds", "99th percentile of the latencies of the last tick.",
		func(s *stats) float64 { return known(s.P99) })
	counter("admitted_total", "Calls let through.", func(s *stats) float64 { return float64(s.Admitted) })
	counter("shed_total", "Calls refused, and those that gave up while waiting.", func(s *stats) float64 { return float64(s.Shed) })
	counter("samples_total", "Calls that ended with a latency.", func(s *stats) float64 { return float64(s.Reached) })
	counter("truncated_total", "Calls that ended with a latency because their own time-out ended them.",
		func(s *stats) float64 { return float64(s.Truncated) })
	counter("overflow_total", "Calls that ended with a latency of more than an hour.",
		func(s *stats) float64 { return float64(s.Overflow) })
	counter("unreachable_total", "Calls that never arrived or were refused without any work.",
		func(s *stats) float64 { return float64(s.Unreachable) })
	counter("aborted_total", "Calls that say nothing about the resource.", func(s *stats) float64 { return float64(s.Aborted) })
	c.decisions = desc("decisions_total", "Steps of the controller by reason.", "decision")
}

// known is d in seconds, or NaN where 0 means that it is not known.
func known(d time.Duration) float64 {
	if d == 0 {
		return math.NaN()
	}
	return d.Seconds()
}

func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, m := range c.metrics {
		out <- m.desc
	}
	out <- c.decisions
}

func (c *collector) Collect(out chan<- prometheus.Metric) {
	s := c.source.Stats()
	for _, m := range c.metrics {
		if v := m.value(&s); !math.IsNaN(v) {
			out <- prometheus.MustNewConstMetric(m.desc, m.typ, v)
		}
	}
	for d, n := range s.Decisions {
		out <- prometheus.MustNewConstMetric(c.decisions, prometheus.CounterValue, float64(n), agilelimiter.Decision(d).String())
	}
}
