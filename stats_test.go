package agilelimiter

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// Stats is one comparable value: this does not compile otherwise.
var _ = map[Stats]bool{}

func TestDecisionString(t *testing.T) {
	want := "blind hold probe slow_start recover backoff tail_backoff outage resume loss_backoff test restore drained"
	var got []string
	for d := range NumDecisions {
		got = append(got, Decision(d).String())
	}
	if strings.Join(got, " ") != want {
		t.Errorf("decisions %q, want %q", got, want)
	}
	if s := Decision(NumDecisions).String(); s != "decision(13)" {
		t.Errorf("an undefined decision prints as %q", s)
	}
	if Drained != Decision(NumDecisions-1) {
		t.Error("Drained is not the last decision")
	}
}

func TestAFreshLimiterHasFiniteStats(t *testing.T) {
	for _, anchor := range []Anchor{AnchorBaseline, AnchorSLO, AnchorKnee} {
		lim := New(Config{MaxRate: 500, SLOTarget: time.Second, Anchor: anchor, Clock: NewVirtualClock(epoch)})
		sem := NewConcurrency(ConcurrencyConfig{MaxLimit: 500, SLOTarget: time.Second, Anchor: anchor, Clock: NewVirtualClock(epoch)})
		for range 3 {
			for _, s := range []Stats{lim.Stats(), sem.Stats()} {
				if _, err := json.Marshal(s); err != nil { // refuses NaN and Inf
					t.Errorf("%v: %v in %+v", anchor, err, s)
				}
				if s.Decision != Blind || s.Samples != 0 || s.P50 != 0 || s.Baseline != 0 {
					t.Errorf("%v: a fresh limiter says %+v", anchor, s)
				}
			}
			lim.step()
			sem.step()
		}
	}
}

func TestStatsShowTheLastTickOnly(t *testing.T) {
	lim := New(Config{MaxRate: 500})
	s := tickOf(lim, 100, 20*ms)
	if s.Samples != 100 || !near(float64(s.P50), float64(20*ms), 0.02) || s.P99 != s.P50 || s.Decision != SlowStart {
		t.Errorf("after a busy tick: %+v", s)
	}
	lim.step()
	blind := lim.Stats()
	if blind.Samples != 0 || blind.P50 != 0 || blind.P99 != 0 || blind.Decision != Blind {
		t.Errorf("after a tick without samples: %+v", blind)
	}
	if blind.Baseline != s.Baseline || blind.Fast != s.Fast || blind.Window != s.Window || blind.Target != s.Target {
		t.Errorf("a tick without samples moved\n%+v to\n%+v", s, blind)
	}
	if blind.Window != 2*blind.Baseline {
		t.Errorf("window %v, baseline %v", blind.Window, blind.Baseline)
	}
}

func TestTheNumberIsTheSameEverywhere(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	lim := New(Config{MaxRate: 500})
	sem := NewConcurrency(ConcurrencyConfig{MaxLimit: 500})
	var decisions, semDecisions uint64
	for i := range uint64(50) {
		for range rng.IntN(20) {
			d := time.Duration(rng.IntN(60)) * ms
			lim.Observe(d)
			sem.Observe(d)
		}
		lim.step()
		sem.step()
		s, c := lim.Stats(), sem.Stats()
		if s.Target != lim.Rate() || int(c.Target) != sem.Limit() {
			t.Fatalf("step %d: Rate() %g and %g, Limit() %d and %g", i, lim.Rate(), s.Target, sem.Limit(), c.Target)
		}
		if s.Min != 1 || s.Max != 500 || c.Min != 1 || c.Max != 500 {
			t.Fatalf("step %d: bounds %g, %g, %g, %g", i, s.Min, s.Max, c.Min, c.Max)
		}
		decisions, semDecisions = 0, 0
		for d := range NumDecisions {
			decisions += s.Decisions[d]
			semDecisions += c.Decisions[d]
		}
		if s.Ticks != i+1 || decisions != i+1 || c.Ticks != i+1 || semDecisions != i+1 {
			t.Fatalf("step %d: %d ticks, %d decisions", i, s.Ticks, decisions)
		}
	}
}

func TestStatsOfAFullQueueAndAFullLimit(t *testing.T) {
	sem := fixedLimit(30)
	for second := range uint64(5) {
		for range 40 { // arrivals within a millisecond, each as long as that
			sem.TryTake()
		}
		if s := sem.Stats(); s.InFlight != 30 || s.Shed != 10*(second+1) || s.Admitted != 30*(second+1) {
			t.Fatalf("second %d: %d in flight, %d shed, %d admitted", second, s.InFlight, s.Shed, s.Admitted)
		}
		for range 30 {
			sem.Release()
		}
		sem.step()
		if s := sem.Stats(); s.PeakInFlight != 30 || !s.Binding || s.InFlight != 0 {
			t.Fatalf("second %d: peak %d, binding %t, %d in flight: the shed calls cannot be explained",
				second, s.PeakInFlight, s.Binding, s.InFlight)
		}
		sem.step()
		sem.step()
		if s := sem.Stats(); s.PeakInFlight != 0 || s.Binding {
			t.Fatalf("second %d: peak %d, binding %t in a quiet tick", second, s.PeakInFlight, s.Binding)
		}
	}
}
