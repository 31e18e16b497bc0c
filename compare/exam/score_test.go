package exam

import (
	"math"
	"strings"
	"testing"
	"time"
)

// The advice is what the runs show, and its settings are those that were played.
func TestAdvise(t *testing.T) {
	for text, want := range map[string][]string{
		"load=0.3x length=20s": {"No limiter is needed here"},
		"load=2x length=20s start=0.5x max=2x": {"A limiter helps", "agilelimiter.ConcurrencyConfig{",
			"MinLimit: 1, MaxLimit: 40, InitialLimit: 10,", "SLOTarget: 200 * time.Millisecond"},
	} {
		s, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		Advise(&out, s, 1)
		for _, w := range want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("%s: no %q in\n%s", text, w, out.String())
			}
		}
	}
}

// counted is a run of a minute whose goodput is given by bins.
func counted(good func(b int) int32) *run {
	n := &run{spec: &Spec{Length: time.Minute}, end: ns(time.Minute)}
	n.width = n.end / bins
	for b := range n.good {
		n.good[b] = good(b)
	}
	return n
}

func TestBack(t *testing.T) {
	oracle := counted(func(int) int32 { return 100 })
	step := func(at int, before, after int32) *run {
		return counted(func(b int) int32 {
			if b < at {
				return before
			}
			return after
		})
	}
	dip := counted(func(b int) int32 { // looks well for a second, then does not
		if b >= 84 && b < 92 {
			return 0
		}
		return 100
	})
	for name, c := range map[string]struct {
		got  *run
		want time.Duration
	}{
		"never left":       {oracle, 0},
		"91 % will do":     {step(80, 100, 91), 0},
		"84 % will not":    {step(80, 100, 84), -1},
		"back after 2 s":   {step(88, 0, 100), 2 * time.Second},
		"well at first":    {dip, 3 * time.Second},
		"too late to tell": {step(238, 0, 100), -1},
	} {
		if got := back(c.got, oracle, ns(20*time.Second), ns(time.Minute)); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// A refused call costs a tenth of a good one, also in the last third, and no
// score leaves [0, 1].
func TestScore(t *testing.T) {
	oracle := counted(func(int) int32 { return 100 })
	n := counted(func(b int) int32 {
		if b >= 160 {
			return 40
		}
		return 100
	})
	for b := range n.refusals {
		n.refusals[b] = 100
	}
	s := Default()
	r := judge(&s, n, oracle)
	if want := (160*100.0 + 80*40 - 240*10) / 24000; math.Abs(r.Score-want) > 1e-9 {
		t.Errorf("score %v, want %v", r.Score, want)
	}
	if want := 0.3; math.Abs(r.Last-want) > 1e-9 || !r.Trap {
		t.Errorf("last third %v, trap %t; want %v, which is one", r.Last, r.Trap, want)
	}
	if r := judge(&s, counted(func(int) int32 { return 200 }), oracle); r.Score != 1 || r.Raw != 2 {
		t.Errorf("twice the oracle's: score %v, raw %v; want 1 and 2", r.Score, r.Raw)
	}
	for b := range n.good {
		n.good[b] = 1
	}
	if r := judge(&s, n, oracle); r.Score != 0 {
		t.Errorf("more refused than good: %v, want 0", r.Score)
	}
}

func TestQuantiles(t *testing.T) {
	var l latencies
	for i := range 1000 {
		l.add(int64(i+1) * 1_000_000)
	}
	for q, want := range map[float64]float64{0.5: 500, 0.99: 990, 1: 1000} {
		if got := l.quantile(q).Seconds() * 1e3; math.Abs(got/want-1) > 0.01 {
			t.Errorf("quantile %v of 1 to 1000 ms: %v ms, want %v", q, got, want)
		}
	}
	if l := (latencies{}); l.quantile(0.5) != 0 {
		t.Error("a quantile of nothing")
	}
}

func TestJain(t *testing.T) {
	s := Default()
	s.Fleet = 3
	if got := jain(&s, []int32{5, 5, 5}); math.Abs(got-1) > 1e-9 {
		t.Errorf("equal shares: %v, want 1", got)
	}
	if got := jain(&s, []int32{9, 0, 0}); math.Abs(got-1.0/3) > 1e-9 {
		t.Errorf("one has everything: %v, want 1/3", got)
	}
	s.Skew = 1 // an instance is owed what comes to it: 6, 3 and 2 of 11
	if got := jain(&s, []int32{6, 3, 2}); math.Abs(got-1) > 1e-9 {
		t.Errorf("each has its share: %v, want 1", got)
	}
}
