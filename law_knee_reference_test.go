package agilelimiter

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// kneeReference is the specification of AnchorKnee written down a second time,
// statement by statement and in its own letters, to hold the law against. It
// knows nothing of the law but what a tick is.
type kneeReference struct {
	rate              bool
	T                 float64
	SLO               float64 // 0: none
	Min, Max, Initial float64

	u              float64
	sD, sI, sT, sR float64
	F, Wt          float64
	prevEnd        float64
	u0, r0         float64
	mem            float64
	seen           int
	cold           bool
	over           int
	hot            float64
	kind           string // "none", "latency", "timer"
	i0, w0, age    float64
	n              int
	used           float64
	late, clean    bool
	idle           int
	stuck          float64
	vain           int
	quiet, bear    float64 // seconds without an end; what of it is no outage
}

func newKneeReference(p *params, rate bool) *kneeReference {
	r := &kneeReference{
		rate: rate, T: p.tick.Seconds(), SLO: p.slo.Seconds(),
		Min: p.min, Max: p.max, Initial: p.initial,
		u: p.initial, cold: true, kind: "none", idle: 8,
	}
	if !rate && r.SLO == 0 {
		r.u = r.Min
	}
	return r
}

func (s *kneeReference) step(in tickInput) float64 {
	s.u = math.Max(s.Min, math.Min(s.Max, s.number(in)))
	if s.rate {
		return s.u
	}
	return math.Min(s.Max, s.u+s.stuck)
}

func (s *kneeReference) back() float64 {
	if s.rate {
		return math.Min(s.u0, s.r0)
	}
	return s.u0
}

