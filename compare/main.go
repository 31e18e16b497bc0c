// Command compare plays every limiter (arm) in every situation and prints how
// they did, as Markdown and as CSV. Everything happens in virtual time, with
// the limiters unmodified, and is exactly repeatable.
//
//	go run . > matrix.md                            the whole matrix
//	go run . -csv matrix.csv                        also one line a run
//	go run . -arms 'rate-.*,uber' -situations 'cap_.*' -seeds 1
//	go run . -set fresh                             servers nobody has tuned for
//	go run . -plots ../docs/img                     pictures of the telling situations
//	go run . -random 300 -seed 1                    situations that nobody chose
//	go run . -situation 'workers=32 service=lognormal(40ms,0.8) load=1.4x slo=400ms'
//	go run . -list
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"agilelimiter/compare/arm"
	"agilelimiter/compare/exam"
)

func main() {
	var (
		armNames  = flag.String("arms", ".*", "the arms that play beside the oracle: regular expressions, comma-separated")
		names     = flag.String("situations", ".*", "the situations: likewise")
		seeds     = flag.Int("seeds", 3, "how many seeds, from 1 on")
		set       = flag.String("set", "tuned", "tuned: the situations as they are written; fresh: perturbed by up to 30 %; traps: where ours was found to fall")
		shrink    = flag.Bool("shrink", false, "with -situation or -random: reduce what an arm fails in to what matters")
		processes = flag.Int("procs", 2, "how many runs at the same time")
		csvFile   = flag.String("csv", "", "write one line a run to this `file`")
		plots     = flag.String("plots", "", "write pictures to this `directory` instead of tables")
		brief     = flag.Bool("brief", false, "only the summary, the shares and the percentages inside the SLO")
		summary   = flag.Bool("summary", false, "only the summary")
		list      = flag.Bool("list", false, "list arms and situations")
		random    = flag.Int("random", 0, "play so many random situations in place of the written ones")
		situation = flag.String("situation", "", "play the situation that these `words` describe; see -list")
		seed      = flag.Uint64("seed", 1, "of the random situations")
		slo       = flag.String("slo", "both", "with random situations: whether our limiters are told the SLO: with, without or both")
		threshold = flag.Float64("threshold", 0.7, "print the random situations that score less than this")
		child     = flag.String("job", "", "internal: one job, as JSON; the results go to standard output")
	)
	flag.Parse()
	if *child != "" {
		work(*child)
	}
	self, err := os.Executable()
	exit(err)
	e := examination{n: *random, seed: *seed, arms: *armNames, slo: *slo, threshold: *threshold, procs: *processes, csv: *csvFile, shrink: *shrink}
	switch {
	case *situation != "":
		bubbles(func() { e.situation(*situation) })
	case e.n > 0:
		bubbles(e.random)
	case *set == "traps":
		bubbles(e.traps)
	}
	arms := selected(arm.All(), *armNames, func(a arm.Arm) string { return a.Name })
	chosen := selected(situations, *names, func(s Situation) string { return s.Name })
	switch {
	case *list:
		fmt.Println("the words of a situation:\n" + exam.Words())
		for _, a := range arms {
			fmt.Println("arm", a.Name)
		}
		for _, s := range chosen {
			fmt.Printf("situation %-18s %s\n", s.Name, s.About)
		}
		return
	case *plots != "":
		exit(draw(self, *plots, *processes))
		return
	}
	start := time.Now()
	results, err := spread(self, jobs(chosen, arms, *seeds, *set == "fresh"), *processes)
	exit(err)
	if *csvFile != "" {
		exit(writeCSV(*csvFile, results))
	}
	shown := metrics
	switch {
	case *summary:
		shown = nil
	case *brief:
		shown = metrics[:2]
	}
	writeMarkdown(os.Stdout, chosen, arms, results, shown)
	fmt.Fprintf(os.Stderr, "%d runs in %.0f s\n", len(results), time.Since(start).Seconds())
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

// selected returns what matches one of the comma-separated expressions.
func selected[T any](from []T, expressions string, name func(T) string) (to []T) {
	for _, x := range from {
		for _, e := range strings.Split(expressions, ",") {
			if regexp.MustCompile("^(" + e + ")$").MatchString(name(x)) {
				to = append(to, x)
				break
			}
		}
	}
	if len(to) == 0 {
		exit(fmt.Errorf("nothing matches %q; see -list", expressions))
	}
	return to
}

// work plays the runs of one job in this process and prints one JSON line
// each. testing.Main lends the *testing.T that a synctest bubble needs; it
// ends the process.
func work(encoded string) {
	var j job
	exit(json.Unmarshal([]byte(encoded), &j))
	testing.Main(func(string, string) (bool, error) { return true, nil },
		[]testing.InternalTest{{Name: "job", F: func(t *testing.T) {
			out := json.NewEncoder(os.Stdout)
			for _, r := range j.play(t) {
				exit(out.Encode(r))
			}
		}}}, nil, nil)
}
