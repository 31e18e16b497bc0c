// Command table runs the benchmarks of the package above and prints their
// Markdown tables: nanoseconds, allocations, and multiples of the row's floor.
//
//	go run ./table                 one caller; about a minute
//	go run ./table -contended      also many callers on 1, 2 and 8 processors; some minutes
//	go run ./table -rows Gate,Take -rounds 3
//
// The rows are measured in several short rounds, all arms of a row one after
// the other within a round, and the medians are shown: of the nanoseconds, and
// of the ratio to the floor in the same round. A machine that is slow for a
// while is then slow for arm and floor alike. Run it from the directory of
// the package above.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/perf/benchfmt"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("table: ")
	rounds := flag.Int("rounds", 7, "how often each row is measured")
	benchtime := flag.Duration("benchtime", 30*time.Millisecond, "time of one measurement")
	contended := flag.Bool("contended", false, "also measure many callers")
	names := flag.String("rows", "", "rows, comma-separated (default all)")
	flag.Parse()

	binary, clean, err := build()
	if err != nil {
		log.Fatal(err)
	}
	defer clean()
	if err := run(os.Stdout, binary, *names, *rounds, *benchtime, *contended); err != nil {
		clean()
		log.Fatal(err)
	}
}

// build compiles the benchmarks once, so that no round waits for a compiler.
func build() (binary string, clean func(), err error) {
	dir, err := os.MkdirTemp("", "hotpath")
	if err != nil {
		return "", nil, err
	}
	clean = func() { os.RemoveAll(dir) }
	binary = filepath.Join(dir, "hotpath.test")
	cmd := exec.Command("go", "test", "-c", "-o", binary, "agilelimiter/compare/hotpath")
	if out, err := cmd.CombinedOutput(); err != nil {
		clean()
		return "", nil, fmt.Errorf("building the benchmarks: %w\n%s", err, out)
	}
	return binary, clean, nil
}

func run(w io.Writer, binary, names string, rounds int, benchtime time.Duration, contended bool) error {
	chosen, err := choose(names)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s %s/%s, %d processors; medians of %d rounds of %v\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), rounds, benchtime)
	measure := func(filter string, cpus ...int) (*results, error) {
		return measure(binary, filter, rounds, benchtime, cpus)
	}
	for _, s := range chosen {
		fmt.Fprintf(w, "\n### %s\n\n", s.title)
		if err := s.sequential(w, measure); err != nil {
			return err
		}
		if contended && !s.memory && !s.alone {
			if err := s.contended(w, measure); err != nil {
				return err
			}
		}
	}
	return nil
}

func choose(names string) ([]section, error) {
	if names == "" {
		return sections, nil
	}
	var chosen []section
	for _, name := range strings.Split(names, ",") {
		i := slices.IndexFunc(sections, func(s section) bool { return s.bench == name })
		if i < 0 {
			return nil, fmt.Errorf("no row %q", name)
		}
		chosen = append(chosen, sections[i])
	}
	return chosen, nil
}

// measure runs the benchmarks that match filter once a round.
func measure(binary, filter string, rounds int, benchtime time.Duration, cpus []int) (*results, error) {
	list := strings.Trim(strings.ReplaceAll(fmt.Sprint(cpus), " ", ","), "[]")
	res := newResults()
	for round := range rounds {
		cmd := exec.Command(binary, "-test.run=^$", "-test.bench="+filter,
			"-test.benchtime="+benchtime.String(), "-test.cpu="+list)
		out, err := cmd.Output()
		if err != nil {
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				err = fmt.Errorf("%w\n%s%s", err, out, exit.Stderr)
			}
			return nil, fmt.Errorf("round %d of %s: %w", round+1, filter, err)
		}
		if err := res.read(bytes.NewReader(out)); err != nil {
			return nil, err
		}
	}
	return res, nil
}

// A cell is one benchmark: an arm, with so many callers on so many processors.
type cell struct{ arm, callers, procs string }

// results are the values of each cell by unit, one a round.
type results struct {
	arms   []string // in the order of their first appearance
	values map[cell]map[string][]float64
}

func newResults() *results { return &results{values: map[cell]map[string][]float64{}} }

// read adds one round in the format of go test -bench.
func (r *results) read(out io.Reader) error {
	reader := benchfmt.NewReader(out, "")
	for reader.Scan() {
		switch rec := reader.Result().(type) {
		case *benchfmt.SyntaxError:
			return rec
		case *benchfmt.Result:
			c := cell{callers: "1", procs: "1"}
			_, parts := rec.Name.Parts()
			for _, p := range parts {
				part := string(p)
				if v, ok := strings.CutPrefix(part, "/arm="); ok {
					c.arm = v
				} else if v, ok := strings.CutPrefix(part, "/callers="); ok {
					c.callers = v
				} else if v, ok := strings.CutPrefix(part, "-"); ok {
					c.procs = v
				}
			}
			if !slices.Contains(r.arms, c.arm) {
				r.arms = append(r.arms, c.arm)
			}
			if r.values[c] == nil {
				r.values[c] = map[string][]float64{}
			}
			for _, v := range rec.Values {
				unit, value := v.Unit, v.Value
				if v.OrigUnit != "" {
					unit, value = v.OrigUnit, v.OrigValue
				}
				r.values[c][unit] = append(r.values[c][unit], value)
			}
		}
	}
	return reader.Err()
}

// median is that of a cell's values over the rounds; ok is false where there
// are none.
func (r *results) median(c cell, unit string) (value float64, ok bool) {
	return median(r.values[c][unit])
}

// ratio is the median over the rounds of one cell's value over the other's.
func (r *results) ratio(c, to cell, unit string) (value float64, ok bool) {
	return r.paired(c, to, unit, func(a, b float64) float64 { return a / b })
}

// excess is the median over the rounds of one cell's value less the other's.
func (r *results) excess(c, over cell, unit string) (value float64, ok bool) {
	return r.paired(c, over, unit, func(a, b float64) float64 { return a - b })
}

// added is the median over the rounds of what one cell costs beyond the base,
// over what the other does.
func (r *results) added(c, to, base cell, unit string) (value float64, ok bool) {
	cs, ts, bs := r.values[c][unit], r.values[to][unit], r.values[base][unit]
	var all []float64
	for i := range min(len(cs), len(ts), len(bs)) {
		all = append(all, (cs[i]-bs[i])/(ts[i]-bs[i]))
	}
	return median(all)
}

func (r *results) paired(c, d cell, unit string, f func(a, b float64) float64) (float64, bool) {
	as, bs := r.values[c][unit], r.values[d][unit]
	var all []float64
	for i := range min(len(as), len(bs)) {
		all = append(all, f(as[i], bs[i]))
	}
	return median(all)
}

func median(xs []float64) (float64, bool) {
	if len(xs) == 0 {
		return 0, false
	}
	s := slices.Sorted(slices.Values(xs))
	mid := len(s) / 2
	if len(s)%2 == 1 {
		return s[mid], true
	}
	return (s[mid-1] + s[mid]) / 2, true
}
