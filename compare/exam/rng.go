package exam

import "math"

// rng is splitmix64: one word of state, so that each call can have a generator
// of its own and every limiter is asked the same things.
type rng uint64

// random returns the generator of a seed, a stream and an index.
func random(seed, stream, index uint64) rng {
	r := rng(seed*0x9e3779b97f4a7c15 ^ stream<<40 ^ index)
	a := r.next()
	r = rng(a ^ stream*0xd1342543de82ef95)
	b := r.next()
	return rng(b ^ index*0x2545f4914f6cdd1d)
}

func (r *rng) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// float is uniform in [0, 1).
func (r *rng) float() float64 { return float64(r.next()>>11) / (1 << 53) }

// exp is exponential with the mean 1.
func (r *rng) exp() float64 { return -math.Log(1 - r.float()) }

// norm is standard normal.
func (r *rng) norm() float64 {
	return math.Sqrt(2*r.exp()) * math.Cos(2*math.Pi*r.float())
}

func (r *rng) between(lo, hi float64) float64 { return lo + (hi-lo)*r.float() }

// log is log-uniform.
func (r *rng) log(lo, hi float64) float64 { return lo * math.Pow(hi/lo, r.float()) }

func (r *rng) chance(p float64) bool { return r.float() < p }

func (r *rng) intn(n int) int { return int(r.next() % uint64(n)) }
