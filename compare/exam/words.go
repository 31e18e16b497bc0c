package exam

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// word is one key of a spec's text.
type word struct {
	key, want string
	always    bool // written even where it says the default
	parse     func(*Spec, string) error
	show      func(*Spec) string // "" leaves it out
}

const (
	maxDuration = 24 * time.Hour
	maxCount    = 100_000
)

var words = []word{
	{"workers", "calls served at once, 1 to 100000", true,
		func(s *Spec, v string) (err error) { s.Workers, err = count(v, 1); return },
		func(s *Spec) string { return strconv.Itoa(s.Workers) }},
	{"service", "det(mean), exp(mean), lognormal(mean,sigma) or bimodal(mean,share,ratio), for instance lognormal(40ms,0.8)", true,
		func(s *Spec, v string) (err error) { s.Service, err = parseWork(v); return },
		func(s *Spec) string { return s.Service.text() }},
	{"then", "further stages workers*service, comma-separated, for instance 4*exp(10ms)", false,
		func(s *Spec, v string) (err error) { s.Then, err = list(v, parseStage); return },
		func(s *Spec) string { return join(s.Then, Stage.text) }},
	{"order", "fifo, or ps for processor sharing", false,
		func(s *Spec, v string) error {
			s.Sharing = v == "ps"
			if v != "ps" && v != "fifo" {
				return errors.New("unknown order")
			}
			return nil
		},
		func(s *Spec) string {
			if s.Sharing {
				return "ps"
			}
			return "fifo"
		}},
	{"usl", "contention,coherency of the universal scalability law, each 0 to 1, for instance 0.02,0.0001", false,
		func(s *Spec, v string) error {
			x, err := numbers(v, 2, 0, 1)
			if err == nil {
				s.USL = USL{x[0], x[1]}
			}
			return err
		},
		func(s *Spec) string { return number(s.USL.Contention) + "," + number(s.USL.Coherency) }},
	{"queue", "calls that may wait in the service before it answers 503, 0 to 100000, or none", false,
		func(s *Spec, v string) (err error) {
			if v == "none" {
				s.Queue = -1
				return nil
			}
			s.Queue, err = count(v, 0)
			return err
		},
		func(s *Spec) string {
			if s.Queue < 0 {
				return "none"
			}
			return strconv.Itoa(s.Queue)
		}},
	{"quota", "bucket(rate,burst) or window(rate,period), for instance bucket(100/s,20); with ,each one for each instance", false, parseQuota, showQuota},
	{"behind", "an arm of ours that stands in front of the service itself, for instance limit-knee", false,
		func(s *Spec, v string) error {
			if _, ok := ourArm(v); !ok {
				return errors.New("no such arm")
			}
			s.Behind = v
			return nil
		},
		func(s *Spec) string { return s.Behind }},
	{"base", "latency that holds no worker, a curve of durations, for instance 0s,50ms@60s or 0s,50ms~90s", false,
		func(s *Spec, v string) (err error) { s.Base, err = parseCurve(v, seconds, 0, 3600); return },
		func(s *Spec) string { return s.Base.text(seconds) }},
	{"jitter", "a duration: at most so much more latency, anew for each call", false,
		func(s *Spec, v string) (err error) { s.Jitter, err = parseDuration(v); return },
		func(s *Spec) string { return duration(s.Jitter) }},
	{"staff", "the share of the workers there is, a curve in [0, 10], for instance 1,0.3@60s,1@90s", false,
		func(s *Spec, v string) (err error) { s.Staff, err = parseCurve(v, plain, 0, 10); return },
		func(s *Spec) string { return s.Staff.text(plain) }},
	{"slow", "a factor on service times, a curve in [0.001, 1000], for instance 1,2@60s", false,
		func(s *Spec, v string) (err error) { s.Slow, err = parseCurve(v, plain, 0.001, 1000); return },
		func(s *Spec) string { return s.Slow.text(plain) }},
	{"throttle", "for/every: the service stands still so long in each period, for instance 60ms/100ms", false,
		func(s *Spec, v string) (err error) { s.Throttle, err = parsePulse(v); return },
		func(s *Spec) string { return s.Throttle.text() }},
	{"fault", "kind@start+length, comma-separated; the kinds are refuse, reject (503), hang and pause; for instance refuse@60s+20s", false,
		func(s *Spec, v string) (err error) { s.Faults, err = list(v, parseFault); return },
		func(s *Spec) string { return join(s.Faults, Fault.text) }},

	{"load", "a curve in x of the capacity, or in calls /s; for instance 1.4x, 300/s, 0.5x,2x@60s or square(20s,1.5x,0.1x)", true, parseLoad,
		func(s *Spec) string {
			switch {
			case s.Callers > 0:
				return ""
			case s.PerSec:
				return s.Load.text(persec)
			}
			return s.Load.text(times)
		}},
	{"burst", "calls/every: so many more at one instant, for instance 200/5s", false, parseBurst,
		func(s *Spec) string {
			if s.Burst.Calls == 0 {
				return ""
			}
			return fmt.Sprintf("%d/%s", s.Burst.Calls, duration(s.Burst.Every))
		}},
	{"callers", "number(think): a closed loop in place of load, for instance 300(200ms)", false,
		func(s *Spec, v string) error {
			name, args, ok := call(v)
			if !ok || len(args) != 1 {
				return errors.New("no think time")
			}
			n, err := count(name, 1)
			if err != nil {
				return err
			}
			s.Callers = n
			s.Think, err = parseDuration(args[0])
			return err
		},
		func(s *Spec) string {
			if s.Callers == 0 {
				return ""
			}
			return fmt.Sprintf("%d(%s)", s.Callers, duration(s.Think))
		}},
	{"timeout", "a duration after which callers give a sent call up, or none", false,
		func(s *Spec, v string) (err error) {
			if s.Timeout = 0; v != "none" {
				s.Timeout, err = parseDuration(v)
			}
			return err
		},
		func(s *Spec) string {
			if s.Timeout == 0 {
				return "none"
			}
			return duration(s.Timeout)
		}},
	{"retries", "number(back-off): tries after the first one that failed, the wait doubling, for instance 2(100ms)", false,
		func(s *Spec, v string) error {
			name, args, ok := call(v)
			if !ok || len(args) != 1 {
				return errors.New("no back-off")
			}
			n, err := count(name, 0)
			if err != nil {
				return err
			}
			if n > 10 {
				return errors.New("more than 10")
			}
			s.Retries = n
			s.Backoff, err = parseDuration(args[0])
			return err
		},
		func(s *Spec) string {
			if s.Retries == 0 {
				return ""
			}
			return fmt.Sprintf("%d(%s)", s.Retries, duration(s.Backoff))
		}},
	{"patience", "a duration that callers wait for admission at most; without it the longer of 500ms and a call's latency", false,
		func(s *Spec, v string) (err error) { s.Patience, err = parseDuration(v); return },
		func(s *Spec) string {
			if s.Patience == 0 {
				return ""
			}
			return duration(s.Patience)
		}},
	{"hits", "a share in [0, 1] of calls that a cache answers, looking like any other", false,
		func(s *Spec, v string) (err error) { s.Hits, err = share(v); return },
		func(s *Spec) string { return number(s.Hits) }},
	{"marked", "a share in [0, 1] of calls that a cache answers and says so", false,
		func(s *Spec, v string) (err error) { s.Marked, err = share(v); return },
		func(s *Spec) string { return number(s.Marked) }},
	{"aborted", "share(after): calls that their callers give up, for instance 0.3(90ms)", false,
		func(s *Spec, v string) error {
			name, args, ok := call(v)
			if !ok || len(args) != 1 {
				return errors.New("no duration")
			}
			x, err := share(name)
			if err != nil {
				return err
			}
			s.Aborted = x
			s.AbortedAfter, err = parseDuration(args[0])
			return err
		},
		func(s *Spec) string {
			if s.Aborted == 0 {
				return ""
			}
			return fmt.Sprintf("%s(%s)", number(s.Aborted), duration(s.AbortedAfter))
		}},
	{"errors", "a share in [0, 1] of answers that are errors and have nothing to do with load", false,
		func(s *Spec, v string) (err error) { s.Errors, err = share(v); return },
		func(s *Spec) string { return number(s.Errors) }},
	{"streams", "share(length) or share(length,marked): calls that last long and cost no worker, for instance 0.05(60s)", false, parseStreams,
		func(s *Spec) string {
			switch {
			case s.Streams.Share == 0:
				return ""
			case s.Streams.Marked:
				return fmt.Sprintf("%s(%s,marked)", number(s.Streams.Share), duration(s.Streams.Last))
			}
			return fmt.Sprintf("%s(%s)", number(s.Streams.Share), duration(s.Streams.Last))
		}},

	{"slo", "a duration: the latency inside of which an answer is good", true,
		func(s *Spec, v string) (err error) {
			if s.SLO, err = parseDuration(v); err == nil && (s.SLO < time.Microsecond || s.SLO > 100*time.Second) {
				err = errors.New("outside of 1µs to 100s")
			}
			return err
		},
		func(s *Spec) string { return duration(s.SLO) }},
	factorWord("start", "the first number", func(s *Spec) *float64 { return &s.Start }),
	factorWord("min", "the floor", func(s *Spec) *float64 { return &s.Min }),
	factorWord("max", "the ceiling", func(s *Spec) *float64 { return &s.Max }),
	{"fleet", "instances, 1 to 100, or instances(skew): instance i has a share of the calls in proportion to i^-skew; for instance 5(0.5)", false, parseFleet,
		func(s *Spec) string {
			if s.Skew == 0 {
				return strconv.Itoa(s.Fleet)
			}
			return fmt.Sprintf("%d(%s)", s.Fleet, number(s.Skew))
		}},
	{"join", "instances@time, comma-separated: so many of the fleet come only then; a minus: they leave; for instance 2@60s,-2@90s", false,
		func(s *Spec, v string) (err error) { s.Joins, err = list(v, parseJoin); return },
		func(s *Spec) string { return join(s.Joins, Join.text) }},
	{"ticks", "the limiter's ticks come no closer than this, a curve of durations, for instance 600ms or 0s,600ms@60s", false,
		func(s *Spec, v string) (err error) { s.Ticks, err = parseCurve(v, seconds, 0, 3600); return },
		func(s *Spec) string { return s.Ticks.text(seconds) }},
	{"stall", "for/every: the limiter's process stands still so long in each period, for instance 700ms/2.5s", false,
		func(s *Spec, v string) (err error) { s.Stall, err = parsePulse(v); return },
		func(s *Spec) string { return s.Stall.text() }},
	{"unstarted", "a duration in which the limiter is used before Start", false,
		func(s *Spec, v string) (err error) { s.Unstarted, err = parseDuration(v); return },
		func(s *Spec) string { return duration(s.Unstarted) }},
	{"forgotten", "a share in [0, 1] of calls by hand whose end the rate limiter is never told", false,
		func(s *Spec, v string) (err error) { s.Forgotten, err = share(v); return },
		func(s *Spec) string { return number(s.Forgotten) }},

	{"length", "a duration from 1s to 24h", true,
		func(s *Spec, v string) (err error) {
			if s.Length, err = parseDuration(v); err == nil && s.Length < time.Second {
				err = errors.New("less than 1s")
			}
			return err
		},
		func(s *Spec) string { return duration(s.Length) }},
	{"seed", "a number: of the calls", false,
		func(s *Spec, v string) (err error) { s.Seed, err = strconv.ParseUint(v, 10, 64); return },
		func(s *Spec) string { return strconv.FormatUint(s.Seed, 10) }},
}