func (s *kneeReference) number(in tickInput) float64 {
	var (
		A       = float64(in.admitted)
		N       = float64(in.reached)
		Late    = float64(in.truncated)
		Over    = float64(in.overSLO)
		P99     = in.p99.Seconds()
		Unreach = float64(in.unreachable)
		Abort   = float64(in.aborted)
		I       = in.inFlight
		End     = float64(in.inFlightEnd)
		Binding = in.binding
		T       = s.T
		SLO     = s.SLO
	)
	own := N - Late

	// 1
	known := math.Min(Unreach+Late, s.stuck)
	lost := Unreach + Late - known
	s.stuck -= known
	Over = math.Max(0, Over-known)
	if N+Unreach+Abort == 0 && s.prevEnd > 0 && (A > 0 || Binding) {
		s.quiet += T
	} else {
		s.quiet = 0
	}
	outage := lost > own
	if s.mem > 0 {
		outage = outage || own == 0
	} else {
		outage = outage || s.bear > 0 && s.quiet > s.bear
	}
	if outage {
		s.quiet = 0
		if s.mem == 0 {
			s.mem = s.back()
		}
		s.kind = "none"
		s.cold = false
		if own == 0 {
			s.stuck = End
		}
		s.stuck = math.Min(s.stuck, End)
		s.prevEnd = End - s.stuck
		if lost == 0 && End == 0 {
			return s.u
		}
		return s.u / 2
	}
	if s.stuck > 0 {
		if known == 0 && lost == 0 && N > 0 {
			s.stuck = math.Max(0, math.Min(s.stuck, math.Trunc(I-N/T*in.p50.Seconds())))
		}
		s.stuck = math.Min(s.stuck, End)
		End -= s.stuck
		I = math.Max(0, I-s.stuck)
	}
	dI := End - s.prevEnd
	s.prevEnd = End
	if s.mem > 0 {
		x := math.Max(s.u, s.mem/2)
		s.mem = 0
		s.sD, s.sI, s.sT, s.sR = 0, 0, 0, 0
		return x
	}

	// 2
	a := A
	if s.sR != 0 {
		a = A * (s.sD / s.sR)
	}
	al := math.Min(0.5, math.Max(1.0/40, math.Max(own, a)/20))
	s.sD += own - al*s.sD
	s.sI += I*T - al*s.sI
	s.sT += T - al*s.sT
	s.sR += own + Abort - al*s.sR
	if s.sD < 0.5 || (N == 0 && A == 0 && End == 0) {
		return s.u
	}
	D := s.sD / s.sT
	If := s.sI / s.sT
	R := s.sR / s.sT
	W := math.Max(If/D, 1e-6)
	if N+Unreach+Abort > 0 {
		s.bear = max(2*W, P99, 10/D, T)
	}

	// 3
	if s.seen < 20 {
		s.seen += in.reached
		if s.F == 0 || s.seen <= 12 || W < s.F {
			s.F = W
		}
		if SLO > 0 {
			s.F = math.Min(W, SLO/3)
		} else if !s.rate {
			if s.seen < 10 {
				return s.u
			}
			s.seen = 20
			return math.Min(s.Initial, 10*s.u)
		}
	} else if W < 0.7*s.F && al >= 0.2 {
		s.F = W
	} else if W < s.F && al >= 0.2 {
		s.F += 0.2 * al * (W - s.F)
	} else if W < 1.25*s.F || (s.u <= s.Min && If < 1.5) {
		s.F += 0.05 * al * (W - s.F)
	}

	// 4
	var top float64
	if SLO > 0 {
		top = 0.45 * SLO
		if s.F <= 0.7*SLO {
			s.vain = 0
		}
		if s.F <= 0.7*SLO || s.vain >= 3 {
			top = math.Max(top, s.F+0.15*SLO)
		}
	} else {
		top = 1.5 * s.F
	}
	lo := math.Min(top, 1.5*s.F)
	if s.Wt == 0 {
		s.Wt = top
	}
	if SLO > 0 && Over > math.Max(1, N*2/100) {
		s.over++
		if s.over >= 2 && W < 1.5*s.Wt {
			s.Wt = 0.9 * math.Min(s.Wt, W)
		}
	} else {
		s.over = 0
		s.Wt = 1.01 * math.Max(s.Wt, lo)
	}
	s.Wt = math.Min(top, math.Max(lo, s.Wt))
	if s.cold {
		bad := SLO > 0 && Over > math.Max(1, N*0.5/100)
		s.cold = !bad && (al < 0.2 || W <= s.Wt*(1+1/math.Sqrt(s.sD)))
		if bad && s.rate {
			return math.Min(s.u, R) / 2
		}
	}

	// 5
	use := If
	if s.rate {
		use = R
	}
	s.idle--
	if beyond := (W-0.5/D)/s.Wt - 1; beyond > 0 {
		s.hot += math.Min(1, beyond/0.15)
	} else {
		s.hot = 0
	}
	if s.kind == "none" {
		s.u0 = math.Max(0.995*s.u0, s.u)
		s.r0 = math.Max(0.995*s.r0, R)
		s.i0, s.w0, s.age, s.n, s.used, s.late, s.clean = If, W, 0, 0, use, false, false
		if al >= 0.2 {
			if s.hot >= 8 || (W > 0.95*s.Wt && s.u < 0.6*s.u0 && R < 0.7*s.r0) {
				s.kind = "latency"
			} else if s.idle <= 0 && Binding && s.u >= s.u0/2 && (SLO == 0 || s.Wt > 0.45*SLO) {
				s.kind = "timer"
				s.u0 = s.u
				s.r0 = R
			}
		}
	}
	if s.kind != "none" {
		s.age += T
		s.n += in.reached
		s.late = s.late || s.over > 0
		s.i0 = math.Max(s.i0, If)
		s.w0 = math.Max(s.w0, W)
		lag := math.Max(W, P99)
		if !s.clean && s.age > lag+T && own > 0 && (!s.rate || SLO > 0) {
			s.clean = true
			s.sD, s.sI, s.sT, s.sR = own, I*T, T, own+Abort
			D, If, R = own/T, I, (own+Abort)/T
			W = math.Max(If/D, 1e-6)
			use = If
			if s.rate {
				use = R
			}
		}
		open := s.age < lag+2*T || s.n < 10 || If > 0.7*s.i0
		if open && s.age <= 3*lag+10*T {
			if s.rate && SLO > 0 {
				use = math.Min(use, (own+Abort)/T)
			}
			return math.Min(s.u, math.Min(s.back(), use)/2)
		}
		x := If / s.i0
		if s.late {
			x = math.Max(x, 0.5)
		}
		vain := math.Log(W/s.w0) > 0.5*math.Log(x)
		if vain && !open && s.kind == "latency" {
			s.F = If / math.Max(D/2, D+math.Min(0, dI)/(2*T))
			s.vain++
		}
		s.kind = "none"
		s.hot = 0
		s.idle = 40
		if vain || open {
			if s.clean && SLO > 0 {
				s.sD, s.sI, s.sT, s.sR = 0, 0, 0, 0
			}
			return s.back()
		}
		if W < 0.9*s.F {
			s.F = W
			s.idle = 2
			s.cold = false
		}
		s.u0 = s.u
		s.r0 = R
		if s.rate && SLO > 0 && 0.7*s.used > s.u {
			s.u0, s.r0 = s.used, s.used
			return 0.7 * s.used
		}
	}

	// 6
	e := math.Max(D*s.Wt, 1) + 0.5 - End
	if e > 0 && !Binding {
		return s.u
	}
	if e > 0 && (s.cold || s.u < s.u0/2) && W < math.Max(s.Wt/2, 1.4*s.F) && s.over == 0 {
		return s.u * math.Min(1.5, 1+N/4)
	}
	if !s.rate {
		if W > s.Wt {
			return s.u + al*(math.Min(s.u, math.Max(D*s.Wt, 1))-s.u)
		}
		return s.u + al*(s.u*math.Min(s.Wt/W-1, 1)+1)
	}
	g := R / D
	tau := T + W
	x := s.u
	if e <= 0 {
		x = math.Min(x, math.Max(A/T, R))
		if s.over >= 2 && W < top/2 {
			x = 0.8 * x
		}
	}
	return math.Max(x-al*g*dI/T+g*e*T/(tau*tau), R/2)
}

