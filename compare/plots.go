package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"agilelimiter/compare/exam"
	"agilelimiter/compare/plot"
)

// pictured are the situations that say most: the two that look alike from
// outside and ask for opposite answers first.
const pictured = "benign_drift,cap_drop,cap_drop_recovery,start_overload,hang_1s,cap_diurnal"

// drawn are the arms in the pictures, and what they are called there.
var drawn = []struct {
	arm, name string
	style     plot.Style
	limit     bool // its number is one of calls
}{
	{"rate-knee", "ours, rate", plot.Ours, false},
	{"limit-knee", "ours, limit", plot.Dash, true},
	{"uber", "uber ratelimit", plot.Peer, false},
	{"failsafe", "failsafe-go adaptive", plot.Peer, true},
}

// draw plays the pictured situations, or the one that was given, and writes one
// picture each to a directory.
func (p program) draw() error {
	var arms []exam.Arm
	for _, d := range drawn {
		arms = append(arms, selected(exam.Arms(), d.arm, func(a exam.Arm) string { return a.Name })...)
	}
	names, about, specs := []string{"situation"}, []string{p.situation}, []exam.Spec(nil)
	if p.situation != "" {
		specs = []exam.Spec{parse(p.situation)}
	} else {
		names, about = nil, nil
		for _, n := range selected(exam.Written, pictured, func(n exam.Named) string { return n.Name }) {
			names, about, specs = append(names, n.Name), append(about, n.About), append(specs, n.Spec())
		}
	}
	for i, played := range exam.PlayAll(names, specs, arms, p.procs) {
		file := strings.ReplaceAll(names[i], "_", "-")
		if err := figure(played, about[i]).Write(p.plots, file); err != nil {
			return err
		}
		// What a page in the directory above needs to show it.
		fmt.Printf("<picture><source media=\"(prefers-color-scheme: dark)\" srcset=\"%[1]s/%[2]s-dark.svg\">"+
			"<img alt=\"%[3]s: goodput, round trip, rate and limit over time\" src=\"%[1]s/%[2]s-light.svg\"></picture>\n\n",
			filepath.Base(p.plots), file, about[i])
	}
	return nil
}

// figure shows what one situation was and what each arm made of it.
func figure(p exam.Played, about string) plot.Figure {
	s := p.Spec
	goodput := plot.Panel{Label: "goodput", Unit: "/s"}
	latency := plot.Panel{Label: "mean round trip", Unit: "s", Log: true,
		Lines: []plot.Line{{Name: "SLO", Y: s.SLO.Seconds()}}}
	rate := plot.Panel{Label: "rate", Unit: "/s"}
	limit := plot.Panel{Label: "limit", Unit: "calls"}

	truth := s.Capacity(len(p.Oracle.Goodput))
	for _, v := range truth {
		rate.Max = max(rate.Max, 1.5*v)
	}
	capacity := over(s, plot.Truth, "true capacity", truth)
	goodput.Series = append(goodput.Series, capacity)
	rate.Series = append(rate.Series, capacity)
	for i, d := range drawn {
		r := p.Results[i]
		goodput.Series = append(goodput.Series, over(s, d.style, d.name, smooth(r.Goodput[:], s)))
		latency.Series = append(latency.Series, over(s, d.style, d.name, r.RTT[:]))
		if d.limit {
			limit.Series = append(limit.Series, over(s, d.style, d.name, r.Number[:]))
		} else {
			rate.Series = append(rate.Series, over(s, d.style, d.name, r.Number[:]))
		}
	}
	f := plot.Figure{
		Title:  p.Name,
		Note:   about,
		Panels: []plot.Panel{goodput, latency, rate, limit},
	}
	for _, step := range s.Steps() {
		f.Events = append(f.Events, plot.Event{X: step.Seconds()})
	}
	return f
}

// over is a series of one value for each part of the run, at its end.
func over(s exam.Spec, style plot.Style, name string, values []float64) plot.Series {
	p := plot.Series{Name: name, Style: style}
	for b, v := range values {
		p.X = append(p.X, s.Length.Seconds()*float64(b+1)/float64(len(values)))
		p.Y = append(p.Y, v)
	}
	return p
}

// smooth averages over one second.
func smooth(values []float64, s exam.Spec) []float64 {
	n := max(1, int(float64(len(values))/s.Length.Seconds()))
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
