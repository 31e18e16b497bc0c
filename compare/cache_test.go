package main

import (
	"testing"

	"agilelimiter/compare/exam"
)

// saturated is a cache with 95 % hits in front of an origin that can do 40
// misses a second and is asked for 56. A caller gives up after two seconds.
const saturated = "workers=2 service=exp(50ms) slo=500ms timeout=2s length=30s "

// TestCacheUnclassified: with hits and misses in one median the aggregate is
// green while the origin is timing out.
func TestCacheUnclassified(t *testing.T) {
	_, results := exam.Play(parsed(t, saturated+"hits=0.95"), exam.ByName("rate-baseline-noslo"))
	for _, r := range results {
		all, green := r.Good+r.Late+r.GoodHits+r.Lost, r.Good+r.GoodHits
		t.Logf("all calls: %.1f %% inside the SLO; misses: %.1f %% inside the SLO, %d of %d timed out",
			100*float64(green)/float64(all), 100*ofMisses(r), r.Lost, r.Good+r.Late+r.Lost)
		if float64(green) < 0.94*float64(all) {
			t.Errorf("%d of %d calls inside the SLO: the aggregate is not green", green, all)
		}
		if ofMisses(r) > 0.2 {
			t.Errorf("%.0f %% of the misses inside the SLO: the origin is not in trouble", 100*ofMisses(r))
		}
	}
}

// TestCacheClassified: the same with the hits marked, and so left out. Under
// AnchorKnee nobody times out any more; under AnchorBaseline one in fifty at the
// most, all in the first overload, and it pays for that with the floor.
func TestCacheClassified(t *testing.T) {
	s := parsed(t, saturated+"marked=0.95")
	_, results := exam.Play(s, exam.ByName("rate-baseline-noslo", "rate-knee"))
	for _, r := range results {
		t.Logf("%s: misses: %.1f %% inside the SLO, %.0f/s of them, %d of %d timed out",
			r.Arm, 100*ofMisses(r), perSecond(r, s), r.Lost, r.Good+r.Late+r.Lost)
		allowed := 0
		if r.Arm == "rate-baseline-noslo" {
			allowed = (r.Good + r.Late + r.Lost) / 50
		}
		if r.Lost > allowed {
			t.Errorf("%s: %d misses timed out, want %d at the most", r.Arm, r.Lost, allowed)
		}
		if r.Arm == "rate-knee" && (ofMisses(r) < 0.9 || perSecond(r, s) < 28) {
			t.Errorf("%s: %.0f %% of the misses and %.0f/s inside the SLO, want 90 %% and 28 of the 40/s there could be",
				r.Arm, 100*ofMisses(r), perSecond(r, s))
		}
	}
}

// ofMisses is the share of the misses that were answered inside the SLO.
func ofMisses(r exam.Result) float64 { return float64(r.Good) / float64(max(1, r.Good+r.Late+r.Lost)) }
