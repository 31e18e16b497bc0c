package exam

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// lawRow is a kind of situation from which no limiter may suffer: a trap and
// its variations, and what is right in each.
type lawRow struct {
	name   string
	specs  []string
	slo    bool                     // the limiter is told the SLO
	arms   []string                 // "rate", "limit"; nil: both
	right  func(f figures) []string // what is wrong, nothing if all is right
	beside func(s Spec) Spec        // what it is compared with; nil: the oracle only
}

// figures are what one arm did in one situation.
type figures struct {
	Result
	rate           bool
	spec           Spec
	oracle, beside Result
}

// mostHeld: nothing is short, so nothing is held back.
func mostHeld(f figures) (wrong []string) {
	return f.atMost(wrong, "held back though nothing is short", f.Held, 0.01)
}

func (f *figures) atMost(wrong []string, what string, got, most float64) []string {
	if !(got <= most) {
		wrong = append(wrong, fmt.Sprintf("%s: %.3f, want at most %.3f", what, got, most))
	}
	return wrong
}

func (f *figures) atLeast(wrong []string, what string, got, least float64) []string {
	if !(got >= least) {
		wrong = append(wrong, fmt.Sprintf("%s: %.3f, want at least %.3f", what, got, least))
	}
	return wrong
}

// steady: of the oracle's goodput in the last third.
func steady(least float64) func(f figures) []string {
	return func(f figures) []string { return f.atLeast(nil, "steady share of the oracle", f.Last, least) }
}

// backSoon: 90 % of the oracle's goodput within 5 s and one latency, and bins.
func backSoon(f figures) (wrong []string) {
	most := 5*time.Second + f.spec.latency() + 2*f.spec.Length/bins
	for i, back := range f.Back {
		if back < 0 || back > most {
			wrong = append(wrong, fmt.Sprintf("return %d took %v, want %v at most", i, back, most.Round(time.Millisecond)))
		}
	}
	return wrong
}

func all(checks ...func(figures) []string) func(figures) []string {
	return func(f figures) (wrong []string) {
		for _, c := range checks {
			wrong = append(wrong, c(f)...)
		}
		return wrong
	}
}

// byKind is one bound for a rate and another for a limit.
func (f *figures) byKind(rate, limit float64) float64 {
	if f.rate {
		return rate
	}
	return limit
}

// lastNumber is the mean number of the last third.
func (r *Result) lastNumber() (sum float64) {
	for _, x := range r.Number[bins*2/3:] {
		sum += x
	}
	return sum / (bins - bins*2/3)
}

func trap(name string) string {
	i := slices.IndexFunc(Traps, func(n Named) bool { return n.Name == name })
	return Traps[i].Text
}