// Keys returns the words of a spec.
func Keys() (keys []string) {
	for _, w := range words {
		keys = append(keys, w.key)
	}
	return keys
}

// Words explains every word of a spec, one line each.
func Words() string {
	var b strings.Builder
	for _, w := range words {
		fmt.Fprintf(&b, "%-10s %s\n", w.key, w.want)
	}
	return b.String()
}

func factorWord(key, what string, field func(*Spec) *float64) word {
	return word{key, what + " in x of the right one, [0.0001x, 1000x]", false,
		func(s *Spec, v string) (err error) {
			x, err := times.parse(v)
			if err == nil && !(x >= 1e-4 && x <= 1000) {
				err = errors.New("out of range")
			}
			*field(s) = x
			return err
		},
		func(s *Spec) string { return times.show(*field(s)) }}
}

// number writes x so that it reads back exactly.
func number(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

func parseNumber(s string) (float64, error) {
	x, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
		return 0, fmt.Errorf("%q is no number", s)
	}
	return x, nil
}

func parseSuffixed(s, suffix string) (float64, error) {
	rest, ok := strings.CutSuffix(s, suffix)
	if !ok {
		return 0, fmt.Errorf("%q does not end with %s", s, suffix)
	}
	return parseNumber(rest)
}

// duration writes d in one unit, seconds where that takes no more digits.
func duration(d time.Duration) string {
	abs := max(d, -d)
	switch {
	case abs == 0:
		return "0s"
	case abs >= time.Second:
		return trimmed(d, time.Second, "s")
	case abs >= time.Millisecond:
		return trimmed(d, time.Millisecond, "ms")
	case abs >= time.Microsecond:
		return trimmed(d, time.Microsecond, "µs")
	}
	return d.String()
}

