package limiterotel

import (
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/metric"

	"agilelimiter"
)

// reading is what one collection sees of a limiter.
type reading struct {
	agilelimiter.Stats
	kind Kind
	slo  time.Duration
}

// instrument observes one value of a reading, if there is one.
type instrument func(metric.Observer, *reading, metric.ObserveOption)

// builder makes instruments and collects what went wrong.
type builder struct {
	meter       metric.Meter
	instruments []instrument
	observables []metric.Observable
	errs        []error
}

func (b *builder) made(o metric.Observable, err error) {
	if err != nil {
		b.errs = append(b.errs, err)
		return
	}
	b.observables = append(b.observables, o)
}

// value returns what to observe; false where there is nothing.
type (
	floatValue func(*reading) (float64, bool)
	intValue   func(*reading) (int64, bool)
)

func (b *builder) gauge(name, unit, help string, value floatValue) {
	i, err := b.meter.Float64ObservableGauge("agilelimiter."+name, metric.WithUnit(unit), metric.WithDescription(help))
	b.made(i, err)
	b.float(i, value)
}

func (b *builder) secondsCounter(name, help string, value floatValue) {
	i, err := b.meter.Float64ObservableCounter("agilelimiter."+name, metric.WithUnit("s"), metric.WithDescription(help))
	b.made(i, err)
	b.float(i, value)
}

func (b *builder) counter(name, help string, value func(*reading) uint64) {
	i, err := b.meter.Int64ObservableCounter("agilelimiter."+name, metric.WithUnit("{request}"), metric.WithDescription(help))
	b.made(i, err)
	b.int(i, func(r *reading) (int64, bool) { return int64(value(r)), true })
}

func (b *builder) upDown(name, help string, value intValue) {
	i, err := b.meter.Int64ObservableUpDownCounter("agilelimiter."+name, metric.WithUnit("{request}"), metric.WithDescription(help))
	b.made(i, err)
	b.int(i, value)
}

func (b *builder) float(i metric.Float64Observable, value floatValue) {
	b.instruments = append(b.instruments, func(to metric.Observer, r *reading, attributes metric.ObserveOption) {
		if v, ok := value(r); ok {
			to.ObserveFloat64(i, v, attributes)
		}
	})
}

func (b *builder) int(i metric.Int64Observable, value intValue) {
	b.instruments = append(b.instruments, func(to metric.Observer, r *reading, attributes metric.ObserveOption) {
		if v, ok := value(r); ok {
			to.ObserveInt64(i, v, attributes)
		}
	})
}

// latency is a gauge of a duration that is not known while it is 0.
func (b *builder) latency(name, help string, value func(*reading) time.Duration) {
	b.gauge("latency."+name, "s", help, func(r *reading) (float64, bool) {
		d := value(r)
		return d.Seconds(), d > 0
	})
}

