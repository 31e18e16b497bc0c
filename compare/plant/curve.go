package plant

import (
	"math"
	"time"
)

// Curve is a quantity as a function of the time since the start of a run.
type Curve func(t time.Duration) float64

// At returns the curve's value at t; a nil curve is def everywhere.
func (c Curve) At(t time.Duration, def float64) float64 {
	if c == nil {
		return def
	}
	return c(t)
}

// Const is v at every time.
func Const(v float64) Curve { return func(time.Duration) float64 { return v } }

// Step is before until at and after from then on.
func Step(at time.Duration, before, after float64) Curve {
	return func(t time.Duration) float64 {
		if t < at {
			return before
		}
		return after
	}
}

// Pulse is inside from from until to and outside elsewhere.
func Pulse(from, to time.Duration, outside, inside float64) Curve {
	return func(t time.Duration) float64 {
		if t >= from && t < to {
			return inside
		}
		return outside
	}
}

// Ramp is a until from, b from to on, and a straight line in between.
func Ramp(from, to time.Duration, a, b float64) Curve {
	return func(t time.Duration) float64 {
		x := min(1, max(0, float64(t-from)/float64(to-from)))
		return a + (b-a)*x
	}
}

// Square alternates every half period between a, first, and b.
func Square(period time.Duration, a, b float64) Curve {
	return func(t time.Duration) float64 {
		if t%period < period/2 {
			return a
		}
		return b
	}
}

// Wave swings between hi, first, and lo once a period, as a cosine.
func Wave(period time.Duration, lo, hi float64) Curve {
	return func(t time.Duration) float64 {
		phase := 2 * math.Pi * float64(t) / float64(period)
		return lo + (hi-lo)*(1+math.Cos(phase))/2
	}
}