func trimmed(d, u time.Duration, name string) string {
	s := strconv.FormatInt(int64(d/u), 10)
	if rest := d % u; rest != 0 {
		frac := fmt.Sprintf("%0*d", len(strconv.FormatInt(int64(u), 10))-1, max(rest, -rest))
		s += "." + strings.TrimRight(frac, "0")
	}
	return s + name
}

func parseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is no duration such as 40ms or 1.5s", s)
	case d < 0 || d > maxDuration:
		return 0, fmt.Errorf("%q is not in [0, 24h]", s)
	}
	return d, nil
}

func count(s string, least int) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < least || n > maxCount {
		return 0, fmt.Errorf("%q is no whole number from %d to %d", s, least, maxCount)
	}
	return n, nil
}

func share(s string) (float64, error) {
	x, err := parseNumber(s)
	if err == nil && !(x >= 0 && x <= 1) {
		err = errors.New("not in [0, 1]")
	}
	return x, err
}

func numbers(s string, n int, lo, hi float64) (out []float64, err error) {
	for _, part := range strings.Split(s, ",") {
		x, err := parseNumber(part)
		if err != nil {
			return nil, err
		}
		if !(x >= lo && x <= hi) {
			return nil, fmt.Errorf("%s is out of range", part)
		}
		out = append(out, x)
	}
	if len(out) != n {
		return nil, fmt.Errorf("%d numbers", len(out))
	}
	return out, nil
}

