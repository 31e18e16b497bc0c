package agilelimiter

import "math"

// normal is what the signals are without our doing: the latency without our
// queue, and the shares of calls that are bad or late. It sets the window.
type normal struct {
	slo float64 // seconds; 0: none

	base       float64 // F, the latency without our queue
	known      bool    // base rests on enough samples
	seen, time float64 // samples and seconds so far
	foreign    float64 // a latency that was found not to be ours; 0: none
	bad        float64 // p0, the share of bad calls that is not ours
	late       float64 // the share of calls over the SLO that is not ours

	window float64 // Wt, the latency steered to
	scale  float64 // of the window, below 1 while too many calls are late

	// Seconds with a signal above its normal.
	hot, badTime, lateTime float64
}

const (
	sloTarget     = 0.45  // of the SLO: room for the tail above the mean, and for a tick's queue
	staffing      = 2     // square-root staffing: the queue that keeps the workers busy
	baseSamples   = 10    // a mean within a third
	badMargin     = 0.04  // of bad calls above normal: below it a cut costs more than it saves
	lateMargin    = 0.02  // of late calls above normal: half of what the promise of 95 % leaves
	hotMargin     = 0.15  // of the window: above it a tick counts fully
	windowDown    = 0.65  // per memory, while too many calls are late
	windowUp      = 1.04  // per memory: slower up than down, or the tail rings
	leastScale    = 0.1   // of the window
	forgetShare   = 120.0 // seconds: a share that falls is soon no longer normal
	forgetForeign = 600.0 // seconds: half of a foreign latency is forgotten, so that it is asked again
	foreignRoom   = 1.25  // of a foreign latency: room for a queue of our own
)

func (n *normal) init(slo float64) { n.slo, n.scale = slo, 1 }

// update follows what is normal and sets the window. atFloor: there is nothing
// left to cut. cold: no limit was met so far.
func (n *normal) update(m *measured, in tickInput, atFloor, cold bool) {
	single := atFloor && m.inFlight < 1.5 // one call cannot wait for itself
	n.follow(m, in, single || cold || !m.binding)
	if single && m.latency > n.window && m.latency > n.foreign {
		n.foreign = m.latency
	}
	n.setWindow(m, in.elapsed)
	n.watch(m, in.elapsed)
}

// follow learns the latency without our queue. While nobody waits for us, or no
// limit was met, it is the latency; otherwise only a latency that is lower by
// more than chance is news.
func (n *normal) follow(m *measured, in tickInput, free bool) {
	w := m.latency
	n.seen += float64(in.reached)
	n.time += in.elapsed
	n.known = n.known || n.seen >= baseSamples && n.time >= 3*w // short calls end first
	switch {
	case !n.known || n.base == 0:
		n.base = w
	case free:
		n.base += max(0.1*m.alpha, min(1, float64(in.reached)/n.seen)) * (w - n.base)
	case w < n.base*(1-2/math.Sqrt(m.sumEnded)):
		n.base += 0.5 * m.alpha * (w - n.base)
	}
	n.foreign *= math.Exp2(-in.elapsed / forgetForeign)
	if w < 0.6*n.foreign {
		n.foreign = 0
	}
}

// setWindow sets the latency to steer to.
func (n *normal) setWindow(m *measured, elapsed float64) {
	if n.slo > 0 {
		n.window = sloTarget * n.slo
	} else {
		// Calls at work by Little's law, those that will fail included.
		working := m.delivered / (1 - min(n.bad, mostNormal)) * n.base
		n.window = n.base * (1 + staffing/math.Sqrt(max(working, 1e-3)))
		m.cut = cutBase * max(n.base, m.latency)
	}
	if n.slo > 0 && tooMany(m.sumLate, m.sumEnded, n.late, lateMargin) {
		n.lateTime += elapsed
		// Far above the window it is the queue that is wrong and not the window.
		if m.latency < 1.5*n.window*n.scale {
			n.scale = max(leastScale, n.scale*math.Pow(windowDown, m.alpha))
		}
	} else {
		n.lateTime = max(0, n.lateTime-elapsed/4)
		n.scale = min(1, n.scale*math.Pow(windowUp, m.alpha))
	}
	n.window = max(n.window*n.scale, foreignRoom*n.foreign)
}

// watch counts how long the signals are above normal, and lets the normals fall.
func (n *normal) watch(m *measured, elapsed float64) {
	// Half a call is what the step adds by itself.
	if over := (m.latency-min(0.5/m.delivered, 0.3*m.latency))/n.window - 1; over > 0 {
		n.hot += elapsed * min(1, over/hotMargin)
	} else {
		n.hot = 0
	}
	if n.tooBad(m) {
		n.badTime += elapsed
	} else {
		n.badTime = max(0, n.badTime-elapsed/4)
	}
	weight := min(1, elapsed/forgetShare)
	n.bad += weight * min(0, m.badShare-n.bad)
	n.late += weight * min(0, m.sumLate/max(m.sumEnded, 1)-n.late)
}

// mostNormal is the largest share of bad calls that is divided by: beyond it a
// small error would multiply.
const mostNormal = 0.95

// tooBad reports that more calls are bad than normal and chance explain.
func (n *normal) tooBad(m *measured) bool { return tooMany(m.sumBad, m.sumAnswers, n.bad, badMargin) }

// tooMany reports that counted is more than normal and chance explain: two
// standard deviations of a Poisson count, and two calls.
func tooMany(counted, of, normal, margin float64) bool {
	expected := min(normal+margin, 1) * of
	return counted > expected+2*math.Sqrt(expected)+2
}
