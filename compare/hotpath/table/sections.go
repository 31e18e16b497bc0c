package main

import (
	"fmt"
	"io"
	"strings"
)

// The arms that the goals and the ratios speak about.
const (
	ours     = "agilelimiter"
	floor    = "floor"
	measured = "measured-floor" // around a handler or a transport
)

// A section is one row of the comparison: a benchmark, how it is read, and
// what ours is to reach in it.
type section struct {
	bench, title string
	added        bool // an adapter: what it adds to the floor counts, not the multiple
	memory       bool // bytes a limiter instead of time a call
	alone        bool // ours only: nothing to compare with
	goals        []goal
}

// A goal is an upper bound on arm (ours where it is empty): times another
// arm, nanoseconds beyond the floor, bytes, or nanoseconds.
type goal struct {
	arm   string
	than  string
	times float64
	plus  float64
	bytes float64
	ns    float64
}

var sections = []section{
	{bench: "Gate", title: "Take a slot and give it back (TryTake + Release)",
		goals: []goal{{than: floor, times: 1.3}}},
	{bench: "Measured", title: "Admit, measure, record, release (ConcurrencyLimiter.Do)",
		goals: []goal{{than: floor, times: 1.4}, {than: "failsafe-adaptive", times: 0.4}}},
	{bench: "Refusal", title: "Refuse at the limit",
		goals: []goal{{than: floor, times: 2}}},
	{bench: "Take", title: "Take of a rate that need not wait",
		goals: []goal{{than: floor, times: 1.25}, {than: "uber", times: 1}}},
	{bench: "Observe", title: "Record one latency (Observe)",
		goals: []goal{{than: floor, times: 1.5}}},
	{bench: "Handler", title: "Around an http.Handler (httpserver.Wrap)", added: true,
		goals: []goal{{plus: 130}}},
	{bench: "Transport", title: "Around an http.RoundTripper (httpclient.Wrap)", added: true,
		goals: []goal{{plus: 140}}},
	{bench: "Tick", title: "One step of the controller, a hundred Observes included", alone: true,
		goals: []goal{{ns: 10_000}, {arm: ours + "-knee", ns: 10_000}}},
	{bench: "Memory", title: "Memory of one limiter", memory: true,
		goals: []goal{{arm: ours + "-rate", bytes: 4096}, {arm: ours + "-concurrency", bytes: 4096}}},
}

type measurer func(filter string, cpus ...int) (*results, error)

// sequential prints the table of one caller on one processor.
func (s section) sequential(w io.Writer, measure measurer) error {
	filter := fmt.Sprintf("^Benchmark%s$/./^callers=1$", s.bench)
	if s.memory || s.alone {
		filter = fmt.Sprintf("^Benchmark%s$", s.bench)
	}
	res, err := measure(filter, 1)
	if err != nil {
		return err
	}
	s.print(w, res)
	return nil
}

func (s section) print(w io.Writer, res *results) {
	one := func(arm string) cell { return cell{arm, "1", "1"} }
	var body [][]string
	var header []string
	for _, arm := range res.arms {
		c := one(arm)
		switch {
		case s.memory:
			header = []string{"limiter", "bytes"}
			body = append(body, []string{arm, number(res.median(c, "B/limiter"))})
		case s.alone:
			header = []string{"limiter", "ns", "B", "allocations"}
			body = append(body, []string{arm, number(res.median(c, "ns/op")),
				number(res.median(c, "B/op")), number(res.median(c, "allocs/op"))})
		case s.added:
			header = []string{"limiter", "ns", "added ns", "× measured-floor's", "B", "allocations"}
			body = append(body, []string{arm, number(res.median(c, "ns/op")),
				number(res.excess(c, one(floor), "ns/op")),
				times(res.added(c, one(measured), one(floor), "ns/op")),
				number(res.median(c, "B/op")), number(res.median(c, "allocs/op"))})
		default:
			header = []string{"limiter", "ns", "× floor", "B", "allocations"}
			body = append(body, []string{arm, number(res.median(c, "ns/op")),
				times(res.ratio(c, one(floor), "ns/op")),
				number(res.median(c, "B/op")), number(res.median(c, "allocs/op"))})
		}
	}
	markdown(w, header, body)
	for _, g := range s.goals {
		g.print(w, res)
	}
}

