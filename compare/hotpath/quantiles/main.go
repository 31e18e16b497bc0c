// Command quantiles prints how far p50 and p99 of several histograms lie from
// the exact nearest-rank quantile of the same samples.
//
//	go run ./quantiles
//
// Each figure is the worst relative error over medians from 1 µs to 10 s and
// over several seeds. It is computed, not timed, and the same on every
// machine.
package main

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"
)

// The range in which all estimators here are to be right. Samples outside are
// clipped to it. It begins where our histogram does, at 2^10 ns; what is
// shorter shares one bucket.
const (
	shortest = 1 << 10 * time.Nanosecond
	longest  = 100 * time.Second
)

// An estimator takes the samples in and tells the two quantiles.
type estimator struct {
	name     string
	estimate func(samples []time.Duration) (p50, p99 time.Duration)
}

// A shape draws one latency around a median.
type shape struct {
	name string
	draw func(rng *rand.Rand, median float64) float64
}

var shapes = []shape{
	{"lognormal σ = 1", func(rng *rand.Rand, m float64) float64 { return m * math.Exp(rng.NormFloat64()) }},
	{"bimodal, 10 % ten times slower", bimodal(0.10, 10)},
	{"bimodal, 2 % fifty times slower", bimodal(0.02, 50)},
}

// bimodal makes a share of the calls slower by a factor; both modes spread by
// a few per cent, as real ones do.
func bimodal(share, factor float64) func(*rand.Rand, float64) float64 {
	return func(rng *rand.Rand, m float64) float64 {
		v := m * math.Exp(0.05*rng.NormFloat64())
		if rng.Float64() < share {
			v *= factor
		}
		return v
	}
}

var (
	medians = []time.Duration{time.Microsecond, 10 * time.Microsecond, 100 * time.Microsecond, time.Millisecond,
		10 * time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second}
	sizes = []int{100, 1000, 10000}
)

const seeds = 20

// draw returns n samples in the range.
func draw(s shape, median time.Duration, n int, seed uint64) []time.Duration {
	rng := rand.New(rand.NewPCG(seed, uint64(n)))
	samples := make([]time.Duration, n)
	for i := range samples {
		v := time.Duration(s.draw(rng, float64(median)))
		samples[i] = min(max(v, shortest), longest)
	}
	return samples
}

// exact is the nearest-rank quantile: the smallest sample that has at least
// that share of all samples at or below it.
func exact(sorted []time.Duration, q float64) time.Duration {
	return sorted[max(int(math.Ceil(q*float64(len(sorted)))), 1)-1]
}

// worst returns the largest relative errors of p50 and p99.
func worst(e estimator, s shape, n int) (p50, p99 float64) {
	for _, m := range medians {
		for seed := range uint64(seeds) {
			samples := draw(s, m, n, seed)
			got50, got99 := e.estimate(samples)
			slices.Sort(samples)
			p50 = max(p50, off(got50, exact(samples, 0.50)))
			p99 = max(p99, off(got99, exact(samples, 0.99)))
		}
	}
	return p50, p99
}

func off(got, want time.Duration) float64 {
	return math.Abs(float64(got)/float64(want) - 1)
}

func main() { report(os.Stdout) }

func report(w io.Writer) {
	fmt.Fprintf(w, "Worst relative error in %%, medians from %v to %v, %d seeds; exact is the nearest-rank sample quantile.\n",
		medians[0], medians[len(medians)-1], seeds)
	for _, s := range shapes {
		fmt.Fprintf(w, "\n| %s |", s.name)
		for _, n := range sizes {
			fmt.Fprintf(w, " p50, n = %d | p99, n = %d |", n, n)
		}
		fmt.Fprintf(w, "\n|---|%s\n", strings.Repeat("---:|", 2*len(sizes)))
		for _, e := range estimators {
			fmt.Fprintf(w, "| %s |", e.name)
			for _, n := range sizes {
				p50, p99 := worst(e, s, n)
				fmt.Fprintf(w, " %s | %s |", percent(p50), percent(p99))
			}
			fmt.Fprintln(w)
		}
	}
}

func percent(share float64) string {
	if share >= 0.1 {
		return fmt.Sprintf("%.0f", 100*share)
	}
	return fmt.Sprintf("%.1f", 100*share)
}
