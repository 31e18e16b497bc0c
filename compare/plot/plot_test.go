package plot

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// ramp is a series of n points over a minute that repeats the values.
func ramp(name string, style Style, n int, values ...float64) Series {
	s := Series{Name: name, Style: style}
	for i := range n {
		s.X = append(s.X, 60*float64(i)/float64(n))
		s.Y = append(s.Y, values[i%len(values)])
	}
	return s
}

func sample(points int) Figure {
	return Figure{
		Title: "Falls & rises", Note: "a note with <brackets>",
		Panels: []Panel{
			{Label: "Rate", Unit: "req/s", Series: []Series{
				ramp("capacity", Truth, points, 100, 100, 40), ramp("agilelimiter", Ours, points, 90, 95, 38, math.NaN()),
				ramp("uber", Peer, points, 93), ramp("failsafe-go", Peer, points, 80, 120),
			}},
			{Label: "Latency p99", Unit: "s", Log: true, Lines: []Line{{"SLO 100 ms", 0.1}}, Series: []Series{
				ramp("agilelimiter", Ours, points, 0.02, 0.05, 0), ramp("uber", Peer, points, 0.02, 4, math.Inf(1)),
				ramp("failsafe-go", Dash, points, 0.01, -1),
			}},
		},
		Events: []Event{{20, "falls"}, {50, "rises"}},
	}
}

func render(t *testing.T, f Figure, th theme) string {
	t.Helper()
	svg, err := f.svg(th)
	if err != nil {
		t.Fatal(err)
	}
	return string(svg)
}

// elements parses the picture and counts its elements by name; text gathers
// what the text elements say.
func elements(t *testing.T, svg string) (count map[string]int, text []string, names []string) {
	t.Helper()
	count = map[string]int{}
	dec := xml.NewDecoder(strings.NewReader(svg))
	for {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return count, text, names
		}
		if err != nil {
			t.Fatalf("not XML: %v", err)
		}
		switch tok := tok.(type) {
		case xml.StartElement:
			count[tok.Name.Local]++
			for _, a := range tok.Attr {
				if a.Name.Local == "data-name" {
					names = append(names, a.Value)
				}
			}
		case xml.CharData:
			if s := strings.TrimSpace(string(tok)); s != "" {
				text = append(text, s)
			}
		}
	}
}

func TestStructure(t *testing.T) {
	for _, th := range []theme{light, dark} {
		svg := render(t, sample(240), th)
		count, text, names := elements(t, svg)
		if count["clipPath"] != 2 || count["rect"] != 1 || count["title"] != 1 {
			t.Errorf("%s: elements %v", th.name, count)
		}
		for _, want := range []string{
			"Falls & rises", "a note with <brackets>", "Rate", ", req/s", "Latency p99", "SLO 100 ms",
			"capacity", "agilelimiter", "uber", "failsafe-go", "falls", "rises",
			"0", "50", "100", "10 ms", "100 ms", "1 s", "0 s", "50 s",
		} {
			if !slices.Contains(text, want) {
				t.Errorf("%s: no text %q in %q", th.name, want, text)
			}
		}
		slices.Sort(names)
		want := []string{"agilelimiter", "agilelimiter", "capacity", "failsafe-go", "failsafe-go", "uber", "uber"}
		if !slices.Equal(names, want) {
			t.Errorf("%s: curves %v, want %v", th.name, names, want)
		}
		for _, bad := range []string{"NaN", "Inf", "-0 ", "%!"} {
			if strings.Contains(svg, bad) {
				t.Errorf("%s: the picture contains %q", th.name, bad)
			}
		}
		if !strings.Contains(svg, th.ours) || !strings.Contains(svg, th.page) {
			t.Errorf("%s: the theme's colours are missing", th.name)
		}
	}
}

