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
	"time"
)

// Played is one situation with what everybody made of it.
type Played struct {
	Name    string // of a written situation, or the index of a drawn one
	Spec    Spec
	Oracle  Result
	Results []Result
}

// all returns the oracle's result and those of the arms.
func (p Played) all() []Result { return append([]Result{p.Oracle}, p.Results...) }

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

// Averaged returns the mean of every so many runs, which are the same situation
// with other seeds.
func Averaged(runs []Played, seeds int) (out []Played) {
	for ; len(runs) >= seeds; runs = runs[seeds:] {
		p := Played{Name: runs[0].Name, Spec: runs[0].Spec, Results: make([]Result, len(runs[0].Results))}
		p.Oracle = mean(runs[:seeds], func(p Played) Result { return p.Oracle })
		for a := range p.Results {
			p.Results[a] = mean(runs[:seeds], func(p Played) Result { return p.Results[a] })
		}
		out = append(out, p)
	}
	return out
}

func mean(runs []Played, of func(Played) Result) Result {
	r := of(runs[0])
	r.Back = slices.Clone(r.Back)
	for _, p := range runs[1:] {
		x := of(p)
		for _, f := range []struct{ sum, add *float64 }{
			{&r.Score, &x.Score}, {&r.Last, &x.Last}, {&r.Held, &x.Held}, {&r.Refusals, &x.Refusals}, {&r.Inside, &x.Inside},
			{&r.Over50, &x.Over50}, {&r.Over99, &x.Over99}, {&r.Swing, &x.Swing}, {&r.Jain, &x.Jain},
		} {
			*f.sum += *f.add
		}
		for _, f := range []struct{ sum, add *time.Duration }{
			{&r.P50, &x.P50}, {&r.P99, &x.P99}, {&r.Wait50, &x.Wait50}, {&r.Wait99, &x.Wait99},
		} {
			*f.sum += *f.add
		}
		for _, f := range []struct{ sum, add *int }{
			{&r.Good, &x.Good}, {&r.Late, &x.Late}, {&r.Offered, &x.Offered}, {&r.Shed, &x.Shed}, {&r.Sent, &x.Sent}, {&r.Outage, &x.Outage},
		} {
			*f.sum += *f.add
		}
		for i := range r.Back {
			if r.Back[i] += x.Back[i]; x.Back[i] < 0 {
				r.Back[i] = math.MinInt32 * time.Second // never, in one of them
			}
		}
		r.Trap = r.Trap || x.Trap
	}
	n := len(runs)
	for _, f := range []*float64{&r.Score, &r.Last, &r.Held, &r.Refusals, &r.Inside, &r.Over50, &r.Over99, &r.Swing, &r.Jain} {
		*f /= float64(n)
	}
	for _, f := range []*time.Duration{&r.P50, &r.P99, &r.Wait50, &r.Wait99} {
		*f /= time.Duration(n)
	}
	for _, f := range []*int{&r.Good, &r.Late, &r.Offered, &r.Shed, &r.Sent, &r.Outage} {
		*f /= n
	}
	for i := range r.Back {
		r.Back[i] = max(-1, r.Back[i]/time.Duration(n))
	}
	return r
}

// Summary is an arm over many situations.
type Summary struct {
	Arm                string
	Mean, Geometric    float64 // of the scores; one zero must not hide the rest of the latter
	Fifth, Worst       float64 // 5th percentile and least score
	At                 string  // the worst situation
	Below, Traps, Runs int
}

