package main

import (
	"bytes"
	"encoding/csv"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

var record = flag.Bool("record", false, "rewrite testdata/gate.csv from this run")

const gateFile = "testdata/gate.csv"

// gateMargin is how far below what was reached a bound is set: less than any
// fault that matters, more than a change of rounding.
const gateMargin = 0.05

// sample is the random situations of the gate.
const sample = "60"

// TestGate fails where a score is below its recorded bound: that of each written
// situation under the arms that know the SLO, and the mean and the 5th
// percentile of a fixed sample of random ones. After a change that is meant to
// move them: go test -run TestGate -record .
func TestGate(t *testing.T) {
	command := command(t)
	reached := map[[2]string]float64{}
	var order [][2]string
	add := func(row, arm string, score float64) {
		order = append(order, [2]string{row, arm})
		reached[[2]string{row, arm}] = score
	}
	for _, line := range run(t, command, "-set", "written", "-slo", "with") {
		if line.arm != "oracle" {
			add(line.situation, line.arm, line.score)
		}
	}
	scores := map[string][]float64{}
	for _, line := range run(t, command, "-random", sample, "-seed", "1") {
		scores[line.arm] = append(scores[line.arm], line.score)
	}
	for _, arm := range []string{"rate-knee", "limit-knee", "rate-knee-noslo", "limit-knee-noslo"} {
		mean, fifth := meanAndFifth(scores[arm])
		add("random, mean", arm, mean)
		add("random, 5th percentile", arm, fifth)
	}
	if *record {
		writeBounds(t, order, reached)
		return
	}
	bounds := readBounds(t)
	for _, key := range order {
		bound, ok := bounds[key]
		switch {
		case !ok:
			t.Errorf("%s, %s: no bound; go test -run TestGate -record .", key[0], key[1])
		case reached[key] < bound:
			t.Errorf("%s, %s: %.3f, bound %.2f", key[0], key[1], reached[key], bound)
		}
	}
	if len(order) != len(bounds) {
		t.Errorf("%d bounds for %d figures", len(bounds), len(order))
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

type line struct {
	situation, arm string
	score          float64
}

// run runs the command and returns what it wrote.
func run(t *testing.T, command string, args ...string) (lines []line) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "runs.csv")
	cmd := exec.Command(command, append(args, "-tables", "none", "-csv", file)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range all[1:] {
		score, err := strconv.ParseFloat(l[2], 64)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line{l[0], l[1], score})
	}
	return lines
}

func readBounds(t *testing.T) map[[2]string]float64 {
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
	bounds := map[[2]string]float64{}
	for _, l := range lines[1:] {
		bound, err := strconv.ParseFloat(l[2], 64)
		if err != nil {
			t.Fatalf("%s: %v", gateFile, l)
		}
		bounds[[2]string{l[0], l[1]}] = bound
	}
	return bounds
}

func writeBounds(t *testing.T, order [][2]string, reached map[[2]string]float64) {
	t.Helper()
	var out bytes.Buffer
	w := csv.NewWriter(&out)
	w.Write([]string{"situation", "arm", "bound"})
	for _, key := range order {
		bound := max(0, math.Floor(100*(reached[key]-gateMargin))/100)
		w.Write([]string{key[0], key[1], fmt.Sprintf("%.2f", bound)})
	}
	w.Flush()
	if err := os.WriteFile(gateFile, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestRepeats: the same situations give the same figures, to the last digit,
// whoever plays and however many at the same time.
func TestRepeats(t *testing.T) {
	command := command(t)
	play := func(procs string) string {
		out, err := exec.Command(command, "-random", "4", "-seed", "3", "-arms", ".*", "-procs", procs, "-threshold", "1").Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	if once, again := play("1"), play("4"); once != again {
		t.Errorf("one at a time:\n%s\nfour at a time:\n%s", once, again)
	}
}

func meanAndFifth(scores []float64) (mean, fifth float64) {
	s := slices.Clone(scores)
	slices.Sort(s)
	for _, x := range s {
		mean += x / float64(len(s))
	}
	return mean, s[max(0, int(math.Ceil(0.05*float64(len(s))))-1)]
}
