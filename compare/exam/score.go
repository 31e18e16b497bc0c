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

	Good, GoodHits, Late, Lost, Offered, Shed, Sent, Refused, Outage int

	Held     float64       // shed of what was offered while nothing was short
	Refusals float64       // refused of what was sent
	Inside   float64       // of the answered calls, inside the SLO
	P50, P99 time.Duration // from sending, of the answered calls
	Wait50   time.Duration // with the wait for admission
	Wait99   time.Duration
	Over50   float64         // P50 over the oracle's
	Over99   float64         // likewise
	Back     []time.Duration // from each step of the situation until 90 % of the oracle's goodput; -1: never
	Swing    float64         // half of the number's span over its mean, in the last third
	Jain     float64         // fairness over the instances

	// Over time, in equal parts of the run.
	Number  [bins]float64 // the instances' rates or limits together
	Goodput [bins]float64 // good answers a second
	RTT     [bins]float64 // mean round trip in seconds
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
		Refused: n.Refused, Outage: n.Outage, GoodHits: n.GoodHits, Number: n.number,
	}
	for b, g := range n.good {
		r.Good += int(g)
		r.Goodput[b] = float64(g) / float64(n.width) * 1e9
		r.RTT[b] = float64(n.rtts[b]) / 1e9 / float64(max(1, n.answers[b]))
	}
	r.Inside = float64(r.Good) / float64(max(1, r.Good+r.Late))
	const third = bins * 2 / 3
	r.Score = ratio(n.worth(0), oracle.worth(0))
	r.Raw = n.worth(0) / max(1, oracle.worth(0))
	r.Last = ratio(n.worth(third), oracle.worth(third))
	// Of a handful of answers a half proves nothing.
	r.Trap = r.Last < trapBelow && oracle.worth(third) >= 10
	r.Held = float64(n.calmShed) / float64(max(1, n.calmOffered))
	r.Refusals = float64(n.Refused) / float64(max(1, n.Sent))
	r.P50, r.P99 = n.rtt.quantile(0.5), n.rtt.quantile(0.99)
	r.Wait50, r.Wait99 = n.total.quantile(0.5), n.total.quantile(0.99)
	r.Over50 = float64(r.P50) / max(1, float64(oracle.rtt.quantile(0.5)))
	r.Over99 = float64(r.P99) / max(1, float64(oracle.rtt.quantile(0.99)))
	steps := s.Steps()
	for i, t := range steps {
		to := n.end
		if i+1 < len(steps) {
			to = ns(steps[i+1])
		}
		r.Back = append(r.Back, back(n, oracle, ns(t), to))
	}
	lo, hi := slices.Min(n.number[third:]), slices.Max(n.number[third:])
	if lo+hi > 0 {
		r.Swing = (hi - lo) / (hi + lo)
	}
	r.Jain = jain(s, n.fleet)
	return r
}

// Steps returns when something changes for good or for a while, and when a fault
// is over. What alternates has no steps.
func (s *Spec) Steps() (at []time.Duration) {
	for _, f := range s.Faults {
		at = append(at, f.At+f.For)
	}
	for _, c := range []Curve{s.Staff, s.Slow, s.Base, s.Load} {
		for i, p := range c.Points {
			if i > 0 && !p.Line && p.Value != c.Points[i-1].Value {
				at = append(at, p.At)
			}
		}
	}
	slices.Sort(at)
	at = slices.Compact(at)
	return slices.DeleteFunc(at, func(t time.Duration) bool { return t <= 0 || t >= s.Length })
}

// back is the time from t on until the goodput reaches 90 % of the oracle's in
// some bins and in the next four times as many as well: the first ones say when
// it is back, the others that it did not only look so. -1: not before to.
func back(n, oracle *run, t, to int64) time.Duration {
	sum := func(a *run, from, k int) (sum float64) {
		for b := from; b < from+k; b++ {
			sum += float64(a.good[b])
		}
		return sum
	}
	from, last := int(t/n.width), int(to/n.width)
	for b := from; b < last; b++ {
		k := max(1, int(ns(time.Second)/n.width))
		for b+k < last && sum(oracle, b, k) < 20 {
			k++
		}
		more := min(5*k, last-b)
		if b+k > last || more < 2*k {
			break
		}
		chance := math.Sqrt(sum(oracle, b, k)) // of what is counted
		if sum(n, b, k) >= 0.9*sum(oracle, b, k)-chance && sum(n, b, more) >= 0.9*sum(oracle, b, more) {
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
