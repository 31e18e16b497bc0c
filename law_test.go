package agilelimiter

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// eachLaw runs f for both actuators, with an SLO and without.
func eachLaw(t *testing.T, f func(t *testing.T, rate bool, slo time.Duration)) {
	t.Helper()
	for _, rate := range []bool{true, false} {
		for _, slo := range []time.Duration{500 * ms, 0} {
			name := map[bool]string{true: "rate", false: "limit"}[rate] + map[bool]string{true: " with SLO", false: ""}[slo > 0]
			t.Run(name, func(t *testing.T) { t.Parallel(); f(t, rate, slo) })
		}
	}
}

// sound steps two instances and reports unless they agree on a finite number
// inside the bounds, for a reason that has a name.
func sound(a, b *knee, in tickInput) error {
	x, why := a.step(in)
	y, whyB := b.step(in)
	base, fast, window := a.signals()
	switch {
	case !(x >= a.min && x <= a.max):
		return fmt.Errorf("the number is %v (%v), outside [%v, %v]", x, why, a.min, a.max)
	case x != y || why != whyB:
		return fmt.Errorf("two instances with the same ticks say %v (%v) and %v (%v)", x, why, y, whyB)
	case int(why) >= NumDecisions:
		return fmt.Errorf("an undefined decision, %v", why)
	case base < 0 || fast < 0 || window < 0 || a.cutoff() < 0:
		return fmt.Errorf("baseline %v, fast %v, window %v, cutoff %v: none may be negative", base, fast, window, a.cutoff())
	}
	return nil
}

// anyTick is a tick as no service makes it: every count for itself.
func anyTick(r *rand.Rand, cutoff time.Duration) (in tickInput) {
	count := func() int {
		if r.IntN(3) == 0 {
			return 0
		}
		return int(math.Exp(r.Float64() * math.Log(1e5)))
	}
	span := func(lo, hi float64) float64 { return lo * math.Exp(r.Float64()*math.Log(hi/lo)) }
	in.elapsed = span(0.001, 3600)
	in.reached, in.unreachable, in.aborted, in.admitted = count(), count(), count(), count()
	in.samples = in.reached
	if in.reached > 0 {
		in.truncated, in.overSLO = min(count(), in.reached), min(count(), in.reached)
		d := span(1e-6, 3600)
		in.latencySum = float64(in.reached) * min(d, cutoff.Seconds())
		in.p50, in.p99 = seconds(d), seconds(d*span(1, 10))
	}
	in.lostTime, in.abortedTime = float64(in.unreachable)*span(1e-6, 60), float64(in.aborted)*span(1e-6, 60)
	in.binding = r.IntN(2) == 0
	in.inFlight = count()
	in.held = min(count(), in.inFlight)
	left, age := in.inFlight-in.held, 0.0
	for i := range in.ages.n {
		n := min(count(), left)
		in.ages.n[i], in.ages.age[i] = int32(n), age
		left -= n
		age += span(0.001, 600)
	}
	return in
}

func anyKnee(r *rand.Rand, rate bool, slo time.Duration) (a, b *knee) {
	p := &params{anchor: AnchorKnee, tick: 250 * ms, min: 1, max: math.Exp(r.Float64() * 14), slo: slo}
	p.initial = p.min + r.Float64()*(p.max-p.min)
	return newKnee(p, rate), newKnee(p, rate)
}

// Whatever the ticks say, the number is finite and inside the bounds, the same
// ticks give the same numbers, and each decision has a name.
func TestKneeIsSound(t *testing.T) {
	eachLaw(t, func(t *testing.T, rate bool, slo time.Duration) {
		for seed := range uint64(100) {
			r := rand.New(rand.NewPCG(seed, 5))
			a, b := anyKnee(r, rate, slo)
			for i := range 200 {
				in := anyTick(r, a.cutoff())
				if err := sound(a, b, in); err != nil {
					t.Fatalf("seed %d, tick %d, %+v: %v", seed, i, in, err)
				}
			}
		}
	})
}

func FuzzKneeIsSound(f *testing.F) {
	f.Add(uint8(0), []byte("sixteen bytes a tick make several of them, so this is a start for the corpus"))
	f.Add(uint8(3), make([]byte, 160))
	f.Add(uint8(1), []byte(strings.Repeat("\xff", 160)))
	f.Fuzz(func(t *testing.T, config uint8, data []byte) {
		rate, slo := config&1 != 0, time.Duration(config>>1&3)*150*ms
		a, b := anyKnee(rand.New(rand.NewPCG(uint64(config), 9)), rate, slo)
		for ; len(data) >= 16; data = data[16:] {
			r := rand.New(rand.NewPCG(binary.LittleEndian.Uint64(data), binary.LittleEndian.Uint64(data[8:])))
			in := anyTick(r, a.cutoff())
			if err := sound(a, b, in); err != nil {
				t.Fatalf("%+v: %v", in, err)
			}
		}
	})
}

