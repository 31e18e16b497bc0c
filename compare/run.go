package main

import (
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"agilelimiter/compare/arm"
	"agilelimiter/compare/plant"
)

// Result is what one arm did in one situation with one seed.
type Result struct {
	Situation, Arm string
	Seed           uint64

	Offered  int // calls that asked for admission
	Shed     int // of those, not admitted within the wait
	Good     int // answered inside the SLO; behind a cache: misses only
	Late     int // answered outside it; likewise
	GoodHits int // cache hits answered inside the SLO
	Lost     int // sent, and refused, answered 503, or timed out
	Outage   int // sent while the server was at fault

	// Quantiles over the answered calls, in ms: from their sending, and from
	// their arrival, that is with the wait for admission.
	P50, P99, Wait50, Wait99 float64

	Jain float64 // fairness of the goodput over the instances

	// Against the oracle's run with the same calls.
	Share   float64   // goodput over the oracle's
	Recover []float64 // seconds after each step, NaN's JSON stand-in is -1

	// Per bin of the run.
	Goodput  []int     `json:",omitempty"` // good answers
	Target   []float64 `json:",omitempty"` // sum of the instances' rates or limits at its end
	RTT      []float64 `json:",omitempty"` // mean round trip of the answered calls in ms
	Capacity []float64 `json:",omitempty"` // true capacity at its end
}

// stagger is the time between the starts of two instances.
const stagger = 23*time.Millisecond + 457*time.Nanosecond

// inside is the share of the answered calls that were inside the SLO.
func (r Result) inside() float64 { return float64(r.Good) / float64(max(1, r.Good+r.Late)) }

// run plays one situation with one arm in virtual time. It is deterministic
// when GOMAXPROCS is 1; with more, goroutines of the same virtual instant race.
func run(t *testing.T, s Situation, a arm.Arm, seed uint64) (r Result) {
	synctest.Test(t, func(*testing.T) {
		server := s.server()
		r = play(s, a, seed, server.Start, server.Now, server.Send)
	})
	return r
}

// play starts the limiters and then the server, and lets the load of the
// situation through to send, which behaves like plant.Server.Send; now is the
// time on the server's curves.
func play(s Situation, a arm.Arm, seed uint64, start func(), now func() time.Duration,
	send func(plant.Call, func(plant.Outcome, time.Duration))) Result {
	limiters := make([]arm.Limiter, s.Instances)
	for i := range limiters {
		// Instances do not tick in step, and none in step with the load.
		limiters[i] = a.New(s.env(seed+uint64(i)<<32, now))
		time.Sleep(stagger)
	}
	start()
	rec := newRecorder(s)

	// call sends one call through a limiter; over is called when it has
	// ended, with false when it was shed.
	call := func(c plant.Call, over func(admitted bool)) {
		instance := int(c.Lot) % len(limiters)
		arrived := now()
		done, ok := limiters[instance].Acquire()
		rec.asked(ok, now(), s)
		if !ok {
			over(false)
			return
		}
		send(c, func(o plant.Outcome, rtt time.Duration) {
			done(o, rtt)
			rec.ended(c, o, rtt, arrived, now(), instance)
			over(true)
		})
	}

	stop := make(chan struct{})
	go rec.watch(limiters, stop)
	mix := s.mix()
	if s.Clients > 0 {
		plant.Closed(seed, s.Clients, s.Think, s.Length, func(caller int, index uint64) {
			end := make(chan bool)
			go call(mix.Draw(seed, uint64(caller)+1, index), func(admitted bool) { end <- admitted })
			if !<-end {
				time.Sleep(backoff)
			}
		})
	} else {
		rate := func(t time.Duration) float64 { return s.nominal() * s.Load(t) }
		plant.Open(seed, rate, s.Length, func(index uint64) {
			call(mix.Draw(seed, 0, index), func(bool) {})
		})
	}
	close(stop)
	time.Sleep(wait + 2*s.SLO + s.Timeout)
	for _, l := range limiters {
		l.Stop()
	}
	res := rec.result()
	res.Situation, res.Arm, res.Seed = s.Name, a.Name, seed
	return res
}