// lawRows are L1 to L21 of what was found, as far as AnchorKnee is concerned.
var lawRows = []lawRow{
	{name: "L1 calls given up by their callers", slo: true, right: mostHeld, specs: []string{
		trap("L1"),
		"workers=20 service=det(30ms) load=200/s aborted=0.5(20ms) slo=200ms start=0.1x length=120s",
		"workers=50 service=exp(100ms) load=80/s aborted=0.95(300ms) slo=1s start=0.1x length=120s",
	}},
	{name: "L2 marked hits", slo: true, right: mostHeld, specs: []string{
		trap("L2a"), trap("L2b"),
		"service=exp(50ms) load=500/s marked=0.95 slo=500ms start=0.05x",
	}},
	{name: "L3 refusals, then hardly any evidence", slo: true, right: all(steady(0.97), backSoon), specs: []string{
		trap("L3"),
		"load=300/s marked=0.99 fault=refuse@10s+3s start=0.01x min=0.001x max=0.1x length=120s",
		"load=200/s marked=0.9 fault=refuse@20s+30s start=0.1x min=0.001x max=0.5x length=120s",
	}},
	{name: "L4 a lost call now and then", slo: true, right: mostHeld, specs: []string{
		trap("L4"),
		"load=50/s aborted=0.998(100ms) errors=0.6 start=0.001x min=0.0001x max=0.01x length=600s",
	}},
	{name: "L5 late ticks", slo: true, beside: func(s Spec) Spec { s.Ticks, s.Stall = Default().Ticks, Pulse{}; return s },
		right: func(f figures) []string {
			return f.atLeast(nil, "score against punctual ticks", f.Score, f.beside.Score-0.03)
		}, specs: []string{
			trap("L5a"), trap("L5b"),
			"ticks=600ms workers=30 service=exp(100ms) slo=1s length=120s",
			"stall=1s/20s length=120s",
		}},
	{name: "L6 used before Start", slo: true, beside: func(s Spec) Spec { s.Unstarted = 0; return s },
		right: func(f figures) []string {
			return f.atLeast(nil, "steady share against a limiter that was started", f.Last, f.beside.Last-0.03)
		}, specs: []string{
			trap("L6"),
			"unstarted=60s workers=4 service=det(50ms) load=0.5x length=120s",
		}},
	{name: "L7 slow calls", slo: true, right: mostHeld, specs: []string{
		trap("L7a"), trap("L7b"),
		"workers=300 service=lognormal(10s,0.1) load=10/s slo=25s start=0.1x length=1500s",
		"workers=100 service=det(1s) load=40/s slo=4s start=0.1x length=300s",
	}},
	{name: "L8 the latency rises thirtyfold", slo: true, right: mostHeld, specs: []string{
		trap("L8"),
		"workers=500 service=det(20ms) base=0s,400ms@30s load=100/s slo=2s start=0.02x length=120s",
	}},
	{name: "L9 no SLO, deterministic service", right: steady(0.9), specs: []string{
		trap("L9a"), trap("L9b"), trap("L9c"),
		"workers=100 service=det(50ms) slo=500ms load=1.2x length=120s",
	}},
	{name: "L10 a pause", slo: true, right: all(steady(0.95), backSoon), specs: []string{
		trap("L10"),
		"hits=0.8 fault=pause@20s+2s",
		"workers=4 service=exp(50ms) slo=500ms fault=pause@30s+10s length=120s",
	}},
	{name: "L11 a service that sheds", slo: true, right: func(f figures) (wrong []string) {
		wrong = f.atMost(wrong, "refused beyond what the oracle's are", f.Refusals-f.oracle.Refusals, f.byKind(0.03, 0.05))
		return f.atLeast(wrong, "steady share of the oracle", f.Last, 0.97)
	}, specs: []string{
		trap("L11a"), trap("L11b"),
		"workers=30 service=exp(100ms) queue=5 load=2x slo=1s length=120s",
	}},
	{name: "L12 a quota", slo: true, right: func(f figures) (wrong []string) {
		if !f.rate { // a limit cannot pace: compare it with the best number that anybody could set
			return f.atLeast(wrong, "score against the best fixed limit", f.Score, 0.95*bestLimit(f.spec))
		}
		wrong = f.atMost(wrong, "refused of what is sent", f.Refusals, 0.03)
		wrong = f.atLeast(wrong, "steady share of the oracle", f.Last, 0.97)
		return f.atMost(wrong, "swing of the number", f.Swing, 0.10)
	}, specs: []string{
		trap("L12a"), trap("L12b"),
		"workers=100 service=exp(50ms) quota=bucket(40/s,10) load=60/s length=120s",
		"workers=50 service=exp(100ms) quota=bucket(300/s,30) load=900/s slo=1s length=120s",
	}},
	{name: "L13 errors that have nothing to do with load", slo: true, beside: func(s Spec) Spec { s.Errors = 0; return s },
		right: func(f figures) []string {
			return f.atLeast(nil, "number against the run without errors", f.lastNumber()/f.beside.lastNumber(), 0.95)
		}, specs: []string{
			trap("L13"),
			"errors=0.1 length=120s", "errors=0.3 length=120s",
			"errors=0.6 workers=50 service=exp(100ms) slo=1s length=120s",
		}},
	{name: "L13 errors, and nothing short", slo: true, right: mostHeld, specs: []string{
		"errors=0.3 load=0.6x length=120s", "errors=0.6 load=0.6x length=120s",
	}},
	{name: "L14 streams", slo: true, right: mostHeld, specs: []string{
		trap("L14a"), trap("L14b"),
		"workers=50 service=exp(50ms) load=200/s streams=0.02(30s) slo=500ms length=300s",
	}},
	{name: "L15 a few slow calls", slo: true, right: mostHeld, specs: []string{
		trap("L15"),
		"workers=50 service=exp(50ms) load=400/s streams=0.1(3s) slo=500ms length=300s",
	}},
	{name: "L15 a few slow calls, no SLO", right: mostHeld, specs: []string{
		trap("L15"),
		"workers=50 service=exp(50ms) load=400/s streams=0.1(3s) slo=500ms length=300s",
	}},
	{name: "L16 bursts", slo: true, right: mostHeld, specs: []string{
		trap("L16"),
		"workers=300 service=det(200ms) load=0x burst=100/2s slo=1s start=0.5x max=1x length=120s",
	}},
	{name: "L17 calls of five minutes", slo: true, right: mostHeld, specs: []string{
		trap("L17"),
		"load=100/s streams=0.001(200s) length=900s",
	}},
	{name: "L18 no SLO, exponential service", right: steady(0.9), specs: []string{
		trap("L18a"), trap("L18b"),
		"workers=40 service=exp(50ms) load=1.2x slo=10s length=600s",
	}},
	{name: "L19 slow first calls", slo: true, right: steady(0.97), specs: []string{
		// The bounds are in units of what the slow start of the service can do.
		"slow=30,1@100ms load=1.05x start=15x min=0.6x max=120x length=120s",
		"slow=30,1@100ms load=0.7x start=15x min=0.6x max=120x length=60s",
		"slow=10,1@1s load=1.4x start=5x min=0.2x max=40x length=60s",
	}},
	{name: "L20 nothing but refusals at the start", slo: true, right: func(f figures) (wrong []string) {
		fault := int(5 * float64(bins) * float64(time.Second) / float64(f.spec.Length))
		most := slices.Max(f.Number[:fault-1])
		wrong = f.atMost(wrong, "highest number during the refusals, of the first one", most/f.Number[0], 1)
		return append(wrong, all(steady(0.97), backSoon)(f)...)
	}, specs: []string{
		trap("L20"),
		"fault=refuse@0s+5s start=0.5x workers=30 service=exp(100ms) slo=1s length=120s",
	}},
	{name: "L20 nothing but refusals at the start, no SLO", right: func(f figures) (wrong []string) {
		fault := int(5 * float64(bins) * float64(time.Second) / float64(f.spec.Length))
		most := slices.Max(f.Number[:fault-1])
		return f.atMost(wrong, "highest number during the refusals, of the first one", most/f.Number[0], 1)
	}, specs: []string{trap("L20")}},
	{name: "L21 latency in a steady overload", slo: true, right: func(f figures) (wrong []string) {
		wrong = f.atLeast(wrong, "steady share of the oracle", f.Last, 0.97)
		wrong = f.atMost(wrong, "p50 over the oracle's", f.Over50, f.byKind(2, 1.6))
		return f.atMost(wrong, "p99 over the oracle's", f.Over99, f.byKind(1.5, 1.3))
	}, specs: []string{
		trap("L21"),
		"workers=50 service=exp(20ms) length=60s",
		"workers=30 service=exp(100ms) slo=1s length=120s",
	}},
}

