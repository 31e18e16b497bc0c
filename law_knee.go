package agilelimiter

import (
	"math"
	"time"
)

// knee is the law of AnchorKnee. It counts calls instead of judging latency:
//
//   - What is admitted and not yet ended is in flight. If all that we send
//     comes back, we overload nobody, whatever the latency; if in-flight grows,
//     what comes back is the capacity.
//   - With D × target calls in flight, Little's law gives each call the latency
//     target. The error D × target - inFlight says in calls what is missing.
//   - The limit closes that gap by scaling with target/W. The rate feeds a
//     queue, so it takes a PI step whose gains follow from the loop's own delay.
//   - Latency alone never decides. When it stays high a short deep cut asks
//     whether it follows in-flight. If not, the queue is not ours: the number is
//     restored and the learnt latency rises.
//   - An outage is not congestion: the number is remembered and halved each
//     tick; the first real answer brings back half of what it was.
//
// docs/control-law.md has the formulas, each constant's reason and the limits.
// Times are in seconds, throughputs in calls per second.
type knee struct {
	*params
	rate    bool    // drives a rate, not a limit
	t       float64 // tick
	sloSec  float64 // 0: none
	target  float64 // u, inside [min, max]
	prevEnd int     // in flight at the end of the last tick, stuck ones left out
	stuck   int     // calls in flight that an outage has swallowed

	// Decayed sums, and what they say of this tick.
	sumDelivered, sumInFlight, sumTime, sumReturned float64
	alpha                                           float64 // the weight of this tick
	delivered, inFlight, returned                   float64 // D, If, R
	latency                                         float64 // W = If/D: open calls included

	base    float64 // F, the latency without our queue
	seen    int     // samples so far, until base is known
	vainRun int     // verdicts since base leaves no room below the SLO
	window  float64 // Wt, the latency steered to
	cold    bool    // slow start
	overRun int     // ticks in a row with too many calls over the SLO
	heat    float64 // ticks in a row with latency above the window, a little above counting less

	memory            float64 // the number before an outage; 0: no outage
	silent            float64 // seconds since anything ended although it was asked for
	patience          float64 // what of it is ordinary
	topTarget, topRet float64 // u0, r0: slowly decaying maxima of target and returned
	test              drainTest
	idle              int // ticks until the next timed test
}

// drainTest is a cut that asks whose queue it is.
type drainTest struct {
	kind               testKind
	inFlight0, latency float64 // the highest since it began
	age                float64
	samples            int
	used               float64 // what was used when it began
	late               bool    // calls over the SLO were seen
	fresh              bool    // the sums hold nothing from before the cut
}

type testKind uint8

const (
	noTest      testKind = iota
	latencyTest          // latency stays up, or the cut has become deep
	timedTest            // a look for a queue that stands since before we came
)

const (
	sloTarget        = 0.45  // of the SLO: the mean whose exponential tail leaves 98 % inside
	sloMargin        = 0.15  // of the SLO: room for a queue where the base eats the target
	noSLOTarget      = 1.5   // × base: 93 % utilisation of ten exponential workers
	learnSamples     = 20    // until base is taken as known
	calibrateSamples = 10    // at the floor, for a limit without an SLO
	memorySamples    = 20    // of the decayed sums: 22 % counting error
	firstTimedTest   = 8     // ticks
	nextTimedTest    = 40    // ticks after any verdict
	hotTicks         = 8     // longer than a real queue survives the PI step
	hotMargin        = 0.15  // of the window: above it a tick counts fully
	mostBase         = 0.7   // of the SLO: a base above leaves no room below it
	surelyVain       = 3     // verdicts in a row on such a base: longer than a fleet needs to drain
	certainSilence   = 10    // ends that ought to have come: e^-10 by chance
	topDecay         = 0.995 // per tick: half of a maximum is forgotten in 35 s
	minLatency       = 1e-6  // seconds; keeps every quotient finite
)

