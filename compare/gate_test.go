package main

import (
	"encoding/csv"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

var record = flag.Bool("record", false, "rewrite testdata/gate.csv from this run")

const gateFile = "testdata/gate.csv"

// gateMargin is how far below what was reached a bound is set: less than any
// fault that matters, more than a change of rounding.
const gateMargin = 0.05

// gated returns what the gate plays: our newest law everywhere, the laws of the
// beginning and those without an SLO where something happens.
func gated() (jobs []job) {
	laws := []string{"rate-knee", "limit-knee"}
	rest := []string{"rate-knee-noslo", "limit-knee-noslo", "rate-baseline", "limit-baseline", "rate-slo", "limit-slo"}
	telling := map[string]bool{
		"steady": true, "benign_drift": true, "cap_drop": true, "cap_recovery": true, "init_low": true, "hang_1s": true,
	}
	for _, s := range situations {
		arms := laws
		if telling[s.Name] {
			arms = append(arms[:len(arms):len(arms)], rest...)
		}
		jobs = append(jobs, job{Situation: s.Name, Arms: arms, Seed: 1})
	}
	return jobs
}

// TestGate fails where the share of the oracle's goodput, or the share of the
// answers inside the SLO, is below the recorded bound. After a change that is
// meant to move them: go test -run TestGate -record .
func TestGate(t *testing.T) {
	bounds := map[[2]string][2]float64{}
	if !*record {
		bounds = readBounds(t)
	}
	var lines [][]string
	results, err := spread(command(t), gated(), 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		bound, ok := bounds[[2]string{r.Situation, r.Arm}]
		share := min(1, r.Share)
		switch {
		case *record:
		case !ok:
			t.Errorf("%s, %s: no bound; go test -run TestGate -record .", r.Situation, r.Arm)
		case share < bound[0] || r.inside() < bound[1]:
			t.Errorf("%s, %s: share %.3f, bound %.2f; inside the SLO %.3f, bound %.2f",
				r.Situation, r.Arm, share, bound[0], r.inside(), bound[1])
		}
		floor := func(v float64) string { return fmt.Sprintf("%.2f", max(0, math.Floor(100*(v-gateMargin))/100)) }
		lines = append(lines, []string{r.Situation, r.Arm, floor(share), floor(r.inside())})
	}
	if *record {
		writeBounds(t, lines)
	} else if len(results) != len(bounds) {
		t.Errorf("%d bounds for %d runs", len(bounds), len(results))
	}
}

// command builds the command, without the race detector even where the test
// has it: the gate is about figures, and ten times as long with it.
func command(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "compare")
	if out, err := exec.Command("go", "build", "-o", file, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return file
}

func readBounds(t *testing.T) map[[2]string][2]float64 {
	t.Helper()
	f, err := os.Open(gateFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	bounds := map[[2]string][2]float64{}
	for _, l := range lines[1:] {
		share, err1 := strconv.ParseFloat(l[2], 64)
		inside, err2 := strconv.ParseFloat(l[3], 64)
		if err1 != nil || err2 != nil {
			t.Fatalf("%s: %v", gateFile, l)
		}
		bounds[[2]string{l[0], l[1]}] = [2]float64{share, inside}
	}
	return bounds
}

func writeBounds(t *testing.T, lines [][]string) {
	t.Helper()
	f, err := os.Create(gateFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := csv.NewWriter(f)
	w.Write([]string{"situation", "arm", "share", "inside"})
	if err := w.WriteAll(lines); err != nil {
		t.Fatal(err)
	}
}

// TestRepeats: the same calls meet the same limiter and the same things
// happen, to the last digit. Arms that wake several waiters in one instant are
// not among them: what those do next depends on when the operating system
// interrupts the process.
func TestRepeats(t *testing.T) {
	j := job{Situation: "cap_drop", Arms: []string{"oracle", "rate-knee", "limit-knee", "vegas", "uber"}, Seed: 7}
	results, err := spread(command(t), []job{j, j}, 2)
	if err != nil {
		t.Fatal(err)
	}
	once, again := results[:len(j.Arms)], results[len(j.Arms):]
	for i := range once {
		if a, b := fmt.Sprintf("%+v", once[i]), fmt.Sprintf("%+v", again[i]); a != b {
			t.Errorf("%s differs:\n%s\n%s", once[i].Arm, a, b)
		}
	}
}
