package exam

import (
	"math"
	"math/bits"
	"time"
)

// bins is the resolution of everything over time.
const bins = 240

// refusalCost is what a refused call that was sent costs, in good answers.
const refusalCost = 0.1

// account is what happened in a run. Good, late and charged calls are working
// calls: a cache's answers tell nothing about the service.
type account struct {
	slo   int64
	width int64

	good     [bins]int32 // answered inside the SLO, by the time of the answer
	refusals [bins]int32 // refused by the service after they were sent
	number   [bins]float64

	Offered int // requests for admission, those of tries again included
	Shed    int // of those, not admitted
	Sent    int
	Late    int // answered outside the SLO
	Refused int // of all calls sent, those refused by the service
	Lost    int // working calls that their callers gave up after a time-out
	Outage  int // sent while the service was at fault

	calmOffered, calmShed int // while nothing was short, in the last two thirds

	rtt      latencies // of working calls, answered
	total    latencies // the same with the wait for admission
	GoodHits int       // a cache's answers inside the SLO
	rtts     [bins]int64
	answers  [bins]int32
	fleet    []int32 // good answers by instance
	calmNow  bool
}

func (a *account) init(s *Spec) {
	a.slo, a.width = ns(s.SLO), ns(s.Length)/bins
	a.fleet = make([]int32, s.Fleet)
	a.calmNow = s.quiet(0)
}

// quiet reports that nothing is short at t, by the load that is asked for.
func (s *Spec) quiet(t int64) bool { return s.fault(t) == "" && !s.short(t) }

func (a *account) bin(now int64) int { return min(bins-1, int(now/a.width)) }

func (a *account) asked(_ *one, now int64) {
	a.Offered++
	if a.calmNow && now > bins/3*a.width {
		a.calmOffered++
	}
}

func (a *account) shed(_ *one, now int64) {
	a.Shed++
	if a.calmNow && now > bins/3*a.width {
		a.calmShed++
	}
}

func (n *run) sending(c *one, _ int64) {
	n.Sent++
	if n.wrong != "" {
		n.Outage++
	}
}

func (a *account) ended(c *one, o outcome, rtt, now int64) {
	b := a.bin(now)
	if o == refused || o == busy {
		a.Refused++
		if c.what == work {
			a.refusals[b]++
		}
	}
	if c.what != work {
		if (c.what == cacheHit || c.what == markedHit) && (o == answered || o == hitSaid) && rtt <= a.slo {
			a.GoodHits++
		}
		return
	}
	switch o {
	case answered:
		a.rtt.add(rtt)
		a.total.add(now - c.arrived)
		a.rtts[b] += rtt
		a.answers[b]++
		if rtt > a.slo {
			a.Late++
			return
		}
		a.good[b]++
		a.fleet[c.instance]++
	case timedOut:
		a.Lost++
	}
}

// sample ends a bin.
func (n *run) sample(b int) {
	for _, l := range n.limiters {
		n.number[b] += l.target()
	}
	n.calmNow = n.spec.quiet(n.now)
}

// worth is the score before it is compared, from bin from on.
func (a *account) worth(from int) float64 {
	sum := 0.0
	for b := from; b < bins; b++ {
		sum += float64(a.good[b]) - refusalCost*float64(a.refusals[b])
	}
	return sum
}

// latencies is a histogram with about 1 % resolution.
type latencies struct {
	counts [64 * 64]int32
	n      int
}

func (l *latencies) add(d int64) {
	l.n++
	l.counts[slot(d)]++
}

func slot(d int64) int {
	if d < 64 {
		return int(max(d, 0))
	}
	exp := bits.Len64(uint64(d)) - 1
	return min(len(latencies{}.counts)-1, (exp-5)*64+int(d>>(exp-6))-64)
}

func (l *latencies) quantile(q float64) time.Duration {
	if l.n == 0 {
		return 0
	}
	rank := int(math.Ceil(q * float64(l.n)))
	for i, c := range l.counts {
		if rank -= int(c); rank <= 0 {
			if i < 64 {
				return time.Duration(i)
			}
			exp := i/64 + 5
			return time.Duration((float64(i%64) + 64.5) * math.Pow(2, float64(exp-6)))
		}
	}
	return 0
}