func newKnee(p *params, rate bool) *knee {
	k := &knee{
		params: p, rate: rate, t: p.tick.Seconds(), sloSec: p.slo.Seconds(),
		target: p.initial, cold: true, idle: firstTimedTest,
	}
	if !rate && p.slo == 0 {
		k.target = p.min // from inside its own queue a limit cannot see its baseline
	}
	return k
}

func (k *knee) start() float64 { return k.target }

// synthetic is 0: the law counts lost calls, it needs no latency for them.
func (k *knee) synthetic() time.Duration { return 0 }

func (k *knee) signals() (baseline, fast, window time.Duration) {
	return seconds(k.base), seconds(k.latency), seconds(k.window)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func (k *knee) step(in tickInput) (float64, Decision) {
	before := k.target
	x, why := k.next(in)
	k.target = min(max(x, k.min), k.max)
	why = named(why, before, k.target)
	if !k.rate && k.stuck > 0 {
		return min(k.target+float64(k.stuck), k.max), why // they hold slots and say nothing
	}
	return k.target, why
}

// named makes the name of an ordinary step agree with where it went: the law
// adds half a call to every gap, so a small gap can be closed the other way.
func named(why Decision, from, to float64) Decision {
	switch {
	case to > from && (why == Backoff || why == TailBackoff):
		return Probe
	case to < from && why == Probe:
		return Backoff
	}
	return why
}

func (k *knee) next(in tickInput) (float64, Decision) {
	// A truncated call carries latency but was not delivered.
	own := in.reached - in.truncated
	if in.first {
		k.silent = 0
	}
	lost := k.newlyLost(&in)
	if lost > own || k.memory > 0 && own == 0 || k.silence(in) {
		return k.outage(in, own, lost), Outage
	}
	k.setAside(&in, lost)
	if in.first {
		k.prevEnd = in.inFlightEnd
	}
	growth := float64(in.inFlightEnd - k.prevEnd)
	k.prevEnd = in.inFlightEnd
	if k.memory > 0 {
		x := max(k.target, k.memory/2)
		k.memory = 0
		k.forgetAll() // the outage's latencies
		return x, Resume
	}
	if !k.smooth(in, float64(own)) {
		return k.target, Blind
	}
	if x, done := k.learn(in); done {
		return x, Calibrate
	}
	if x, done := k.retarget(in); done {
		return x, TailBackoff
	}
	x, why := k.drain(in, growth)
	if why == Test || why == Restore || why == Drained && x > 0 {
		return x, why
	}
	x, stepWhy := k.move(in, growth)
	if why == Drained {
		return x, Drained
	}
	return x, stepWhy
}

// newlyLost returns the calls lost in this tick. Those that an outage had
// swallowed are old news: they neither count again nor as over the SLO.
func (k *knee) newlyLost(in *tickInput) int {
	lost := in.unreachable + in.truncated
	old := min(lost, k.stuck)
	k.stuck -= old
	in.overSLO -= min(old, in.overSLO)
	if old > 0 {
		in.p50 = 0 // it says how long the time-out is
	}
	return lost - old
}

// silence reports that nothing ends any more: calls were in flight all the
// time, more were asked for, and by chance some would have ended long ago.
func (k *knee) silence(in tickInput) bool {
	ended := in.reached + in.unreachable + in.aborted
	if ended > 0 || k.prevEnd == 0 || in.admitted == 0 && !in.binding {
		k.silent = 0
		return false
	}
	k.silent += k.t
	return k.patience > 0 && k.silent > k.patience
}

// outage halves the number and remembers what it was.
func (k *knee) outage(in tickInput, own, lost int) float64 {
	if k.memory == 0 {
		k.memory = k.back()
	}
	k.test, k.cold, k.silent = drainTest{}, false, 0
	k.stuck = min(k.stuck, in.inFlightEnd)
	if own == 0 {
		k.stuck = in.inFlightEnd // whatever is open is lost, until it answers
	}
	k.prevEnd = in.inFlightEnd - k.stuck
	if lost == 0 && in.inFlightEnd == 0 {
		return k.target // nothing was asked: nothing is proved
	}
	return k.target / 2
}

// setAside takes the calls that an outage has swallowed out of what is in
// flight. Some of them may yet answer: by Little's law at least as many are
// alive as what came back, times half a latency and more, has needed.
func (k *knee) setAside(in *tickInput, lost int) {
	if k.stuck == 0 {
		return
	}
	if lost == 0 && in.p50 > 0 {
		alive := float64(in.reached) / k.t * in.p50.Seconds()
		k.stuck = min(k.stuck, int(max(0, in.inFlight-alive)))
	}
	k.stuck = min(k.stuck, in.inFlightEnd)
	in.inFlightEnd -= k.stuck
	in.inFlight = max(0, in.inFlight-float64(k.stuck))
}

// back is the number to return to after a test or an outage: for a rate no more
// than what came back, because a rate may stand far above its use.
func (k *knee) back() float64 {
	if k.rate {
		return min(k.topTarget, k.topRet)
	}
	return k.topTarget
}

// smooth updates the decayed sums: a memory of two ticks, or of about twenty
// samples where they are rare. It reports false when nothing can be said.
func (k *knee) smooth(in tickInput, own float64) bool {
	coming := float64(in.admitted) // admitted calls that will become samples
	if k.sumReturned > 0 {
		coming *= k.sumDelivered / k.sumReturned // 2000 hits/s say nothing about 50 misses/s
	}
	k.alpha = min(1.0/2, max(1.0/40, max(own, coming)/memorySamples))
	k.sumDelivered += own - k.alpha*k.sumDelivered
	k.sumInFlight += in.inFlight*k.t - k.alpha*k.sumInFlight
	k.sumTime += k.t - k.alpha*k.sumTime
	k.sumReturned += own + float64(in.aborted) - k.alpha*k.sumReturned
	if k.sumDelivered < 0.5 || in.reached == 0 && in.admitted == 0 && in.inFlightEnd == 0 {
		return false
	}
	k.conclude()
	if in.reached+in.unreachable+in.aborted > 0 {
		k.patience = max(2*k.latency, in.p99.Seconds(), certainSilence/k.delivered, k.t)
	}
	return true
}

// conclude draws the signals from the sums.
func (k *knee) conclude() {
	k.delivered = k.sumDelivered / k.sumTime
	k.inFlight = k.sumInFlight / k.sumTime
	k.returned = k.sumReturned / k.sumTime
	k.latency = max(k.inFlight/k.delivered, minLatency)
}

// learn follows the latency without our queue. done: the limit is still being
// calibrated at the floor, or has just been, and x is its number.
func (k *knee) learn(in tickInput) (x float64, done bool) {
	w, settled := k.latency, k.alpha >= 0.2 // settled: four samples a tick
	switch {
	case k.seen < learnSamples:
		k.seen += in.reached
		if k.base == 0 || k.seen <= 12 || w < k.base {
			k.base = w
		}
		switch {
		case k.sloSec > 0:
			k.base = min(w, k.sloSec/3)
		case !k.rate && k.seen < calibrateSamples:
			return k.target, true
		case !k.rate:
			k.seen = learnSamples
			return min(k.initial, 10*k.target), true
		}
	case w < 0.7*k.base && settled:
		k.base = w
	case w < k.base && settled:
		k.base += 0.2 * k.alpha * (w - k.base)
	case w < 1.25*k.base || k.target <= k.min && k.inFlight < 1.5:
		k.base += 0.05 * k.alpha * (w - k.base)
	}
	return 0, false
}

// ceiling is the highest window. A base that leaves no room below the SLO does
// not raise it at first: if it is the queue of a fleet, all have to go down
// together. If it stays, the SLO cannot be met, and cutting is in vain.
func (k *knee) ceiling() float64 {
	if k.sloSec > 0 {
		if k.base > mostBase*k.sloSec && k.vainRun < surelyVain {
			return sloTarget * k.sloSec
		}
		return max(sloTarget*k.sloSec, k.base+sloMargin*k.sloSec)
	}
	return noSLOTarget * k.base
}

// retarget moves the window and ends slow start. done: slow start has sent a
// rate over the SLO, and x is its number.
func (k *knee) retarget(in tickInput) (x float64, done bool) {
	if k.base <= mostBase*k.sloSec {
		k.vainRun = 0
	}
	top := k.ceiling()
	low := min(top, 1.5*k.base)
	if k.window == 0 {
		k.window = top
	}
	if k.sloSec > 0 && float64(in.overSLO) > max(1, 0.02*float64(in.reached)) {
		// One late call and one bad tick are noise; far above the window it is
		// the queue that is wrong and not the window.
		if k.overRun++; k.overRun >= 2 && k.latency < 1.5*k.window {
			k.window = 0.9 * min(k.window, k.latency)
		}
	} else {
		k.overRun = 0
		k.window = 1.01 * max(k.window, low)
	}
	k.window = min(max(k.window, low), top)
	if k.cold {
		bad := k.sloSec > 0 && float64(in.overSLO) > max(1, 0.005*float64(in.reached))
		oneSigma := 1 + 1/math.Sqrt(k.sumDelivered)
		k.cold = !bad && (k.alpha < 0.2 || k.latency <= k.window*oneSigma)
		if bad && k.rate {
			return min(k.target, k.returned) / 2, true
		}
	}
	return 0, false
}

// drain runs the drain test. It answers Test, Restore or Drained with the
// number to go to; Drained with 0 leaves the number to the ordinary step, and
// Hold means that no test is running.
func (k *knee) drain(in tickInput, growth float64) (x float64, why Decision) {
	t := &k.test
	k.idle--
	// Half a call is what the step adds by itself.
	if over := (k.latency-0.5/k.delivered)/k.window - 1; over > 0 {
		k.heat += min(1, over/hotMargin)
	} else {
		k.heat = 0
	}
	if t.kind == noTest {
		k.topTarget = max(topDecay*k.topTarget, k.target)
		k.topRet = max(topDecay*k.topRet, k.returned)
		*t = drainTest{inFlight0: k.inFlight, latency: k.latency, used: k.use(), kind: k.wantsTest(in)}
		if t.kind == noTest {
			return 0, Hold
		}
		if t.kind == timedTest {
			k.topTarget, k.topRet = k.target, k.returned
		}
	}
	t.age += k.t
	t.samples += in.reached
	t.late = t.late || k.overRun > 0
	t.inFlight0 = max(t.inFlight0, k.inFlight)
	t.latency = max(t.latency, k.latency)
	lag := max(k.latency, in.p99.Seconds())
	k.forget(in, lag)
	open := t.age < lag+2*k.t || t.samples < 10 || k.inFlight > 0.7*t.inFlight0
	if open && t.age <= 3*lag+10*k.t {
		use := k.use()
		if k.rate && k.sloSec > 0 {
			// The average still holds what a lost capacity could do.
			use = min(use, float64(in.reached-in.truncated+in.aborted)/k.t)
		}
		return min(k.target, min(k.back(), use)/2), Test
	}
	w := k.latency
	fall := k.inFlight / t.inFlight0
	if t.late {
		// Time-outs keep the old latencies in flight while the cut goes on.
		fall = max(fall, 0.5)
	}
	vain := math.Log(w/t.latency) > 0.5*math.Log(fall) // half-way between all ours and not ours
	if vain && !open && t.kind == latencyTest {
		// In flight still falls: what ended is more than what was sent, and
		// the flow that belongs to it lies half-way.
		k.base = k.inFlight / max(k.delivered/2, k.delivered+min(0, growth)/(2*k.t))
		k.vainRun++
	}
	used, fresh := t.used, t.fresh
	k.test, k.heat, k.idle = drainTest{}, 0, nextTimedTest
	if vain || open {
		if fresh && k.sloSec > 0 {
			k.forgetAll() // the sums hold nothing but the cut
		}
		return k.back(), Restore
	}
	if w < 0.9*k.base { // there was more to drain than we knew
		k.base, k.idle, k.cold = w, 2, false
	}
	k.topTarget, k.topRet = k.target, k.returned
	if k.rate && k.sloSec > 0 && 0.7*used > k.target {
		k.topTarget, k.topRet = used, used
		return 0.7 * used, Drained
	}
	return 0, Drained
}

// use is what the number was used for: calls back per second, or in flight.
func (k *knee) use() float64 {
	if k.rate {
		return k.returned
	}
	return k.inFlight
}

func (k *knee) forgetAll() {
	k.sumDelivered, k.sumInFlight, k.sumTime, k.sumReturned = 0, 0, 0, 0
}

// forget starts the sums anew once the calls from before the cut are gone, so
// that the verdict rests on those sent during it. A rate without an SLO keeps
// them: its window hangs on the latency that so few calls would then say.
func (k *knee) forget(in tickInput, lag float64) {
	own := float64(in.reached - in.truncated)
	if k.test.fresh || k.test.age <= lag+k.t || own == 0 || k.rate && k.sloSec == 0 {
		return
	}
	k.test.fresh = true
	k.sumDelivered, k.sumInFlight = own, in.inFlight*k.t
	k.sumTime, k.sumReturned = k.t, own+float64(in.aborted)
	k.conclude()
}

// wantsTest says whether a test begins now.
func (k *knee) wantsTest(in tickInput) testKind {
	deep := k.target < 0.6*k.topTarget && k.returned < 0.7*k.topRet
	switch {
	case k.alpha < 0.2:
		return noTest // too few samples to tell
	case k.heat >= hotTicks || k.latency > 0.95*k.window && deep:
		return latencyTest
	case k.idle <= 0 && in.binding && k.target >= k.topTarget/2 &&
		(k.sloSec == 0 || k.window > sloTarget*k.sloSec):
		return timedTest
	}
	return noTest
}

// move is the ordinary step: close the gap between the calls in flight and the
// calls that the window allows.
func (k *knee) move(in tickInput, growth float64) (float64, Decision) {
	want := max(k.delivered*k.window, 1)
	gap := want + 0.5 - float64(in.inFlightEnd)
	if gap > 0 && !in.binding {
		return k.target, Hold // the callers do not use what they have: no evidence
	}
	if gap > 0 && (k.cold || k.target < k.topTarget/2) && k.overRun == 0 &&
		k.latency < max(k.window/2, 1.4*k.base) {
		return k.target * min(1.5, 1+float64(in.reached)/4), SlowStart
	}
	why := Probe
	if gap <= 0 {
		why = Backoff
	}
	if k.overRun >= 2 {
		why = TailBackoff
	}
	if !k.rate {
		if k.latency > k.window { // down: from what is used
			return k.target + k.alpha*(min(k.target, want)-k.target), why
		}
		return k.target + k.alpha*(k.target*min(k.window/k.latency-1, 1)+1), why
	}
	x := k.target
	if gap <= 0 {
		x = min(x, max(float64(in.admitted)/k.t, k.returned)) // down: from what was really sent
		if k.overRun >= 2 && k.latency < k.ceiling()/2 {
			x *= 0.8 // a tail that the mean does not show
		}
	}
	// A PI step: take off what piled up, add what is missing, with the gains
	// of a loop whose delay is a tick to act and a latency to see.
	perCall := k.returned / k.delivered // above 1 only where hits are set aside
	delay := k.t + k.latency
	x += -k.alpha*perCall*growth/k.t + perCall*gap*k.t/(delay*delay)
	return max(x, k.returned/2), why
}
