package plot

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// An axis maps values to pixels; from and to are the pixels of lo and hi.
type axis struct {
	lo, hi   float64
	from, to float64
	log      bool
	ticks    []float64
}

// at clamps to just outside of the axis: the clip path hides the rest, and a
// wild value makes no wild coordinate.
func (a axis) at(v float64) float64 {
	lo, hi := a.lo, a.hi
	if a.log {
		v, lo, hi = math.Log(v), math.Log(lo), math.Log(hi)
	}
	share := min(max((v-lo)/(hi-lo), -0.05), 1.05)
	return a.from + share*(a.to-a.from)
}

// shows tells whether v can be drawn at all.
func (a axis) shows(v float64) bool { return finite(v) && (!a.log || v > 0) }

// valueAxis covers every drawable value of the panel; from is its bottom.
func valueAxis(p Panel, from, to float64) axis {
	a := axis{log: p.Log, from: from, to: to}
	lo, hi := math.Inf(1), math.Inf(-1)
	see := func(v float64) {
		if a.shows(v) {
			lo, hi = min(lo, v), max(hi, v)
		}
	}
	for _, s := range p.Series {
		for _, v := range s.Y {
			see(v)
		}
	}
	for _, l := range p.Lines {
		see(l.Y)
	}
	if lo > hi { // nothing drawable
		lo, hi = 1, 1
	}
	if p.Max > 0 {
		hi = p.Max
		lo = min(lo, hi)
	}
	if a.log {
		a.lo, a.hi, a.ticks = decades(lo, hi)
	} else {
		a.lo = min(lo, 0)
		a.ticks = steps(a.lo, hi, 4)
		a.hi = max(hi, a.lo+1e-9)
		if last := a.ticks[len(a.ticks)-1]; p.Max <= 0 && last > hi {
			a.hi = last
		} else {
			// A little air, so that a curve at the maximum is not cut.
			a.hi += 0.04 * (a.hi - a.lo)
			a.ticks = slices.DeleteFunc(a.ticks, func(v float64) bool { return v > a.hi })
		}
	}
	return a
}

// steps returns round values from lo to hi, about n apart evenly; the last
// may lie less than a third of a step above hi.
func steps(lo, hi float64, n int) (ticks []float64) {
	if !(hi > lo) {
		hi = lo + 1
	}
	step := roundStep((hi - lo) / float64(n))
	first := math.Ceil(lo/step - 1e-9)
	for i := first; i*step <= hi+step/3; i++ {
		ticks = append(ticks, i*step)
	}
	return ticks
}

// roundStep is the least of 1, 2 and 5 times a power of ten not below v.
func roundStep(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= v*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// decades widens a logarithmic axis to a little more than lo and hi, and
// labels 1, 2 and 5 of each decade while these are few, or the decades alone.
func decades(lo, hi float64) (from, to float64, ticks []float64) {
	from, to = lo/1.15, hi*1.15
	if to/from < 4 {
		middle := math.Sqrt(from * to)
		from, to = middle/2, middle*2
	}
	multiples := []float64{1, 2, 5}
	if to/from > 60 {
		multiples = multiples[:1]
	}
	for e := math.Floor(math.Log10(from)); e <= math.Ceil(math.Log10(to)); e++ {
		for _, m := range multiples {
			if v := m * math.Pow(10, e); v >= from && v <= to {
				ticks = append(ticks, v)
			}
		}
	}
	return from, to, ticks
}

// label prints a tick; a unit of "s" is scaled to what reads best.
func label(v float64, unit string) string {
	if unit != "s" || v == 0 {
		return plain(v)
	}
	switch {
	case v < 0.9995e-3:
		return plain(v*1e6) + " µs"
	case v < 0.9995:
		return plain(v*1e3) + " ms"
	default:
		return plain(v) + " s"
	}
}

// plain prints up to three significant digits below a thousand, and groups
// the thousands above.
func plain(v float64) string {
	if v == 0 {
		return "0" // and not -0
	}
	if math.Abs(v) < 1000 {
		return strconv.FormatFloat(round3(v), 'f', -1, 64)
	}
	digits := strconv.FormatFloat(math.Abs(v), 'f', 0, 64)
	var groups []string
	for len(digits) > 3 {
		groups = append([]string{digits[len(digits)-3:]}, groups...)
		digits = digits[:len(digits)-3]
	}
	text := strings.Join(append([]string{digits}, groups...), "\u202f")
	if v < 0 {
		text = "-" + text
	}
	return text
}

func round3(v float64) float64 {
	r, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 3, 64), 64)
	if err != nil {
		return v
	}
	return r
}
