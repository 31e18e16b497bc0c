package plant

import (
	"math"
	"math/rand/v2"
	"time"
)

// Call is one request before any limiter has seen it. It is a pure function of
// seed, stream and index, so that every limiter is asked the same things.
type Call struct {
	Work   time.Duration // what it costs a worker at the nominal speed
	Jitter float64       // uniform in [0, 1): its place in the base latency's jitter
	Hit    bool          // a cache answers it: it costs no worker
	Lot    uint32        // uniform: decides which instance of a fleet it comes to
}

// grain is a time under a microsecond that is the call's own. A synctest bubble
// fires timers of one and the same instant in random order; every duration of
// the plant that is not random by itself carries the grain, so that two calls
// hardly ever share an instant and runs repeat exactly.
func (c Call) grain() time.Duration { return time.Duration(c.Lot % 1000) }

// Mix says what calls are drawn from.
type Mix struct {
	Mean time.Duration // mean work
	Dist Dist          // its distribution; nil is Exponential
	Hits float64       // share of calls that are cache hits
}

// Dist draws a service time in units of its mean.
type Dist func(*rand.Rand) float64

// Deterministic service times all equal the mean.
func Deterministic(*rand.Rand) float64 { return 1 }

// Exponential service times have a squared coefficient of variation of 1.
func Exponential(r *rand.Rand) float64 { return r.ExpFloat64() }

// Lognormal returns the distribution whose logarithm has the standard
// deviation sigma; its squared coefficient of variation is exp(sigma²) − 1.
func Lognormal(sigma float64) Dist {
	return func(r *rand.Rand) float64 {
		return math.Exp(sigma*r.NormFloat64() - sigma*sigma/2)
	}
}

// Bimodal returns calls of which the share p costs ratio times what the others
// cost.
func Bimodal(p, ratio float64) Dist {
	small := 1 / (1 - p + p*ratio)
	return func(r *rand.Rand) float64 {
		if r.Float64() < p {
			return small * ratio
		}
		return small
	}
}

// Draw returns call number index of a stream.
func (m Mix) Draw(seed, stream, index uint64) Call {
	r := random(seed^stream<<48, index)
	d := m.Dist
	if d == nil {
		d = Exponential
	}
	return Call{
		Hit:    r.Float64() < m.Hits,
		Jitter: r.Float64(),
		Lot:    r.Uint32(),
		Work:   time.Duration(float64(m.Mean) * d(r)),
	}
}

// random returns the generator of one (seed, index) pair. The index is spread
// over all bits first (splitmix64's finalizer), because generators that are
// seeded with neighbouring numbers begin alike.
func random(seed, index uint64) *rand.Rand {
	z := index + 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return rand.New(rand.NewPCG(seed, z^z>>31))
}
