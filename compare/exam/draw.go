package exam

import (
	"math"
	"strconv"
	"time"
)

// mostCalls bounds what a random situation offers.
const mostCalls = 120_000

// Draw returns the situation of a seed and an index. The ranges are wide on
// purpose: nobody has tuned anything for what comes out.
func Draw(seed, index uint64) Spec {
	r := random(seed, 6, index)
	s := Default()
	s.Seed = seed*1_000_003 + index

	d := &drawing{Spec: &s, rng: &r}
	d.service()
	d.calls()
	d.limiter()
	d.fit()
	d.changes()
	d.round()
	d.ceiling()
	return s
}

// drawing is a situation in the making.
type drawing struct {
	*Spec
	*rng
}

func sec(x float64) time.Duration { return time.Duration(math.Round(x * 1e9)) }

func (d *drawing) service() {
	mean := d.log(200e-6, 30)
	w := Work{Shape: "exp", Mean: sec(mean)}
	switch x := d.float(); {
	case x < 0.2:
		w.Shape = "det"
	case x < 0.45:
		w.Shape, w.A = "lognormal", d.between(0.3, 1.5)
	case x < 0.6:
		w.Shape, w.A, w.B = "bimodal", d.log(0.01, 0.3), d.log(3, 30)
	}
	d.Service = w
	d.Workers = int(d.log(1, 1000) + 0.5)
	if d.chance(0.25) {
		d.Base = Flat(mean * d.log(0.1, 2))
	}
	if d.chance(0.1) {
		d.Jitter = sec(mean * d.log(0.1, 2))
	}
	switch x := d.float(); {
	case x < 0.08:
		d.Sharing = true
	case x < 0.12:
		d.USL = USL{Contention: d.log(0.001, 0.05), Coherency: d.log(1e-6, 1e-3)}
	case x < 0.16:
		d.Then = []Stage{{Workers: int(d.log(1, 1000) + 0.5), Service: Work{Shape: "exp", Mean: sec(mean * d.log(0.1, 1))}}}
	case x < 0.19:
		every := max(0.02, mean) * d.log(0.5, 2)
		d.Throttle = Pulse{sec(every * d.between(0.1, 0.5)), sec(every)}
	}
}

func (d *drawing) calls() {
	d.Load = Flat(d.log(0.3, 3))
	switch x := d.float(); {
	case x < 0.08:
		d.Marked = d.part(3)
	case x < 0.16:
		d.Hits = d.part(3)
	case x < 0.26:
		d.Aborted = d.part(2)
	}
	if d.chance(0.08) {
		d.Streams = Streams{Share: d.log(0.003, 0.1) * d.workShare(), Last: sec(d.log(20, 120)), Marked: d.chance(0.5)}
	}
	lat := d.latency().Seconds()
	if d.Aborted > 0 {
		d.AbortedAfter = sec(lat * d.log(0.1, 10))
	}
	d.SLO = sec(min(100, lat*d.log(2.5, 50)))
	if d.chance(0.35) {
		d.Timeout = sec(d.SLO.Seconds() * d.log(1, 5))
	}
	if d.chance(0.15) {
		d.Retries = 1 + d.intn(3)
		d.Backoff = 0
		if d.chance(0.7) {
			d.Backoff = sec(d.log(0.01, 1))
		}
	}
	if d.chance(0.12) {
		d.Errors = d.between(0.01, 0.6)
	}
}

// part is a share of the calls: half of the time anything up to 0.9, and else
// between 0.9 and so many nines.
func (d *drawing) part(nines float64) float64 {
	if d.chance(0.5) {
		return d.between(0.05, 0.9)
	}
	return 1 - math.Pow(10, -d.between(1, nines))
}

func (d *drawing) limiter() {
	d.Start = d.log(0.01, 10)
	d.Max = max(d.log(2, 20), d.Start)
	d.Min = min(0.01, d.Start)
	if d.chance(0.25) {
		d.Fleet = 2 + d.intn(9)
		if d.chance(0.6) {
			d.Skew = d.between(0.2, 1.2)
		}
	}
}

