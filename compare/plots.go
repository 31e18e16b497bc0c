package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"agilelimiter/compare/arm"
	"agilelimiter/compare/plot"
)

// pictured are the situations that say most: the two that look alike from
// outside and ask for opposite answers first.
const pictured = "benign_drift,cap_drop,cap_drop_recovery,start_overload,hang_1s,cap_diurnal"

// drawn are the arms in the pictures, and what they are called there.
var drawn = []struct {
	arm, name string
	style     plot.Style
	limit     bool // its target is a number of calls
}{
	{"rate-knee", "ours, rate", plot.Ours, false},
	{"limit-knee", "ours, limit", plot.Dash, true},
	{"uber", "uber ratelimit", plot.Peer, false},
	{"failsafe", "failsafe-go adaptive", plot.Peer, true},
}

// draw plays the pictured situations and writes one picture each to dir.
func draw(self, dir string, processes int) error {
	var names []string
	for _, d := range drawn {
		names = append(names, d.arm)
	}
	chosen := selected(situations, pictured, func(s Situation) string { return s.Name })
	all := jobs(chosen, arm.ByName(names...), 1, false)
	for i := range all {
		all[i].Series = true
	}
	results, err := spread(self, all, processes)
	if err != nil {
		return err
	}
	for i, s := range chosen {
		runs := results[i*len(drawn) : (i+1)*len(drawn)]
		file := strings.ReplaceAll(s.Name, "_", "-")
		if err := figure(s.withDefaults(), runs).Write(dir, file); err != nil {
			return err
		}
		// What a page in the directory above needs to show it.
		fmt.Printf("<picture><source media=\"(prefers-color-scheme: dark)\" srcset=\"%[1]s/%[2]s-dark.svg\">"+
			"<img alt=\"%[3]s: goodput, round trip, rate and limit over time\" src=\"%[1]s/%[2]s-light.svg\"></picture>\n\n",
			filepath.Base(dir), file, s.About)
	}
	return nil
}

// figure shows what one situation was and what each arm made of it.
func figure(s Situation, runs []Result) plot.Figure {
	goodput := plot.Panel{Label: "goodput", Unit: "/s"}
	latency := plot.Panel{Label: "mean round trip", Unit: "s", Log: true,
		Lines: []plot.Line{{Name: "SLO", Y: s.SLO.Seconds()}}}
	rate := plot.Panel{Label: "rate", Unit: "/s", Max: 1.5 * s.nominal()}
	limit := plot.Panel{Label: "limit", Unit: "calls"}

	capacity := over(plot.Truth, "true capacity", runs[0].Capacity, 1)
	goodput.Series = append(goodput.Series, capacity)
	rate.Series = append(rate.Series, capacity)
	for i, d := range drawn {
		r := runs[i]
		good := make([]float64, len(r.Goodput))
		for b, n := range r.Goodput {
			good[b] = float64(n) / bin.Seconds()
		}
		goodput.Series = append(goodput.Series, over(d.style, d.name, smooth(good), 1))
		latency.Series = append(latency.Series, over(d.style, d.name, r.RTT, 1e-3))
		if d.limit {
			limit.Series = append(limit.Series, over(d.style, d.name, r.Target, 1))
		} else {
			rate.Series = append(rate.Series, over(d.style, d.name, r.Target, 1))
		}
	}
	f := plot.Figure{
		Title:  s.Name,
		Note:   s.About,
		Panels: []plot.Panel{goodput, latency, rate, limit},
	}
	for _, step := range s.Steps {
		f.Events = append(f.Events, plot.Event{X: step.Seconds()})
	}
	return f
}

// over is a series of one value a bin, at the bin's end.
func over(style plot.Style, name string, values []float64, unit float64) plot.Series {
	p := plot.Series{Name: name, Style: style}
	for b, v := range values {
		p.X = append(p.X, (time.Duration(b+1) * bin).Seconds())
		p.Y = append(p.Y, v*unit)
	}
	return p
}

// smooth averages over one second.
func smooth(values []float64) []float64 {
	const n = int(time.Second / bin)
	out := make([]float64, len(values))
	for b := range values {
		from := max(0, b-n+1)
		sum := 0.0
		for _, v := range values[from : b+1] {
			sum += v
		}
		out[b] = sum / float64(b+1-from)
	}
	return out
}
