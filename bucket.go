package agilelimiter

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"
)

// bucket is a leaky bucket with a queue: it spaces departures 1/rate apart on an
// absolute schedule. Idle time earns nothing. Lateness of its own does: where its
// timer fires late, or the granted caller runs late, the schedule has fallen
// behind although somebody waited, and the slots that have passed are given out
// at once, up to maxLateness. In any window of length T at most
//
//	1 + rate × (T + maxLateness)
//
// calls depart: every slot lies between its departure and maxLateness before it,
// and the slots are 1/rate apart.
//
// Waiters stand in a FIFO and hold no slot; one timer is armed for the head.
// Reserving a slot per sleeper would be shorter, but then a new rate would pass
// by everybody who waits already, and a waiter who gives up would take his slot
// with him.
type bucket struct {
	time        *timebase
	maxWaiting  int // 0: no bound
	maxLateness time.Duration
	area        *area // nil: nobody asks for it

	mu       sync.Mutex // guards what follows; never held while waiting or in user code
	min, max float64    // req/s; the bucket holds its ceiling whatever it is told
	// The schedule: the last departure's slot in nanoseconds since New, and
	// the interval, both with their fractions of 2^-32 ns apart, so that 3/s
	// stays 3/s after a million departures.
	rate         float64
	last         time.Duration
	interval     time.Duration
	until        time.Duration // nobody departs before: the end of the pause
	lastFrac     uint32
	intervalFrac uint32
	// By how much the next slot has passed because we were late ourselves;
	// anything beyond was idle time.
	late time.Duration

	head, tail *waiter
	waiting    int
	free       *waiter // linked by next
	freed      int
	timer      Timer // for the head's slot, armed exactly while somebody waits;
	// its Stop and Reset are the one foreign code that runs under mu, see Clock
	armed bool

	admitted, shed uint64
	waited         time.Duration
	shadow         bool
	queue          shadowQueue // that would stand in front of the rate
	wouldWait      uint64
	wouldShed      uint64
	paused         bool          // a pause was in force since the last drain
	worst          time.Duration // the worst lateness since the last drain
	lateness       time.Duration // that of the last drain
	lost           time.Duration // lateness beyond maxLateness, since New
	refused        bool          // somebody was refused or gave up since the last drain
}

// waiter is one caller in the queue. ready carries one token per grant.
type waiter struct {
	prev, next *waiter
	ready      chan struct{}
	since      time.Duration
	slot       time.Duration
	granted    bool
}

// maxFree bounds the waiters kept for reuse. They are kept per bucket, not in a
// sync.Pool: a channel made inside a testing/synctest bubble must not turn up
// outside of it.
const maxFree = 32

func (b *bucket) init(t *timebase, p params, a *area) {
	b.time, b.maxWaiting, b.maxLateness, b.area = t, p.maxWaiting, p.maxLateness, a
	b.min, b.max, b.shadow = p.min, p.max, p.shadow
	b.setInterval(p.initial)
	b.last = math.MinInt64 / 2 // long ago: the first call departs at once
}

// lock takes the mutex and then reads the clock. The other way round a caller
// could be stopped in between, and his slot would lie in the past by as long as
// that: the next departure could follow at once.
func (b *bucket) lock() (now time.Duration) {
	b.mu.Lock()
	if b.time.system {
		return time.Since(b.time.epoch)
	}
	return b.foreign()
}

// foreign reads a clock that is user code and may panic.
func (b *bucket) foreign() (now time.Duration) {
	returned := false
	defer func() {
		if !returned {
			b.mu.Unlock()
		}
	}()
	now = b.time.foreign()
	returned = true
	return now
}

func (b *bucket) setInterval(rate float64) {
	whole, frac := math.Modf(1e9 / rate)
	b.rate, b.interval, b.intervalFrac = rate, time.Duration(whole), uint32(frac*(1<<32))
}

// next returns the slot after the last departure's and its fraction, but none
// within a pause.
func (b *bucket) next() (time.Duration, uint32) {
	frac := uint64(b.lastFrac) + uint64(b.intervalFrac)
	slot := b.last + b.interval + time.Duration(frac>>32)
	if slot < b.until {
		return b.until, 0
	}
	return slot, uint32(frac)
}

