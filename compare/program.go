package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"agilelimiter/compare/exam"
)

// program is what the flags say.
type program struct {
	arms, slo          string
	situation          string
	random             int
	seed               uint64
	set, names         string
	seeds              int
	threshold          float64
	shrink, advise     bool
	tables, csv, plots string
	procs              int
}

func (p program) run() {
	if p.procs < 1 || p.seeds < 1 || p.random < 0 {
		exit(errors.New("-procs and -seeds are at least 1, -random is not negative"))
	}
	switch {
	case p.plots != "":
		exit(p.draw())
	case p.situation != "":
		p.one()
	case p.random > 0:
		p.drawn()
	default:
		p.named()
	}
}

// chosen returns the arms that play: by their names, and of ours those that are
// told the SLO, those that are not, or both.
func (p program) chosen() []exam.Arm {
	arms := selected(exam.Arms(), p.arms, func(a exam.Arm) string { return a.Name })
	switch p.slo {
	case "both":
	case "with", "without":
		arms = slices.DeleteFunc(arms, func(a exam.Arm) bool {
			return a.Ours && strings.HasSuffix(a.Name, "-noslo") == (p.slo == "with")
		})
	default:
		exit(fmt.Errorf("-slo=%s: want with, without or both", p.slo))
	}
	if len(arms) == 0 {
		exit(fmt.Errorf("no arm is left of -arms %s with -slo=%s", p.arms, p.slo))
	}
	return arms
}

// one plays one situation.
func (p program) one() {
	s := parse(p.situation)
	if p.shrink {
		p.shrunk("situation", s)
		return
	}
	if p.advise {
		fmt.Printf("`%s`\n\n", s)
		exam.Advise(os.Stdout, s, p.procs)
		return
	}
	played := exam.PlayAll([]string{"situation"}, []exam.Spec{s}, p.chosen(), 1)
	fmt.Printf("`%s`\n\n", s)
	exam.WriteOne(os.Stdout, played[0])
	p.save(played)
}

// parse returns the situation of this name or of these words.
func parse(text string) exam.Spec {
	for _, n := range append(exam.Traps, exam.Written...) {
		if n.Name == text {
			return n.Spec()
		}
	}
	s, err := exam.Parse(text)
	exit(err)
	return s
}

// drawn plays random situations and prints the summary and every situation
// below the threshold.
func (p program) drawn() {
	var names []string
	var specs []exam.Spec
	for i := range p.random {
		names = append(names, strconv.Itoa(i))
		specs = append(specs, exam.Draw(p.seed, uint64(i)))
	}
	played := exam.PlayAll(names, specs, p.chosen(), p.procs)
	fmt.Printf("%d random situations, seed %d\n\n", p.random, p.seed)
	exam.WriteSummary(os.Stdout, played, p.threshold)
	p.save(played)
	if p.tables == "none" {
		return
	}
	fmt.Println()
	if !p.shrink {
		exam.WriteBelow(os.Stdout, played, p.threshold)
		return
	}
	for _, one := range played {
		p.shrunk(one.Name, one.Spec)
	}
}

// shrunk prints, for each arm that fails in the situation, the simplest one that
// it finds in which the arm still does.
func (p program) shrunk(name string, s exam.Spec) {
	for _, a := range p.chosen() {
		fails := func(s exam.Spec) bool {
			_, r := exam.Play(s, []exam.Arm{a})
			return r[0].Score < p.threshold
		}
		if fails(s) {
			fmt.Printf("%s %s %s\n", name, a.Name, exam.Shrink(s, fails))
		}
	}
}

// named plays a set of situations that have names.
func (p program) named() {
	set := exam.Written
	if p.set == "traps" {
		set = exam.Traps
	} else if p.set != "written" && p.set != "fresh" {
		exit(fmt.Errorf("-set=%s: want written, fresh or traps", p.set))
	}
	set = selected(set, p.names, func(n exam.Named) string { return n.Name })
	var names []string
	var specs []exam.Spec
	for _, n := range set {
		for seed := range uint64(p.seeds) {
			s := n.Spec()
			if p.set == "fresh" {
				s = n.Perturbed(seed + 1)
			}
			s.Seed = seed + 1
			names, specs = append(names, n.Name), append(specs, s)
		}
	}
	runs := exam.PlayAll(names, specs, p.chosen(), p.procs)
	p.save(runs)
	played := exam.Averaged(runs, p.seeds)
	exam.WriteSummary(os.Stdout, played, p.threshold)
	switch p.tables {
	case "all":
		exam.WriteTables(os.Stdout, played, p.set == "traps")
	case "brief":
		exam.WriteScores(os.Stdout, played, p.set == "traps")
	case "none":
	default:
		exit(fmt.Errorf("-tables=%s: want all, brief or none", p.tables))
	}
}

func (p program) save(played []exam.Played) {
	if p.csv == "" {
		return
	}
	f, err := os.Create(p.csv)
	exit(err)
	exit(exam.WriteCSV(f, played))
	exit(f.Close())
}

func (p program) list() {
	fmt.Println("arms:")
	for _, a := range exam.Arms() {
		fmt.Println(" ", a.Name)
	}
	fmt.Printf("\nwords of a situation:\n%s\nwritten situations:\n", exam.Words())
	for _, n := range exam.Written {
		fmt.Printf("  %-18s %s: %s\n", n.Name, n.About, n.Text)
	}
	fmt.Println("\ntraps:")
	for _, n := range exam.Traps {
		fmt.Printf("  %-18s %s: %s\n", n.Name, n.About, n.Text)
	}
}