// TestInside: every absolute coordinate of every path lies in the picture.
func TestInside(t *testing.T) {
	svg := render(t, sample(240), light)
	head := regexp.MustCompile(`viewBox="0 0 (\d+) (\d+)"`).FindStringSubmatch(svg)
	w, _ := strconv.ParseFloat(head[1], 64)
	h, _ := strconv.ParseFloat(head[2], 64)
	points := 0
	for _, m := range regexp.MustCompile(`[ML](-?[\d.]+) (-?[\d.]+)`).FindAllStringSubmatch(svg, -1) {
		x, errX := strconv.ParseFloat(m[1], 64)
		y, errY := strconv.ParseFloat(m[2], 64)
		if errX != nil || errY != nil || x < 0 || x > w || y < 0 || y > h {
			t.Errorf("point %s outside of %v × %v", m[0], w, h)
		}
		points++
	}
	if points < 500 {
		t.Errorf("only %d points", points)
	}
}

func TestSameFigureSameBytes(t *testing.T) {
	if a, b := render(t, sample(240), light), render(t, sample(240), light); a != b {
		t.Error("two runs drew different bytes")
	}
}

func TestThinnedToSize(t *testing.T) {
	small, large := render(t, sample(300), light), render(t, sample(200_000), light)
	if len(large) >= maxBytes {
		t.Errorf("%d bytes for many points, want less than %d", len(large), maxBytes)
	}
	if len(large) < len(small) {
		t.Errorf("%d bytes for many points, %d for few: too much was thinned away", len(large), len(small))
	}
}

func TestThinKeepsSpikes(t *testing.T) {
	var run []point
	for i := range 1000 {
		run = append(run, point{float64(i) / 100, 50})
	}
	run[333].y, run[777].y = 0, 100
	kept := thin(run, 1)
	if len(kept) > 4*10 {
		t.Errorf("%d points kept in 10 columns", len(kept))
	}
	for _, spike := range []point{run[333], run[777], run[0], run[999]} {
		if !slices.Contains(kept, spike) {
			t.Errorf("%v was thinned away", spike)
		}
	}
	if !slices.IsSortedFunc(kept, func(a, b point) int { return int(1e6 * (a.x - b.x)) }) {
		t.Error("the points are out of order")
	}
}

func TestGapsBreakTheCurve(t *testing.T) {
	f := Figure{Title: "gaps", Panels: []Panel{{Label: "v", Series: []Series{
		{Name: "a", Style: Peer, X: []float64{0, 1, 2, 3, 4, 5}, Y: []float64{1, 2, math.NaN(), 3, math.Inf(-1), 2}},
	}}}}
	svg := render(t, f, light)
	path := regexp.MustCompile(`data-name="a" d="([^"]*)"`).FindStringSubmatch(svg)[1]
	if m, l := strings.Count(path, "M"), strings.Count(path, "L"); m != 3 || l != 3 {
		t.Errorf("%d stretches with %d further points in %q, want 3 with 3", m, l, path)
	}
}

func TestTruthIsDrawnInSteps(t *testing.T) {
	f := Figure{Title: "steps", Panels: []Panel{{Label: "v", Series: []Series{
		{Name: "c", Style: Truth, X: []float64{0, 1, 2, 3, 4}, Y: []float64{100, 100, 100, 50, 50}},
	}}}}
	path := regexp.MustCompile(`data-name="c" d="([^"]*)"`).FindStringSubmatch(render(t, f, light))[1]
	// Along 100 to 3 s, down at 3 s, along 50 to the end.
	if n := strings.Count(path, "L"); n < 3 || n > 4 {
		t.Errorf("%q is no staircase of two steps", path)
	}
	ys := map[string]bool{}
	for _, m := range regexp.MustCompile(`[ML]-?[\d.]+ (-?[\d.]+)`).FindAllStringSubmatch(path, -1) {
		ys[m[1]] = true
	}
	if len(ys) != 2 {
		t.Errorf("%d levels in %q, want 2", len(ys), path)
	}
}

