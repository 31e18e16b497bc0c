package agilelimiter

import "math"

// measured is what the calls showed lately: sums that decay with elapsed time,
// and what they say.
type measured struct {
	cut float64 // no call weighs more than this in the latency

	// Decayed sums.
	sumTime, sumEnded, sumLatency, sumDelivered   float64
	sumReturned, sumAnswers, sumBad               float64
	sumAborted, sumAdmitted, sumLate, sumLostTime float64
	sumAll                                        float64 // ended calls of every kind

	alpha               float64 // the weight of this tick
	delivered           float64 // D: good answers per second
	sent                float64 // calls admitted per second
	returned            float64 // R: calls that came back without being lost, per second
	latency             float64 // W: mean duration, cut, open calls that are overdue included
	inFlight            float64 // calls in flight, those too old to say anything left out
	own                 float64 // those of inFlight that will be answers
	mixed               float64 // share of inFlight that will not
	growth              float64 // of own since the last tick
	ownAll              float64
	badShare            float64
	stuck               int     // calls that hold a slot and are too old to say anything
	overdueAge          float64 // an open call that is older is overdue
	tail                float64 // p99, slowly forgotten
	abortAge            float64 // mean duration of aborted calls
	lossRun, lossBefore float64 // losses in a row, and the bad share before them
	quiet               float64 // seconds since anything ended although it was due
	outageCut           float64 // open calls older than this hang since an outage; 0: none
	binding             bool    // for the time of some three samples after it was seen
	bound               float64 // seconds since binding was seen
}

const (
	memorySamples = 20   // 22 % counting error
	longestMemory = 40   // seconds
	minLatency    = 1e-6 // seconds; keeps every quotient finite
)

func (m *measured) init(slo float64) {
	m.cut = 60
	if slo > 0 {
		m.cut = 4 * slo
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
	decay := func(sum *float64, x float64) { *sum += x - m.alpha**sum }
	decay(&m.sumTime, t)
	decay(&m.sumEnded, ended)
	decay(&m.sumLatency, in.latencySum)
	decay(&m.sumDelivered, own)
	decay(&m.sumReturned, ended-float64(in.truncated)+float64(in.aborted))
	decay(&m.sumAnswers, own+lost)
	decay(&m.sumBad, lost)
	decay(&m.sumLate, float64(in.overSLO))
	decay(&m.sumLostTime, in.lostTime)
	decay(&m.sumAborted, float64(in.aborted))
	decay(&m.sumAdmitted, float64(in.admitted))
	if in.aborted > 0 {
		m.abortAge += max(m.alpha, 1/(m.sumReturned+1)) * (in.abortedTime/float64(in.aborted) - m.abortAge)
	}
	decay(&m.sumAll, own+lost+float64(in.aborted))

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

// memory is how far the sums look back.
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
	young, _ := in.ages.between(0, limit)
	m.inFlight = float64(young + in.held)
	m.stuck = max(0, in.inFlight-young-in.held)
	aborted := 0.0
	if m.sumAll > 0 { // Little's law, from the admissions: the ends come late
		aborted = m.sumAdmitted / m.sumTime * m.sumAborted / m.sumAll * min(m.abortAge, limit)
	}
	m.mixed = aborted / max(1, m.inFlight, aborted)
	// Of the others as many will be answers as did lately, by the time they take.
	own := max(0, m.inFlight-aborted) * (m.sumLatency + 1e-9) / (m.sumLatency + m.sumLostTime + 1e-9)
	// A call younger than the latency says nothing yet.
	due, _ := in.ages.between(min(m.latency, max(0, 2*(m.latency-in.elapsed))), limit)
	if in.first {
		m.ownAll = own // nothing to compare it with
	}
	m.growth = (own - m.ownAll) * min(1, float64(due)/max(1, m.inFlight))
	m.ownAll, m.own = own, min(own, m.delivered*m.latency+float64(due))
	m.overdue(in)
}

// overdue watches for a time in which nothing ends although it is due.
func (m *measured) overdue(in tickInput) {
	n, _ := in.ages.between(m.overdueAge, m.cut)
	if in.reached+in.unreachable+in.aborted > 0 || n == 0 || in.admitted == 0 && !in.binding {
		m.quiet = 0
	} else {
		m.quiet += in.elapsed
	}
}

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

// between returns the number of the open calls whose age is at least lo and
// less than hi, and their ages added up.
func (o *openCalls) between(lo, hi float64) (n int, sum float64) {
	for i, c := range o.n {
		if age := o.age[i]; c > 0 && age >= lo && age < hi {
			n += int(c)
			sum += float64(c) * age
		}
	}
	return n, sum
}
