package agilelimiter

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// lawWorld is a service, its callers and an actuator, tick by tick behind a law
// alone: no clock, no limiter, so that ten minutes take milliseconds. Times are
// in seconds.
type lawWorld struct {
	law  law
	rate bool
	r    *rand.Rand

	load    float64 // calls per second, Poisson
	service float64 // mean of an exponential
	timeout float64 // of the callers; 0: none
	slo     float64
	fault   worldFault
	errors  float64 // share of answers that are errors after the work
	hits    float64 // share of calls that are marked hits of 1 ms
	aborted float64 // share of calls given up after 2 services

	number   float64
	now      float64
	why      Decision
	arrival  float64   // of the next caller
	slot     float64   // the next departure
	queue    []float64 // those who wait for the rate, by when they came
	workers  []float64 // when each is free
	open     worldCalls
	flight   flight
	binding  bool
	admitted int

	offered, good, sent int // since they were last reset
}

type worldFault uint8

const (
	worldUp worldFault = iota
	worldRefuses
	worldRejects // an instant 503
	worldHangs   // calls are accepted and never answered
	worldPauses  // nothing is worked on; what came is answered afterwards
	numWorldFaults
)

type worldCall struct {
	start, end float64
	epoch      uint32
	outcome    Outcome
	truncated  bool
}

type worldCalls []worldCall

func (c worldCalls) Len() int           { return len(c) }
func (c worldCalls) Less(i, j int) bool { return c[i].end < c[j].end }
func (c worldCalls) Swap(i, j int)      { c[i], c[j] = c[j], c[i] }
func (c *worldCalls) Push(x any)        { *c = append(*c, x.(worldCall)) }
func (c *worldCalls) Pop() any {
	last := (*c)[len(*c)-1]
	*c = (*c)[:len(*c)-1]
	return last
}

func newLawWorld(l law, rate bool, seed uint64, workers int, service float64) *lawWorld {
	return &lawWorld{
		law: l, rate: rate, r: rand.New(rand.NewPCG(seed, 0x1a3)),
		service: service, workers: make([]float64, workers), number: l.start(),
	}
}

func (w *lawWorld) capacity() float64 { return float64(len(w.workers)) / w.service }

// patience is how long a caller waits for the rate.
func (w *lawWorld) patience() float64 { return max(0.5, 2*w.service) }

// run lets the time pass in ticks of the given length, and returns the share of
// the callers who were served well.
func (w *lawWorld) run(length, tick float64) float64 {
	w.offered, w.good, w.sent = 0, 0, 0
	if w.fault == worldPauses {
		w.pause(length)
	}
	for end := w.now + length; w.now < end-tick/2; {
		w.tick(tick)
	}
	return float64(w.good) / float64(max(1, w.offered))
}

// pause puts off all that is worked on.
func (w *lawWorld) pause(length float64) {
	for i := range w.workers {
		w.workers[i] = max(w.workers[i], w.now) + length
	}
	for i := range w.open {
		if c := &w.open[i]; c.outcome == Reached && !c.truncated && !math.IsInf(c.end, 1) {
			c.end += length
			if w.timeout > 0 && c.end > c.start+w.timeout {
				c.end, c.truncated = c.start+w.timeout, true
			}
		}
	}
	heap.Init(&w.open)
}