// A tick in which no time passed changes nothing.
func TestKneeWithoutTimeNothingChanges(t *testing.T) {
	eachLaw(t, func(t *testing.T, rate bool, slo time.Duration) {
		k, w := worldKnee(rate, 1, 10, 0.02, slo)
		w.run(30, 0.25)
		before := w.number
		for _, elapsed := range []float64{0, -1} {
			if x, why := k.step(tickInput{reached: 10, unreachable: 5, latencySum: 3, inFlight: 3, elapsed: elapsed}); x != before || why != Blind {
				t.Errorf("a tick of %v s: %v (%v), want %v (blind)", elapsed, x, why, before)
			}
		}
	})
}

// healthy lets ten minutes of a load pass that the service bears easily, then
// ten of one that it does not, and says what is wrong then. fresh is what a law
// that has seen nothing else serves of the latter.
func (w *lawWorld) healthy(fresh float64) error {
	easy, hard := w.shares()
	switch {
	case easy < 0.9:
		return fmt.Errorf("%.3f of a load that the service bears is served after ten healthy minutes: %s", easy, w.state())
	case hard < 0.85*fresh:
		return fmt.Errorf("%.3f of the capacity is served after ten minutes of overload, a fresh law serves %.3f: %s", hard, fresh, w.state())
	}
	return nil
}

// shares is what of an easy load, and of the capacity in an overload, is served
// well in the last two of ten minutes.
func (w *lawWorld) shares() (easy, hard float64) {
	w.fault, w.errors, w.hits, w.aborted, w.timeout = worldUp, 0, 0, 0, 0
	w.load = 0.6 * w.capacity()
	w.run(480, 0.25)
	easy = w.run(120, 0.25)
	w.load = 1.4 * w.capacity()
	w.run(480, 0.25)
	return easy, w.run(120, 0.25) * w.load / w.capacity()
}

// freshShare is what a law serves in an overload that has seen nothing else.
func freshShare(rate bool, slo time.Duration) (share float64) {
	for seed := range uint64(5) {
		_, w := worldKnee(rate, seed+1000, 4, 0.1, slo)
		_, hard := w.shares()
		share += hard / 5
	}
	return share
}

func (w *lawWorld) state() string {
	base, fast, window := w.law.signals()
	return fmt.Sprintf("number %.4g (%v), base %v, latency %v, window %v, in flight %d", w.number, w.why, base, fast, window, len(w.open))
}

// latched collects what did not come back, by seed.
type latched []string

func (l *latched) add(seed uint64, err error) {
	if err != nil {
		*l = append(*l, fmt.Sprintf("seed %d: %v", seed, err))
	}
}

func (l latched) report(t *testing.T, of int) {
	t.Helper()
	if len(l) > 0 {
		t.Errorf("%d of %d did not come back:\n%s", len(l), of, strings.Join(l[:min(len(l), 8)], "\n"))
	}
}

// From any state that ticks can lead to, ten healthy minutes lead back.
func TestKneeComesBackFromAnyTicks(t *testing.T) {
	eachLaw(t, func(t *testing.T, rate bool, slo time.Duration) {
		const seeds = 20
		var all latched
		fresh := freshShare(rate, slo)
		for seed := range uint64(seeds) {
			k, w := worldKnee(rate, seed, 4, 0.1, slo)
			for range 1 + w.r.IntN(100) {
				w.number, w.why = k.step(anyTick(w.r, k.cutoff()))
			}
			all.add(seed, w.healthy(fresh))
		}
		all.report(t, seeds)
	})
}

// The same after ten stretches of anything that a service and its callers do.
func TestKneeComesBackFromAnyWorld(t *testing.T) {
	eachLaw(t, func(t *testing.T, rate bool, slo time.Duration) {
		const seeds = 20
		var all latched
		fresh := freshShare(rate, slo)
		for seed := range uint64(seeds) {
			r := rand.New(rand.NewPCG(seed, 77))
			_, w := worldKnee(rate, seed, 4, 0.1, slo)
			service := w.service
			for range 10 {
				w.load = w.capacity() * math.Exp(r.Float64()*4-2.3)
				w.service = service * math.Exp(r.Float64()*3-1)
				w.timeout = 1 + 9*r.Float64()
				w.fault = worldUp
				if r.IntN(3) == 0 {
					w.fault = worldFault(1 + r.IntN(int(numWorldFaults)-1))
				}
				w.errors, w.hits, w.aborted = 0, 0, 0
				switch r.IntN(4) {
				case 0:
					w.errors = r.Float64()
				case 1:
					w.hits = 1 - math.Exp(-5*r.Float64())
				case 2:
					w.aborted = r.Float64()
				}
				w.run(60*r.Float64(), 0.05*math.Exp(r.Float64()*3))
			}
			w.service = service
			all.add(seed, w.healthy(fresh))
		}
		all.report(t, seeds)
	})
}

