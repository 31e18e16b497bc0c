package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agilelimiter/compare/arm"
	"agilelimiter/compare/plant"
)

var real = flag.Bool("real", false, "play on the wall clock against an HTTP server on loopback; needs -timeout 40m")

func TestMain(m *testing.M) {
	// With one processor runs in virtual time repeat exactly.
	flag.Parse()
	if !*real {
		runtime.GOMAXPROCS(1)
	}
	os.Exit(m.Run())
}

// paced is a downstream of 150 calls a second that answers in 20 ms, of which
// a third is work, with an SLO of 100 ms and 210 calls a second on offer.
func paced(s Situation) Situation {
	s.Length = 20 * sec
	s.SLO = 100 * ms
	s.Workers, s.Service, s.Dist = 1, sec/150, plant.Deterministic
	s.Min, s.Initial, s.Max = 20./150, 50./150, 500./150
	extra := s.Base
	s.Base = func(t time.Duration) float64 { return 0.0133 + extra.At(t, 0) }
	return s.withDefaults()
}

// byHand are two rates that somebody may have set: a cautious one and one near
// the capacity.
func byHand() []arm.Arm { return []arm.Arm{arm.Uber(100), arm.Uber(140)} }

// playAll plays one situation with every arm, in virtual time one after the
// other, and on the wall clock all at once, each with a server of its own.
func playAll(t *testing.T, s Situation, arms []arm.Arm, seed uint64) []Result {
	results := make([]Result, len(arms))
	var wg sync.WaitGroup
	for i, a := range arms {
		if !*real {
			results[i] = run(t, s, a, seed)
			continue
		}
		wg.Go(func() { results[i] = runHTTP(t, s, a, seed) })
	}
	wg.Wait()
	return results
}

// missed fails the test in virtual time. On the wall clock the figures depend
// on the machine and on what else it does, and the miss is only logged.
func missed(t *testing.T, format string, args ...any) {
	t.Helper()
	if *real {
		t.Logf("missed: "+format, args...)
		return
	}
	t.Errorf(format, args...)
}

func perSecond(r Result, s Situation) float64 { return float64(r.Good) / s.Length.Seconds() }

// TestSLOAnchorVsUber: latency rises from 20 to 70 ms at 5 s, well inside the
// SLO, and the capacity stays. Everybody has been promised 140/s as the
// ceiling. AnchorBaseline spends the rest of the run at MinRate; the anchors
// that know the SLO do not.
func TestSLOAnchorVsUber(t *testing.T) {
	s := paced(Situation{Name: "benign step", Base: plant.Step(5*sec, 0, 0.05)})
	s.Max = 140. / 150
	arms := append(byHand(), arm.ByName("rate-baseline", "rate-slo", "rate-knee")...)
	good := map[string]float64{}
	for i, r := range playAll(t, s, arms, 1) {
		good[r.Arm] = perSecond(r, s)
		t.Logf("%-14s goodput %5.1f/s, %3.0f %% inside the SLO, mean round trip at the end %3.0f ms, rate at the end %4.0f/s",
			arms[i].Name, good[r.Arm], 100*r.inside(), r.RTT[len(r.RTT)-2], r.Target[len(r.Target)-1])
		if last := r.Target[len(r.Target)-1]; r.Arm == "rate-baseline" && last > 22 {
			missed(t, "AnchorBaseline ends at %.0f/s, want its MinRate, 20/s", last)
		}
	}
	if good["rate-slo"] < 1.5*good["rate-baseline"] {
		missed(t, "AnchorSLO %.1f/s, AnchorBaseline %.1f/s: want it half as much again", good["rate-slo"], good["rate-baseline"])
	}
	if good["rate-knee"] < 0.9*good["uber(140)"] {
		missed(t, "AnchorKnee %.1f/s, a rate set by somebody who knew %.1f/s: want 90 %% of it",
			good["rate-knee"], good["uber(140)"])
	}
}

// TestSLOAnchorMatrix plays seven scenarios for two rounds each and logs
// goodput a second and the percentage inside the SLO, the best in bold, and
// which arm held where: 90 % of the best goodput in every round.
func TestSLOAnchorMatrix(t *testing.T) {
	scenarios := []Situation{
		{Name: "steady"},
		{Name: "benign bump", Base: plant.Pulse(5*sec, 12*sec, 0, 0.04)},
		{Name: "SLO breaks", Base: plant.Pulse(5*sec, 12*sec, 0, 0.15)},
		{Name: "capacity drop", Slow: plant.Step(5*sec, 1, 150./40)},
		{Name: "capacity recovery", Slow: plant.Step(5*sec, 150./40, 1)},
		{Name: "flapping latency", Base: plant.Square(4*sec, 0, 0.04)},
		{Name: "diurnal", Slow: func(t time.Duration) float64 { return 1 / plant.Wave(20*sec, 0.3, 1)(t) }},
	}
	arms := append(byHand(), arm.ByName("rate-baseline", "rate-baseline-ramp", "rate-slo", "rate-slo-ramp", "rate-knee")...)
	var out strings.Builder
	fmt.Fprint(&out, "\n| goodput/s (% inside the SLO) |")
	for _, a := range arms {
		fmt.Fprintf(&out, " %s |", a.Name)
	}
	fmt.Fprintf(&out, "\n|---|%s\n", strings.Repeat("---|", len(arms)))
	held := map[string][]string{}
	for _, s := range scenarios {
		s = paced(s)
		holds := slices.Repeat([]bool{true}, len(arms))
		for round := range 2 {
			results := playAll(t, s, arms, uint64(round)+1)
			best := 0.0
			for _, r := range results {
				best = max(best, perSecond(r, s))
			}
			fmt.Fprintf(&out, "| %s, round %d |", s.Name, round+1)
			for i, r := range results {
				good, mark := perSecond(r, s), ""
				if good == best {
					mark = "**"
				}
				holds[i] = holds[i] && good >= 0.9*best
				fmt.Fprintf(&out, " %s%.1f%s (%.0f) |", mark, good, mark, 100*r.inside())
			}
			fmt.Fprintln(&out)
		}
		for i, a := range arms {
			if holds[i] {
				held[a.Name] = append(held[a.Name], s.Name)
			}
		}
	}
	fmt.Fprintf(&out, "\n| arm | held, of %d | where |\n|---|---|---|\n", len(scenarios))
	for _, a := range arms {
		fmt.Fprintf(&out, "| %s | %d | %s |\n", a.Name, len(held[a.Name]), strings.Join(held[a.Name], ", "))
	}
	t.Log(out.String())
	if len(held["rate-knee"]) < 5 {
		missed(t, "AnchorKnee held in %v only", held["rate-knee"])
	}
	if slices.Contains(held["uber(140)"], "capacity drop") || slices.Contains(held["rate-baseline"], "benign bump") {
		missed(t, "the scenarios do not tell the arms apart")
	}
}