// call splits name(a,b) into its parts.
func call(s string) (name string, args []string, ok bool) {
	name, rest, ok := strings.Cut(s, "(")
	if !ok || !strings.HasSuffix(rest, ")") {
		return "", nil, false
	}
	return name, strings.Split(strings.TrimSuffix(rest, ")"), ","), true
}

// list parses a list at its commas outside of parentheses.
func list[T any](s string, parse func(string) (T, error)) (out []T, err error) {
	depth, from := 0, 0
	for i := 0; i <= len(s); i++ {
		if i < len(s) {
			switch s[i] {
			case '(':
				depth++
			case ')':
				depth--
			}
			if s[i] != ',' || depth > 0 {
				continue
			}
		}
		v, err := parse(s[from:i])
		if err != nil {
			return nil, err
		}
		out, from = append(out, v), i+1
	}
	return out, nil
}

func join[T any](all []T, text func(T) string) string {
	var out []string
	for _, v := range all {
		out = append(out, text(v))
	}
	return strings.Join(out, ",")
}

var shapes = map[string]int{"det": 1, "exp": 1, "lognormal": 2, "bimodal": 3}

func parseWork(s string) (w Work, err error) {
	name, args, ok := call(s)
	if !ok || shapes[name] != len(args) {
		return w, fmt.Errorf("%q is no distribution", s)
	}
	w.Shape = name
	if w.Mean, err = parseDuration(args[0]); err != nil {
		return w, err
	}
	if w.Mean < time.Microsecond || w.Mean > time.Hour {
		return w, fmt.Errorf("a mean of %v is outside of 1µs to 1h", w.Mean)
	}
	switch name {
	case "lognormal":
		w.A, err = parseNumber(args[1])
		if err == nil && !(w.A >= 0 && w.A <= 3) {
			err = errors.New("sigma is not in [0, 3]")
		}
	case "bimodal":
		if w.A, err = share(args[1]); err == nil {
			w.B, err = parseNumber(args[2])
		}
		if err == nil && !(w.B >= 1 && w.B <= 1e4) {
			err = errors.New("the ratio is not in [1, 10000]")
		}
	}
	return w, err
}