// bestLimit is the score of the best fixed limit.
func bestLimit(s Spec) (best float64) {
	for limit := 1.0; limit <= 32; limit = max(limit+1, math.Floor(1.3*limit)) {
		s.Start = limit / s.rightLimit()
		s.Min, s.Max = s.Start, s.Start
		_, r := Play(s, []Arm{lawArm("limit", true)})
		best = max(best, r[0].Score)
	}
	return best
}

// lawArm is an arm of AnchorKnee.
func lawArm(kind string, slo bool) Arm {
	name := kind + "-knee"
	if !slo {
		name += "-noslo"
	}
	a, ok := ourArm(name)
	if !ok {
		panic("exam: no arm " + name)
	}
	return a
}

// notReached are the rows that do not hold, by name, variation and kind. Nothing
// is asserted of them but that they can be played.
var notReached = map[string]bool{
	"L5 late ticks/1 rate":                                 true,
	"L10 a pause/0 limit":                                  true,
	"L10 a pause/0 rate":                                   true,
	"L10 a pause/1 rate":                                   true,
	"L10 a pause/2 rate":                                   true,
	"L11 a service that sheds/0 rate":                      true,
	"L11 a service that sheds/2 rate":                      true,
	"L12 a quota/0 limit":                                  true,
	"L12 a quota/0 rate":                                   true,
	"L12 a quota/1 limit":                                  true,
	"L12 a quota/1 rate":                                   true,
	"L12 a quota/2 limit":                                  true,
	"L12 a quota/2 rate":                                   true,
	"L12 a quota/3 rate":                                   true,
	"L13 errors that have nothing to do with load/0 limit": true,
	"L13 errors that have nothing to do with load/2 limit": true,
	"L13 errors that have nothing to do with load/3 limit": true,
	"L14 streams/0 rate":                                   true,
	"L15 a few slow calls/0 limit":                         true,
	"L15 a few slow calls/0 rate":                          true,
	"L15 a few slow calls/1 limit":                         true,
	"L15 a few slow calls/1 rate":                          true,
	"L15 a few slow calls, no SLO/0 limit":                 true,
	"L15 a few slow calls, no SLO/0 rate":                  true,
	"L15 a few slow calls, no SLO/1 limit":                 true,
	"L15 a few slow calls, no SLO/1 rate":                  true,
	"L16 bursts/0 rate":                                    true,
	"L16 bursts/1 rate":                                    true,
	"L21 latency in a steady overload/0 limit":             true,
	"L21 latency in a steady overload/0 rate":              true,
	"L21 latency in a steady overload/1 limit":             true,
	"L21 latency in a steady overload/1 rate":              true,
	"L21 latency in a steady overload/2 limit":             true,
	"L21 latency in a steady overload/2 rate":              true,
}

