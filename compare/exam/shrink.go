package exam

import (
	"regexp"
	"slices"
	"strings"
	"time"
)

// Shrink returns the simplest situation it finds in which fails still holds:
// words are left out, then made shorter, as long as that is so.
func Shrink(s Spec, fails func(Spec) bool) Spec {
	for {
		smaller, ok := shrunk(s, fails)
		if !ok {
			return s
		}
		s = smaller
	}
}

// shrunk returns the first simpler situation that still fails.
func shrunk(s Spec, fails func(Spec) bool) (Spec, bool) {
	for _, candidate := range simpler(s.String()) {
		c, err := Parse(candidate)
		if err != nil {
			continue
		}
		c.bound()
		if c.complexity() < s.complexity() && fails(c) {
			return c, true
		}
	}
	return s, false
}

// complexity falls with every step, or shrinking would not end: first the words
// that do not say the default, then the letters.
func (s *Spec) complexity() int {
	def, n := Default(), 0
	for _, w := range words {
		if w.show(s) != w.show(&def) {
			n += 1000
		}
	}
	return n + len(s.String())
}

// bound shortens a run that a simpler service has made long.
func (s *Spec) bound() {
	const most = 4 * mostCalls
	if calls := s.average() * s.Length.Seconds(); calls > most {
		s.Length = max(time.Second, short(time.Duration(float64(s.Length)*most/calls)))
	}
}

var numeral = regexp.MustCompile(`\d+\.?\d*`)

// simpler returns texts that are simpler than this one, the simplest first.
func simpler(text string) (out []string) {
	all := fields(text)
	with := func(i int, w string) {
		c := slices.Clone(all)
		c[i] = w
		out = append(out, strings.Join(c, " "))
	}
	for i := range all {
		out = append(out, strings.Join(slices.Delete(slices.Clone(all), i, i+1), " "))
	}
	for i, w := range all {
		key, value, _ := strings.Cut(w, "=")
		// A list or a curve without one of its parts.
		if parts := strings.Split(value, ","); len(parts) > 1 && key != "service" && !strings.Contains(value, "(") {
			for k := range parts {
				rest := slices.Delete(slices.Clone(parts), k, k+1)
				if k == 0 && key != "fault" && key != "join" && key != "then" { // what was second is so from the start
					rest[0], _, _ = strings.Cut(strings.ReplaceAll(rest[0], "~", "@"), "@")
				}
				with(i, key+"="+strings.Join(rest, ","))
			}
		}
		if name, args, ok := call(value); ok {
			switch {
			case key == "service":
				with(i, key+"=exp("+args[0]+")")
				with(i, key+"=det("+args[0]+")")
			case key == "fleet":
				with(i, key+"="+name)
			}
		}
		// Numbers with one digit.
		for _, at := range numeral.FindAllStringIndex(value, -1) {
			x, err := parseNumber(value[at[0]:at[1]])
			if err != nil {
				continue
			}
			if short := number(digits(x, 1)); len(short) < at[1]-at[0] {
				with(i, key+"="+value[:at[0]]+short+value[at[1]:])
			}
		}
	}
	return out
}
