package arm

import (
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"agilelimiter/compare/plant"
)

// netflix is the machinery around the limit algorithms that Netflix published
// for Java as concurrency-limits: a gate that refuses at the limit, and a
// window of samples, at least windowTime long and windowSize many, whose mean
// round trip and highest in-flight count the algorithm sees once.
type netflix struct {
	mu       sync.Mutex
	law      func(rtt float64, inFlight int, lost bool, limit float64) float64
	limit    float64
	inFlight int

	sum, least time.Duration
	n, most    int
	lost       bool
	next       time.Time
}

const (
	windowTime = time.Second
	windowSize = 10
	leastRTT   = 100 * time.Microsecond // shorter samples are ignored
)

func (n *netflix) Acquire() (Done, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.inFlight >= int(n.limit) {
		return nil, false
	}
	n.inFlight++
	at := n.inFlight
	return func(o plant.Outcome, rtt time.Duration) { n.done(o, rtt, at) }, true
}

func (n *netflix) done(o plant.Outcome, rtt time.Duration, at int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.inFlight--
	if o == plant.MarkedHit || rtt < leastRTT {
		return
	}
	if n.n == 0 || rtt < n.least {
		n.least = rtt
	}
	n.sum, n.n, n.most = n.sum+rtt, n.n+1, max(n.most, at)
	n.lost = n.lost || o != plant.OK
	now := time.Now()
	if !now.After(n.next) {
		return
	}
	n.next = now.Add(windowTime)
	if n.n >= windowSize {
		n.limit = n.law(float64(n.sum)/float64(n.n), n.most, n.lost, n.limit)
	}
	n.sum, n.n, n.most, n.lost = 0, 0, 0, false
}

func (n *netflix) Target() float64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return math.Floor(n.limit)
}

func (n *netflix) Stop() {}

// newVegas is TCP Vegas for calls: the queue is what the limit holds beyond
// what the unloaded round trip explains, and it is kept between alpha and beta.
func newVegas(env Env) Limiter {
	const probes = 30 // windows, times the limit, until the unloaded round trip is measured anew
	r := rand.New(rand.NewPCG(env.Seed, 0x5e9a))
	jitter := func() float64 { return 0.5 + 0.5*r.Float64() }
	unloaded, count, spread := 0.0, 0, jitter()
	log10 := func(limit float64) float64 { return max(1, math.Floor(math.Log10(math.Floor(limit)))) }

	law := func(rtt float64, inFlight int, lost bool, limit float64) float64 {
		count++
		if spread*probes*limit <= float64(count) {
			unloaded, count, spread = rtt, 0, jitter()
			return limit
		}
		if unloaded == 0 || rtt < unloaded {
			unloaded = rtt
			return limit
		}
		step := log10(limit)
		alpha, beta := 3*step, 6*step
		queue := math.Ceil(limit * (1 - unloaded/rtt))
		next := limit
		switch {
		case lost:
			next -= step
		case float64(inFlight)*2 < limit:
			return limit
		case queue <= step:
			next += beta
		case queue < alpha:
			next += step
		case queue > beta:
			next -= step
		}
		return min(float64(env.MaxLimit), max(float64(env.MinLimit), next))
	}
	return &netflix{law: law, limit: float64(env.InitialLimit)}
}

// newGradient2 scales the limit by the ratio of a long-term mean of the round
// trip to the present one and adds room for a queue. Its floor is the one that
// all arms share: with the published 20 the small servers could not be held.
func newGradient2(env Env) Limiter {
	const (
		room      = 4
		smoothing = 0.2
		window    = 600 // samples of the long-term mean
		warmup    = 10
	)
	long, sum, count := 0.0, 0.0, 0

	law := func(rtt float64, inFlight int, _ bool, limit float64) float64 {
		if count < warmup {
			count++
			sum += rtt
			long = sum / float64(count)
		} else {
			const factor = 2.0 / (window + 1)
			long += factor * (rtt - long)
		}
		gradient := max(0.5, min(1, long/rtt))
		if long/rtt > 2 {
			long *= 0.9
		}
		if float64(inFlight) < limit/2 {
			return limit
		}
		next := limit + smoothing*(limit*gradient+room-limit)
		return min(float64(env.MaxLimit), max(float64(env.MinLimit), next))
	}
	return &netflix{law: law, limit: float64(env.InitialLimit)}
}
