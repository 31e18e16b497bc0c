package exam

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// adviceSeeds is over how many seeds an advice is averaged; near is how far
// scores lie apart that these cannot tell.
const (
	adviceSeeds = 3
	near        = 0.01
)

// trial is one setting and what it reached.
type trial struct {
	what  string
	spec  Spec
	mean  Result
	least float64 // score of the worst seed
}

// try plays the arm with some seeds.
func try(what string, s Spec, a Arm, procs int) trial {
	var names []string
	var specs []Spec
	for seed := range uint64(adviceSeeds) {
		s.Seed = seed + 1
		names, specs = append(names, what), append(specs, s)
	}
	runs := PlayAll(names, specs, []Arm{a}, procs)
	t := trial{what: what, spec: s, mean: Averaged(runs, adviceSeeds)[0].Results[0], least: 1}
	for _, r := range runs {
		t.least = min(t.least, r.Results[0].Score)
	}
	return t
}

func writeTrials(w io.Writer, what string, trials []trial) {
	fmt.Fprintf(w, "| %s | score | worst of %d seeds | inside the SLO | refused of sent | shed | held back | p99 |\n|%s\n",
		what, adviceSeeds, strings.Repeat("---|", 8))
	for _, t := range trials {
		r := t.mean
		fmt.Fprintf(w, "| %s | %.2f | %.2f | %.0f %% | %.1f %% | %.0f %% | %.1f %% | %.3g s |\n", t.what, r.Score, t.least,
			100*r.Inside, 100*r.Refusals, 100*float64(r.Shed)/float64(max(1, r.Offered)), 100*r.Held, r.P99.Seconds())
	}
}

// Advise plays the situation without a limiter and with every anchor of ours,
// then the best of those with other bounds, and writes what that shows.
func Advise(w io.Writer, s Spec, procs int) {
	var trials []trial
	best := 0
	arms := ByName("none", "limit-knee", "rate-knee", "limit-knee-noslo", "rate-knee-noslo",
		"limit-slo", "rate-slo", "limit-baseline", "rate-baseline")
	for i, a := range arms {
		trials = append(trials, try(a.Name, s, a, procs))
		if i == 1 || i > 1 && trials[i].mean.Score > trials[best].mean.Score+near {
			best = i
		}
	}
	writeTrials(w, "arm", trials)
	without, with := trials[0].mean.Score, trials[best].mean.Score
	switch {
	case without >= with-near:
		fmt.Fprintf(w, "\nNo limiter is needed here: without one the score is %.2f, and the best with one is %.2f. "+
			"What is not in the words, it cannot show.\n", without, with)
		return
	case with < 0.7:
		fmt.Fprintf(w, "\nNone of ours holds here: the best, %s, reaches %.2f of the oracle, no limiter %.2f.\n", arms[best].Name, with, without)
	default:
		fmt.Fprintf(w, "\nA limiter helps: without one the score is %.2f, with %s %.2f.\n", without, arms[best].Name, with)
	}
	a := arms[best]
	fmt.Fprintf(w, "\nOther bounds under %s, in units of what is right at the start:\n\n", a.Name)
	trials = []trial{try(fmt.Sprintf("start=%s max=%s, as given", times.show(s.Start), times.show(s.Max)), s, a, procs)}
	best = 0
	for _, top := range []float64{1, 2, 5, 10} {
		for _, start := range []float64{0.1, 0.5, 1} {
			c := s
			c.Max, c.Start, c.Min = top, start, min(s.Min, start)
			trials = append(trials, try(fmt.Sprintf("start=%s max=%s", times.show(start), times.show(top)), c, a, procs))
			if trials[len(trials)-1].mean.Score > trials[best].mean.Score+near {
				best = len(trials) - 1
			}
		}
	}
	writeTrials(w, "bounds", trials)
	fmt.Fprintf(w, "\nThe best of these, %s, for each instance:\n\n```go\n%s\n```\n", trials[best].what, trials[best].spec.settings(a))
}

// settings writes the configuration of an arm of ours.
func (s *Spec) settings(a Arm) string {
	how := howOf(a.Name)
	n := &run{spec: s}
	slo := ""
	if how.slo {
		slo = fmt.Sprintf("\tSLOTarget: %d * time.Microsecond,\n", s.SLO.Microseconds())
		if s.SLO%time.Millisecond == 0 {
			slo = fmt.Sprintf("\tSLOTarget: %d * time.Millisecond,\n", s.SLO.Milliseconds())
		}
	}
	anchor := map[string]string{"baseline": "AnchorBaseline", "slo": "AnchorSLO", "knee": "AnchorKnee"}[how.anchor.String()]
	if a.waits {
		c := n.rateConfig(s.Fleet, how)
		return fmt.Sprintf("agilelimiter.Config{\n\tMinRate: %.3g, MaxRate: %.4g, InitialRate: %.4g,\n%s\tAnchor: agilelimiter.%s,\n}",
			c.MinRate, c.MaxRate, c.InitialRate, slo, anchor)
	}
	least, most, start := n.bounds(s.Fleet)
	return fmt.Sprintf("agilelimiter.ConcurrencyConfig{\n\tMinLimit: %d, MaxLimit: %d, InitialLimit: %d,\n%s\tAnchor: agilelimiter.%s,\n}",
		least, most, start, slo, anchor)
}