func (w Work) text() string {
	switch w.Shape {
	case "lognormal":
		return fmt.Sprintf("lognormal(%s,%s)", duration(w.Mean), number(w.A))
	case "bimodal":
		return fmt.Sprintf("bimodal(%s,%s,%s)", duration(w.Mean), number(w.A), number(w.B))
	}
	return fmt.Sprintf("%s(%s)", w.Shape, duration(w.Mean))
}

// draw returns one service time in nanoseconds.
func (w Work) draw(r *rng) int64 {
	x := 1.0
	switch w.Shape {
	case "exp":
		x = r.exp()
	case "lognormal":
		x = math.Exp(w.A*r.norm() - w.A*w.A/2)
	case "bimodal":
		x = 1 / (1 - w.A + w.A*w.B)
		if r.chance(w.A) {
			x *= w.B
		}
	}
	return int64(x * float64(w.Mean))
}

func parseStage(s string) (t Stage, err error) {
	n, work, ok := strings.Cut(s, "*")
	if !ok {
		return t, fmt.Errorf("%q is no stage", s)
	}
	if t.Workers, err = count(n, 1); err == nil {
		t.Service, err = parseWork(work)
	}
	return t, err
}

func (t Stage) text() string { return fmt.Sprintf("%d*%s", t.Workers, t.Service.text()) }

func parseQuota(s *Spec, v string) (err error) {
	s.Quota = Quota{}
	name, args, ok := call(v)
	if !ok || len(args) < 2 || len(args) > 3 || name != "bucket" && name != "window" {
		return errors.New("neither bucket nor window")
	}
	q := &s.Quota
	if q.Rate, err = persec.parse(args[0]); err != nil {
		return err
	}
	if !(q.Rate >= 0.001 && q.Rate <= 1e6) {
		return errors.New("the rate is not in [0.001/s, 1000000/s]")
	}
	if name == "bucket" {
		q.Burst, err = parseNumber(args[1])
		if err == nil && !(q.Burst >= 1 && q.Burst <= 1e6) {
			err = errors.New("the burst is not in [1, 1000000]")
		}
	} else {
		q.Window, err = parseDuration(args[1])
		if err == nil && q.Window < time.Millisecond {
			err = errors.New("the period is less than 1ms")
		}
	}
	if len(args) == 3 {
		if args[2] != "each" {
			return fmt.Errorf("%q is not each", args[2])
		}
		q.Each = true
	}
	return err
}