// depart gives out the next slot if it is due at now. A slot in the past is
// moved up to now, less what we are late ourselves.
func (b *bucket) depart(now time.Duration) (slot time.Duration, ok bool) {
	slot, frac := b.next()
	if slot > now {
		return slot, false
	}
	if b.head == nil && now-slot > b.late+b.maxLateness {
		b.late = 0 // nobody came for so long: what was missed is not wanted
	}
	caughtUp := min(b.late, b.maxLateness)
	if earliest := now - caughtUp; slot < earliest {
		slot, frac = earliest, 0
		b.lost += b.late - caughtUp
	}
	b.last, b.lastFrac = slot, frac
	b.admitted++
	if b.area != nil {
		b.area.start(now)
	}
	if b.late > 0 { // what has been caught up is no longer late
		after, _ := b.next()
		b.late = max(0, min(caughtUp, now-after))
	}
	return slot, true
}

// tryDepart departs at once or not at all; it never overtakes the queue. In
// shadow everybody does, and wait is how long he would have waited. The mutex is
// held.
func (b *bucket) tryDepart(now time.Duration) (slot, wait time.Duration, ok bool) {
	if b.shadow {
		return now, b.pass(now), true
	}
	if b.head == nil {
		slot, ok = b.depart(now)
	}
	return slot, 0, ok
}

// tryTake is tryDepart now. It returns the slot and the time of the call, both
// since New.
func (b *bucket) tryTake() (slot, now, wait time.Duration, ok bool) {
	now = b.lock()
	slot, wait, ok = b.tryDepart(now)
	b.mu.Unlock()
	return slot, now, wait, ok
}

// poll is tryTake for a caller who will not wait otherwise: a refusal says that
// the rate is binding.
func (b *bucket) poll() (slot time.Duration, ok bool) {
	slot, _, wait, ok := b.tryTake()
	if !ok || wait > 0 {
		b.mu.Lock()
		b.refused = true
		b.mu.Unlock()
	}
	return slot, ok
}

// take returns a slot and when its departure happened, waiting if it must. A
// caller who cannot be refused is not bounded by maxWaiting.
func (b *bucket) take(ctx context.Context, bounded bool) (slot, now time.Duration, err error) {
	if err := ctx.Err(); err != nil {
		// Not counted as shed: the caller had given up before he came.
		return 0, 0, &waitError{"agilelimiter: no slot: " + err.Error(), err}
	}
	slot, now, wait, ok := b.tryTake()
	if ok && wait == 0 {
		return slot, now, nil
	}
	patience := time.Duration(math.MaxInt64)
	// A context keeps its deadline in wall time, whatever our clock is.
	if deadline, ok := ctx.Deadline(); ok {
		patience = time.Until(deadline)
	}
	if ok {
		b.book(wait, patience, bounded)
		return slot, now, nil
	}
	now = b.lock()
	if slot, _, ok := b.tryDepart(now); ok { // the slot may have come meanwhile
		b.mu.Unlock()
		return slot, now, nil
	}
	if bounded && b.maxWaiting > 0 && b.waiting >= b.maxWaiting {
		b.shed, b.refused = b.shed+1, true
		b.mu.Unlock()
		return 0, 0, ErrQueueFull
	}
	if wait := b.predict(now); wait > patience {
		b.shed, b.refused = b.shed+1, true
		b.mu.Unlock()
		return 0, 0, &waitError{
			fmt.Sprintf("agilelimiter: no slot: the queue would take %v, the deadline is in %v: %v",
				wait, patience, context.DeadlineExceeded),
			context.DeadlineExceeded,
		}
	}
	w := b.push(now)
	b.mu.Unlock()
	return b.wait(ctx, w)
}

// pass lets a call depart in shadow and returns how long it would have waited.
// One that would not have stands in the queue until its interval is over; one
// that would have comes to book.
func (b *bucket) pass(now time.Duration) (wait time.Duration) {
	b.last, b.lastFrac = max(b.last, now), 0
	b.admitted++
	if b.area != nil {
		b.area.start(now)
	}
	b.queue.drain(now, b.until, b.rate)
	if wait = b.queue.wait(now, b.until, b.rate); wait == 0 {
		b.queue.length++
	}
	return wait
}

// book counts what would have become of a caller who would have had to wait.
func (b *bucket) book(wait, patience time.Duration, bounded bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.shadow {
		return // switched off just now
	}
	b.refused = true
	if wait > patience || bounded && b.maxWaiting > 0 && b.queue.waiting() >= b.maxWaiting {
		b.wouldShed++
		return
	}
	b.queue.length++
	b.wouldWait++
}