func TestVariantsOfOursShareTheColour(t *testing.T) {
	f := Figure{Panels: []Panel{{Series: []Series{
		ramp("ours", Ours, 3, 1), ramp("ours, too", Dash, 3, 2), ramp("other", Peer, 3, 3), ramp("another", Peer, 3, 4),
	}}}}
	c := f.colours(light)
	if c["ours"] != c["ours, too"] || c["other"] == c["ours"] || c["other"] == c["another"] {
		t.Errorf("colours %v", c)
	}
}

func TestTimeBeginsAtZero(t *testing.T) {
	s := ramp("a", Peer, 100, 1)
	for i := range s.X {
		s.X[i] += 0.25
	}
	d := drawing{Figure: Figure{Panels: []Panel{{Series: []Series{s}}}}}
	if a := d.timeAxis(); a.lo != 0 || len(a.ticks) == 0 || a.ticks[0] != 0 {
		t.Errorf("the axis begins at %v with ticks %v", a.lo, a.ticks)
	}
}

func TestMaxCutsTheAxis(t *testing.T) {
	p := Panel{Label: "v", Max: 9.5, Series: []Series{{Name: "a", X: []float64{0, 1}, Y: []float64{5, 1e6}}}}
	a := valueAxis(p, 100, 0)
	for _, v := range a.ticks {
		if v > a.hi {
			t.Errorf("a tick at %v above the axis's end", v)
		}
	}
	if a.hi < 9.5 || a.hi > 10 {
		t.Errorf("the axis ends at %v, want just above 9.5", a.hi)
	}
	if y := a.at(1e6); y < -10 || y > 0 {
		t.Errorf("a wild value lies at %v, want just outside of the panel", y)
	}
}

