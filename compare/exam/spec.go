package exam

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Spec is a situation: a service, its load and what happens to them. Its text,
// words of key=value, is what Parse reads and String writes; Words lists them.
type Spec struct {
	// The service.
	Workers  int
	Service  Work
	Then     []Stage // further stages behind the first, in this order
	Sharing  bool    // processor sharing in place of first in, first out
	USL      USL
	Queue    int // calls that may wait in the service, 503 beyond; -1: no bound
	Quota    Quota
	Behind   string // our own limiter in front of the service: an arm's name
	Base     Curve  // seconds added to every answer, no worker held
	Jitter   time.Duration
	Staff    Curve // share of the workers there is
	Slow     Curve // factor on service times
	Throttle Pulse // the service stands still so long in each period
	Faults   []Fault

	// The calls.
	Load         Curve // calls a second, or in units of the capacity at the start
	PerSec       bool  // Load is in calls a second
	Burst        Burst
	Callers      int // in place of Load: a closed loop
	Think        time.Duration
	Timeout      time.Duration // of the callers; 0: none
	Retries      int
	Backoff      time.Duration // before the first retry, doubled for each further one
	Patience     time.Duration // for admission; 0: max(500 ms, a call's mean latency)
	Hits         float64       // share of calls that a cache answers, looking like any other
	Marked       float64       // share of calls that a cache answers and says so
	Aborted      float64       // share of calls given up by their callers after AbortedAfter
	AbortedAfter time.Duration
	Errors       float64 // share of answers that are errors after the work was done
	Streams      Streams

	// The limiter.
	SLO       time.Duration
	Start     float64 // first number in units of the right one
	Min       float64 // likewise, the floor
	Max       float64 // likewise, the ceiling
	Fleet     int
	Skew      float64 // instance i has a share of the calls in proportion to (i+1)^-Skew
	Joins     []Join
	Ticks     Curve         // seconds between the limiter's ticks at least; 0: punctual
	Stall     Pulse         // the limiter's process stands still so long in each period
	Unstarted time.Duration // used so long before Start
	Forgotten float64       // share of calls by hand whose end is never reported

	Length time.Duration
	Seed   uint64 // of the calls
}

// Work is a distribution of service times.
type Work struct {
	Shape string // "exp", "det", "lognormal" or "bimodal"
	Mean  time.Duration
	A, B  float64 // lognormal: sigma; bimodal: share of the long calls, and how many times longer
}

// Stage is one more station that every call passes.
type Stage struct {
	Workers int
	Service Work
}

// USL is the universal scalability law: n calls at once take 1 + Contention
// (n-1) + Coherency n (n-1) times as long each.
type USL struct{ Contention, Coherency float64 }

// Quota is what the service grants; it answers 429 at once beyond.
type Quota struct {
	Rate   float64       // calls a second; 0: none
	Burst  float64       // of a token bucket
	Window time.Duration // of a fixed window instead
	Each   bool          // one for each instance, not one for all
}

// Pulse is For out of every Every.
type Pulse struct{ For, Every time.Duration }

// Fault is a time in which the service does not work.
type Fault struct {
	Kind string // "refuse", "reject", "hang" or "pause"
	At   time.Duration
	For  time.Duration
}

// Burst is Calls at one instant, every Every.
type Burst struct {
	Calls int
	Every time.Duration
}

// Streams are calls that last long and cost no worker.
type Streams struct {
	Share  float64
	Last   time.Duration
	Marked bool // their end is no evidence
}

// Join says that the last N instances of the fleet come or go.
type Join struct {
	N     int
	At    time.Duration
	Leave bool
}

// Default is what a spec's missing words mean.
func Default() Spec {
	return Spec{
		Workers: 10, Service: Work{Shape: "exp", Mean: 20 * time.Millisecond}, Queue: -1,
		Base: Flat(0), Staff: Flat(1), Slow: Flat(1), Load: Flat(1.4), Ticks: Flat(0),
		SLO: 200 * time.Millisecond, Start: 0.5, Min: 0.02, Max: 4, Fleet: 1,
		Length: time.Minute, Seed: 1,
	}
}

