package main

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"
)

// A summary is one arm in one phase, by the time of the call's beginning.
type summary struct {
	goodput   float64       // answers 200 a second inside the SLO, counted from sending
	sent      float64       // requests a second that reached the wire
	wasted    float64       // of them, those refused by the server or never answered
	p50, p99  time.Duration // of the answers 200, from sending
	served    float64       // callers a second who got their answer 200 at all
	callerP99 time.Duration // theirs, waiting for admission included
}

// phaseOf returns the calls that began in a phase.
func phaseOf(calls []call, i int, phase time.Duration) (in []call) {
	from, to := time.Duration(i)*phase, time.Duration(i+1)*phase
	for _, c := range calls {
		if c.at >= from && c.at < to {
			in = append(in, c)
		}
	}
	return in
}

func summarise(sent, callers []call, s scenario) (sum summary) {
	seconds := s.phase.Seconds()
	var answered, seen []time.Duration
	good := 0
	for _, c := range sent {
		if c.status != http.StatusOK {
			continue
		}
		answered = append(answered, c.took)
		if c.took <= s.slo {
			good++
		}
	}
	for _, c := range callers {
		if c.status == http.StatusOK {
			seen = append(seen, c.took)
		}
	}
	sum.goodput = float64(good) / seconds
	sum.sent = float64(len(sent)) / seconds
	sum.wasted = float64(len(sent)-len(answered)) / seconds
	sum.p50, sum.p99 = quantile(answered, 50), quantile(answered, 99)
	sum.served, sum.callerP99 = float64(len(seen))/seconds, quantile(seen, 99)
	return sum
}

// quantile is the nearest-rank percentile, 0 for no samples.
func quantile(ds []time.Duration, percent int) time.Duration {
	if len(ds) == 0 {
		return 0
	}
	slices.Sort(ds)
	return ds[max((len(ds)*percent+99)/100, 1)-1]
}

func report(w io.Writer, s scenario, meters []*meter, callers [][]call, logged []map[int]int) {
	for i, rate := range s.rates {
		fmt.Fprintf(w, "\nPhase %d, the server takes %d req/s:\n\n", i+1, rate)
		fmt.Fprintln(w, "| arm | goodput/s | sent/s | refused or lost/s | p50 | p99 | callers served/s | their p99 |")
		fmt.Fprintln(w, "|---|---:|---:|---:|---:|---:|---:|---:|")
		for j, a := range arms {
			m := summarise(phaseOf(meters[j].sent, i, s.phase), phaseOf(callers[j], i, s.phase), s)
			fmt.Fprintf(w, "| %s | %.0f | %.0f | %.0f | %s | %s | %.0f | %s |\n",
				a.name, m.goodput, m.sent, m.wasted, ms(m.p50), ms(m.p99), m.served, ms(m.callerP99))
		}
	}
	fmt.Fprintln(w, "\nGoodput counts answers inside the SLO from the moment they were sent; p50 and p99 likewise.")
	fmt.Fprintln(w, "\nWhat the server's own log says of the whole run:")
	fmt.Fprintln(w, "\n| arm | 200 | 503 | the client went away |")
	fmt.Fprintln(w, "|---|---:|---:|---:|")
	for j, a := range arms {
		fmt.Fprintf(w, "| %s | %d | %d | %d |\n", a.name, logged[j][200], logged[j][503], logged[j][499])
	}
}

func ms(d time.Duration) string {
	switch {
	case d == 0:
		return "–"
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", d.Seconds()*1e3)
	default:
		return fmt.Sprintf("%.0f ms", d.Seconds()*1e3)
	}
}
