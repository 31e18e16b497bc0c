package agilelimiter

import (
	"math"
	"testing"
	"time"
)

// near reports whether got is want within the relative error tol.
func near(got, want, tol float64) bool {
	return math.Abs(got-want) <= tol*math.Abs(want)
}

func TestDecayHalvesTheMemoryEveryHalfLife(t *testing.T) {
	tests := []struct {
		tick, halfLife time.Duration
	}{
		{250 * time.Millisecond, time.Second},
		{250 * time.Millisecond, time.Minute},
		{100 * time.Millisecond, time.Second},
		{time.Millisecond, 24 * time.Hour},
		{time.Minute, time.Minute},
	}
	for _, tt := range tests {
		a := decay(tt.tick, tt.halfLife)
		// What a value weighs after one half-life's worth of ticks.
		left := math.Pow(1-a, float64(tt.halfLife)/float64(tt.tick))
		if !near(left, 0.5, 1e-6) {
			t.Errorf("decay(%v, %v) = %g: %g of a value is left after a half-life, want 0.5",
				tt.tick, tt.halfLife, a, left)
		}
	}
}

func TestDecayOfATinyHalfLifeForgetsAtOnce(t *testing.T) {
	if a := decay(250*time.Millisecond, 1); a != 1 {
		t.Errorf("decay(250ms, 1ns) = %g, want 1", a)
	}
}

func TestDecayKeepsAHugeHalfLifeAlive(t *testing.T) {
	// 1 - 2^(-1/86 400 000) loses half of its digits when computed as written.
	a, want := decay(time.Millisecond, 24*time.Hour), math.Ln2/86_400_000
	if !near(a, want, 1e-8) {
		t.Errorf("decay(1ms, 24h) = %g, want %g", a, want)
	}
}

func TestEWMA(t *testing.T) {
	for _, tt := range []struct{ from, to, a, want float64 }{
		{10, 20, 0, 10},
		{10, 20, 1, 20},
		{10, 20, 0.25, 12.5},
		{20, 10, 0.25, 17.5},
	} {
		if got := ewma(tt.from, tt.to, tt.a); got != tt.want {
			t.Errorf("ewma(%g, %g, %g) = %g, want %g", tt.from, tt.to, tt.a, got, tt.want)
		}
	}
}

func TestAsymmetricEWMA(t *testing.T) {
	const fall, rise, maxRise = 0.5, 0.1, 0.05
	for _, tt := range []struct {
		name           string
		from, to, want float64
	}{
		{"falls with its own weight", 100, 50, 75},
		{"stays", 100, 100, 100},
		{"rises with its own weight", 100, 110, 101},
		{"rises no further than the cap", 100, 1000, 105},
		{"the fall has no cap", 100, 0, 50},
	} {
		if got := asymmetricEWMA(tt.from, tt.to, fall, rise, maxRise); !near(got, tt.want, 1e-12) {
			t.Errorf("%s: %g → %g gives %g, want %g", tt.name, tt.from, tt.to, got, tt.want)
		}
	}
}
