package exam

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"time"
)

// Curve is a quantity as a function of the time since the start of a run. As a
// text: "1,0.3@60s,1@90s" is 1, from 60 s on 0.3 and from 90 s on 1 again;
// "0.3~90s" in place of "0.3@90s" is reached by a straight line from the point
// before; "square(8s,1,0.4)" alternates every half period, "wave(40s,0.3,1)"
// swings as a cosine that starts at its second value.
type Curve struct {
	Form   string // "", "square" or "wave"
	Period time.Duration
	A, B   float64
	Points []Point
}

// Point is one value of a Curve.
type Point struct {
	Value float64
	At    time.Duration
	Line  bool
}

// Flat is a curve with one value.
func Flat(v float64) Curve { return Curve{Points: []Point{{Value: v}}} }

// flat reports whether c is v all the time.
func (c Curve) flat(v float64) bool {
	return c.Form == "" && len(c.Points) == 1 && c.Points[0].Value == v
}

// gradual reports whether c changes otherwise than by jumps.
func (c Curve) gradual() bool {
	return c.Form == "wave" || slices.ContainsFunc(c.Points, func(p Point) bool { return p.Line })
}

func (c Curve) at(t int64) float64 {
	switch c.Form {
	case "square":
		if p := ns(c.Period); t%p < p/2 {
			return c.A
		}
		return c.B
	case "wave":
		phase := 2 * math.Pi * float64(t) / float64(c.Period)
		return c.A + (c.B-c.A)*(1+math.Cos(phase))/2
	}
	v := c.Points[0].Value
	for i := 1; i < len(c.Points); i++ {
		p := c.Points[i]
		if t < ns(p.At) {
			if p.Line {
				from := ns(c.Points[i-1].At)
				v += (p.Value - v) * float64(t-from) / float64(ns(p.At)-from)
			}
			return v
		}
		v = p.Value
	}
	return v
}

// span returns the least and the largest value.
func (c Curve) span() (lo, hi float64) {
	if c.Form != "" {
		return min(c.A, c.B), max(c.A, c.B)
	}
	lo, hi = math.Inf(1), math.Inf(-1)
	for _, p := range c.Points {
		lo, hi = min(lo, p.Value), max(hi, p.Value)
	}
	return lo, hi
}

// edges returns when the curve jumps, before the end.
func (c Curve) edges(end int64) (at []int64) {
	if c.Form == "square" {
		for t := ns(c.Period) / 2; t < end; t += max(1, ns(c.Period)/2) {
			at = append(at, t)
		}
	}
	for i, p := range c.Points {
		if i > 0 && ns(p.At) < end {
			at = append(at, ns(p.At))
		}
	}
	return at
}

// unit is how the values of a curve are written.
type unit struct {
	show  func(float64) string
	parse func(string) (float64, error)
}

var (
	plain   = unit{number, parseNumber}
	times   = unit{func(v float64) string { return number(v) + "x" }, func(s string) (float64, error) { return parseSuffixed(s, "x") }}
	persec  = unit{func(v float64) string { return number(v) + "/s" }, func(s string) (float64, error) { return parseSuffixed(s, "/s") }}
	seconds = unit{
		func(v float64) string { return duration(time.Duration(math.Round(v * 1e9))) },
		func(s string) (float64, error) { d, err := parseDuration(s); return d.Seconds(), err },
	}
)

func (c Curve) text(u unit) string {
	if c.Form != "" {
		return fmt.Sprintf("%s(%s,%s,%s)", c.Form, duration(c.Period), u.show(c.A), u.show(c.B))
	}
	var b strings.Builder
	for i, p := range c.Points {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(u.show(p.Value))
		switch {
		case i == 0:
		case p.Line:
			b.WriteString("~" + duration(p.At))
		default:
			b.WriteString("@" + duration(p.At))
		}
	}
	return b.String()
}

func parseCurve(s string, u unit, lo, hi float64) (c Curve, err error) {
	inside := func(v float64) error {
		if !(v >= lo && v <= hi) {
			return fmt.Errorf("%s is not in [%s, %s]", u.show(v), u.show(lo), u.show(hi))
		}
		return nil
	}
	if form, args, ok := call(s); ok {
		if (form != "square" && form != "wave") || len(args) != 3 {
			return c, fmt.Errorf("want square(period,first,second) or wave(period,low,high)")
		}
		c.Form = form
		if c.Period, err = parseDuration(args[0]); err != nil {
			return c, err
		}
		if c.Period < time.Millisecond {
			return c, fmt.Errorf("a period of %v is less than 1ms", c.Period)
		}
		if c.A, err = u.parse(args[1]); err != nil {
			return c, err
		}
		if c.B, err = u.parse(args[2]); err != nil {
			return c, err
		}
		return c, firstError(inside(c.A), inside(c.B))
	}
	for i, word := range strings.Split(s, ",") {
		var p Point
		value, at, hasTime := word, "", false
		if k := strings.IndexAny(word, "@~"); k >= 0 {
			value, at, hasTime, p.Line = word[:k], word[k+1:], true, word[k] == '~'
		}
		if p.Value, err = u.parse(value); err != nil {
			return c, err
		}
		if err = inside(p.Value); err != nil {
			return c, err
		}
		if hasTime != (i > 0) {
			return c, fmt.Errorf("%q: the first value has no time, every other one has value@time or value~time", word)
		}
		if hasTime {
			if p.At, err = parseDuration(at); err != nil {
				return c, err
			}
			if p.At <= c.Points[i-1].At {
				return c, fmt.Errorf("%q: times must rise", word)
			}
		}
		c.Points = append(c.Points, p)
	}
	return c, nil
}

// change adds a step to v at t, back to what was at t + length where length is
// not 0. It is how the random draw builds its curves.
func (c Curve) change(v float64, t, length time.Duration) Curve {
	before := c.Points[len(c.Points)-1].Value
	c.Points = append(c.Points[:len(c.Points):len(c.Points)], Point{Value: v, At: t})
	if length > 0 {
		c.Points = append(c.Points, Point{Value: before, At: t + length})
	}
	sort.SliceStable(c.Points, func(i, j int) bool { return c.Points[i].At < c.Points[j].At })
	return c
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
