package limiterotel

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"agilelimiter"
)

// Source is what an Exporter reads: a *agilelimiter.Limiter, a
// *agilelimiter.ConcurrencyLimiter, or something around one of them.
type Source interface{ Stats() agilelimiter.Stats }

// Kind says what Stats.Target is.
type Kind uint8

const (
	Rate  Kind = iota + 1 // requests per second, of a Limiter
	Limit                 // calls in flight, of a ConcurrencyLimiter
)

// Option changes what Add exports.
type Option func(*limiter)

// WithKind tells the kind of a source that has no Config method to tell it.
func WithKind(k Kind) Option { return func(l *limiter) { l.kind = k } }

// WithSLOTarget tells the SLOTarget of a source that has no Config method to tell
// it. 0 or less means none.
func WithSLOTarget(d time.Duration) Option { return func(l *limiter) { l.slo = d } }

const prefix = "agilelimiter/contrib/otel: "

// Exporter observes any number of limiters with one set of instruments and one
// callback. It is made by New; its zero value is not usable. All methods are safe
// for concurrent use, but for what Shutdown says.
type Exporter struct {
	instruments  []instrument
	decisions    metric.Int64Observable
	registration metric.Registration

	mu       sync.Mutex // guards what follows; free while sources are read
	limiters []*limiter // appended to or replaced: observe reads it without the lock
	closed   bool
}

// New makes the instruments on meter and registers the callback. One Exporter is
// enough for a meter: it finds names that are taken, while the series of two
// Exporters would run into each other. The error joins those of meter; a nil
// meter is one too.
func New(meter metric.Meter) (*Exporter, error) {
	if meter == nil {
		return nil, errors.New(prefix + "New: nil Meter")
	}
	e := &Exporter{}
	observables, err := e.makeInstruments(meter)
	if err != nil {
		return nil, err
	}
	if e.registration, err = meter.RegisterCallback(e.observe, observables...); err != nil {
		return nil, fmt.Errorf("%sNew: %w", prefix, err)
	}
	return e, nil
}

// Add has source observed from now on, under name as the attribute limiter. Each
// collection calls source.Stats once; Add calls it once now.
//
// Both limiters, and types that embed them, have a Config method by which the
// kind and the SLOTarget are known. For other sources say WithKind.
//
// It returns an error, and adds nothing, if name is empty or taken, if source is
// nil or a nil pointer, if an option is nil, if the kind is not known, and after
// Shutdown.
func (e *Exporter) Add(name string, source Source, opts ...Option) error {
	if name == "" {
		return errors.New(prefix + "Add: a limiter needs a name")
	}
	if isNil(source) {
		return fmt.Errorf("%sAdd: nil source for limiter %q", prefix, name)
	}
	l := &limiter{name: name, source: source}
	switch s := source.(type) {
	case interface{ Config() agilelimiter.Config }:
		l.kind, l.slo = Rate, s.Config().SLOTarget
	case interface {
		Config() agilelimiter.ConcurrencyConfig
	}:
		l.kind, l.slo = Limit, s.Config().SLOTarget
	}
	for _, o := range opts {
		if o == nil {
			return fmt.Errorf("%sAdd: nil Option for limiter %q", prefix, name)
		}
		o(l)
	}
	if l.kind != Rate && l.kind != Limit {
		return fmt.Errorf("%sAdd: %T of limiter %q does not tell whether it is a rate or a limit; use WithKind", prefix, source, name)
	}
	source.Stats() // what is wrong with it shall show here, not in a collection
	l.makeAttributes()

	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return fmt.Errorf("%sAdd: limiter %q comes after Shutdown", prefix, name)
	}
	for _, other := range e.limiters {
		if other.name == name {
			return fmt.Errorf("%sAdd: a limiter %q is there already", prefix, name)
		}
	}
	e.limiters = append(e.limiters, l)
	return nil
}

// Remove ends the observation of a limiter and reports whether it was there. A
// collection that runs meanwhile may still contain it.
func (e *Exporter) Remove(name string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	var kept []*limiter
	for _, l := range e.limiters {
		if l.name != name {
			kept = append(kept, l)
		}
	}
	found := len(kept) < len(e.limiters)
	e.limiters = kept
	return found
}

// Shutdown unregisters the callback and forgets all limiters. It may be called
// twice, but not by a source while that is being read.
func (e *Exporter) Shutdown() error {
	e.mu.Lock()
	closed := e.closed
	e.closed, e.limiters = true, nil
	e.mu.Unlock()
	if closed {
		return nil
	}
	return e.registration.Unregister()
}

func isNil(source Source) bool {
	if source == nil {
		return true
	}
	v := reflect.ValueOf(source)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// limiter is one source under observation.
type limiter struct {
	name   string
	source Source
	kind   Kind
	slo    time.Duration

	// Made once: an attribute set is sorted and hashed.
	attributes metric.ObserveOption
	decided    [agilelimiter.NumDecisions]metric.ObserveOption
}

func (l *limiter) makeAttributes() {
	name := attribute.String("limiter", l.name)
	l.attributes = metric.WithAttributeSet(attribute.NewSet(name))
	for d := range l.decided {
		decision := attribute.String("decision", agilelimiter.Decision(d).String())
		l.decided[d] = metric.WithAttributeSet(attribute.NewSet(name, decision))
	}
}

// observe is the callback.
func (e *Exporter) observe(_ context.Context, to metric.Observer) error {
	e.mu.Lock()
	limiters := e.limiters
	e.mu.Unlock()
	for _, l := range limiters {
		s := reading{l.source.Stats(), l.kind, l.slo}
		for _, i := range e.instruments {
			i(to, &s, l.attributes)
		}
		for d, n := range s.Decisions {
			to.ObserveInt64(e.decisions, int64(n), l.decided[d])
		}
	}
	return nil
}