// makeInstruments fills in e.instruments and e.decisions and returns all of them
// for the registration of the callback.
func (e *Exporter) makeInstruments(meter metric.Meter) ([]metric.Observable, error) {
	b := &builder{meter: meter}
	b.targets("rate", "{request}/s", Rate)
	b.targets("concurrency", "{request}", Limit)
	b.upDown("concurrency.usage", "Calls admitted and not yet ended.",
		func(r *reading) (int64, bool) { return int64(r.InFlight), true })
	b.gauge("concurrency.peak", "{request}", "Most calls in flight at once during the last tick.",
		func(r *reading) (float64, bool) { return float64(r.PeakInFlight), r.kind == Limit })
	b.upDown("waiting", "Callers waiting for a slot.",
		func(r *reading) (int64, bool) { return int64(r.Waiting), r.kind == Rate })
	b.gauge("binding", "1", "1 if somebody was refused, gave up waiting or still waited when the last tick ended, else 0.",
		func(r *reading) (float64, bool) {
			if r.Binding {
				return 1, true
			}
			return 0, true
		})

	b.latency("slo", "Latency that calls should stay below.", func(r *reading) time.Duration { return r.slo })
	b.latency("baseline", "Latency without our own queue, as far as it is known.", func(r *reading) time.Duration { return r.Baseline })
	b.latency("fast", "Latency now, smoothed.", func(r *reading) time.Duration { return r.Fast })
	b.latency("window", "Tolerated latency: at or above it the limiter backs off.", func(r *reading) time.Duration { return r.Window })
	b.latency("p50", "Median latency of the last tick.", func(r *reading) time.Duration { return r.P50 })
	b.latency("p99", "99th percentile of latency of the last tick.", func(r *reading) time.Duration { return r.P99 })

	b.counter("admitted", "Calls let through.", func(r *reading) uint64 { return r.Admitted })
	b.counter("shed", "Calls refused, and those that gave up while waiting.", func(r *reading) uint64 { return r.Shed })
	b.counter("samples", "Calls that ended with a latency.", func(r *reading) uint64 { return r.Reached })
	b.counter("truncated", "Calls that ended with a latency because their own time-out ended them.", func(r *reading) uint64 { return r.Truncated })
	b.counter("overflow", "Calls that ended with a latency of more than an hour.", func(r *reading) uint64 { return r.Overflow })
	b.counter("unreachable", "Calls that never arrived or were refused without any work.", func(r *reading) uint64 { return r.Unreachable })
	b.counter("aborted", "Calls that say nothing about the resource.", func(r *reading) uint64 { return r.Aborted })
	b.secondsCounter("wait", "Time that admitted callers together spent waiting for a slot.",
		func(r *reading) (float64, bool) { return r.ThrottleWait.Seconds(), r.kind == Rate })
	b.gauge("lateness", "s", "Most that the limiter's own timer was late by during the last tick.",
		func(r *reading) (float64, bool) { return r.Lateness.Seconds(), r.kind == Rate })
	b.secondsCounter("lateness.lost", "Time of the schedule lost because the limiter's own timer was late.",
		func(r *reading) (float64, bool) { return r.LatenessLost.Seconds(), r.kind == Rate })
	b.gauge("shadow", "1", "1 in shadow mode, where nobody is delayed or refused, else 0.",
		func(r *reading) (float64, bool) {
			if r.Shadow {
				return 1, true
			}
			return 0, true
		})
	b.gauge("paused", "s", "How much longer a pause lasts.", func(r *reading) (float64, bool) { return r.Paused.Seconds(), true })
	b.counter("would.wait", "Calls that would have waited, counted in shadow mode.", func(r *reading) uint64 { return r.WouldWait })
	b.secondsCounter("would.wait.time", "Time that they would have waited together.",
		func(r *reading) (float64, bool) { return r.WouldWaitTime.Seconds(), r.kind == Rate })
	b.counter("would.shed", "Calls that would have been refused, counted in shadow mode.", func(r *reading) uint64 { return r.WouldShed })

	decisions, err := meter.Int64ObservableCounter("agilelimiter.decisions",
		metric.WithUnit("{decision}"), metric.WithDescription("Steps of the controller by reason."))
	b.made(decisions, err)
	if len(b.errs) > 0 {
		return nil, fmt.Errorf("%sNew: %w", prefix, errors.Join(b.errs...))
	}
	e.instruments, e.decisions = b.instruments, decisions
	return b.observables, nil
}

// targets makes the three gauges of the number that the limiters of a kind drive.
func (b *builder) targets(name, unit string, kind Kind) {
	for _, g := range []struct {
		name, help string
		value      func(*reading) float64
	}{
		{"limit", "Number in force.", func(r *reading) float64 { return r.Target }},
		{"floor", "Lowest number that the controller may set.", func(r *reading) float64 { return r.Min }},
		{"ceiling", "Highest number that the controller may set.", func(r *reading) float64 { return r.Max }},
	} {
		b.gauge(name+"."+g.name, unit, g.help, func(r *reading) (float64, bool) { return g.value(r), r.kind == kind })
	}
}
