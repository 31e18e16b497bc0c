package agilelimiter

import "math"

// measured is what the calls showed lately: sums that decay with elapsed time,
// and what they say. In the comments D, R and W are the names of docs/control-law.md.
type measured struct {
	cut float64 // no call weighs more than this in the latency

	// Sums over the memory.
	sumTime, sumEnded, sumLatency, sumDelivered   float64
	sumReturned, sumAnswers, sumBad               float64
	sumAborted, sumAdmitted, sumLate, sumLostTime float64
	sumAll                                        float64 // ended calls of every kind

	alpha     float64 // the weight of this tick
	delivered float64 // D: good answers per second
	sent      float64 // calls admitted per second
	returned  float64 // R: calls that came back without being lost, per second
	latency   float64 // W: mean duration of the calls reached, each cut
	badShare  float64 // of the answers, how many were refused or lost
	tail      float64 // p99, slowly forgotten
	abortAge  float64 // mean duration of aborted calls

	// The open calls.
	inFlight float64 // those too old to say anything left out
	stuck    int     // those too old
	mixed    float64 // share of inFlight that will be aborted
	waiting  float64 // those that will be answers: all of them
	own      float64 // and without those that say nothing yet
	growth   float64 // of waiting since the last tick

	overdueAge float64 // an open call that is older is overdue
	quiet      float64 // seconds since anything ended although it was due
	outageCut  float64 // open calls older than this hang since an outage; 0: none
	lossRun    float64 // losses in a row
	lossBefore float64 // the bad share before them

	binding bool    // for the time of some three samples after it was seen
	bound   float64 // seconds since it was seen
}

const (
	memorySamples = 20   // a counting error of 22 %
	longestMemory = 40   // seconds; what is older describes another day
	cutSLO        = 4    // × SLO: well above it, or a standing queue looks no longer than the cut
	cutBase       = 20   // × the latency, without an SLO
	firstCut      = 60   // seconds, until a latency is known
	minLatency    = 1e-6 // seconds; keeps every quotient finite
)

func (m *measured) init(slo float64) {
	m.cut = firstCut
	if slo > 0 {
		m.cut = cutSLO * slo
	}
}

// add takes what one tick saw. It reports false while nothing can be said.
func (m *measured) add(in tickInput) bool {
	t := in.elapsed
	ended, own := float64(in.reached), float64(in.reached-in.truncated)
	lost := float64(in.unreachable + in.truncated)
	if m.lossRun == 0 {
		m.lossBefore = (m.sumBad + 1) / (m.sumAnswers + 2)
	}
	m.alpha = 1 - math.Exp(-t/m.memory(in))
	add := func(sum *float64, x float64) { *sum += x - m.alpha**sum }
	add(&m.sumTime, t)
	add(&m.sumEnded, ended)
	add(&m.sumLatency, in.latencySum)
	add(&m.sumDelivered, own)
	add(&m.sumReturned, own+float64(in.aborted))
	add(&m.sumAnswers, own+lost)
	add(&m.sumBad, lost)
	add(&m.sumLate, float64(in.overSLO))
	add(&m.sumLostTime, in.lostTime)
	add(&m.sumAborted, float64(in.aborted))
	add(&m.sumAdmitted, float64(in.admitted))
	add(&m.sumAll, own+lost+float64(in.aborted))
	if in.aborted > 0 {
		m.abortAge += max(m.alpha, 1/(m.sumReturned+1)) * (in.abortedTime/float64(in.aborted) - m.abortAge)
	}

	m.lookAtOpen(in)
	if in.binding {
		m.bound = 0
	} else {
		m.bound += t
	}
	m.binding = in.binding || m.bound*m.sumAll < 3*m.sumTime
	if m.sumEnded < 0.5 {
		return false
	}
	m.conclude()
	return true
}

// memory is how far the sums look back: two ticks, one latency, or the time of
// twenty samples, whichever is most.
func (m *measured) memory(in tickInput) float64 {
	rate := float64(in.reached) / in.elapsed
	if m.sumTime > 0 {
		rate = max(rate, m.sumEnded/m.sumTime)
	}
	return min(longestMemory, max(2*in.elapsed, m.latency, memorySamples/max(rate, 1e-9)))
}

