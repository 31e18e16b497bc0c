package main

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"

	"agilelimiter/compare/arm"
)

// cell is what one arm did in one situation, over all seeds.
type cell struct{ runs []Result }

func (c cell) mean(f func(Result) float64) float64 {
	sum := 0.0
	for _, r := range c.runs {
		sum += f(r)
	}
	return sum / float64(len(c.runs))
}

func (c cell) share() float64 { return c.mean(func(r Result) float64 { return r.Share }) }

// grid holds the cells by situation and arm.
type grid map[[2]string]*cell

func gridOf(results []Result) grid {
	g := grid{}
	for _, r := range results {
		key := [2]string{r.Situation, r.Arm}
		if g[key] == nil {
			g[key] = &cell{}
		}
		g[key].runs = append(g[key].runs, r)
	}
	return g
}

// summary is an arm over all situations: shares are capped at 1, so that no
// situation can make up for another.
func (g grid) summary(situations []Situation, armName string) (worst float64, at string, geometric float64) {
	worst = math.Inf(1)
	sum := 0.0
	for _, s := range situations {
		share := min(1, g[[2]string{s.Name, armName}].share())
		if share < worst {
			worst, at = share, s.Name
		}
		sum += math.Log(max(share, 1e-3)) // one zero must not hide the rest
	}
	return worst, at, math.Exp(sum / float64(len(situations)))
}

// metric is one table of the report.
type metric struct {
	title  string
	value  func(Result) float64
	format string
	where  func(Situation) bool // nil: everywhere
}

var metrics = []metric{
	{title: "Goodput as a share of the oracle's", format: "%.2f", value: func(r Result) float64 { return r.Share }},
	{title: "Percent of the answered calls inside the SLO", format: "%.0f",
		value: func(r Result) float64 { return 100 * r.inside() }},
	{title: "p50 from sending, ms", format: "%.0f", value: func(r Result) float64 { return r.P50 }},
	{title: "p99 from sending, ms", format: "%.0f", value: func(r Result) float64 { return r.P99 }},
	{title: "p50 with the wait for admission, ms", format: "%.0f", value: func(r Result) float64 { return r.Wait50 }},
	{title: "p99 with the wait for admission, ms", format: "%.0f", value: func(r Result) float64 { return r.Wait99 }},
	{title: "Percent of the offered calls shed", format: "%.0f",
		value: func(r Result) float64 { return 100 * float64(r.Shed) / float64(max(1, r.Offered)) }},
	{title: "Calls sent into the outage", format: "%.0f", value: func(r Result) float64 { return float64(r.Outage) },
		where: func(s Situation) bool { return s.To > 0 }},
	{title: "Cache hits inside the SLO as a share of all hits offered", format: "%.2f",
		value: func(r Result) float64 { return float64(r.GoodHits) / (hitShare * float64(r.Offered)) },
		where: func(s Situation) bool { return s.Hits > 0 }},
	{title: "Jain's index of the instances' goodput", format: "%.3f", value: func(r Result) float64 { return r.Jain },
		where: func(s Situation) bool { return s.Instances > 1 }},
}

func writeMarkdown(w io.Writer, situations []Situation, arms []arm.Arm, results []Result, shown []metric) {
	g := gridOf(results)
	fmt.Fprintf(w, "### Summary\n\n| arm | geometric mean | worst | in |\n|---|---|---|---|\n")
	for _, a := range arms {
		worst, at, geometric := g.summary(situations, a.Name)
		fmt.Fprintf(w, "| %s | %.3f | %.2f | %s |\n", a.Name, geometric, worst, at)
	}
	for _, m := range shown {
		var rows []Situation
		for _, s := range situations {
			if m.where == nil || m.where(s) {
				rows = append(rows, s)
			}
		}
		if len(rows) == 0 {
			continue
		}
		header(w, m.title, arms)
		for _, s := range rows {
			fmt.Fprintf(w, "| %s |", s.Name)
			for _, a := range arms {
				fmt.Fprintf(w, " "+m.format+" |", g[[2]string{s.Name, a.Name}].mean(m.value))
			}
			fmt.Fprintln(w)
		}
	}
	if len(shown) == len(metrics) {
		writeRecovery(w, g, situations, arms)
	}
}

func header(w io.Writer, title string, arms []arm.Arm) {
	fmt.Fprintf(w, "\n### %s\n\n| |", title)
	for _, a := range arms {
		fmt.Fprintf(w, " %s |", a.Name)
	}
	fmt.Fprintf(w, "\n|---|%s\n", strings.Repeat("---|", len(arms)))
}

// writeRecovery prints, per step, the mean over the seeds of the seconds until
// 90 % of the oracle's goodput, and "never" when a seed never got there.
func writeRecovery(w io.Writer, g grid, situations []Situation, arms []arm.Arm) {
	titled := false
	for _, s := range situations {
		for i, step := range s.Steps {
			if !titled {
				header(w, "Seconds from a step until 90 % of the oracle's goodput", arms)
				titled = true
			}
			fmt.Fprintf(w, "| %s, %v |", s.Name, step)
			for _, a := range arms {
				fmt.Fprintf(w, " %s |", g[[2]string{s.Name, a.Name}].recovered(i))
			}
			fmt.Fprintln(w)
		}
	}
}

func (c cell) recovered(step int) string {
	sum := 0.0
	for _, r := range c.runs {
		if r.Recover[step] < 0 {
			return "never"
		}
		sum += r.Recover[step]
	}
	return fmt.Sprintf("%.1f", sum/float64(len(c.runs)))
}

// writeCSV writes one line a run.
func writeCSV(file string, results []Result) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	w := csv.NewWriter(f)
	w.Write([]string{"situation", "arm", "seed", "share", "inside", "offered", "shed", "good", "late", "good_hits",
		"lost", "outage", "p50_ms", "p99_ms", "wait50_ms", "wait99_ms", "jain", "recover_s"})
	num := func(v float64) string { return strconv.FormatFloat(v, 'g', 5, 64) }
	for _, r := range results {
		var steps []string
		for _, s := range r.Recover {
			steps = append(steps, num(s))
		}
		w.Write([]string{r.Situation, r.Arm, strconv.FormatUint(r.Seed, 10), num(r.Share), num(r.inside()),
			strconv.Itoa(r.Offered), strconv.Itoa(r.Shed), strconv.Itoa(r.Good), strconv.Itoa(r.Late),
			strconv.Itoa(r.GoodHits), strconv.Itoa(r.Lost), strconv.Itoa(r.Outage), num(r.P50), num(r.P99),
			num(r.Wait50), num(r.Wait99), num(r.Jain), strings.Join(steps, " ")})
	}
	w.Flush()
	if err := w.Error(); err != nil {
		return err
	}
	return f.Close()
}
