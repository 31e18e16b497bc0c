package exam

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Played is one situation with what everybody made of it.
type Played struct {
	Name    string // of a written situation, or the index of a drawn one
	Spec    Spec
	Oracle  Result
	Results []Result
}

// PlayAll plays the situations, so many at the same time, and returns them in
// their order. The figures do not depend on how many.
func PlayAll(names []string, specs []Spec, arms []Arm, procs int) []Played {
	played := make([]Played, len(specs))
	next := make(chan int)
	var wg sync.WaitGroup
	for range procs {
		wg.Go(func() {
			for i := range next {
				played[i] = Played{Name: names[i], Spec: specs[i]}
				played[i].Oracle, played[i].Results = Play(specs[i], arms)
			}
		})
	}
	for i := range specs {
		next <- i
	}
	close(next)
	wg.Wait()
	return played
}

// Summary is an arm over many situations.
type Summary struct {
	Arm                     string
	Mean, Fifth, Worst      float64 // scores; Fifth is the 5th percentile
	At                      string  // the worst situation
	Below, Traps, Situation int
}

// Summarize returns the summary of the arm in column a.
func Summarize(played []Played, a int, threshold float64) Summary {
	s := Summary{Arm: played[0].Results[a].Arm, Worst: math.Inf(1), Situation: len(played)}
	var scores []float64
	for _, p := range played {
		r := p.Results[a]
		scores = append(scores, r.Score)
		s.Mean += r.Score / float64(len(played))
		if r.Score < s.Worst {
			s.Worst, s.At = r.Score, p.Name
		}
		if r.Score < threshold {
			s.Below++
		}
		if r.Trap {
			s.Traps++
		}
	}
	slices.Sort(scores)
	s.Fifth = scores[max(0, int(math.Ceil(0.05*float64(len(scores))))-1)]
	return s
}

// WriteSummary writes one line an arm.
func WriteSummary(w io.Writer, played []Played, threshold float64) {
	fmt.Fprintf(w, "| arm | mean | 5th percentile | worst | below %.2g | traps |\n|---|---|---|---|---|---|\n", threshold)
	for a := range played[0].Results {
		s := Summarize(played, a, threshold)
		fmt.Fprintf(w, "| %s | %.3f | %.2f | %.2f (%s) | %d of %d | %d |\n",
			s.Arm, s.Mean, s.Fifth, s.Worst, s.At, s.Below, s.Situation, s.Traps)
	}
}

// WriteBelow writes one line for each situation that an arm plays below the
// threshold: the number, the arm, the score with that of the last third, and
// the spec.
func WriteBelow(w io.Writer, played []Played, threshold float64) {
	for _, p := range played {
		for _, r := range p.Results {
			if r.Score >= threshold && !r.Trap {
				continue
			}
			mark := ""
			if r.Trap {
				mark = " trap"
			}
			fmt.Fprintf(w, "%s %s %.2f (last third %.2f%s) %s\n", p.Name, r.Arm, r.Score, r.Last, mark, p.Spec)
		}
	}
}

// WriteCSV writes one line a run.
func WriteCSV(w io.Writer, played []Played) error {
	c := csv.NewWriter(w)
	c.Write([]string{"situation", "arm", "score", "raw", "last_third", "trap", "good", "late", "lost", "offered", "shed",
		"sent", "refused", "outage", "held", "p50_s", "p99_s", "over50", "over99", "back_s", "swing", "jain", "spec"})
	num := func(v float64) string { return strconv.FormatFloat(v, 'g', 5, 64) }
	for _, p := range played {
		for _, r := range append([]Result{p.Oracle}, p.Results...) {
			var backs []string
			for _, b := range r.Back {
				backs = append(backs, num(b.Seconds()))
			}
			c.Write([]string{p.Name, r.Arm, num(r.Score), num(r.Raw), num(r.Last), strconv.FormatBool(r.Trap), strconv.Itoa(r.Good),
				strconv.Itoa(r.Late), strconv.Itoa(r.Lost), strconv.Itoa(r.Offered), strconv.Itoa(r.Shed),
				strconv.Itoa(r.Sent), strconv.Itoa(r.Refused), strconv.Itoa(r.Outage), num(r.Held),
				num(r.P50.Seconds()), num(r.P99.Seconds()), num(r.Over50), num(r.Over99),
				strings.Join(backs, " "), num(r.Swing), num(r.Jain), p.Spec.String()})
		}
	}
	c.Flush()
	return c.Error()
}

// WriteOne writes what each arm made of one situation.
func WriteOne(w io.Writer, p Played) {
	fmt.Fprintf(w, "| arm | score | last third | good/s | late | refused of sent | shed | held back | p50 | p99 | back after | swing | Jain |\n"+
		"|%s\n", strings.Repeat("---|", 13))
	percent := func(a, b int) float64 { return 100 * float64(a) / float64(max(1, b)) }
	for _, r := range append([]Result{p.Oracle}, p.Results...) {
		var backs []string
		for _, b := range r.Back {
			if b < 0 {
				backs = append(backs, "never")
			} else {
				backs = append(backs, fmt.Sprintf("%.1f s", b.Seconds()))
			}
		}
		if backs == nil {
			backs = []string{"–"}
		}
		fmt.Fprintf(w, "| %s | %.2f | %.2f | %.4g | %.1f %% | %.1f %% | %.1f %% | %.1f %% | %.3g s | %.3g s | %s | ±%.0f %% | %.2f |\n",
			r.Arm, r.Score, r.Last, float64(r.Good)/p.Spec.Length.Seconds(), percent(r.Late, r.Good+r.Late), 100*r.Refusals,
			percent(r.Shed, r.Offered), 100*r.Held, r.P50.Seconds(), r.P99.Seconds(), strings.Join(backs, ", "), 100*r.Swing, r.Jain)
	}
}

// WriteScores writes one line a situation with every arm's score, and what it
// held back, refused or sent too slowly where that is much.
func WriteScores(w io.Writer, played []Played) {
	fmt.Fprint(w, "| |")
	for _, r := range played[0].Results {
		fmt.Fprintf(w, " %s |", r.Arm)
	}
	fmt.Fprintf(w, "\n|---|%s\n", strings.Repeat("---|", len(played[0].Results)))
	for _, p := range played {
		fmt.Fprintf(w, "| %s |", p.Name)
		for _, r := range p.Results {
			fmt.Fprintf(w, " %s |", r.brief())
		}
		fmt.Fprintln(w)
	}
}

// brief is the score with what stands out.
func (r Result) brief() string {
	s := fmt.Sprintf("%.2f", r.Score)
	if r.Refusals > 0.05 {
		s += fmt.Sprintf(", %.0f %% refused", 100*r.Refusals)
	}
	if r.Held > 0.01 {
		s += fmt.Sprintf(", %.0f %% held back", 100*r.Held)
	}
	if r.Over50 > 2 {
		s += ", p50 ×" + factor(r.Over50)
	}
	if r.Over99 > 1.5 {
		s += ", p99 ×" + factor(r.Over99)
	}
	return s
}

func factor(x float64) string {
	if x >= 10 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.1f", x)
}