// print tells what the goal is, what was measured, and whether that is
// enough; an arm that was not measured is said to be missing.
func (g goal) print(w io.Writer, res *results) {
	arm := g.arm
	if arm == "" {
		arm = ours
	}
	c := cell{arm, "1", "1"}
	var text string
	var got, want float64
	var ok bool
	switch {
	case g.bytes > 0:
		text, want = fmt.Sprintf("%s at most %.0f bytes", arm, g.bytes), g.bytes
		got, ok = res.median(c, "B/limiter")
	case g.ns > 0:
		text, want = fmt.Sprintf("%s at most %.0f ns", arm, g.ns), g.ns
		got, ok = res.median(c, "ns/op")
	case g.plus > 0:
		text, want = fmt.Sprintf("%s adds at most %.0f ns", arm, g.plus), g.plus
		got, ok = res.excess(c, cell{floor, "1", "1"}, "ns/op")
	default:
		text, want = fmt.Sprintf("%s at most %v × %s", arm, g.times, g.than), g.times
		got, ok = res.ratio(c, cell{g.than, "1", "1"}, "ns/op")
	}
	switch {
	case !ok:
		fmt.Fprintf(w, "\nGoal: %s: not measured.\n", text)
	case got <= want:
		fmt.Fprintf(w, "\nGoal: %s: met, %s.\n", text, figure(got))
	default:
		fmt.Fprintf(w, "\nGoal: %s: **missed**, %s.\n", text, figure(got))
	}
}

// contended prints nanoseconds a call, and multiples of the floor under the
// same load, for one caller a processor and for 128.
func (s section) contended(w io.Writer, measure measurer) error {
	res, err := measure(fmt.Sprintf("^Benchmark%s$/./^callers=(procs|128)$", s.bench), 1, 2, 8)
	if err != nil {
		return err
	}
	s.printContended(w, res)
	return nil
}

func (s section) printContended(w io.Writer, res *results) {
	// One caller a processor, on one processor, is the sequential table.
	loads := []cell{{"", "procs", "2"}, {"", "procs", "8"}, {"", "128", "1"}, {"", "128", "2"}, {"", "128", "8"}}
	header := []string{"ns (× floor), callers on processors"}
	for _, l := range loads {
		callers := l.callers
		if callers == "procs" {
			callers = l.procs
		}
		header = append(header, callers+" on "+l.procs)
	}
	var body [][]string
	for _, arm := range res.arms {
		cells := []string{arm}
		for _, l := range loads {
			c, f := l, l
			c.arm, f.arm = arm, floor
			cells = append(cells, fmt.Sprintf("%s (%s)", number(res.median(c, "ns/op")), times(res.ratio(c, f, "ns/op"))))
		}
		body = append(body, cells)
	}
	fmt.Fprintln(w)
	markdown(w, header, body)
}

func figure(v float64) string { return number(v, true) }

func number(v float64, ok bool) string {
	switch {
	case !ok:
		return "–"
	case v == float64(int(v)) || v >= 100 || v <= -100:
		return fmt.Sprintf("%.0f", v)
	default:
		return fmt.Sprintf("%.3g", v)
	}
}

func times(v float64, ok bool) string {
	if !ok {
		return "–"
	}
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func markdown(w io.Writer, header []string, rows [][]string) {
	fmt.Fprintf(w, "| %s |\n|%s\n", strings.Join(header, " | "),
		"---|"+strings.Repeat("---:|", len(header)-1))
	for _, r := range rows {
		fmt.Fprintf(w, "| %s |\n", strings.Join(r, " | "))
	}
}
