package exam

import (
	"math"
	"slices"
	"time"
)

// Result is what one arm did in one situation, beside what the oracle did.
type Result struct {
	Arm   string
	Raw   float64 // Score before it is cut to [0, 1]
	Score float64 // good answers less a tenth of each refused call, over the oracle's
	Last  float64 // the same over the last third
	Trap  bool    // Last is below a half

	Good, Late, Lost, Offered, Shed, Sent, Refused, Outage int

	Held     float64         // shed of what was offered while nothing was short
	Refusals float64         // refused of what was sent
	P50, P99 time.Duration   // from sending, of the answered calls
	Over50   float64         // P50 over the oracle's
	Over99   float64         // likewise
	Back     []time.Duration // from each return of the service until 90 % of the oracle's goodput; -1: never
	Swing    float64         // half of the number's span over its mean, in the last third
	Jain     float64         // fairness over the instances

	Number  [bins]float64
	Goodput [bins]int32
}

// trapBelow is the share of the oracle's worth in the last third under which a
// situation is a trap: nothing happens there any more, so it is not coming back.
const trapBelow = 0.5

// Play plays the situation with the oracle and the arms.
func Play(s Spec, arms []Arm) (oracle Result, results []Result) {
	best := truth(&s)
	oracle = judge(&s, best, best)
	for _, a := range arms {
		results = append(results, judge(&s, play(&s, a), best))
	}
	return oracle, results
}

// truth is the oracle's best run.
func truth(s *Spec) *run {
	var best *run
	shares := oracleShares
	if s.plenty() {
		shares = append([]float64{0}, shares...)
	}
	for _, share := range shares {
		n := play(s, oracleArm(share))
		if best == nil || n.worth(0) > best.worth(0) {
			best = n
		}
		if float64(n.Late+n.Refused) <= 0.03*float64(n.Sent)*s.workShare() {
			break
		}
	}
	best.arm.Name = "oracle"
	return best
}

func ratio(a, b float64) float64 {
	if b <= 0 {
		return 1
	}
	return min(1, max(0, a/b))
}

func judge(s *Spec, n, oracle *run) Result {
	r := Result{
		Arm: n.arm.Name, Offered: n.Offered, Shed: n.Shed, Sent: n.Sent, Late: n.Late, Lost: n.Lost,
		Refused: n.Refused, Outage: n.Outage, Goodput: n.good, Number: n.number,
	}
	for _, g := range n.good {
		r.Good += int(g)
	}
	const third = bins * 2 / 3
	r.Score = ratio(n.worth(0), oracle.worth(0))
	r.Raw = n.worth(0) / max(1, oracle.worth(0))
	r.Last = ratio(n.worth(third), oracle.worth(third))
	// Of a handful of answers a half proves nothing.
	r.Trap = r.Last < trapBelow && oracle.worth(third) >= 10
	r.Held = float64(n.calmShed) / float64(max(1, n.calmOffered))
	r.Refusals = float64(n.Refused) / float64(max(1, n.Sent))
	r.P50, r.P99 = n.rtt.quantile(0.5), n.rtt.quantile(0.99)
	r.Over50 = float64(r.P50) / max(1, float64(oracle.rtt.quantile(0.5)))
	r.Over99 = float64(r.P99) / max(1, float64(oracle.rtt.quantile(0.99)))
	for _, t := range s.returns() {
		r.Back = append(r.Back, back(n, oracle, t))
	}
	lo, hi := slices.Min(n.number[third:]), slices.Max(n.number[third:])
	if lo+hi > 0 {
		r.Swing = (hi - lo) / (hi + lo)
	}
	r.Jain = jain(s, n.fleet)
	return r
}

// returns says when the service is better off than just before.
func (s *Spec) returns() (at []int64) {
	for _, f := range s.Faults {
		at = append(at, ns(f.At+f.For))
	}
	for _, t := range slices.Concat(s.Staff.edges(ns(s.Length)), s.Slow.edges(ns(s.Length))) {
		if s.capacity(t) > s.capacity(t-1) {
			at = append(at, t)
		}
	}
	slices.Sort(at)
	return slices.Compact(at)
}

// back is the time from t on until the goodput of some bins reaches 90 % of the
// oracle's, and does so in the next four times as many as well: the first ones
// say when it is back, the others that it did not only look so.
func back(n, oracle *run, t int64) time.Duration {
	sum := func(a *run, from, k int) (sum float64) {
		for b := from; b < from+k; b++ {
			sum += float64(a.good[b])
		}
		return sum
	}
	from := int(t / n.width)
	for b := from; b < bins-5; b++ {
		k := 1
		for b+5*k < bins && sum(oracle, b, k) < 20 {
			k++
		}
		if b+5*k > bins {
			break
		}
		if sum(n, b, k) >= 0.9*sum(oracle, b, k)-math.Sqrt(sum(oracle, b, k)) && sum(n, b, 5*k) >= 0.9*sum(oracle, b, 5*k) {
			return time.Duration(int64(b-from) * n.width)
		}
	}
	return -1
}

// jain is Jain's index of what each instance got of its share: 1 when all are
// served alike.
func jain(s *Spec, good []int32) float64 {
	var sum, squares float64
	w := s.shares()
	for i, g := range good {
		x := float64(g) / w[i]
		sum += x
		squares += x * x
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / squares / float64(len(good))
}