// setShadow lets everybody depart who waits, when it is switched on.
func (b *bucket) setShadow(on bool) {
	now := b.lock()
	defer b.mu.Unlock()
	if on == b.shadow {
		return
	}
	b.shadow = on
	b.queue.length, b.queue.at = float64(b.waiting), now
	b.late = 0
	if !on || b.head == nil {
		return
	}
	for b.head != nil {
		b.pass(now)
		b.admit(b.head, now, now)
	}
	b.disarm()
}

// predict returns how long a caller who comes now would wait at today's rate.
func (b *bucket) predict(now time.Duration) time.Duration {
	slot, _ := b.next()
	// At 0.001/s a queue of ten million would overflow a Duration.
	wait := float64(max(slot-now, 0)) + float64(b.waiting)*1e9/b.rate
	return time.Duration(min(wait, math.MaxInt64/2))
}

// wait waits until w is granted or ctx ends. A grant that comes at the very
// instant at which ctx ends counts as granted: its slot is spent.
func (b *bucket) wait(ctx context.Context, w *waiter) (slot, now time.Duration, err error) {
	select {
	case <-w.ready:
	case <-ctx.Done():
		if b.leave(w) {
			return 0, 0, &waitError{
				fmt.Sprintf("agilelimiter: no slot: gave up after %v in the queue: %v",
					b.time.now()-w.since, ctx.Err()),
				ctx.Err(),
			}
		}
		<-w.ready
	}
	slot = w.slot
	return slot, b.woke(w), nil
}

// woke takes w back for reuse and counts the time from the timer to the running
// waiter as lateness too: with a single caller it is lost just like that of the
// timer. On other clocks than the system's the time since the grant means
// nothing: virtual time may have gone on by any amount.
func (b *bucket) woke(w *waiter) (now time.Duration) {
	now = b.lock()
	defer b.mu.Unlock()
	if slot, _ := b.next(); b.time.system && b.head == nil && slot < now {
		b.isLate(max(b.late, now-slot))
	}
	if b.freed < maxFree {
		*w = waiter{ready: w.ready, next: b.free}
		b.free = w
		b.freed++
	}
	return now
}

func (b *bucket) isLate(d time.Duration) {
	b.late = d
	b.worst = max(b.worst, d)
}

// fire is the timer's function. What it is late by was no idle time: the head
// waits, and its slot was due when the timer was to fire.
func (b *bucket) fire() {
	now := b.lock()
	b.armed = false
	if b.head != nil {
		slot, _ := b.next()
		b.isLate(max(0, now-slot))
		b.grant(now)
	}
	b.mu.Unlock()
}

// grant lets everybody depart whose slot has come and arms the timer for the
// next. The mutex is held and the queue is not empty.
func (b *bucket) grant(now time.Duration) {
	for b.head != nil {
		slot, ok := b.depart(now)
		if !ok {
			b.arm(slot - now)
			return
		}
		b.admit(b.head, slot, now)
	}
	b.disarm()
}

// admit takes w out of the queue and wakes it.
func (b *bucket) admit(w *waiter, slot, now time.Duration) {
	b.unlink(w)
	w.slot, w.granted = slot, true
	if b.waited += max(now-w.since, 0); b.waited < 0 {
		b.waited = math.MaxInt64 // 292 years of waiting, all callers together
	}
	w.ready <- struct{}{} // has room for the one token
}

// set puts a new rate in force at once, also for those who wait already:
// the next departure is one new interval after the last one. A value outside
// the bounds is clamped; NaN changes nothing.
func (b *bucket) set(rate float64) {
	if math.IsNaN(rate) {
		return
	}
	now := b.lock()
	b.change(now, rate)
	b.mu.Unlock()
}

// setBounds puts new bounds in force at once, as set does a rate: the rate moves
// to the nearest of them if it lies outside.
func (b *bucket) setBounds(lo, hi float64) {
	now := b.lock()
	b.min, b.max = lo, hi
	b.change(now, b.rate)
	b.mu.Unlock()
}

func (b *bucket) pause(d time.Duration) {
	now := b.lock()
	defer b.mu.Unlock()
	b.queue.drain(now, b.until, b.rate)
	if b.until <= now { // the interval behind the last departure ends within the pause
		b.queue.length = float64(b.queue.waiting())
	}
	if d == 0 {
		b.until = 0
	} else {
		b.until = max(b.until, after(now, d))
		b.paused = true
	}
	b.late = 0 // what was missed before a pause is not caught up behind it
	if b.head != nil {
		b.grant(now)
	}
}