// An outage of any kind and length ends by itself: the number is back, and soon.
func TestKneeOutagesEnd(t *testing.T) {
	for _, test := range []struct {
		name    string
		fault   worldFault
		timeout float64
	}{
		{"refusal", worldRefuses, 0},
		{"503", worldRejects, 10},
		{"hang, time-out 1 s", worldHangs, 1},
		{"hang, time-out 10 s", worldHangs, 10},
		{"hang, no time-out", worldHangs, 0}, // those calls never end
		{"pause", worldPauses, 0},
		{"pause, time-out 2 s", worldPauses, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			eachLaw(t, func(t *testing.T, rate bool, slo time.Duration) {
				const seeds = 3
				for _, length := range []float64{0.3, 2, 100} {
					for _, load := range []float64{0.5, 1.4} {
						before, after := 0.0, 0.0
						var states latched
						for seed := range uint64(seeds) {
							k, w := worldKnee(rate, seed, 10, 0.02, slo)
							if test.fault == worldHangs && !rate {
								k.max = 2000 // room for the calls that never end
							}
							w.load = load * w.capacity()
							w.timeout = test.timeout
							w.run(40, 0.25)
							w.run(20, 0.25)
							before += float64(w.good)
							states = append(states, fmt.Sprintf("seed %d before: %s", seed, w.state()))
							w.fault = test.fault
							w.run(length, 0.25)
							w.fault = worldUp
							w.run(10+test.timeout, 0.25)
							w.run(20, 0.25)
							after += float64(w.good)
							states = append(states, fmt.Sprintf("seed %d after: %s", seed, w.state()))
						}
						if after < 0.85*before {
							t.Errorf("%v s at %v of the capacity: %.3f of what was served before is served 10 to 30 s after the end\n%s",
								length, load, after/before, strings.Join(states, "\n"))
						}
					}
				}
			})
		})
	}
}

// At rest in an overload: the number serves what the service can do, the signals
// are what a user reads them for, and nothing rings.
func TestKneeAtRest(t *testing.T) {
	eachLaw(t, func(t *testing.T, rate bool, slo time.Duration) {
		for seed := range uint64(3) {
			k, w := worldKnee(rate, seed, 20, 0.05, slo)
			w.load = 1.4 * w.capacity()
			w.run(60, 0.25)
			lo, hi := math.Inf(1), 0.0
			share := 0.0
			for range 60 {
				share += w.run(1, 0.25) * w.load / w.capacity() / 60
				lo, hi = min(lo, w.number), max(hi, w.number)
			}
			if share < 0.85 {
				t.Errorf("seed %d: %.3f of the capacity is served, want 0.85: %s", seed, share, w.state())
			}
			_, fast, window := k.signals()
			if window < 50*ms || window > 500*ms {
				t.Errorf("seed %d: the window is %v, want between a call's 50 ms and 0.5 s", seed, window)
			}
			if fast < 25*ms || fast > 500*ms {
				t.Errorf("seed %d: the latency is %v, want some 50 ms to 0.5 s", seed, fast)
			}
			if slo > 0 && hi > 4*lo {
				t.Errorf("seed %d: the number swings from %.4g to %.4g", seed, lo, hi)
			}
		}
	})
}

// Marked hits say nothing about the rest: the number counts both, the law steers
// by the rest. (Wanted is 0.97; a rate reaches 0.955.)
func TestKneeWithHitsSetAside(t *testing.T) {
	eachLaw(t, func(t *testing.T, rate bool, slo time.Duration) {
		for _, hits := range []float64{0.8, 0.95} {
			k, w := worldKnee(rate, 1, 10, 0.05, slo)
			w.hits = hits
			k.max *= 1 / (1 - hits)
			w.load = 0.7 * w.capacity() / (1 - hits)
			w.run(60, 0.25)
			if share := w.run(60, 0.25); share < 0.94 {
				t.Errorf("%v of the calls are marked hits, nothing is short: %.3f are served, want all: %s", hits, share, w.state())
			}
		}
	})
}

// At the floor there is no queue of ours: a latency that has risen meanwhile is
// learnt, and the number leaves the floor.
func TestKneeLeavesTheFloor(t *testing.T) {
	eachLaw(t, func(t *testing.T, rate bool, slo time.Duration) {
		for _, slower := range []float64{1, 2, 4} {
			k, w := worldKnee(rate, 1, 20, 0.02, slo)
			w.load = 0.5 * w.capacity()
			w.run(60, 0.25)
			k.target, w.number = k.min, k.min
			w.service *= slower
			w.load /= slower
			w.run(60, 0.25)
			if share := w.run(30, 0.25); share < 0.9 {
				t.Errorf("from the floor, calls %v times slower: %.3f are served after a minute, want 0.9: %s", slower, share, w.state())
			}
		}
	})
}

