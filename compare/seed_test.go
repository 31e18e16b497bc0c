package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"agilelimiter/compare/exam"
)

func parsed(t *testing.T, text string) exam.Spec {
	t.Helper()
	s, err := exam.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// paced is a downstream of 150 calls a second that answers in 20 ms, of which
// a third is work, with an SLO of 100 ms and 210 calls a second on offer. What
// is added to it may say base again.
func paced(t *testing.T, more string) exam.Spec {
	if !strings.Contains(more, "base=") {
		more += " base=13.3ms"
	}
	if !strings.Contains(more, "max=") {
		more += " max=3.333x"
	}
	if strings.Contains(more, "slow=3.75,1@5s") { // what is right at the start is less by that
		more = strings.Replace(more, "max=3.333x", "min=0.5x start=1.25x max=12.5x", 1)
	} else {
		more += " min=0.1333x start=0.3333x"
	}
	return parsed(t, "workers=1 service=det(6.666667ms) slo=100ms length=20s "+more)
}

// byHand are two rates that somebody may have set: a cautious one and one near
// the capacity.
func byHand() []exam.Arm { return []exam.Arm{exam.Uber(100), exam.Uber(140)} }

func perSecond(r exam.Result, s exam.Spec) float64 { return float64(r.Good) / s.Length.Seconds() }

// TestSLOAnchorVsUber: latency rises from 20 to 70 ms at 5 s, well inside the
// SLO, and the capacity stays. Everybody has been promised 140/s as the
// ceiling. AnchorBaseline spends the rest of the run at MinRate; the anchors
// that know the SLO do not.
func TestSLOAnchorVsUber(t *testing.T) {
	s := paced(t, "base=13.3ms,63.3ms@5s max=0.9333x")
	arms := append(byHand(), exam.ByName("rate-baseline", "rate-slo", "rate-knee")...)
	good := map[string]float64{}
	_, results := exam.Play(s, arms)
	for _, r := range results {
		good[r.Arm] = perSecond(r, s)
		last := r.Number[len(r.Number)-1]
		t.Logf("%-14s goodput %5.1f/s, %3.0f %% inside the SLO, mean round trip at the end %3.0f ms, rate at the end %4.0f/s",
			r.Arm, good[r.Arm], 100*r.Inside, 1000*r.RTT[len(r.RTT)-2], last)
		if r.Arm == "rate-baseline" && last > 22 {
			t.Errorf("AnchorBaseline ends at %.0f/s, want its MinRate, 20/s", last)
		}
	}
	if good["rate-slo"] < 1.5*good["rate-baseline"] {
		t.Errorf("AnchorSLO %.1f/s, AnchorBaseline %.1f/s: want it half as much again", good["rate-slo"], good["rate-baseline"])
	}
	if good["rate-knee"] < 0.9*good["uber(140)"] {
		t.Errorf("AnchorKnee %.1f/s, a rate set by somebody who knew %.1f/s: want 90 %% of it",
			good["rate-knee"], good["uber(140)"])
	}
}

// TestSLOAnchorMatrix plays seven scenarios for two rounds each and logs
// goodput a second and the percentage inside the SLO, the best in bold, and
// which arm held where: 90 % of the best goodput in every round.
func TestSLOAnchorMatrix(t *testing.T) {
	scenarios := []struct{ name, words string }{
		{"steady", ""},
		{"benign bump", "base=13.3ms,53.3ms@5s,13.3ms@12s"},
		{"SLO breaks", "base=13.3ms,163.3ms@5s,13.3ms@12s"},
		{"capacity drop", "slow=1,3.75@5s"},
		{"capacity recovery", "slow=3.75,1@5s"},
		{"flapping latency", "base=square(4s,13.3ms,53.3ms)"},
		{"diurnal", "slow=1,1.18@3s,1.54@5s,2.2@7s,3.1@8s,3.33@9s,3.1@11s,2.2@12s,1.54@13s,1.18@15s,1@17s"},
	}
	arms := append(byHand(), exam.ByName("rate-baseline", "rate-baseline-ramp", "rate-slo", "rate-slo-ramp", "rate-knee")...)
	var out strings.Builder
	fmt.Fprint(&out, "\n| goodput/s (% inside the SLO) |")
	for _, a := range arms {
		fmt.Fprintf(&out, " %s |", a.Name)
	}
	fmt.Fprintf(&out, "\n|---|%s\n", strings.Repeat("---|", len(arms)))
	held := map[string][]string{}
	for _, scenario := range scenarios {
		s := paced(t, scenario.words)
		holds := slices.Repeat([]bool{true}, len(arms))
		for round := range 2 {
			s.Seed = uint64(round) + 1
			_, results := exam.Play(s, arms)
			best := 0.0
			for _, r := range results {
				best = max(best, perSecond(r, s))
			}
			fmt.Fprintf(&out, "| %s, round %d |", scenario.name, round+1)
			for i, r := range results {
				good, mark := perSecond(r, s), ""
				if good == best {
					mark = "**"
				}
				holds[i] = holds[i] && good >= 0.9*best
				fmt.Fprintf(&out, " %s%.1f%s (%.0f) |", mark, good, mark, 100*r.Inside)
			}
			fmt.Fprintln(&out)
		}
		for i, a := range arms {
			if holds[i] {
				held[a.Name] = append(held[a.Name], scenario.name)
			}
		}
	}
	fmt.Fprintf(&out, "\n| arm | held, of %d | where |\n|---|---|---|\n", len(scenarios))
	for _, a := range arms {
		fmt.Fprintf(&out, "| %s | %d | %s |\n", a.Name, len(held[a.Name]), strings.Join(held[a.Name], ", "))
	}
	t.Log(out.String())
	if len(held["rate-knee"]) < 5 {
		t.Errorf("AnchorKnee held in %v only", held["rate-knee"])
	}
	if slices.Contains(held["uber(140)"], "capacity drop") || slices.Contains(held["rate-baseline"], "benign bump") {
		t.Error("the scenarios do not tell the arms apart")
	}
}
