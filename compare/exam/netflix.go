package exam

import (
	"math"
	"time"
)

// netflix is the machinery around the limit algorithms that Netflix published
// for Java as concurrency-limits: a gate that refuses at the limit, and a
// window of samples, at least windowTime long and windowSize many, whose mean
// round trip and highest in-flight count the algorithm sees once.
type netflix struct {
	run      *run
	law      func(rtt float64, inFlight int, lost bool, limit float64) float64
	limit    float64
	inFlight int
	at       []int32 // calls in flight when this one was admitted, by slot

	sum     time.Duration
	n, most int
	lost    bool
	next    int64
}

const (
	windowTime = time.Second
	windowSize = 10
	leastRTT   = 100 * time.Microsecond // shorter samples are ignored
)

func (n *netflix) take(id int32) bool {
	if n.inFlight >= int(n.limit) {
		return false
	}
	n.inFlight++
	for int(id) >= len(n.at) {
		n.at = append(n.at, 0)
	}
	n.at[id] = int32(n.inFlight)
	return true
}

func (n *netflix) due() int64 { return never }

func (n *netflix) done(id int32, o outcome, rtt time.Duration) {
	n.inFlight--
	if o == hitSaid || o == gone || rtt < leastRTT {
		return
	}
	n.sum, n.n, n.most = n.sum+rtt, n.n+1, max(n.most, int(n.at[id]))
	n.lost = n.lost || o != answered
	if n.run.now <= n.next {
		return
	}
	n.next = n.run.now + ns(windowTime)
	if n.n >= windowSize {
		n.limit = n.law(float64(n.sum)/float64(n.n), n.most, n.lost, n.limit)
	}
	n.sum, n.n, n.most, n.lost = 0, 0, 0, false
}

func (n *netflix) target() float64 { return math.Floor(n.limit) }

// newVegas is TCP Vegas for calls: the queue is what the limit holds beyond
// what the unloaded round trip explains, and it is kept between alpha and beta.
func newVegas(n *run, i int) limiter {
	const probes = 30 // windows, times the limit, until the unloaded round trip is measured anew
	least, most, start := n.limits()
	r := random(n.spec.Seed, 7, uint64(i))
	jitter := func() float64 { return 0.5 + 0.5*r.float() }
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
		return bounded(next, float64(least), float64(most))
	}
	return &netflix{run: n, law: law, limit: float64(start)}
}

// newGradient2 scales the limit by the ratio of a long-term mean of the round
// trip to the present one and adds room for a queue. Its floor is the one that
// all arms share: with the published 20 the small services could not be held.
func newGradient2(n *run, _ int) limiter {
	const (
		room      = 4
		smoothing = 0.2
		window    = 600 // samples of the long-term mean
		warmup    = 10
	)
	least, most, start := n.limits()
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
		return bounded(next, float64(least), float64(most))
	}
	return &netflix{run: n, law: law, limit: float64(start)}
}