// In an outage the number goes down to a probe of some calls a second, and half
// of it is back at the first answer.
func TestKneeOutageSendsLittle(t *testing.T) {
	eachLaw(t, func(t *testing.T, rate bool, slo time.Duration) {
		k, w := worldKnee(rate, 1, 10, 0.02, slo)
		w.run(60, 0.25)
		before := w.number
		w.fault = worldRefuses
		w.run(10, 0.25)
		if w.why != Outage {
			t.Errorf("ten seconds of refusals are called %v, want %v", w.why, Outage)
		}
		w.run(10, 0.25)
		if most := max(2, k.min) * 10; rate && float64(w.sent) > most {
			t.Errorf("%d calls are sent in 10 s of an outage, want %.0f at most", w.sent, most)
		}
		w.fault = worldUp
		resumed := false
		for range 20 {
			w.tick(0.25)
			if resumed = resumed || w.why == Resume; resumed {
				break
			}
		}
		// An idle number may have stood far above what was used.
		if least := 0.4 * min(before, w.useful()); !resumed || w.number < least {
			t.Errorf("at the first answers: resumed %t, number %.4g of %.4g, want %.4g at least", resumed, w.number, before, least)
		}
	})
}

// useful is the number that the load needs at least.
func (w *lawWorld) useful() float64 {
	if w.rate {
		return w.load
	}
	return w.load * w.service
}

// A tick without refusals or growth says so: the decision agrees with where the
// number goes.
func TestKneeDecisionsAgreeWithTheDirection(t *testing.T) {
	eachLaw(t, func(t *testing.T, rate bool, slo time.Duration) {
		for seed := range uint64(10) {
			r := rand.New(rand.NewPCG(seed, 3))
			k, w := worldKnee(rate, seed, 10, 0.02, slo)
			for range 2000 {
				if r.IntN(100) == 0 {
					w.load = w.capacity() * math.Exp(r.Float64()*3-1.5)
					w.service = 0.02 * math.Exp(r.Float64()*2)
					w.fault = worldFault(r.IntN(10))
					if w.fault >= worldHangs {
						w.fault = worldUp
					}
				}
				before := k.target
				w.tick(0.25)
				after, small := k.target, 1e-9*before
				switch w.why {
				case Hold, Blind:
					if math.Abs(after-before) > small {
						t.Fatalf("seed %d at %.1f s: %v, and the number goes from %v to %v", seed, w.now, w.why, before, after)
					}
				case Probe, SlowStart, Resume, Restore:
					if after < before-small {
						t.Fatalf("seed %d at %.1f s: %v, and the number falls from %v to %v", seed, w.now, w.why, before, after)
					}
				case Backoff, TailBackoff, LossBackoff, Outage:
					if after > before+small {
						t.Fatalf("seed %d at %.1f s: %v, and the number rises from %v to %v", seed, w.now, w.why, before, after)
					}
				}
			}
		}
	})
}

// Late ticks cost little: the law goes by time, and counts no ticks.
func TestKneeBearsLateTicks(t *testing.T) {
	eachLaw(t, func(t *testing.T, rate bool, slo time.Duration) {
		share := func(tick func(r *rand.Rand) float64) (sum float64) {
			for seed := range uint64(3) {
				r := rand.New(rand.NewPCG(seed, 4))
				_, w := worldKnee(rate, seed, 30, 0.1, slo)
				w.load = 1.4 * w.capacity()
				w.run(30, 0.25)
				w.offered, w.good = 0, 0
				for end := w.now + 60; w.now < end; {
					w.tick(tick(r))
				}
				sum += float64(w.good) / float64(w.offered) / 3
			}
			return sum
		}
		punctual := share(func(*rand.Rand) float64 { return 0.25 })
		for name, tick := range map[string]func(*rand.Rand) float64{
			"100 ms":                 func(*rand.Rand) float64 { return 0.1 },
			"600 ms":                 func(*rand.Rand) float64 { return 0.6 },
			"now and then a second":  func(r *rand.Rand) float64 { return 0.25 + 0.75*float64(r.IntN(8)/7) },
			"anything from 50 ms on": func(r *rand.Rand) float64 { return 0.05 + r.ExpFloat64()*0.2 },
		} {
			if got := share(tick); got < 0.88*punctual {
				t.Errorf("ticks of %s: %.3f of the calls are served well, %.3f with punctual ones", name, got, punctual)
			}
		}
	})
}