// kneeWorld draws ticks for a law. Half of them come from a crude server whose
// calls in flight follow the number, so that every rule has its turn, and half
// from nowhere.
type kneeWorld struct {
	r        *rand.Rand
	tick     float64
	capacity float64 // calls per second
	base     float64 // seconds
	open     float64 // calls in flight
	demand   float64 // calls per second; less than the number: not binding
	regime   int
	left     int // ticks until the next regime
	rate     bool
}

const (
	kneeCalm = iota
	kneeSlow
	kneeRefusing
	kneeHanging
	kneeHits
	kneeChaos
	kneeRegimes
)

func newKneeWorld(r *rand.Rand, p *params, rate bool) *kneeWorld {
	return &kneeWorld{r: r, tick: p.tick.Seconds(), rate: rate}
}

func (w *kneeWorld) logUniform(lo, hi float64) float64 {
	return lo * math.Pow(hi/lo, w.r.Float64())
}

// around returns a whole number near x, as a counter would show it.
func (w *kneeWorld) around(x float64) int {
	return max(0, int(x+math.Sqrt(max(x, 0))*w.r.NormFloat64()*0.5+0.5))
}

func (w *kneeWorld) next(u float64, slo float64) tickInput {
	if w.left == 0 {
		w.left = 1 + w.r.IntN(60)
		w.regime = w.r.IntN(kneeRegimes)
		if w.r.IntN(3) == 0 || w.capacity == 0 {
			w.capacity = w.logUniform(1, 1e5)
		}
		if w.r.IntN(3) == 0 || w.base == 0 {
			w.base = w.logUniform(1e-3, 1)
		}
		w.demand = w.capacity * w.logUniform(0.2, 20)
	}
	w.left--
	if w.regime == kneeChaos {
		return w.anything(u)
	}
	in := tickInput{binding: true}
	capacity, base := w.capacity, w.base
	if w.regime == kneeSlow {
		base *= 4
	}
	before := w.open
	sent := min(w.demand, u)
	if !w.rate {
		sent = min(w.demand, capacity) // the limit bounds what is open instead
	}
	in.binding = w.demand >= sent
	in.admitted = w.around(sent * w.tick)
	w.open = min(w.open, 1e7) + float64(in.admitted)
	done := 0.0
	switch w.regime {
	case kneeRefusing:
		in.unreachable = int(w.open)
	case kneeHanging:
		if w.r.IntN(2) == 0 {
			in.truncated = int(w.open / 2)
			in.reached = in.truncated
		}
	default:
		// What base allows in one tick, and no more than the capacity.
		done = min(w.open*min(1, w.tick/base), capacity*w.tick)
		in.reached = min(int(w.open), w.around(done))
	}
	if w.regime == kneeHits {
		in.aborted = in.reached * 19 / 20
		in.reached -= in.aborted
	}
	w.open = max(0, w.open-float64(in.reached+in.unreachable+in.aborted))
	if !w.rate {
		w.open = min(w.open, u)
	}
	in.inFlightEnd = int(w.open)
	in.inFlight = (before + w.open) / 2
	latency := base + w.open/capacity
	in.p99 = time.Duration(3 * latency * 1e9)
	if in.reached > 0 {
		in.p50 = time.Duration(latency * 1e9 * 2 / 3)
	}
	if slo > 0 && latency > slo/5 {
		in.overSLO = w.r.IntN(in.reached + 1)
		if latency < slo {
			in.overSLO /= 10
		}
	}
	return in
}