func TestFaults(t *testing.T) {
	for name, f := range map[string]Figure{
		"no panels":      {Title: "x"},
		"no points":      {Panels: []Panel{{Label: "v"}}},
		"1 times and 2":  {Panels: []Panel{{Series: []Series{{X: []float64{1}, Y: []float64{1, 2}}}}}},
		"not ascending":  {Panels: []Panel{{Series: []Series{{X: []float64{1, 0}, Y: []float64{1, 2}}}}}},
		"time NaN at 0 ": {Panels: []Panel{{Series: []Series{{X: []float64{math.NaN()}, Y: []float64{1}}}}}},
	} {
		if _, err := f.svg(light); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestDegenerateFiguresAreDrawn(t *testing.T) {
	for name, p := range map[string]Panel{
		"one point":          {Series: []Series{{Name: "a", X: []float64{3}, Y: []float64{7}}}},
		"all zero":           {Series: []Series{ramp("a", Peer, 10, 0)}},
		"all gaps":           {Series: []Series{ramp("a", Peer, 10, math.NaN())}},
		"log of zeros":       {Log: true, Unit: "s", Series: []Series{ramp("a", Ours, 10, 0)}},
		"log of one value":   {Log: true, Unit: "s", Series: []Series{ramp("a", Ours, 10, 0.25)}},
		"negative":           {Series: []Series{ramp("a", Ours, 10, -5, 5)}},
		"a truth alone":      {Series: []Series{ramp("a", Truth, 10, 5)}},
		"a great many names": {Series: slices.Collect(manyNames(30))},
	} {
		f := Figure{Title: name, Panels: []Panel{p}}
		svg := render(t, f, dark)
		if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
			t.Errorf("%s: not a number in the picture", name)
		}
		elements(t, svg)
	}
}

func manyNames(n int) func(func(Series) bool) {
	return func(yield func(Series) bool) {
		for i := range n {
			if !yield(ramp("limiter number "+strconv.Itoa(i), Peer, 3, float64(i))) {
				return
			}
		}
	}
}

func TestTicks(t *testing.T) {
	for _, tt := range []struct {
		lo, hi float64
		n      int
		want   []float64
	}{
		{0, 150, 4, []float64{0, 50, 100, 150}},
		{0, 93, 4, []float64{0, 50, 100}},
		{0, 60, 10, []float64{0, 10, 20, 30, 40, 50, 60}},
		{0, 0.8, 4, []float64{0, 0.2, 0.4, 0.6, 0.8}},
		{5, 5, 4, []float64{5, 5.5, 6}},
	} {
		got := steps(tt.lo, tt.hi, tt.n)
		if len(got) != len(tt.want) {
			t.Errorf("steps(%v, %v) = %v, want %v", tt.lo, tt.hi, got, tt.want)
			continue
		}
		for i := range got {
			if math.Abs(got[i]-tt.want[i]) > 1e-9 {
				t.Errorf("steps(%v, %v) = %v, want %v", tt.lo, tt.hi, got, tt.want)
			}
		}
	}
	if _, _, got := decades(0.02, 3); !slices.Equal(got, []float64{0.1, 1}) {
		t.Errorf("decades over two orders: %v", got)
	}
	if _, _, got := decades(0.02, 0.2); len(got) != 4 { // 20, 50, 100, 200 ms
		t.Errorf("decades over one order: %v", got)
	}
}

func TestLabels(t *testing.T) {
	for _, tt := range []struct {
		v    float64
		unit string
		want string
	}{
		{0, "", "0"}, {math.Copysign(0, -1), "", "0"}, {150, "req/s", "150"}, {20000, "req/s", "20\u202f000"},
		{0.30000000000000004, "", "0.3"}, {-1500, "", "-1\u202f500"},
		{0, "s", "0"}, {0.00005, "s", "50 µs"}, {0.005, "s", "5 ms"}, {0.1, "s", "100 ms"}, {1, "s", "1 s"}, {10, "s", "10 s"},
	} {
		if got := label(tt.v, tt.unit); got != tt.want {
			t.Errorf("label(%v, %q) = %q, want %q", tt.v, tt.unit, got, tt.want)
		}
	}
}

// TestContrast holds the palettes to WCAG: 3 for graphics, 4.5 for text.
func TestContrast(t *testing.T) {
	for _, th := range []theme{light, dark} {
		for _, c := range append([]string{th.ours, th.truthLine, th.line, th.mark}, th.peers...) {
			if got := contrast(t, c, th.page); got < 3 {
				t.Errorf("%s: %s has a contrast of %.2f, want 3", th.name, c, got)
			}
		}
		for _, c := range []string{th.text, th.muted, th.line} {
			if got := contrast(t, c, th.page); got < 4.5 {
				t.Errorf("%s: text in %s has a contrast of %.2f, want 4.5", th.name, c, got)
			}
		}
	}
}

func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	la, lb := luminance(t, a), luminance(t, b)
	return (max(la, lb) + 0.05) / (min(la, lb) + 0.05)
}

func luminance(t *testing.T, colour string) float64 {
	t.Helper()
	v, err := strconv.ParseUint(colour[1:], 16, 32)
	if err != nil || len(colour) != 7 {
		t.Fatalf("colour %q", colour)
	}
	linear := func(c uint64) float64 {
		s := float64(c&0xff) / 255
		if s <= 0.03928 {
			return s / 12.92
		}
		return math.Pow((s+0.055)/1.055, 2.4)
	}
	return 0.2126*linear(v>>16) + 0.7152*linear(v>>8) + 0.0722*linear(v)
}

func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "docs", "img")
	if err := sample(50).Write(dir, "sample"); err != nil {
		t.Fatal(err)
	}
	var files [2][]byte
	for i, name := range []string{"sample-light.svg", "sample-dark.svg"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		files[i] = b
	}
	if bytes.Equal(files[0], files[1]) {
		t.Error("both themes wrote the same picture")
	}
	if err := (Figure{}).Write(dir, "empty"); err == nil || !strings.Contains(err.Error(), "empty") {
		t.Errorf("an empty figure: %v", err)
	}
}
