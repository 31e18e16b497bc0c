package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
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
	shrink    bool
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
	played := e.play(names, specs)
	fmt.Printf("%d random situations, seed %d\n\n", e.n, e.seed)
	exam.WriteSummary(os.Stdout, played, e.threshold)
	fmt.Println()
	if e.shrink {
		for _, p := range played {
			e.shrunk(p.Name, p.Spec)
		}
	} else {
		exam.WriteBelow(os.Stdout, played, e.threshold)
	}
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
	s := e.parse(text)
	if e.shrink {
		e.shrunk("situation", s)
		return
	}
	played := e.play([]string{"situation"}, []exam.Spec{s})
	fmt.Println(s)
	fmt.Println()
	exam.WriteOne(os.Stdout, played[0])
	e.save(played)
}

// parse returns the situation of this name or of these words.
func (e examination) parse(text string) exam.Spec {
	for _, n := range exam.Traps {
		if n.Name == text {
			return n.Spec()
		}
	}
	s, err := exam.Parse(text)
	exit(err)
	return s
}

// shrunk prints, for each arm that fails in the situation, the simplest one that
// it finds in which the arm still does.
func (e examination) shrunk(name string, s exam.Spec) {
	for _, a := range e.chosen() {
		fails := func(s exam.Spec) bool {
			_, r := exam.Play(s, []exam.Arm{a})
			return r[0].Score < e.threshold
		}
		if fails(s) {
			fmt.Printf("%s %s %s\n", name, a.Name, exam.Shrink(s, fails))
		}
	}
}

func (e examination) play(names []string, specs []exam.Spec) []exam.Played {
	return exam.PlayAll(names, specs, e.chosen(), e.procs)
}

// bubbles lends f what a synctest bubble needs outside of a test. It ends the
// process.
func bubbles(f func()) {
	testing.Main(func(string, string) (bool, error) { return true, nil },
		[]testing.InternalTest{{Name: "exam", F: func(t *testing.T) {
			exam.Bubble = func(f func()) {
				t.Run("", func(t *testing.T) { synctest.Test(t, func(*testing.T) { f() }) })
			}
			f()
			os.Exit(0)
		}}}, nil, nil)
}

// traps plays the situations in which ours was found to fall.
func (e examination) traps() {
	var names []string
	var specs []exam.Spec
	for _, n := range exam.Traps {
		names = append(names, n.Name)
		specs = append(specs, n.Spec())
	}
	played := e.play(names, specs)
	exam.WriteScores(os.Stdout, played)
	e.save(played)
}