// Summarize returns the summary of every arm.
func Summarize(played []Played, threshold float64) (out []Summary) {
	for a := range played[0].Results {
		s := Summary{Arm: played[0].Results[a].Arm, Worst: math.Inf(1), Runs: len(played)}
		var scores []float64
		for _, p := range played {
			r := p.Results[a]
			scores = append(scores, r.Score)
			s.Mean += r.Score / float64(len(played))
			s.Geometric += math.Log(max(r.Score, 1e-3)) / float64(len(played))
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
		s.Geometric = math.Exp(s.Geometric)
		slices.Sort(scores)
		s.Fifth = scores[max(0, int(math.Ceil(0.05*float64(len(scores))))-1)]
		out = append(out, s)
	}
	return out
}

// WriteSummary writes one line an arm.
func WriteSummary(w io.Writer, played []Played, threshold float64) {
	fmt.Fprintf(w, "| arm | mean | geometric mean | 5th percentile | worst | below %.2g | traps |\n|---|---|---|---|---|---|---|\n", threshold)
	for _, s := range Summarize(played, threshold) {
		fmt.Fprintf(w, "| %s | %.3f | %.3f | %.2f | %.2f (%s) | %d of %d | %d |\n",
			s.Arm, s.Mean, s.Geometric, s.Fifth, s.Worst, s.At, s.Below, s.Runs, s.Traps)
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

// WriteOne writes what each arm made of one situation.
func WriteOne(w io.Writer, p Played) {
	titles := "arm | score | last third | good/s | late | refused of sent | shed | held back | p50 | p99 | back after | swing | Jain"
	fmt.Fprintf(w, "| %s |\n|%s\n", titles, strings.Repeat("---|", 1+strings.Count(titles, "|")))
	percent := func(a, b int) float64 { return 100 * float64(a) / float64(max(1, b)) }
	for _, r := range p.all() {
		fmt.Fprintf(w, "| %s | %.2f | %.2f | %.4g | %.1f %% | %.1f %% | %.1f %% | %.1f %% | %.3g s | %.3g s | %s | ±%.0f %% | %.2f |\n",
			r.Arm, r.Score, r.Last, float64(r.Good)/p.Spec.Length.Seconds(), percent(r.Late, r.Good+r.Late), 100*r.Refusals,
			percent(r.Shed, r.Offered), 100*r.Held, r.P50.Seconds(), r.P99.Seconds(), r.backs(), 100*r.Swing, r.Jain)
	}
}

func (r Result) backs() string {
	var out []string
	for _, b := range r.Back {
		if b < 0 {
			out = append(out, "never")
		} else {
			out = append(out, fmt.Sprintf("%.1f s", b.Seconds()))
		}
	}
	if out == nil {
		return "–"
	}
	return strings.Join(out, ", ")
}

// WriteScores writes one line a situation with every arm's score and what stands
// out in it; with words, also how to say the situation.
func WriteScores(w io.Writer, played []Played, words bool) {
	title(w, "Score", played[0].Results)
	for _, p := range played {
		fmt.Fprintf(w, "| %s |", p.label(words))
		for _, r := range p.Results {
			fmt.Fprintf(w, " %s |", r.brief())
		}
		fmt.Fprintln(w)
	}
}

func (p Played) label(words bool) string {
	if words {
		return fmt.Sprintf("%s `%s`", p.Name, p.Spec)
	}
	return p.Name
}

func title(w io.Writer, name string, results []Result) {
	fmt.Fprintf(w, "\n### %s\n\n| |", name)
	for _, r := range results {
		fmt.Fprintf(w, " %s |", r.Arm)
	}
	fmt.Fprintf(w, "\n|---|%s\n", strings.Repeat("---|", len(results)))
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

// metrics are the tables behind the scores.
var metrics = []struct {
	title  string
	format string
	value  func(Result) float64
	where  func(Played) bool // nil: everywhere
}{
	{"Percent of the answered calls inside the SLO", "%.0f", func(r Result) float64 { return 100 * r.Inside }, nil},
	{"p50 from sending, ms", "%.3g", func(r Result) float64 { return 1e3 * r.P50.Seconds() }, nil},
	{"p99 from sending, ms", "%.3g", func(r Result) float64 { return 1e3 * r.P99.Seconds() }, nil},
	{"p50 with the wait for admission, ms", "%.3g", func(r Result) float64 { return 1e3 * r.Wait50.Seconds() }, nil},
	{"p99 with the wait for admission, ms", "%.3g", func(r Result) float64 { return 1e3 * r.Wait99.Seconds() }, nil},
	{"Percent of the offered calls shed", "%.0f", func(r Result) float64 { return 100 * float64(r.Shed) / float64(max(1, r.Offered)) }, nil},
	{"Percent of the calls shed while nothing was short", "%.1f", func(r Result) float64 { return 100 * r.Held },
		func(p Played) bool {
			return slices.ContainsFunc(p.Results, func(r Result) bool { return r.Held > 0.0005 })
		}},
	{"Percent of the sent calls refused", "%.1f", func(r Result) float64 { return 100 * r.Refusals },
		func(p Played) bool {
			return slices.ContainsFunc(p.Results, func(r Result) bool { return r.Refusals > 0 })
		}},
	{"Calls sent into the outage", "%.0f", func(r Result) float64 { return float64(r.Outage) },
		func(p Played) bool { return len(p.Spec.Faults) > 0 }},
	{"Half of the number's span over its mean, last third, percent", "%.0f", func(r Result) float64 { return 100 * r.Swing }, nil},
	{"Jain's index of the instances' goodput", "%.3f", func(r Result) float64 { return r.Jain },
		func(p Played) bool { return p.Spec.Fleet > 1 }},
}

// WriteTables writes the scores and every other figure of a set.
func WriteTables(w io.Writer, played []Played, words bool) {
	WriteScores(w, played, words)
	for _, m := range metrics {
		titled := false
		for _, p := range played {
			if m.where != nil && !m.where(p) {
				continue
			}
			if !titled {
				title(w, m.title, p.all())
				titled = true
			}
			fmt.Fprintf(w, "| %s |", p.Name)
			for _, r := range p.all() {
				fmt.Fprintf(w, " "+m.format+" |", m.value(r))
			}
			fmt.Fprintln(w)
		}
	}
	title(w, "From each step until 90 % of the oracle's goodput", played[0].Results)
	for _, p := range played {
		for i, step := range p.Spec.Steps() {
			fmt.Fprintf(w, "| %s, %s |", p.Name, duration(step))
			for _, r := range p.Results {
				fmt.Fprintf(w, " %s |", Result{Back: r.Back[i : i+1]}.backs())
			}
			fmt.Fprintln(w)
		}
	}
}

// WriteCSV writes one line a run.
func WriteCSV(w io.Writer, played []Played) error {
	c := csv.NewWriter(w)
	c.Write([]string{"situation", "arm", "score", "raw", "last_third", "trap", "inside", "good", "late", "lost", "offered", "shed",
		"sent", "refused", "outage", "held", "p50_s", "p99_s", "wait50_s", "wait99_s", "over50", "over99", "back_s", "swing", "jain", "spec"})
	num := func(v float64) string { return strconv.FormatFloat(v, 'g', 5, 64) }
	for _, p := range played {
		for _, r := range p.all() {
			var backs []string
			for _, b := range r.Back {
				backs = append(backs, num(b.Seconds()))
			}
			c.Write([]string{p.Name, r.Arm, num(r.Score), num(r.Raw), num(r.Last), strconv.FormatBool(r.Trap), num(r.Inside),
				strconv.Itoa(r.Good), strconv.Itoa(r.Late), strconv.Itoa(r.Lost), strconv.Itoa(r.Offered), strconv.Itoa(r.Shed),
				strconv.Itoa(r.Sent), strconv.Itoa(r.Refused), strconv.Itoa(r.Outage), num(r.Held),
				num(r.P50.Seconds()), num(r.P99.Seconds()), num(r.Wait50.Seconds()), num(r.Wait99.Seconds()),
				num(r.Over50), num(r.Over99), strings.Join(backs, " "), num(r.Swing), num(r.Jain), p.Spec.String()})
		}
	}
	c.Flush()
	return c.Error()
}