// Parse reads a spec. The error of a faulty word names it and what is allowed.
func Parse(text string) (Spec, error) {
	s := Default()
	seen := map[string]bool{}
	for _, w := range fields(text) {
		key, value, ok := strings.Cut(w, "=")
		i := slices.IndexFunc(words, func(w word) bool { return w.key == key })
		switch {
		case !ok || i < 0:
			return s, fmt.Errorf("%q is no word of a situation; there are %s", w, strings.Join(Keys(), ", "))
		case seen[key]:
			return s, fmt.Errorf("%q: %s stands twice", w, key)
		}
		seen[key] = true
		if err := words[i].parse(&s, value); err != nil {
			return s, fmt.Errorf("%q: %v; want %s", w, err, words[i].want)
		}
	}
	if seen["load"] && seen["callers"] {
		return s, fmt.Errorf("load and callers exclude each other: the calls come by themselves or from a closed loop")
	}
	return s, s.check()
}

// fields splits at white space outside of parentheses.
func fields(text string) (out []string) {
	depth, from := 0, -1
	for i, c := range text {
		switch c {
		case '(':
			depth++
		case ')':
			depth--
		}
		space := depth <= 0 && strings.ContainsRune(" \t\r\n", c)
		switch {
		case space && from >= 0:
			out, from = append(out, text[from:i]), -1
		case !space && from < 0:
			from = i
		}
	}
	if from >= 0 {
		out = append(out, text[from:])
	}
	return out
}

// check reports what no single word can know.
func (s *Spec) check() error {
	switch {
	case s.other() > 1:
		return fmt.Errorf("hits, marked, aborted and streams together are %v of the calls: want 1 at most", number(s.other()))
	case s.Timeout == 0 && slices.ContainsFunc(s.Faults, func(f Fault) bool { return f.Kind == "hang" }):
		return fmt.Errorf("fault=hang needs a timeout: without one its calls never end")
	case s.Min > s.Max:
		return fmt.Errorf("min=%s is above max=%s", times.show(s.Min), times.show(s.Max))
	case s.Start > s.Max || s.Start < s.Min:
		return fmt.Errorf("start=%s is outside of min=%s and max=%s", times.show(s.Start), times.show(s.Min), times.show(s.Max))
	case len(s.Joins) > 0 && s.Fleet < 2:
		return fmt.Errorf("join and leave need a fleet")
	case slices.ContainsFunc(s.Joins, func(j Join) bool { return j.N >= s.Fleet }):
		return fmt.Errorf("join and leave concern fewer than the fleet's %d instances", s.Fleet)
	}
	return nil
}

// String writes s so that Parse gives it back. Words that mean the default are
// left out, but for those without which nobody could picture the situation.
func (s Spec) String() string {
	def := Default()
	var out []string
	for _, w := range words {
		text := w.show(&s)
		if text == "" || !w.always && text == w.show(&def) {
			continue
		}
		out = append(out, w.key+"="+text)
	}
	return strings.Join(out, " ")
}

// other is the share of the calls that cost no worker.
func (s *Spec) other() float64 { return s.Hits + s.Marked + s.Aborted + s.Streams.Share }

// workShare is the share of the calls that do.
func (s *Spec) workShare() float64 { return 1 - s.other() }

// latency is a working call's mean latency when nobody waits, at the start.
func (s *Spec) latency() time.Duration {
	d := s.Service.Mean.Seconds()
	for _, t := range s.Then {
		d += t.Service.Mean.Seconds()
	}
	return time.Duration(1e9 * (d*s.Slow.at(0) + s.Base.at(0) + s.Jitter.Seconds()/2))
}

// nominal is what the service can do at the start with all its workers at their
// nominal speed, in calls a second, those that cost no worker included.
func (s *Spec) nominal() float64 { return s.able(s.Workers, 1) }

// able is what the service can do with so many workers in its first stage, and
// service times there multiplied by slow.
func (s *Spec) able(workers int, slow float64) float64 {
	c, _ := s.best(workers)
	c /= slow
	for _, t := range s.Then {
		c = min(c, float64(t.Workers)/t.Service.Mean.Seconds())
	}
	if s.Throttle.Every > 0 {
		c *= 1 - float64(s.Throttle.For)/float64(s.Throttle.Every)
	}
	return c / max(1e-4, s.workShare())
}