func (w *lawWorld) tick(length float64) {
	var in tickInput
	var rtts []float64
	cutoff := w.law.cutoff().Seconds()
	until := w.now + length
	w.admitted, w.binding = 0, false
	for {
		next := w.arrival
		depart := w.rate && len(w.queue) > 0 && max(w.slot, w.queue[0]) < next
		if depart {
			next = max(w.slot, w.queue[0])
		}
		if next > until {
			break
		}
		w.now = next
		w.end(next, &in, &rtts, cutoff)
		switch {
		case depart:
			came := w.queue[0]
			w.queue = w.queue[1:]
			if next-came > w.patience() {
				w.binding = true // gave up
				continue
			}
			w.slot = next + 1/w.number
			w.send()
		default:
			w.arrival = next + w.r.ExpFloat64()/w.load
			w.offered++
			if w.rate {
				w.queue = append(w.queue, next)
			} else if len(w.open) < max(1, int(w.number)) {
				w.send()
			} else {
				w.binding = true
			}
		}
	}
	w.now = until
	w.end(until, &in, &rtts, cutoff)
	slices.Sort(rtts)
	if n := len(rtts); n > 0 {
		in.p50, in.p99 = seconds(rtts[(n-1)/2]), seconds(rtts[(99*n+99)/100-1])
	}
	in.samples, in.admitted, in.inFlight = in.reached, w.admitted, len(w.open)
	in.binding = w.binding || len(w.queue) > 0
	elapsed, ages := w.flight.drain(seconds(w.now), w.law.cutoff()/(epochs/2), len(w.open))
	in.elapsed, in.ages = elapsed.Seconds(), ages
	w.number, w.why = w.law.step(in)
}

func (w *lawWorld) send() {
	w.sent++
	w.admitted++
	c := worldCall{start: w.now, epoch: w.flight.admit()}
	x := w.r.Float64()
	switch {
	case w.fault == worldRefuses || w.fault == worldRejects:
		c.end, c.outcome = w.now+0.0001, Unreachable
	case w.fault == worldHangs:
		c.end = math.Inf(1)
	case x < w.hits:
		c.end, c.outcome = w.now+0.001, Aborted
	case x < w.hits+w.aborted:
		c.end, c.outcome = w.now+2*w.service, Aborted
	default:
		i := 0
		for j, free := range w.workers {
			if free < w.workers[i] {
				i = j
			}
		}
		begin := max(w.now, w.workers[i])
		if w.timeout > 0 && begin-w.now > w.timeout {
			c.end = math.Inf(1) // given up before it is served
			break
		}
		c.end = begin + w.r.ExpFloat64()*w.service
		w.workers[i] = c.end
		if w.r.Float64() < w.errors {
			c.outcome = Unreachable
		}
	}
	if w.timeout > 0 && c.end > w.now+w.timeout {
		c.end, c.outcome, c.truncated = w.now+w.timeout, Reached, true
	}
	heap.Push(&w.open, c)
}

// end takes the calls that are over by now.
func (w *lawWorld) end(now float64, in *tickInput, rtts *[]float64, cutoff float64) {
	for len(w.open) > 0 && w.open[0].end <= now {
		c := heap.Pop(&w.open).(worldCall)
		w.flight.end(c.epoch)
		rtt := c.end - c.start
		switch c.outcome {
		case Unreachable:
			in.unreachable++
			in.lostTime += rtt
			continue
		case Aborted:
			in.aborted++
			in.abortedTime += rtt
			w.good++
			continue
		}
		in.reached++
		*rtts = append(*rtts, rtt)
		if cutoff > 0 {
			in.latencySum += min(rtt, cutoff)
		}
		late := w.slo > 0 && rtt > w.slo
		if late {
			in.overSLO++
		}
		if c.truncated {
			in.truncated++
		} else if !late {
			w.good++
		}
	}
}

// worldKnee is a law with the world that it meets: 10 workers, whose capacity is
// half of the rate's ceiling, or a fifth of the limit's.
func worldKnee(rate bool, seed uint64, workers int, service float64, slo time.Duration) (*knee, *lawWorld) {
	capacity := float64(workers) / service
	p := &params{anchor: AnchorKnee, tick: 250 * ms, min: capacity / 100, max: 4 * capacity, initial: capacity / 2, slo: slo}
	if !rate {
		p.min, p.max, p.initial = 1, 20*float64(workers), float64(workers)
	}
	k := newKnee(p, rate)
	w := newLawWorld(k, rate, seed, workers, service)
	w.slo = slo.Seconds()
	w.load = 0.7 * capacity
	return k, w
}
