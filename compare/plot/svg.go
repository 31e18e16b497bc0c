package plot

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// theme is the colours of a page. The series' colours keep apart for the
// common kinds of colour blindness (they descend from Okabe and Ito's set) and
// have a contrast of 3 and more to the page.
type theme struct {
	name                             string
	page, text, muted, grid, ours    string
	truthLine, truthArea, line, mark string
	peers                            []string
}

var (
	light = theme{
		name: "light", page: "#ffffff", text: "#1f2328", muted: "#59636e", grid: "#e4e8ec",
		ours: "#0067a8", truthLine: "#818b98", truthArea: "#e9edf1", line: "#a40e26", mark: "#818b98",
		peers: []string{"#d55e00", "#00825f", "#a8479b", "#8a6d00", "#6e40c9"},
	}
	dark = theme{
		name: "dark", page: "#0d1117", text: "#f0f6fc", muted: "#9198a1", grid: "#232a32",
		ours: "#58b6f5", truthLine: "#7d8590", truthArea: "#1c232c", line: "#ff8f8f", mark: "#7d8590",
		peers: []string{"#f08a3c", "#2fc99f", "#e593c9", "#e3cc4b", "#a893f5"},
	}
)

// The layout in pixels.
const (
	width       = 900
	left, right = 68, 18
	panelHeight = 150
	panelGap    = 42 // above each panel, for its label
	footer      = 34
	maxBytes    = 100_000
	swatch      = 26 // a legend entry's line
	charWidth   = 6.9
)

// svg draws the figure. Curves are thinned to so few points a pixel column
// that the file stays under maxBytes.
func (f Figure) svg(t theme) ([]byte, error) {
	if err := f.validate(); err != nil {
		return nil, err
	}
	for column := 1.0; ; column *= 2 {
		d := drawing{Figure: f, theme: t, column: column, colours: f.colours(t)}
		if svg := d.draw(); len(svg) < maxBytes || column >= 64 {
			return svg, nil
		}
	}
}

// colours gives every name its colour, peers in the order of appearance.
func (f Figure) colours(t theme) map[string]string {
	colours := map[string]string{}
	peers := 0
	for _, p := range f.Panels {
		for _, s := range p.Series {
			if colours[s.Name] != "" {
				continue
			}
			switch s.Style {
			case Ours, Dash:
				colours[s.Name] = t.ours
			case Truth:
				colours[s.Name] = t.truthLine
			default:
				colours[s.Name] = t.peers[peers%len(t.peers)]
				peers++
			}
		}
	}
	return colours
}

type drawing struct {
	Figure
	theme   theme
	column  float64 // pixels of time that share four points of a curve
	colours map[string]string
	b       bytes.Buffer
}

func (d *drawing) printf(format string, args ...any) { fmt.Fprintf(&d.b, format, args...) }