// recorder counts what happens in a run.
type recorder struct {
	slo  time.Duration
	bins int

	mu         sync.Mutex
	r          Result
	perArm     []float64 // goodput by instance
	rtt, total []float64 // ms
	rttSum     []float64
	answers    []int
}

func newRecorder(s Situation) *recorder {
	n := int(s.Length / bin)
	return &recorder{
		slo:     s.SLO,
		bins:    n,
		r:       Result{Goodput: make([]int, n)},
		perArm:  make([]float64, s.Instances),
		rttSum:  make([]float64, n),
		answers: make([]int, n),
	}
}

// asked counts an arrival; an admitted call is sent at once.
func (r *recorder) asked(admitted bool, now time.Duration, s Situation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.r.Offered++
	switch {
	case !admitted:
		r.r.Shed++
	case s.fault(now) != plant.None:
		r.r.Outage++
	}
}

func (r *recorder) ended(c plant.Call, o plant.Outcome, rtt, arrived, now time.Duration, instance int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	good := rtt <= r.slo
	switch {
	case o != plant.OK && o != plant.MarkedHit:
		r.r.Lost++
		return
	case c.Hit:
		if good {
			r.r.GoodHits++
		}
		return
	}
	r.rtt = append(r.rtt, rtt.Seconds()*1e3)
	r.total = append(r.total, (now-arrived).Seconds()*1e3)
	b := int(now / bin)
	if b < r.bins {
		r.rttSum[b] += rtt.Seconds() * 1e3
		r.answers[b]++
	}
	if !good {
		r.r.Late++
		return
	}
	r.r.Good++
	r.perArm[instance]++
	if b < r.bins {
		r.r.Goodput[b]++
	}
}

// watch notes the limiters' targets at the end of each bin.
func (r *recorder) watch(limiters []arm.Limiter, stop <-chan struct{}) {
	tick := time.NewTicker(bin)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		sum := 0.0
		for _, l := range limiters {
			sum += l.Target()
		}
		r.mu.Lock()
		r.r.Target = append(r.r.Target, sum)
		r.mu.Unlock()
	}
}

func (r *recorder) result() Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	res := r.r
	slices.Sort(r.rtt)
	slices.Sort(r.total)
	res.P50, res.P99 = quantile(r.rtt, 0.5), quantile(r.rtt, 0.99)
	res.Wait50, res.Wait99 = quantile(r.total, 0.5), quantile(r.total, 0.99)
	res.Jain = jain(r.perArm)
	res.RTT = make([]float64, r.bins)
	for b, n := range r.answers {
		res.RTT[b] = r.rttSum[b] / float64(max(1, n))
	}
	return res
}

// quantile is the nearest-rank quantile of sorted values; 0 of none.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(math.Ceil(q*float64(len(sorted))))-1]
}

// jain is Jain's index: 1 when all have the same, 1/n when one has everything.
func jain(x []float64) float64 {
	var sum, squares float64
	for _, v := range x {
		sum += v
		squares += v * v
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / squares / float64(len(x))
}

// judge fills in what can only be said beside the oracle's run.
func (r *Result) judge(s Situation, oracle Result) {
	r.Share = float64(r.Good) / float64(max(1, oracle.Good))
	r.Recover = nil
	for i, step := range s.Steps {
		end := s.Length
		if i+1 < len(s.Steps) {
			end = s.Steps[i+1]
		}
		r.Recover = append(r.Recover, recovery(r.Goodput, oracle.Goodput, int(step/bin), int(end/bin)))
	}
}

// recovery is the time in seconds from bin from on until the goodput of the
// next second, and of the next five, is 90 % of the oracle's; -1 when that
// does not happen before bin to. The second says when it is back, the five
// that it did not only look so, with the queue still filling.
func recovery(got, oracle []int, from, to int) float64 {
	const second = int(time.Second / bin)
	holds := func(b, n int) bool {
		g, o := 0, 0
		for i := b; i < b+n; i++ {
			g, o = g+got[i], o+oracle[i]
		}
		return float64(g) >= 0.9*float64(o)
	}
	for b := from; b+5*second <= to; b++ {
		if holds(b, second) && holds(b, 5*second) {
			return float64(b-from) * bin.Seconds()
		}
	}
	return -1
}
