package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"agilelimiter/compare/exam"
)

// examination is what the flags of -random and -situation say.
type examination struct {
	n         int
	seed      uint64
	arms, slo string
	threshold float64
	procs     int
	csv       string
}

// chosen returns the arms that play: by their names, and of ours those that are
// told the SLO, those that are not, or both.
func (e examination) chosen() []exam.Arm {
	names := e.arms
	if names == ".*" {
		names = "rate-knee,limit-knee,rate-knee-noslo,limit-knee-noslo"
	}
	arms := selected(exam.Arms(), names, func(a exam.Arm) string { return a.Name })
	switch e.slo {
	case "both":
	case "with", "without":
		arms = slices.DeleteFunc(arms, func(a exam.Arm) bool {
			return strings.HasSuffix(a.Name, "-noslo") == (e.slo == "with")
		})
	default:
		exit(fmt.Errorf("-slo=%s: want with, without or both", e.slo))
	}
	return arms
}

// random plays e.n situations drawn from the seed and prints the summary and
// every situation below the threshold.
func (e examination) random() {
	start := time.Now()
	var names []string
	var specs []exam.Spec
	for i := range e.n {
		names = append(names, strconv.Itoa(i))
		specs = append(specs, exam.Draw(e.seed, uint64(i)))
	}
	played := exam.PlayAll(names, specs, e.chosen(), e.procs)
	fmt.Printf("%d random situations, seed %d\n\n", e.n, e.seed)
	exam.WriteSummary(os.Stdout, played, e.threshold)
	fmt.Println()
	exam.WriteBelow(os.Stdout, played, e.threshold)
	e.save(played)
	fmt.Fprintf(os.Stderr, "%.0f s\n", time.Since(start).Seconds())
}

func (e examination) save(played []exam.Played) {
	if e.csv == "" {
		return
	}
	f, err := os.Create(e.csv)
	exit(err)
	exit(exam.WriteCSV(f, played))
	exit(f.Close())
}

// situation plays one situation, given by its words or by its name.
func (e examination) situation(text string) {
	s, err := exam.Parse(text)
	exit(err)
	played := exam.PlayAll([]string{"situation"}, []exam.Spec{s}, e.chosen(), 1)
	fmt.Println(s)
	fmt.Println()
	exam.WriteOne(os.Stdout, played[0])
	e.save(played)
}
