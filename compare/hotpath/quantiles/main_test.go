package main

import (
	"testing"
	"time"
)

func TestExact(t *testing.T) {
	sorted := make([]time.Duration, 100)
	for i := range sorted {
		sorted[i] = time.Duration(i + 1)
	}
	for _, tt := range []struct {
		sorted []time.Duration
		q      float64
		want   time.Duration
	}{
		{sorted, 0.50, 50}, {sorted, 0.99, 99}, {sorted[:10], 0.99, 10}, {sorted[:1], 0.5, 1}, {sorted[:3], 0.5, 2},
	} {
		if got := exact(tt.sorted, tt.q); got != tt.want {
			t.Errorf("exact of %d samples at %v = %d, want %d", len(tt.sorted), tt.q, got, tt.want)
		}
	}
}

// TestOursWithinTwoPercent is the promise of Stats.P50 and Stats.P99.
func TestOursWithinTwoPercent(t *testing.T) {
	for _, s := range shapes {
		for _, n := range sizes {
			p50, p99 := worst(estimator{"ours", ours}, s, n)
			if p50 > 0.02 || p99 > 0.02 {
				t.Errorf("%s, n = %d: p50 is off by %.2f %%, p99 by %.2f %%", s.name, n, 100*p50, 100*p99)
			}
		}
	}
}

// TestPeersAreUsedRight: with enough samples of one smooth shape every
// estimator comes as near as its maker says; one that does not is misused.
func TestPeersAreUsedRight(t *testing.T) {
	bound := map[string]float64{
		"HDR, 2 digits": 0.01, "t-digest, compression 100": 0.05, "Prometheus, 20 buckets": 1,
	}
	for _, e := range estimators[1:] {
		want, ok := bound[e.name]
		if !ok {
			t.Fatalf("no bound for %q", e.name)
		}
		if p50, p99 := worst(e, shapes[0], 10000); p50 > want || p99 > want {
			t.Errorf("%s: p50 is off by %.1f %%, p99 by %.1f %%", e.name, 100*p50, 100*p99)
		}
	}
}

func TestDrawIsSeededAndClipped(t *testing.T) {
	a, b := draw(shapes[0], 10*time.Second, 1000, 7), draw(shapes[0], 10*time.Second, 1000, 7)
	for i := range a {
		if a[i] != b[i] {
			t.Fatal("the same seed drew other samples")
		}
		if a[i] < shortest || a[i] > longest {
			t.Fatalf("sample %v outside the range", a[i])
		}
	}
	if c := draw(shapes[0], 10*time.Second, 1000, 8); c[0] == a[0] {
		t.Error("another seed drew the same samples")
	}
}