func showQuota(s *Spec) string {
	q, each := s.Quota, ""
	if q.Each {
		each = ",each"
	}
	switch {
	case q.Rate == 0:
		return ""
	case q.Window > 0:
		return fmt.Sprintf("window(%s,%s%s)", persec.show(q.Rate), duration(q.Window), each)
	}
	return fmt.Sprintf("bucket(%s,%s%s)", persec.show(q.Rate), number(q.Burst), each)
}

func parsePulse(v string) (p Pulse, err error) {
	a, b, ok := strings.Cut(v, "/")
	if !ok {
		return p, fmt.Errorf("%q has no /", v)
	}
	if p.For, err = parseDuration(a); err != nil {
		return p, err
	}
	if p.Every, err = parseDuration(b); err == nil && !(p.For < p.Every) {
		err = errors.New("not shorter than the period")
	}
	return p, err
}

func (p Pulse) text() string {
	if p == (Pulse{}) {
		return ""
	}
	return duration(p.For) + "/" + duration(p.Every)
}

var faultKinds = []string{"refuse", "reject", "hang", "pause"}

func parseFault(s string) (f Fault, err error) {
	kind, when, ok := strings.Cut(s, "@")
	at, length, ok2 := strings.Cut(when, "+")
	if !ok || !ok2 || !slices.Contains(faultKinds, kind) {
		return f, fmt.Errorf("%q is no fault", s)
	}
	f.Kind = kind
	if f.At, err = parseDuration(at); err == nil {
		f.For, err = parseDuration(length)
	}
	return f, err
}

func (f Fault) text() string { return f.Kind + "@" + duration(f.At) + "+" + duration(f.For) }

func parseLoad(s *Spec, v string) (err error) {
	s.PerSec = strings.Contains(v, "/s")
	if s.PerSec {
		s.Load, err = parseCurve(v, persec, 0, 1e6)
	} else {
		s.Load, err = parseCurve(v, times, 0, 1000)
	}
	return err
}

func parseBurst(s *Spec, v string) error {
	n, every, ok := strings.Cut(v, "/")
	if !ok {
		return errors.New("no /")
	}
	calls, err := count(n, 1)
	if err != nil {
		return err
	}
	d, err := parseDuration(every)
	if err == nil && d < time.Microsecond {
		err = errors.New("more often than every microsecond")
	}
	s.Burst = Burst{calls, d}
	return err
}

func parseStreams(s *Spec, v string) error {
	name, args, ok := call(v)
	if !ok || len(args) > 2 || len(args) == 2 && args[1] != "marked" {
		return errors.New("no length")
	}
	x, err := share(name)
	if err != nil {
		return err
	}
	s.Streams.Share, s.Streams.Marked = x, len(args) == 2
	s.Streams.Last, err = parseDuration(args[0])
	return err
}

func parseFleet(s *Spec, v string) (err error) {
	n, args, skewed := call(v)
	if !skewed {
		n = v
	}
	if s.Fleet, err = count(n, 1); err != nil {
		return err
	}
	if s.Fleet > 100 {
		return errors.New("more than 100")
	}
	s.Skew = 0
	if skewed {
		if len(args) != 1 {
			return errors.New("one skew")
		}
		if s.Skew, err = parseNumber(args[0]); err == nil && !(s.Skew >= 0 && s.Skew <= 5) {
			err = errors.New("the skew is not in [0, 5]")
		}
	}
	return err
}

func parseJoin(v string) (j Join, err error) {
	n, at, ok := strings.Cut(v, "@")
	if !ok {
		return j, fmt.Errorf("%q has no @", v)
	}
	n, j.Leave = strings.CutPrefix(n, "-")
	if j.N, err = count(n, 1); err == nil {
		j.At, err = parseDuration(at)
	}
	return j, err
}

func (j Join) text() string {
	sign := ""
	if j.Leave {
		sign = "-"
	}
	return fmt.Sprintf("%s%d@%s", sign, j.N, duration(j.At))
}