func (d *drawing) draw() []byte {
	entries := d.legend()
	header := 34
	if d.Note != "" {
		header += 20
	}
	rows := entries[len(entries)-1].row + 1
	top := header + 20*rows - 4
	height := top + len(d.Panels)*(panelGap+panelHeight) + footer

	d.printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="t" font-family="system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif" font-size="12.5" fill="%s">`+"\n",
		width, height, width, height, d.theme.text)
	d.printf("<title id=\"t\">%s</title>\n", escape(d.Title))
	d.printf("<rect width=\"%d\" height=\"%d\" rx=\"6\" fill=\"%s\"/>\n", width, height, d.theme.page)
	d.printf("<text x=\"%d\" y=\"28\" font-size=\"17\" font-weight=\"600\">%s</text>\n", left, escape(d.Title))
	if d.Note != "" {
		d.printf("<text x=\"%d\" y=\"48\" fill=\"%s\">%s</text>\n", left, d.theme.muted, escape(d.Note))
	}
	for _, e := range entries {
		d.entry(e, float64(header+12+20*e.row))
	}

	times := d.timeAxis()
	for i, p := range d.Panels {
		d.panel(i, p, times, float64(top+i*(panelGap+panelHeight)+panelGap))
	}
	bottom := float64(height - footer)
	for _, v := range times.ticks {
		d.printf("<text x=\"%s\" y=\"%s\" text-anchor=\"middle\" fill=\"%s\">%s</text>\n",
			px(times.at(v)), px(bottom+20), d.theme.muted, label(v, "")+" s")
	}
	d.printf("</svg>\n")
	return d.b.Bytes()
}

// A legendEntry is one name of the legend, which wraps into rows.
type legendEntry struct {
	name  string
	style Style
	x     float64
	row   int
}

func (d *drawing) legend() (entries []legendEntry) {
	seen := map[string]bool{}
	x, row := float64(left), 0
	for _, p := range d.Panels {
		for _, s := range p.Series {
			if seen[s.Name] {
				continue
			}
			seen[s.Name] = true
			wide := swatch + 8 + charWidth*float64(len([]rune(s.Name)))
			if x > left && x+wide > width-right {
				x, row = left, row+1
			}
			entries = append(entries, legendEntry{s.Name, s.Style, x, row})
			x += wide + 18
		}
	}
	return entries
}

func (d *drawing) entry(e legendEntry, y float64) {
	if e.style == Truth {
		d.printf("<path d=\"M%s %sh%dv9h-%dz\" fill=\"%s\"/>\n", px(e.x), px(y-4.5), swatch, swatch, d.theme.truthArea)
	}
	d.printf("<path d=\"M%s %sh%d\" %s/>\n", px(e.x), px(y), swatch, d.stroke(e.name, e.style))
	weight := ""
	if e.style == Ours {
		weight = ` font-weight="600"`
	}
	d.printf("<text x=\"%s\" y=\"%s\"%s>%s</text>\n", px(e.x+swatch+8), px(y+4.5), weight, escape(e.name))
}

func (d *drawing) stroke(name string, s Style) string {
	wide, dash := "1.5", ""
	switch s {
	case Ours:
		wide = "2.4"
	case Dash:
		wide, dash = "1.8", ` stroke-dasharray="6 3"`
	}
	return fmt.Sprintf(`fill="none" stroke="%s" stroke-width="%s" stroke-linejoin="round"%s`, d.colours[name], wide, dash)
}

func (d *drawing) timeAxis() axis {
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, p := range d.Panels {
		for _, s := range p.Series {
			if n := len(s.X); n > 0 {
				lo, hi = min(lo, s.X[0]), max(hi, s.X[n-1])
			}
		}
	}
	if lo > 0 && lo < hi/20 {
		lo = 0 // the first interval ended a little after the start
	}
	if !(hi > lo) {
		hi = lo + 1
	}
	a := axis{lo: lo, hi: hi, from: left, to: width - right}
	for _, v := range steps(lo, hi, 10) {
		if v <= hi*(1+1e-9) {
			a.ticks = append(a.ticks, v)
		}
	}
	return a
}

// panel draws one panel whose plotting area begins at y.
func (d *drawing) panel(index int, p Panel, times axis, y float64) {
	values := valueAxis(p, y+panelHeight, y)
	text := escape(p.Label)
	if p.Unit != "" && p.Unit != "s" {
		text += fmt.Sprintf("<tspan font-weight=\"400\" fill=\"%s\">, %s</tspan>", d.theme.muted, escape(p.Unit))
	}
	d.printf("<g>\n<text x=\"%d\" y=\"%s\" font-weight=\"600\">%s</text>\n", left, px(y-9), text)
	d.printf("<clipPath id=\"c%d\"><path d=\"M%d %sh%dv%dh-%dz\"/></clipPath>\n",
		index, left, px(y-1), width-left-right, panelHeight+2, width-left-right)

	d.printf("<g clip-path=\"url(#c%d)\">\n", index)
	for _, s := range p.Series {
		if s.Style == Truth {
			d.area(s, times, values)
		}
	}
	d.printf("</g>\n")
	for _, v := range values.ticks {
		at := values.at(v)
		d.printf("<path d=\"M%d %sh%d\" stroke=\"%s\"/>\n", left, px(at), width-left-right, d.theme.grid)
		d.printf("<text x=\"%d\" y=\"%s\" text-anchor=\"end\" fill=\"%s\">%s</text>\n",
			left-8, px(at+4.5), d.theme.muted, escape(label(v, p.Unit)))
	}
	for _, e := range d.Events {
		at := times.at(e.X)
		d.printf("<path d=\"M%s %sv%d\" stroke=\"%s\" stroke-dasharray=\"2 3\"/>\n", px(at), px(y), panelHeight, d.theme.mark)
		if index == 0 {
			anchor := "start"
			if at > (left+width-right)/2 {
				anchor = "end"
			}
			shift := map[string]float64{"start": 5, "end": -5}[anchor]
			d.printf("<text x=\"%s\" y=\"%s\" text-anchor=\"%s\" font-size=\"11.5\" fill=\"%s\">%s</text>\n",
				px(at+shift), px(y-9), anchor, d.theme.muted, escape(e.Name))
		}
	}

	d.printf("<g clip-path=\"url(#c%d)\">\n", index)
	for _, style := range []Style{Truth, Peer, Dash, Ours} {
		for _, s := range p.Series {
			if s.Style == style {
				d.curve(s, times, values)
			}
		}
	}
	d.printf("</g>\n")
	for _, l := range p.Lines {
		if !values.shows(l.Y) {
			continue
		}
		at := values.at(l.Y)
		d.printf("<path d=\"M%d %sh%d\" stroke=\"%s\" stroke-width=\"1.3\" stroke-dasharray=\"7 4\"/>\n",
			left, px(at), width-left-right, d.theme.line)
		d.printf("<text x=\"%d\" y=\"%s\" text-anchor=\"end\" font-size=\"11.5\" fill=\"%s\" stroke=\"%s\" stroke-width=\"3\" paint-order=\"stroke\">%s</text>\n",
			width-right-4, px(at-5), d.theme.line, d.theme.page, escape(l.Name))
	}
	d.printf("<path d=\"M%d %sh%d\" stroke=\"%s\"/>\n</g>\n", left, px(y+panelHeight), width-left-right, d.theme.muted)
}

func (d *drawing) curve(s Series, times, values axis) {
	path := d.path(s, times, values)
	if path == "" {
		return
	}
	d.printf("<path data-name=\"%s\" d=\"%s\" %s/>\n", escape(s.Name), path, d.stroke(s.Name, s.Style))
}

// area fills what lies under a Truth.
func (d *drawing) area(s Series, times, values axis) {
	for _, run := range d.runs(s, times, values) {
		var b strings.Builder
		b.WriteString("M" + px(run[0].x) + " " + px(values.from))
		for _, q := range run {
			b.WriteString("L" + px(q.x) + " " + px(q.y))
		}
		b.WriteString("L" + px(run[len(run)-1].x) + " " + px(values.from) + "z")
		d.printf("<path d=\"%s\" fill=\"%s\"/>\n", b.String(), d.theme.truthArea)
	}
}

func (d *drawing) path(s Series, times, values axis) string {
	var b strings.Builder
	for _, run := range d.runs(s, times, values) {
		if len(run) == 1 {
			// One sample between two gaps would draw nothing.
			run = append(run, point{run[0].x + 1, run[0].y})
		}
		for i, q := range run {
			if i == 0 {
				b.WriteString("M" + px(q.x) + " " + px(q.y))
			} else {
				b.WriteString("L" + px(q.x) + " " + px(q.y))
			}
		}
	}
	return b.String()
}

type point struct{ x, y float64 }

// runs are the stretches between gaps, in pixels and thinned; a Truth in
// steps. A gap narrower than a column could not be seen and is bridged.
func (d *drawing) runs(s Series, times, values axis) (runs [][]point) {
	var run []point
	gap := false
	end := func() {
		if len(run) > 0 {
			runs = append(runs, thin(run, d.column))
			run = nil
		}
	}
	for i, v := range s.Y {
		if !values.shows(v) {
			gap = true
			continue
		}
		q := point{times.at(s.X[i]), values.at(v)}
		if gap && len(run) > 0 && q.x-run[len(run)-1].x >= d.column {
			end()
		}
		gap = false
		if s.Style == Truth && len(run) > 0 {
			if last := run[len(run)-1]; last.y != q.y {
				run = append(run, point{q.x, last.y})
			} else if len(run) > 1 && run[len(run)-2].y == q.y {
				run[len(run)-1].x = q.x // lengthen the step
				continue
			}
		}
		run = append(run, q)
	}
	end()
	return runs
}

// thin keeps of each column of pixels the first and the last point, the
// highest and the lowest: the picture stays the same at its own scale, spikes
// included.
func thin(run []point, column float64) (kept []point) {
	for i := 0; i < len(run); {
		cell := math.Floor(run[i].x / column)
		first, low, high := i, i, i
		for ; i < len(run) && math.Floor(run[i].x/column) == cell; i++ {
			if run[i].y < run[low].y {
				low = i
			}
			if run[i].y > run[high].y {
				high = i
			}
		}
		before := -1
		for _, k := range []int{first, min(low, high), max(low, high), i - 1} {
			if k > before {
				kept = append(kept, run[k])
				before = k
			}
		}
	}
	return kept
}

// px prints a pixel to a tenth.
func px(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) }

func escape(s string) string {
	var b strings.Builder
	// EscapeText fails only when its writer does.
	_ = xml.EscapeText(&b, []byte(s))
	return b.String()
}
