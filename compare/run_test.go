package main

import (
	"math"
	"slices"
	"testing"
	"time"

	"agilelimiter/compare/arm"
)

func TestRecovery(t *testing.T) {
	// A minute of bins, what the oracle does in each of them, and a step at 20.
	oracle := slices.Repeat([]int{100}, 60)
	from := func(b int, before, after int) []int {
		return append(slices.Repeat([]int{before}, b), slices.Repeat([]int{after}, 60-b)...)
	}
	dip := slices.Concat(from(24, 100, 0)[:32], from(0, 100, 100)[:28]) // looks well for a second, then does not
	for _, c := range []struct {
		name string
		got  []int
		want float64
	}{
		{"never left", oracle, 0},
		{"90 % will do", from(20, 100, 90), 0},
		{"89 % will not", from(20, 100, 89), -1},
		{"back after 2 s", slices.Concat(from(20, 100, 0)[:28], oracle[:32]), 2},
		{"well at first", dip, 3},
		{"too late to tell", slices.Concat(from(20, 100, 0)[:45], oracle[:15]), -1},
	} {
		if got := recovery(c.got, oracle, 20, 60); got != c.want {
			t.Errorf("%s: %v s, want %v", c.name, got, c.want)
		}
	}
}

func TestQuantileAndJain(t *testing.T) {
	if got := quantile([]float64{1, 2, 3, 4}, 0.5); got != 2 {
		t.Errorf("p50 of 1..4 is %v, want 2", got)
	}
	if got := quantile([]float64{1, 2, 3, 4}, 0.99); got != 4 {
		t.Errorf("p99 of 1..4 is %v, want 4", got)
	}
	if got := quantile(nil, 0.5); got != 0 {
		t.Errorf("p50 of nothing is %v, want 0", got)
	}
	if got := jain([]float64{3, 3, 3}); got != 1 {
		t.Errorf("three equal shares: %v, want 1", got)
	}
	if got := jain([]float64{9, 0, 0}); math.Abs(got-1./3) > 1e-12 {
		t.Errorf("one has everything: %v, want 1/3", got)
	}
}

func TestSummary(t *testing.T) {
	rows := []Situation{{Name: "a"}, {Name: "b"}}
	g := gridOf([]Result{
		{Situation: "a", Arm: "x", Share: 1.5}, {Situation: "a", Arm: "x", Share: 1.1}, // capped at 1
		{Situation: "b", Arm: "x", Share: 0.2}, {Situation: "b", Arm: "x", Share: 0.3},
	})
	worst, at, geometric := g.summary(rows, "x")
	if worst != 0.25 || at != "b" || math.Abs(geometric-0.5) > 1e-12 {
		t.Errorf("worst %v in %s, geometric mean %v; want 0.25 in b and 0.5", worst, at, geometric)
	}
}

// TestSituations: what every situation needs for its runs to mean anything.
func TestSituations(t *testing.T) {
	seen := map[string]bool{}
	for _, plain := range situations {
		s := plain.withDefaults()
		if seen[s.Name] || s.Name == "" || s.About == "" {
			t.Errorf("%q: names must be unique, and something must be said about it", s.Name)
		}
		seen[s.Name] = true
		for seed := range uint64(3) {
			p := s.perturbed(seed)
			for _, pair := range [][2]float64{
				{float64(p.Workers), float64(s.Workers)}, {float64(p.Service), float64(s.Service)}, {float64(p.SLO), float64(s.SLO)},
			} {
				// Small numbers of workers are rounded.
				if r := pair[0] / pair[1]; r < 0.69-0.5/pair[1] || r > 1.31+0.5/pair[1] {
					t.Errorf("%s: perturbed by a factor of %.2f", s.Name, r)
				}
			}
			if s.perturbed(seed).SLO != p.SLO {
				t.Errorf("%s: perturbed differently by one seed", s.Name)
			}
		}
		for at := time.Duration(0); at < s.Length; at += bin {
			if c := s.capacity(at); !(c >= 0 && c <= 1.01*s.nominal()) || (c == 0) != (s.fault(at) != 0) {
				t.Errorf("%s: capacity %v at %v", s.Name, c, at)
				break
			}
		}
		for i, step := range s.Steps {
			end := append(s.Steps[i+1:], s.Length)[0]
			if end-step < 5*sec {
				t.Errorf("%s: no five seconds between the step at %v and %v", s.Name, step, end)
			}
		}
		e := s.env(1, func() time.Duration { return 0 })
		if !(e.MinRate <= e.InitialRate && e.InitialRate <= e.MaxRate) ||
			!(e.MinLimit <= e.InitialLimit && e.InitialLimit <= e.MaxLimit) {
			t.Errorf("%s: bounds %+v", s.Name, e)
		}
	}
}

func TestArms(t *testing.T) {
	seen := map[string]bool{}
	for _, a := range arm.All() {
		if seen[a.Name] {
			t.Errorf("two arms are called %s", a.Name)
		}
		seen[a.Name] = true
		if got := arm.ByName(a.Name); len(got) != 1 || got[0].Name != a.Name {
			t.Errorf("ByName(%q) is %v", a.Name, got)
		}
	}
}