// TestTraps plays every row with both kinds. EXAM_FIGURES=1 prints all figures,
// right ones included.
func TestTraps(t *testing.T) {
	var mu sync.Mutex
	var lines []string
	t.Run("rows", func(t *testing.T) {
		for _, row := range lawRows {
			for i, text := range row.specs {
				t.Run(fmt.Sprintf("%s/%d", row.name, i), func(t *testing.T) {
					t.Parallel()
					spec, err := Parse(text)
					if err != nil {
						t.Fatal(err)
					}
					arms := row.arms
					if arms == nil {
						arms = []string{"rate", "limit"}
					}
					for _, kind := range arms {
						arm := []Arm{lawArm(kind, row.slo)}
						oracle, got := Play(spec, arm)
						f := figures{Result: got[0], rate: kind == "rate", spec: spec, oracle: oracle}
						if row.beside != nil {
							_, other := Play(row.beside(spec), arm)
							f.beside = other[0]
						}
						wrong := row.right(f)
						for _, w := range wrong {
							if notReached[fmt.Sprintf("%s/%d %s", row.name, i, kind)] {
								t.Logf("%s, not reached: %s\n%s", arm[0].Name, w, spec)
							} else {
								t.Errorf("%s: %s\n%s", arm[0].Name, w, spec)
							}
						}
						mu.Lock()
						lines = append(lines, fmt.Sprintf("%-45s %d %-16s score %.3f last %.3f held %.3f refused %.3f (oracle %.3f) p50 %.2fx p99 %.2fx swing %.2f back %v  %s",
							row.name, i, arm[0].Name, f.Score, f.Last, f.Held, f.Refusals, oracle.Refusals, f.Over50, f.Over99, f.Swing, f.Back, strings.Join(wrong, "; ")))
						mu.Unlock()
					}
				})
			}
		}
	})
	if os.Getenv("EXAM_FIGURES") != "" {
		slices.Sort(lines)
		fmt.Println(strings.Join(lines, "\n"))
	}
}