func (b *bucket) settings() (lo, hi float64, shadow bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.min, b.max, b.shadow
}

// change puts a rate in force. The mutex is held.
func (b *bucket) change(now time.Duration, rate float64) {
	b.queue.drain(now, b.until, b.rate)
	b.setInterval(min(max(rate, b.min), b.max))
	if b.head != nil {
		b.grant(now)
	}
}

// push appends a waiter and arms the timer if it is the first one.
func (b *bucket) push(now time.Duration) *waiter {
	w := b.free
	if w == nil {
		w = &waiter{ready: make(chan struct{}, 1)}
	} else {
		b.free, w.next = w.next, nil
		b.freed--
	}
	w.since, w.prev = now, b.tail
	if b.tail == nil {
		b.head = w
	} else {
		b.tail.next = w
	}
	b.tail = w
	b.waiting++
	if !b.armed {
		slot, _ := b.next()
		b.arm(slot - now)
	}
	return w
}

// leave takes w out of the queue unless it has been granted.
func (b *bucket) leave(w *waiter) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.granted {
		return false
	}
	b.unlink(w)
	b.shed, b.refused = b.shed+1, true
	if b.head == nil {
		b.disarm()
	}
	return true
}

func (b *bucket) unlink(w *waiter) {
	if w.prev == nil {
		b.head = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		b.tail = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next = nil, nil
	b.waiting--
}

func (b *bucket) arm(d time.Duration) {
	b.armed = true
	if b.timer == nil {
		b.timer = b.time.clock.AfterFunc(d, b.fire)
		return
	}
	b.timer.Reset(d)
}

func (b *bucket) disarm() {
	if b.armed {
		b.armed = false
		b.timer.Stop()
	}
}

func (b *bucket) drain() (admitted uint64, open int, binding, paused bool) {
	now := b.lock()
	defer b.mu.Unlock()
	b.queue.drain(now, b.until, b.rate)
	binding = b.refused || b.head != nil || b.shadow && b.queue.waiting() > 0
	b.refused = false
	b.lateness, b.worst = b.worst, 0
	paused = b.paused && !b.shadow
	b.paused = now < b.until
	return b.admitted, notCounted, binding, paused
}

// report fills in the gauges and counters that the bucket knows.
func (b *bucket) report(s *Stats) {
	now := b.lock()
	defer b.mu.Unlock()
	s.Target, s.Min, s.Max = b.rate, b.min, b.max
	s.Waiting, s.InFlight = b.waiting, notCounted
	s.Admitted, s.Shed, s.ThrottleWait = b.admitted, b.shed, b.waited
	b.queue.drain(now, b.until, b.rate)
	s.Shadow, s.WouldWait, s.WouldShed = b.shadow, b.wouldWait, b.wouldShed
	s.WouldWaitTime = time.Duration(min(b.queue.waited, math.MaxInt64/2))
	s.Paused = max(0, b.until-now)
	s.Lateness, s.LatenessLost = b.lateness, b.lost
}

func (b *bucket) currentRate() float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rate
}

func (b *bucket) queued() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting
}

// shadowQueue is the queue that would stand in front of a rate, as a fluid. Its
// length is the number of callers in it, and what is left of the interval behind
// the last departure.
type shadowQueue struct {
	length float64
	at     time.Duration // when length was right
	waited float64       // nanoseconds that all of them have waited together
}

// drain brings the queue up to now. Until until, where a pause ends, nobody
// departs.
func (q *shadowQueue) drain(now, until time.Duration, rate float64) {
	if q.length > 0 {
		q.waited += math.Ceil(q.length) * float64(max(0, min(now, until)-q.at))
		length := max(0, q.length-rate*max(0, now-max(q.at, until)).Seconds())
		q.waited += (callerTime(q.length) - callerTime(length)) * 1e9 / rate
		q.length = length
	}
	q.at = now
}

// callerTime is the integral of waiting over a length that shrinks to 0.
func callerTime(length float64) float64 {
	whole, part := math.Modf(length)
	return whole*(whole-1)/2 + whole*part
}

// wait returns how long a caller who comes now would wait.
func (q *shadowQueue) wait(now, until time.Duration, rate float64) time.Duration {
	wait := float64(max(0, until-now)) + q.length*1e9/rate
	return time.Duration(min(wait, math.MaxInt64/2))
}

// waiting returns the callers in the queue.
func (q *shadowQueue) waiting() int { return max(0, int(math.Ceil(q.length))-1) }
