package httpdebug

import (
	"math"
	"time"

	"agilelimiter"
)

// The types below are the JSON that the package comment documents.

type report struct {
	Time     time.Time       `json:"time"`
	Started  time.Time       `json:"started"`
	Seq      uint64          `json:"seq"`
	Limiters []limiterReport `json:"limiters"`
}

type limiterReport struct {
	Name      string           `json:"name"`
	Kind      string           `json:"kind"`
	Unit      string           `json:"unit"`
	Anchor    string           `json:"anchor"`
	Tick      float64          `json:"tick_seconds"`
	SLO       float64          `json:"slo_seconds"`
	Span      float64          `json:"span_seconds"`
	Elapsed   float64          `json:"elapsed_seconds"`
	Age       float64          `json:"age_seconds"`
	Stats     statsReport      `json:"stats"`
	Notes     []note           `json:"notes"`
	Decisions []decisionReport `json:"decisions"`
	Points    pointsReport     `json:"points"`
}

type statsReport struct {
	Target       float64 `json:"target"`
	Min          float64 `json:"min"`
	Max          float64 `json:"max"`
	InFlight     int     `json:"in_flight"`
	PeakInFlight int     `json:"peak_in_flight"`
	Waiting      int     `json:"waiting"`
	Binding      bool    `json:"binding"`
	Shadow       bool    `json:"shadow"`
	Paused       float64 `json:"paused_seconds"`
	Decision     string  `json:"decision"`
	Samples      int     `json:"samples"`
	P50          float64 `json:"p50_seconds"`
	P99          float64 `json:"p99_seconds"`
	Fast         float64 `json:"fast_seconds"`
	Baseline     float64 `json:"baseline_seconds"`
	Window       float64 `json:"window_seconds"`
	Admitted     uint64  `json:"admitted"`
	Shed         uint64  `json:"shed"`
	Reached      uint64  `json:"reached"`
	Unreachable  uint64  `json:"unreachable"`
	Aborted      uint64  `json:"aborted"`
	Truncated    uint64  `json:"truncated"`
	Overflow     uint64  `json:"overflow"`
	ThrottleWait float64 `json:"throttle_wait_seconds"`
	Lateness     float64 `json:"lateness_seconds"`
	WouldWait    uint64  `json:"would_wait"`
	WouldWaitFor float64 `json:"would_wait_seconds"`
	WouldShed    uint64  `json:"would_shed"`
	LatenessLost float64 `json:"lateness_lost_seconds"`
	Ticks        uint64  `json:"ticks"`
}

type decisionReport struct {
	Decision string  `json:"decision"`
	Reason   string  `json:"reason"`
	Count    uint64  `json:"count"`
	Last     float64 `json:"last_seconds"`
	Before   float64 `json:"target_before"`
	After    float64 `json:"target_after"`
}

// pointsReport is columns rather than rows: half the bytes.
type pointsReport struct {
	Elapsed  []float64 `json:"elapsed_seconds"`
	Target   []float32 `json:"target"`
	InFlight []uint32  `json:"in_flight"`
	Waiting  []uint32  `json:"waiting"`
	Admitted []float32 `json:"admitted_per_second"`
	Shed     []float32 `json:"shed_per_second"`
	Samples  []uint32  `json:"samples"`
	P99      []float32 `json:"p99_seconds"`
	Fast     []float32 `json:"fast_seconds"`
	Baseline []float32 `json:"baseline_seconds"`
	Window   []float32 `json:"window_seconds"`
	Decision []string  `json:"decision"`
}

// report collects every limiter's state with the points newer than after.
func (p *Page) report(after uint64) report {
	// Read before the snapshots: a recorder takes its number while it holds its
	// lock, so every point up to seq is stored when snapshot gets that lock.
	out := report{Time: time.Now().UTC(), Started: p.started.UTC(), Seq: p.seq.Load(), Limiters: []limiterReport{}}
	for _, r := range p.all() {
		s := r.snapshot(after, out.Seq)
		out.Limiters = append(out.Limiters, s.report())
	}
	return out
}

func (s *snapshot) report() limiterReport {
	out := limiterReport{
		Name: s.name, Kind: s.kind, Unit: s.unit, Anchor: s.anchor.String(),
		Tick: s.tick.Seconds(), SLO: s.slo.Seconds(), Span: s.span().Seconds(),
		Elapsed: millis(s.elapsed), Age: millis(s.age),
		Stats: statsOf(&s.stats), Notes: s.notes(), Decisions: []decisionReport{},
	}
	for d, m := range s.made {
		if n := s.stats.Decisions[d]; n > 0 {
			out.Decisions = append(out.Decisions, decisionReport{
				Decision: agilelimiter.Decision(d).String(), Reason: reasons[d], Count: n,
				Last: millis(m.at), Before: m.before, After: m.after,
			})
		}
	}
	out.Points = columns(s.points)
	return out
}

func statsOf(s *agilelimiter.Stats) statsReport {
	return statsReport{
		Target: s.Target, Min: s.Min, Max: s.Max,
		InFlight: s.InFlight, PeakInFlight: s.PeakInFlight, Waiting: s.Waiting, Binding: s.Binding, Shadow: s.Shadow, Paused: s.Paused.Seconds(),
		WouldWait: s.WouldWait, WouldWaitFor: s.WouldWaitTime.Seconds(), WouldShed: s.WouldShed,
		Decision: s.Decision.String(), Samples: s.Samples,
		P50: s.P50.Seconds(), P99: s.P99.Seconds(),
		Fast: s.Fast.Seconds(), Baseline: s.Baseline.Seconds(), Window: s.Window.Seconds(),
		Admitted: s.Admitted, Shed: s.Shed,
		Reached: s.Reached, Unreachable: s.Unreachable, Aborted: s.Aborted, Truncated: s.Truncated, Overflow: s.Overflow,
		ThrottleWait: s.ThrottleWait.Seconds(),
		Lateness:     s.Lateness.Seconds(), LatenessLost: s.LatenessLost.Seconds(), Ticks: s.Ticks,
	}
}

func columns(points []point) pointsReport {
	n := len(points)
	out := pointsReport{
		Elapsed: make([]float64, n), Target: make([]float32, n),
		InFlight: make([]uint32, n), Waiting: make([]uint32, n),
		Admitted: make([]float32, n), Shed: make([]float32, n), Samples: make([]uint32, n),
		P99: make([]float32, n), Fast: make([]float32, n),
		Baseline: make([]float32, n), Window: make([]float32, n), Decision: make([]string, n),
	}
	for i, p := range points {
		out.Elapsed[i], out.Target[i] = millis(p.elapsed), p.target
		out.InFlight[i], out.Waiting[i] = p.inFlight, p.waiting
		out.Admitted[i], out.Shed[i], out.Samples[i] = p.admitted, p.shed, p.samples
		out.P99[i], out.Fast[i] = p.p99, p.fast
		out.Baseline[i], out.Window[i] = p.baseline, p.windowEdge
		out.Decision[i] = p.decision.String()
	}
	return out
}

// millis is d in seconds, to the millisecond.
func millis(d time.Duration) float64 {
	return math.Round(d.Seconds()*1000) / 1000
}