// lookAtOpen judges the open calls by their age.
func (m *measured) lookAtOpen(in tickInput) {
	m.tail = max(in.p99.Seconds(), m.tail*(1-m.alpha/4))
	m.overdueAge = max(2*m.latency, m.tail, 2*m.abortAge)
	limit := m.cut
	if m.outageCut > 0 {
		m.outageCut += in.elapsed
		limit = min(limit, max(m.overdueAge, m.outageCut))
		if m.outageCut > m.cut {
			m.outageCut = 0
		}
	}
	young := in.ages.between(0, limit)
	m.inFlight = float64(young + in.held)
	m.stuck = max(0, in.inFlight-young-in.held)
	aborted := 0.0
	if m.sumAll > 0 { // Little's law, from the admissions: the ends come late
		aborted = m.sumAdmitted / m.sumTime * m.sumAborted / m.sumAll * min(m.abortAge, limit)
	}
	m.mixed = aborted / max(1, m.inFlight, aborted)
	// Of the others as many will be answers as lately, by the time they took.
	answers := (m.sumLatency + minLatency) / (m.sumLatency + m.sumLostTime + minLatency)
	waiting := max(0, m.inFlight-aborted) * answers
	// A call younger than the latency says nothing yet. Where the latency is
	// shorter than a tick every open call is taken to be older.
	silent := min(m.latency, max(0, 2*(m.latency-in.elapsed)))
	due := in.ages.older(silent, limit, in.elapsed)
	if in.first {
		m.waiting = waiting // nothing to compare it with
	}
	m.growth = (waiting - m.waiting) * min(1, due/max(1, m.inFlight))
	m.waiting, m.own = waiting, min(waiting, m.delivered*m.latency+due)
	m.overdue(in)
}

// overdue watches for a time in which nothing ends although it is due.
func (m *measured) overdue(in tickInput) {
	n := in.ages.between(m.overdueAge, m.cut)
	if in.reached+in.unreachable+in.aborted > 0 || n == 0 || in.admitted == 0 && !in.binding {
		m.quiet = 0
	} else {
		m.quiet += in.elapsed
	}
}

// conclude draws the signals from the sums.
func (m *measured) conclude() {
	m.delivered = max(m.sumDelivered, 1e-9) / m.sumTime
	m.returned = m.sumReturned / m.sumTime
	m.sent = m.sumAdmitted / m.sumTime
	m.badShare = m.sumBad / max(m.sumAnswers, 1e-9)
	m.latency = max(m.sumLatency/m.sumEnded, minLatency)
}

// silent reports that nothing ends any more: by chance ten calls would have
// ended by now.
func (m *measured) silent() bool {
	return m.sumAll > 0 && m.quiet > max(m.overdueAge, 10*m.sumTime/m.sumAll)
}

// forget starts the sums anew.
func (m *measured) forget() {
	m.sumTime, m.sumEnded, m.sumLatency, m.sumDelivered = 0, 0, 0, 0
	m.sumReturned, m.sumAnswers, m.sumBad, m.sumAborted, m.sumAdmitted, m.sumAll = 0, 0, 0, 0, 0, 0
	m.tail, m.quiet, m.sumLate, m.sumLostTime = 0, 0, 0, 0
}

// older returns how many of the open calls younger than most are older than
// age; within a class ages are taken to be spread evenly.
func (o *openCalls) older(age, most, elapsed float64) (n float64) {
	top := elapsed // of the youngest class
	for i, c := range o.n {
		low := o.age[i]
		if i+1 < len(o.age) {
			top = max(top, o.age[i+1])
		}
		if c > 0 && low < most {
			n += float64(c) * min(1, max(0, (top-age)/max(top-low, 1e-9)))
		}
	}
	return n
}

// between returns the number of the open calls whose age is at least lo and
// less than hi.
func (o *openCalls) between(lo, hi float64) (n int) {
	for i, c := range o.n {
		if age := o.age[i]; age >= lo && age < hi {
			n += int(c)
		}
	}
	return n
}
