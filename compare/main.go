// Command compare plays limiters (arms) in situations and prints how they did,
// as Markdown and as CSV. A situation is a service, its load and what happens
// to them; it is written as words such as workers=32 load=1.4x, which -list
// explains. Everything happens in virtual time, with the limiters unmodified,
// and is exactly repeatable.
//
//	go run . -situation 'workers=32 service=lognormal(40ms,0.8) load=1.4x slo=400ms'
//	go run . -situation '…' -advise                 does a limiter help there, and which?
//	go run . -situation '…' -shrink                 what of it makes a limiter fail?
//	go run . -random 300 -seed 1                    situations that nobody chose
//	go run . -set traps                             where ours was found to fall
//	go run . -set written > matrix.md               the situations somebody thought up
//	go run . -set fresh                             the same with services nobody has tuned for
//	go run . -arms '.*' -names 'cap_.*' -seeds 1    every arm in some of them
//	go run . -plots ../docs/img                     pictures of the telling ones
//	go run . -list
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"agilelimiter/compare/exam"
)

// knees are the arms that play where none are named: our newest law.
const knees = "rate-knee,limit-knee,rate-knee-noslo,limit-knee-noslo"

func main() {
	var p program
	flag.StringVar(&p.arms, "arms", knees, "the arms that play beside the oracle: regular `expressions`, comma-separated")
	flag.StringVar(&p.slo, "slo", "both", "whether our limiters are told the SLO: `with`, without or both")
	flag.StringVar(&p.situation, "situation", "", "play the situation that these `words` describe, or the one of this name")
	flag.IntVar(&p.random, "random", 0, "play so many random situations")
	flag.Uint64Var(&p.seed, "seed", 1, "of the random situations")
	flag.StringVar(&p.set, "set", "written", "play the `set` written, fresh (the same perturbed by up to 30 %) or traps")
	flag.StringVar(&p.names, "names", ".*", "the situations of the set: regular `expressions`, comma-separated")
	flag.IntVar(&p.seeds, "seeds", 1, "over how many seeds the figures of a set are averaged, from 1 on")
	flag.Float64Var(&p.threshold, "threshold", 0.7, "print the random situations that score less than this; what -shrink takes for a failure")
	flag.BoolVar(&p.shrink, "shrink", false, "with -situation or -random: reduce what an arm fails in to what matters")
	flag.BoolVar(&p.advise, "advise", false, "with -situation: whether a limiter helps there, which of ours, and with which bounds")
	flag.StringVar(&p.tables, "tables", "all", "with a set: all tables, `brief`: scores only, or none but the summary")
	flag.StringVar(&p.csv, "csv", "", "write one line a run to this `file`")
	flag.StringVar(&p.plots, "plots", "", "write pictures to this `directory` instead of tables")
	flag.IntVar(&p.procs, "procs", runtime.GOMAXPROCS(0), "how many situations are played at the same time")
	list := flag.Bool("list", false, "list the arms, the words and the situations")
	flag.Parse()
	if *list {
		p.list()
		return
	}
	start := time.Now()
	bubbles(func() {
		p.run()
		fmt.Fprintf(os.Stderr, "%.0f s\n", time.Since(start).Seconds())
	})
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

// bubbles runs f where arms that know no clock but the system's can play: a
// synctest bubble needs a *testing.T, which testing.Main lends. It ends the
// process, so what is left to do is done in there.
func bubbles(f func()) {
	testing.Main(func(string, string) (bool, error) { return true, nil },
		[]testing.InternalTest{{Name: "compare", F: func(t *testing.T) {
			lend(t)
			f()
			os.Exit(0)
		}}}, nil, nil)
}

func lend(t *testing.T) {
	exam.Bubble = func(f func()) {
		t.Run("bubble", func(t *testing.T) { synctest.Test(t, func(*testing.T) { f() }) })
	}
}

// selected returns what matches one of the comma-separated expressions.
func selected[T any](from []T, expressions string, name func(T) string) (to []T) {
	for _, x := range from {
		for _, e := range strings.Split(expressions, ",") {
			r, err := regexp.Compile("^(" + e + ")$")
			exit(err)
			if r.MatchString(name(x)) {
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
