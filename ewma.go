package agilelimiter

import (
	"math"
	"time"
)

// decay returns the weight of one new value in an exponentially weighted moving
// average whose memory halves every halfLife when a value comes every tick:
//
//	a = 1 - 2^(-tick/halfLife)
//
// The half-life is the knob because it can be read off a plot; a bare smoothing
// factor changes its meaning with the tick.
func decay(tick, halfLife time.Duration) float64 {
	return -math.Expm1(-math.Ln2 * float64(tick) / float64(halfLife))
}

// ewma moves from towards to by the weight a, in [0, 1].
func ewma(from, to, a float64) float64 { return from + a*(to-from) }

// asymmetricEWMA falls with one weight and rises with another, by at most the
// fraction maxRise of itself. A baseline that may rise freely is dragged up by
// the very overload that it is there to detect.
func asymmetricEWMA(from, to, fall, rise, maxRise float64) float64 {
	if to < from {
		return ewma(from, to, fall)
	}
	return min(ewma(from, to, rise), from*(1+maxRise))
}