// fit bounds the calls, but never below 200 latencies, and adds what depends on
// how many there are.
func (d *drawing) fit() {
	lat := d.latency().Seconds()
	least := max(60, 200*lat)
	length := max(least, d.log(60, 300))
	perSecond := func() float64 { return max(d.Load.Points[0].Value, 0.5) * d.nominal() }
	length = min(length, max(least, mostCalls/perSecond()))
	if f := mostCalls / (perSecond() * length); f < 1 {
		d.Workers = max(1, int(float64(d.Workers)*f))
		for i := range d.Then {
			d.Then[i].Workers = max(1, int(float64(d.Then[i].Workers)*f))
		}
	}
	if f := perSecond() * length / mostCalls; f > 1 { // one worker is still too fast: fewer calls that cost none
		if other := d.other(); other > 0 {
			less := (1 - min(1, f*(1-other))) / other
			for _, x := range []*float64{&d.Hits, &d.Marked, &d.Aborted, &d.Streams.Share} {
				*x *= less
			}
		}
	}
	if f := perSecond() * length / mostCalls; f > 1 { // and then a slower one
		d.Service.Mean = sec(d.Service.Mean.Seconds() * f)
		for i := range d.Then {
			d.Then[i].Service.Mean = sec(d.Then[i].Service.Mean.Seconds() * f)
		}
		d.SLO = sec(min(100, max(d.SLO.Seconds()*f, 2.5*d.latency().Seconds())))
		d.Timeout = sec(d.Timeout.Seconds() * f)
		d.AbortedAfter = sec(d.AbortedAfter.Seconds() * f)
		length = max(length, 200*d.latency().Seconds())
	}
	d.Length = sec(length)
	d.Fleet = max(1, min(d.Fleet, d.Workers))
	if d.Fleet == 1 {
		d.Skew = 0
	}
	if d.chance(0.2) && d.Fleet > 2 {
		at := sec(length * d.between(0.2, 0.6))
		d.Joins = []Join{{N: 1 + d.intn(d.Fleet-1), At: short(at), Leave: d.chance(0.5)}}
	}
	load := d.Load.Points[0].Value
	switch x := d.float(); {
	case x < 0.15:
		think := max(0.01, d.latency().Seconds()) * d.log(0.1, 30)
		per := load * d.nominal()
		d.Callers = int(bounded(per*(think+d.latency().Seconds())+0.5, 1, 3000))
		d.Think = sec(think)
	case x < 0.22:
		n := max(2, int(float64(d.Workers)*d.log(0.3, 3)))
		share := d.between(0.1, 0.5)
		d.Burst = Burst{n, sec(float64(n) / (share * load * d.nominal()))}
		d.Load = Flat(load * (1 - share))
	}
	if d.chance(0.1) {
		d.Queue = int(float64(d.Workers) * d.log(0.05, 3))
	}
	if d.chance(0.1) {
		d.Quota.Rate = min(1, load) * d.nominal() * d.between(0.3, 1)
		if d.chance(0.3) {
			d.Quota.Window = time.Second
			d.Quota.Rate = math.Ceil(d.Quota.Rate)
		} else {
			d.Quota.Burst = math.Ceil(d.log(1, 100))
		}
	}
}

// changes draws one to three things that happen, each in the first two thirds,
// so that the last third shows who has come back.
func (d *drawing) changes() {
	length := d.Length.Seconds()
	lat := d.latency().Seconds()
	room := 0.5*d.SLO.Seconds() - lat // for latency that the SLO can bear
	used := map[int]bool{}
	for range 1 + d.intn(3) {
		at := length * d.between(0.15, 0.5)
		length := (0.66*length - at) * d.between(0.2, 1)
		kind := d.intn(10)
		if used[kind] {
			continue
		}
		used[kind] = true
		switch kind {
		case 0, 1: // workers lost, for a while or for good
			if !used[1-kind] {
				d.Staff = d.Staff.change(d.between(0.1, 0.8), sec(at), d.maybe(length))
			}
		case 2: // workers that come
			if d.Staff.flat(1) && d.Workers > 1 {
				d.Staff = Curve{Points: []Point{{Value: d.between(0.2, 0.7)}, {Value: 1, At: sec(at)}}}
				used[0], used[1] = true, true
			}
		case 3: // latency that nobody here can help
			if room > 0 {
				base := d.Base.Points[0].Value
				d.Base = d.Base.change(base+min(room, lat*d.log(0.3, 10)), sec(at), d.maybe(length))
				used[4] = true
			}
		case 4:
			if room > 0 && d.Base.Form == "" && len(d.Base.Points) == 1 {
				base := d.Base.Points[0]
				d.Base.Points = []Point{base, {Value: base.Value, At: sec(at)},
					{Value: base.Value + min(room, lat*d.log(0.3, 10)), At: sec(at + length), Line: true}}
				used[3] = true
			}
		case 5:
			d.Slow = d.Slow.change(d.log(1.1, 4), sec(at), d.maybe(length))
		case 6, 7: // faults
			f := Fault{At: sec(at), For: sec(min(length, d.log(0.3, 30)))}
			kinds := []string{"refuse", "reject", "pause", "hang"}
			if d.Timeout == 0 {
				kinds = kinds[:3]
			}
			f.Kind = kinds[d.intn(len(kinds))]
			if len(d.Faults) == 0 {
				d.Faults = append(d.Faults, f)
			}
		case 8: // the load
			if d.Callers > 0 {
				continue
			}
			load := d.Load.Points[0].Value
			if d.chance(0.5) {
				d.Load = Curve{Form: "square", Period: sec(d.log(2, length+3)), A: load, B: load * d.between(0, 0.5)}
			} else {
				d.Load = d.Load.change(load*d.log(0.2, 1.5), sec(at), d.maybe(length))
			}
		case 9: // the limiter's own ticks
			if d.chance(0.5) {
				d.Ticks = Curve{Points: []Point{{}, {Value: d.between(0.3, 1), At: sec(at)}}}
			} else {
				every := d.log(2, 20)
				d.Stall = Pulse{sec(every * d.between(0.05, 0.3)), sec(every)}
			}
		}
	}
}