func (w *kneeWorld) anything(u float64) tickInput {
	n := func() int {
		switch w.r.IntN(4) {
		case 0:
			return 0
		case 1:
			return w.r.IntN(4)
		case 2:
			return w.around(min(u, 1e9) * w.tick)
		}
		return int(w.logUniform(1, 1e6))
	}
	in := tickInput{
		admitted: n(), reached: n(), aborted: n(),
		inFlight: float64(n()) * w.r.Float64(), inFlightEnd: n(),
		p99:     time.Duration(w.logUniform(1e3, 1e11)),
		binding: w.r.IntN(2) == 0,
	}
	if in.reached > 0 {
		in.p50 = time.Duration(w.r.Float64() * float64(in.p99))
	}
	if w.r.IntN(4) == 0 {
		in.unreachable = n()
	}
	if w.r.IntN(4) == 0 {
		in.truncated = w.r.IntN(in.reached + 1)
	}
	if w.r.IntN(3) == 0 {
		in.overSLO = w.r.IntN(in.reached + 1)
	}
	w.open = float64(in.inFlightEnd)
	return in
}

// kneeParams draws a configuration.
func kneeParams(r *rand.Rand, rate bool) *params {
	p := &params{
		anchor: AnchorKnee,
		tick:   []time.Duration{250 * time.Millisecond, time.Millisecond, 100 * time.Millisecond, 3 * time.Second}[min(3, r.IntN(8))],
		min:    1,
		max:    math.Floor(math.Pow(10, 1+5*r.Float64())),
	}
	if rate && r.IntN(2) == 0 {
		p.min = 0.001 + 5*r.Float64()
	}
	p.initial = max(p.min, p.max/8)
	if !rate {
		p.initial = math.Floor(p.initial)
	}
	if r.IntN(2) == 0 {
		p.slo = time.Duration(float64(20*time.Millisecond) * math.Pow(100, r.Float64()))
	}
	return p
}

// differKnee lets law and specification run over the same ticks and reports the
// first one at which they part. The order of the terms of a sum is not
// specified, so the numbers may differ by rounding; the law goes on from the
// specification's, lest rounding adds up.
func differKnee(seed uint64, ticks int, seen *[NumDecisions]int) error {
	r := rand.New(rand.NewPCG(seed, 5))
	rate := r.IntN(2) == 0
	p := kneeParams(r, rate)
	law, spec := newKnee(p, rate), newKneeReference(p, rate)
	world := newKneeWorld(r, p, rate)
	for i := range ticks {
		in := world.next(spec.u, spec.SLO)
		got, why := law.step(in)
		want := spec.step(in)
		seen[why]++
		if !(math.Abs(got-want) <= 1e-9*want+1e-9) {
			return fmt.Errorf("seed %d, tick %d: the law says %v (%v), the specification %v\ninput %+v\nspecification %+v",
				seed, i, got, why, want, in, *spec)
		}
		law.target = spec.u
	}
	return nil
}

func TestKneeIsTheSpecification(t *testing.T) {
	var seen [NumDecisions]int
	const seeds, ticks = 2000, 500
	for seed := range uint64(seeds) {
		if err := differKnee(seed, ticks, &seen); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []Decision{
		Blind, Hold, Probe, SlowStart, Backoff, TailBackoff, Outage, Resume, Calibrate, Test, Restore, Drained,
	} {
		if seen[d] < seeds/10 {
			t.Errorf("%v: %d ticks of %d, too few to compare", d, seen[d], seeds*ticks)
		}
	}
	t.Logf("decisions compared: %v", seen)
}

func FuzzKneeIsTheSpecification(f *testing.F) {
	f.Add(uint64(1), uint16(200))
	f.Fuzz(func(t *testing.T, seed uint64, ticks uint16) {
		var seen [NumDecisions]int
		if err := differKnee(seed, int(ticks%2000), &seen); err != nil {
			t.Fatal(err)
		}
	})
}
