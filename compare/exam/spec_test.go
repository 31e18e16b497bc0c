package exam

import (
	"reflect"
	"strings"
	"testing"
)

// Every drawn situation reads back from its text exactly.
func TestSpecRoundTrips(t *testing.T) {
	for i := range uint64(2000) {
		s := Draw(3, i)
		text := s.String()
		back, err := Parse(text)
		if err != nil {
			t.Fatalf("%d: %s: %v", i, text, err)
		}
		if back.String() != text {
			t.Fatalf("%d: reads back as\n%s\nwas\n%s", i, back, text)
		}
		if s.Callers > 0 {
			back.Load = s.Load // which a closed loop does not have
		}
		if !reflect.DeepEqual(s, back) {
			t.Fatalf("%d: %s: reads back as\n%+v\nwas\n%+v", i, text, back, s)
		}
	}
}

func TestParseNamesTheFault(t *testing.T) {
	for text, want := range map[string]string{
		"wrkers=3":              "there are workers, service",
		"workers=none":          "workers=none",
		"service=gauss(1s)":     "exp(mean)",
		"fault=burn@1s+2s":      "refuse, reject (503), hang and pause",
		"fault=hang@1s+2s":      "needs a timeout",
		"load=2x callers=3(1s)": "exclude each other",
		"hits=0.7 marked=0.7":   "want 1 at most",
		"staff=1,0.5":           "value@time",
		"staff=1,0.5@9s,1@5s":   "times must rise",
		"slo=200":               "40ms",
		"start=5x max=2x":       "outside of min",
		"workers=3 workers=4":   "stands twice",
		"aborted=0.3":           "0.3(90ms)",
		"quota=bucket(100,5)":   "/s",
		"fleet=0":               "fleet",
		"throttle=200ms/100ms":  "not shorter",
		"retries=99(1s)":        "more than 10",
		"then=exp(10ms)":        "4*exp(10ms)",
		"join=2@60s":            "need a fleet",
		"errors=1.5":            "[0, 1]",
		"load=square(1s,1x)":    "square(period,first,second)",
		"behind=nginx":          "an arm of ours",
	} {
		_, err := Parse(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want an error with %q", text, err, want)
		}
	}
}

func TestNamed(t *testing.T) {
	seen := map[string]bool{}
	for _, n := range Traps {
		if seen[n.Name] || n.About == "" {
			t.Errorf("%q: names must be unique, and something must be said about it", n.Name)
		}
		seen[n.Name] = true
		if _, err := Parse(n.Text); err != nil {
			t.Errorf("%s: %v", n.Name, err)
		}
	}
}

// What is drawn can be played: enough latencies, not too many calls, and a
// ceiling that leaves room for what the service can do at any time.
func TestDraw(t *testing.T) {
	for i := range uint64(1000) {
		s := Draw(5, i)
		if n := s.Length.Seconds() / s.latency().Seconds(); n < 190 {
			t.Errorf("%d: %.0f latencies long: %s", i, n, s)
		}
		if n := s.average() * s.Length.Seconds(); s.Callers == 0 && n > 1.3*mostCalls {
			t.Errorf("%d: %.0f calls: %s", i, n, s)
		}
		for b, c := range s.Capacity(20) {
			if c > 0.6*s.Max*s.rightRate() {
				t.Errorf("%d: at %d/20 the ceiling is %.2f of what is right: %s", i, b, s.Max*s.rightRate()/c, s)
			}
		}
	}
}