// ceiling lifts the ceiling to twice of what is right at any time for the busiest
// instance: what is promised to the service is not what is examined here.
func (d *drawing) ceiling() {
	atStart, latency := d.rightRate(), d.latency().Seconds()
	most := 1.0
	for i := range int64(100) {
		t := ns(d.Length) / 100 * i
		c := d.capacity(t) / atStart
		most = max(most, c, c*(latency+max(0, d.Base.at(t)-d.Base.at(0)))/latency)
	}
	shares, there := d.shares(), 1.0
	for _, j := range d.Joins {
		for i := d.Fleet - j.N; i < d.Fleet; i++ {
			there -= shares[i]
		}
	}
	d.Max = digits(max(d.Max, 2*most*float64(d.Fleet)*shares[0]/there), 3)
}

func (d *drawing) maybe(length float64) time.Duration {
	if d.chance(0.5) {
		return sec(length)
	}
	return 0
}

// round leaves three digits of everything, so that the text can be read.
func (d *drawing) round() {
	for _, x := range []*time.Duration{&d.Service.Mean, &d.Jitter, &d.Throttle.For, &d.Throttle.Every, &d.Burst.Every,
		&d.Think, &d.Timeout, &d.Backoff, &d.AbortedAfter, &d.Streams.Last, &d.SLO, &d.Stall.For, &d.Stall.Every, &d.Length} {
		*x = short(*x)
	}
	for _, x := range []*float64{&d.Service.A, &d.Service.B, &d.USL.Contention, &d.USL.Coherency, &d.Quota.Rate,
		&d.Aborted, &d.Errors, &d.Streams.Share, &d.Start, &d.Min, &d.Max, &d.Skew} {
		*x = digits(*x, 3)
	}
	if d.Aborted <= 0 {
		d.Aborted, d.AbortedAfter = 0, 0
	}
	if d.Streams.Share <= 0 {
		d.Streams = Streams{}
	}
	d.Hits, d.Marked = max(0, d.Hits), max(0, d.Marked)
	// Of a share near 1 what is missing counts.
	d.Hits, d.Marked, d.Aborted = nearOne(d.Hits), nearOne(d.Marked), nearOne(d.Aborted)
	for _, c := range []*Curve{&d.Base, &d.Staff, &d.Slow, &d.Load, &d.Ticks} {
		c.Period, c.A, c.B = short(c.Period), digits(c.A, 3), digits(c.B, 3)
		for i := range c.Points {
			c.Points[i].Value = digits(c.Points[i].Value, 3)
			c.Points[i].At = short(c.Points[i].At)
		}
	}
	for _, c := range []*Curve{&d.Base, &d.Ticks} { // as a duration reads back
		for i := range c.Points {
			c.Points[i].Value = sec(c.Points[i].Value).Seconds()
		}
	}
	for i := range d.Faults {
		d.Faults[i].At, d.Faults[i].For = short(d.Faults[i].At), short(d.Faults[i].For)
	}
	for i := range d.Then {
		d.Then[i].Service.Mean = short(d.Then[i].Service.Mean)
	}
	d.Service.Mean = max(d.Service.Mean, time.Microsecond)
	d.Start = bounded(d.Start, d.Min, d.Max)
}

func short(t time.Duration) time.Duration { return time.Duration(digits(float64(t), 3)) }

func digits(x float64, n int) float64 {
	y, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'g', n, 64), 64)
	return y
}

func nearOne(x float64) float64 {
	if x == 0 {
		return 0
	}
	return digits(1-digits(1-x, 2), 6)
}
