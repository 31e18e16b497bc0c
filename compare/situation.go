package main

import (
	"math/rand/v2"
	"time"

	"agilelimiter/compare/arm"
	"agilelimiter/compare/plant"
)

// A Situation is one server, one load and one thing that happens to them.
// Zero fields mean the default that is written beside them; adding a situation
// is adding a literal to the list.
type Situation struct {
	Name  string
	About string

	Length time.Duration // 40 s
	SLO    time.Duration // 200 ms, from the sending of a call

	Workers int           // 10
	Service time.Duration // 20 ms: mean work of a call
	Dist    plant.Dist    // plant.Exponential
	Sharing bool          // processor sharing instead of FIFO
	Queue   int           // calls that may wait in the server; 0: no bound
	Timeout time.Duration // of the callers; 0: none

	Staff  plant.Curve   // share of Workers there is; 1
	Slow   plant.Curve   // factor on service times; 1
	Base   plant.Curve   // seconds added to every answer; 0
	Jitter time.Duration // at most this much more, anew for each call; 0

	Fault    plant.Fault // what the server does between From and To
	From, To time.Duration

	Hits   float64 // share of cache hits
	Marked bool    // they can be told from misses

	Load      plant.Curve   // offered load as a share of the nominal capacity; 1.4
	Clients   int           // instead of Load: callers in a closed loop
	Think     time.Duration // of each of them between two calls
	Instances int           // 1: limiters, each with its share of the load

	Initial float64 // start rate as a share of the nominal capacity; 0.5
	Min     float64 // floor of the rate, likewise; 0.02
	Max     float64 // ceiling of the rate, likewise; 4

	Steps []time.Duration // after each of these the time to recover is taken
}

const (
	wait = 500 * time.Millisecond // the longest that a caller waits for admission
	// backoff is what a caller of a closed loop does after it was shed.
	backoff = 100 * time.Millisecond
	bin     = 250 * time.Millisecond // resolution of everything over time
)

func or[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// withDefaults fills the zero fields in.
func (s Situation) withDefaults() Situation {
	s.Length = or(s.Length, 40*time.Second)
	s.SLO = or(s.SLO, 200*time.Millisecond)
	s.Workers = or(s.Workers, 10)
	s.Service = or(s.Service, 20*time.Millisecond)
	s.Instances = or(s.Instances, 1)
	s.Initial = or(s.Initial, 0.5)
	s.Min = or(s.Min, 0.02)
	s.Max = or(s.Max, 4)
	if s.Load == nil {
		s.Load = plant.Const(1.4)
	}
	return s
}

// perturbed moves the number of workers, the service time, the base latency
// and the SLO by up to 30 % each, so that a law cannot live on the figures it
// was tuned on. The base latency gives way where it would leave less of the
// SLO than it did before.
func (s Situation) perturbed(seed uint64) Situation {
	r := rand.New(rand.NewPCG(seed, 0xf4e54))
	for range []byte(s.Name) { // situations of one seed differ too
		r.Uint64()
	}
	factor := func() float64 { return 0.7 + 0.6*r.Float64() }
	scale := func(d time.Duration, f float64) time.Duration { return time.Duration(float64(d) * f) }
	workers, service, slo, base := factor(), factor(), factor(), factor()
	s.Workers = max(1, int(float64(s.Workers)*workers+0.5))
	s.Service = scale(s.Service, min(service, slo))
	s.SLO = scale(s.SLO, slo)
	base = min(base, slo)
	s.Jitter = scale(s.Jitter, base)
	if old := s.Base; old != nil {
		s.Base = func(t time.Duration) float64 { return base * old(t) }
	}
	return s
}

// nominal is what the server can do with all its workers at the nominal speed,
// in calls a second, hits included.
func (s Situation) nominal() float64 {
	return float64(s.Workers) / s.Service.Seconds() / (1 - s.Hits)
}

// capacity is the same at t, in this very situation.
func (s Situation) capacity(t time.Duration) float64 {
	if s.fault(t) != plant.None {
		return 0
	}
	workers := float64(s.workers(t)) / s.Slow.At(t, 1)
	return s.nominal() * workers / float64(s.Workers)
}

func (s Situation) workers(t time.Duration) int {
	return max(1, int(float64(s.Workers)*s.Staff.At(t, 1)+0.5))
}

func (s Situation) fault(t time.Duration) plant.Fault {
	if t >= s.From && t < s.To {
		return s.Fault
	}
	return plant.None
}

func (s Situation) mix() plant.Mix {
	return plant.Mix{Mean: s.Service, Dist: s.Dist, Hits: s.Hits}
}

func (s Situation) server() *plant.Server {
	return &plant.Server{
		Workers: s.workers,
		Slow:    s.Slow,
		Base:    s.Base,
		Jitter:  s.Jitter,
		Sharing: s.Sharing,
		Queue:   s.Queue,
		Fault:   s.fault,
		Timeout: s.Timeout,
		Marked:  s.Marked,
	}
}

// env is what the limiter of one of the instances is told: its share of the
// nominal capacity times Min, Initial and Max. For the limits, two calls in
// flight per worker stand for the capacity, and the ceiling is at least ten
// times as far, because latency that costs no worker needs calls in flight too.
func (s Situation) env(seed uint64, now func() time.Duration) arm.Env {
	n := float64(s.Instances)
	// Not a round rate: departures that fall on the ticks of a limiter race
	// with them.
	share, inFlight := 0.9973*s.nominal()/n, 2*float64(s.Workers)/n
	limit := func(x float64) int { return max(1, int(x*inFlight+0.5)) }
	return arm.Env{
		SLO:  s.SLO,
		Wait: wait,
		Seed: seed,

		MinRate:     share * s.Min,
		MaxRate:     share * s.Max,
		InitialRate: share * s.Initial,

		MinLimit:     1,
		MaxLimit:     limit(5 * max(2, s.Max/2)),
		InitialLimit: limit(s.Initial),

		StartCapacity: s.capacity(0) / n,
		Capacity:      func() float64 { return s.capacity(now()) / n },
	}
}
