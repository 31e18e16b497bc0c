package agilelimiter

import "math"

// normal is what the two signals are without our doing: the latency without our
// queue, and the share of bad calls.
type normal struct {
	slo                  float64 // seconds; 0: none
	base                 float64 // F, the latency without our queue
	known                bool
	seen, time           float64 // samples and seconds, until base is known
	foreign              float64 // a latency that an experiment found not to be ours; 0: none
	window               float64 // Wt, the latency steered to
	bad                  float64 // p0, the bad share that is not ours
	scale                float64 // of the window, below 1 while too many calls are late
	lateNormal, lateTime float64
	hot                  float64 // seconds with latency above the window
	badTime              float64 // seconds with the bad share above its normal
}

const (
	sloTarget   = 0.45 // of the SLO: the mean whose exponential tail leaves 98 % inside
	staffing    = 2    // square-root staffing: the queue that keeps the workers busy
	baseSamples = 10
	lateMargin  = 0.02
	badMargin   = 0.04 // of bad calls above normal: below it a cut costs more than it saves
	hotMargin   = 0.15 // of the window: above it a tick counts fully
	forgetBad   = 30.0 // seconds
	foreignRoom = 1.25 // of a foreign latency
)

func (n *normal) init(slo float64) { n.slo, n.scale = slo, 1 }

// update follows the latency without our queue and sets the window.
func (n *normal) update(m *measured, in tickInput, atFloor, cold bool) {
	w := m.latency
	n.seen += float64(in.reached)
	n.time += in.elapsed
	n.known = n.known || n.seen >= baseSamples && n.time >= 3*w // short calls end first
	switch {
	case !n.known:
		n.base = w
	case cold, !m.binding, atFloor && m.inFlight < 1.5: // no queue of ours
		n.base += max(0.1*m.alpha, min(1, float64(in.reached)/n.seen)) * (w - n.base)
	case w < n.base*(1-2/math.Sqrt(m.sumEnded)):
		n.base += 0.5 * m.alpha * (w - n.base)
	}
	if n.foreign > 0 && w < 0.6*n.foreign {
		n.foreign = 0
	}
	n.window = n.base * (1 + staffing/math.Sqrt(max(m.delivered/(1-min(n.bad, 0.95))*n.base, 1e-3)))
	if n.slo > 0 {
		n.window = sloTarget * n.slo
	} else {
		m.cut = 20 * max(n.base, w)
	}
	if n.slo > 0 && tooMany(m.sumLate, m.sumEnded, n.lateNormal, lateMargin) {
		n.lateTime += in.elapsed
		if w < 1.5*n.window*n.scale {
			n.scale = max(0.1, n.scale*math.Pow(0.9, m.alpha*4))
		}
	} else {
		n.lateTime = max(0, n.lateTime-in.elapsed/4)
		n.scale = min(1, n.scale*(1+0.1*m.alpha*4/10))
	}
	if atFloor && m.inFlight < 1.5 && w > n.window && w > n.foreign {
		n.foreign = w // one call cannot wait for itself
	}
	n.window = max(n.window*n.scale, foreignRoom*n.foreign)

	if over := (w-min(0.5/m.delivered, 0.3*w))/n.window - 1; over > 0 { // half a call is what the step adds by itself
		n.hot += in.elapsed * min(1, over/hotMargin)
	} else {
		n.hot = 0
	}
	if m.badShare < n.bad {
		n.bad += (m.badShare - n.bad) * min(1, in.elapsed/forgetBad)
	}
	if share := m.sumLate / max(m.sumEnded, 1); share < n.lateNormal {
		n.lateNormal += (share - n.lateNormal) * min(1, in.elapsed/forgetBad)
	}
	if n.tooBad(m) {
		n.badTime += in.elapsed
	} else {
		n.badTime = max(0, n.badTime-in.elapsed/4)
	}
}

// tooBad reports that more calls are bad than normal and chance explain.
func (n *normal) tooBad(m *measured) bool {
	return tooMany(m.sumBad, m.sumAnswers, n.bad, badMargin)
}

// tooMany reports that more of the calls are counted than normal and chance
// explain.
func tooMany(counted, of, normal, margin float64) bool {
	expected := min(normal+margin, 1) * of
	return counted > expected+2*math.Sqrt(expected)+2
}