// best is the most that the first stage can do, and how many calls at once it
// takes.
func (s *Spec) best(workers int) (most float64, n int) {
	if s.USL == (USL{}) {
		return float64(workers) / s.Service.Mean.Seconds(), workers
	}
	for k := 1; k <= workers; k++ {
		if c := float64(k) / s.Service.Mean.Seconds() / s.USL.factor(k); c > most {
			most, n = c, k
		}
	}
	return most, n
}

func (u USL) factor(n int) float64 {
	return 1 + u.Contention*float64(n-1) + u.Coherency*float64(n)*float64(n-1)
}

// capacity is the same at t, in this very situation: what the service can do
// and what it grants.
func (s *Spec) capacity(t int64) float64 {
	if s.fault(t) != "" {
		return 0
	}
	c := s.able(s.staffed(t), s.Slow.at(t))
	if s.Quota.Rate > 0 {
		granted := s.Quota.Rate
		if s.Quota.Each {
			granted *= float64(s.Fleet)
		}
		c = min(c, granted)
	}
	return c
}

func (s *Spec) staffed(t int64) int {
	return max(1, int(float64(s.Workers)*s.Staff.at(t)+0.5))
}

func (s *Spec) fault(t int64) string {
	for _, f := range s.Faults {
		if t >= ns(f.At) && t < ns(f.At+f.For) {
			return f.Kind
		}
	}
	return ""
}

// offered is the load at t, in calls a second.
func (s *Spec) offered(t int64) float64 {
	if s.Callers > 0 {
		return float64(s.Callers) / max(1e-6, s.Think.Seconds()+s.latency().Seconds())
	}
	load := s.Load.at(t)
	if !s.PerSec {
		load *= s.nominal()
	}
	return load
}

// average is the load over the whole run, bursts included.
func (s *Spec) average() float64 {
	const steps = 400
	sum := 0.0
	for i := range int64(steps) {
		sum += s.offered(ns(s.Length) * (2*i + 1) / (2 * steps))
	}
	return sum/steps + s.bursting()
}

func (s *Spec) bursting() float64 {
	if s.Burst.Calls == 0 {
		return 0
	}
	return float64(s.Burst.Calls) / s.Burst.Every.Seconds()
}

// short reports whether less is there than is asked for at t.
func (s *Spec) short(t int64) bool { return s.offered(t) > calm*s.capacity(t) }

// calm is the utilisation up to which nothing is short.
const calm = 0.9

// rightLimit is how many calls are in flight when the service does what it can
// and as many wait as are served.
func (s *Spec) rightLimit() float64 {
	c := s.capacity(0)
	if c == 0 {
		c = s.nominal()
	}
	other := s.Hits*hitTime.Seconds() + s.Marked*hitTime.Seconds() +
		s.Aborted*s.AbortedAfter.Seconds() + s.Streams.Share*s.Streams.Last.Seconds()
	return max(1, c*(2*s.workShare()*s.latency().Seconds()+other))
}

// rightRate is the rate that suits the service at the start.
func (s *Spec) rightRate() float64 {
	if c := s.capacity(0); c > 0 {
		return c
	}
	return s.nominal()
}

func (s *Spec) patience() time.Duration {
	if s.Patience > 0 {
		return s.Patience
	}
	return max(500*time.Millisecond, s.latency())
}

// shares returns each instance's part of the calls.
func (s *Spec) shares() []float64 {
	w, sum := make([]float64, s.Fleet), 0.0
	for i := range w {
		w[i] = math.Pow(float64(i+1), -s.Skew)
		sum += w[i]
	}
	for i := range w {
		w[i] /= sum
	}
	return w
}

// Capacity returns what the service can do and grants in calls a second, at the
// ends of so many equal parts of the run.
func (s *Spec) Capacity(parts int) (out []float64) {
	for b := range parts {
		out = append(out, s.capacity(ns(s.Length)/int64(parts)*int64(b+1)-1))
	}
	return out
}
