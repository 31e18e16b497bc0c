package agilelimiter

import (
	"context"
	"time"
)

// Limiter paces outbound calls so that a downstream is protected from them. It
// spaces departures evenly at a rate that follows the downstream's latency,
// never above Config.MaxRate. Callers wait for their slot in order.
//
// Idle time earns nothing. In any time T at most 1 + MaxRate × (T + MaxLateness)
// calls depart: what the limiter itself is late by while callers wait is caught
// up at once, see Config.MaxLateness.
//
// Most callers want Do or DoContext, which take a slot, time the call and feed
// it back. Take, TakeContext and TryTake with Observe, ObserveTruncated,
// Unavailable or Record are for calls that fn cannot enclose. They differ in
// how they refuse: Take never does, TakeContext returns an error, TryTake false.
//
// A Limiter is made by New; its zero value is not usable. All methods are safe
// for concurrent use, before Start and after Stop too: without Start the rate
// stays where it is.
type Limiter struct {
	core
	bucket bucket
}

// New returns a Limiter at its initial rate; Start lets it adapt. It panics
// with the error of cfg.Validate if that is not nil.
func New(cfg Config) *Limiter {
	p, err := cfg.resolve()
	if err != nil {
		panic(err)
	}
	l := &Limiter{}
	l.init(p, &l.bucket)
	l.bucket.init(&l.time, p, l.area)
	l.install(newLaw(&l.params, true))
	return l
}

// Start begins adapting the rate, one step every Config.Tick. Starting twice is
// starting once. Start after Stop goes on where Stop left off. What was recorded
// before a Start is counted, but is no evidence.
func (l *Limiter) Start() { l.loop.start() }

// Stop freezes the rate where it is. It returns once no step is running, but
// does not wait for OnTick and may be called from it. Waiters stay in the queue
// and get their slots at the frozen rate. Stopping twice is stopping once.
func (l *Limiter) Stop() { l.loop.stop() }

// SetBounds puts a new floor and ceiling in force at once, in requests per
// second, as Config.MinRate and Config.MaxRate have them: both in [0.001, 1e9],
// min not above max. Otherwise it changes nothing and returns an error that
// names the argument.
//
// A rate outside the bounds moves to the nearest one, for those who wait already
// too; they keep their place. A rate between them stays where it is: under a
// higher ceiling it grows by the controller's own steps. SetBounds(r, r) sets a
// fixed rate. It may be called at any time, from any goroutine, OnTick included.
func (l *Limiter) SetBounds(min, max float64) error {
	return l.setBounds(rateBounds, min, max)
}

// Pause lets no call depart for d from now, say because the downstream asked for
// it with Retry-After. Of several pauses the one that ends last counts; Pause(0)
// ends them all. It panics if d is negative.
//
// Those who wait keep their place. A caller whose deadline ends within the pause
// is refused at once, a TryTake too; MaxWaiting bounds the queue as ever.
// Afterwards the rate goes on from where it was, without a burst: the ticks in
// which there was a pause are no evidence. Calls that have departed already are
// not touched. It may be called at any time, from any goroutine.
func (l *Limiter) Pause(d time.Duration) { l.pause(d) }

// SetShadow switches the shadow mode. While it is on, nobody is delayed or
// refused, by a Pause neither, and MaxRate is not kept: the controller moves the
// rate by the real evidence, and Stats counts who would have waited, for how
// long, and who would have been refused. Switching it on lets everybody depart
// who waits; switching it off puts the rate in force from the last departure on.
//
// It shows whether the limiter would have done harm in healthy times, and how
// the rate moves. It cannot show what the rate would do in an overload: there
// the callers go on as if nothing had happened, the overload stays, and the rate
// falls lower than it would if it were in force.
//
// It may be called at any time, from any goroutine.
func (l *Limiter) SetShadow(on bool) { l.bucket.setShadow(on) }

// Do waits for a slot, runs fn and feeds its round trip back; the wait is not
// part of that. It returns fn's error, or ErrQueueFull without running fn.
//
// A non-nil error is judged by Config.Classify; one that is a time-out (see
// IsTimeout) and is judged Reached counts as ObserveTruncated does. A panic or
// runtime.Goexit in fn counts as Aborted and goes on.
func (l *Limiter) Do(fn func() error) error {
	return l.DoContext(context.Background(), func(context.Context) error { return fn() })
}

// DoContext is Do with a context, which it passes on to fn. When ctx ends while
// waiting, or its deadline cannot be met by the queue as it stands, the error
// matches ErrWait and ctx's own error, and fn does not run. When ctx is
// cancelled while fn runs and fn returns an error, the call is Aborted whatever
// Classify says. A deadline that ends it is not a cancellation, and neither is a
// cancellation whose cause is a time-out: such a call is a time-out, whatever
// its error says. ctx must not be nil.
func (l *Limiter) DoContext(ctx context.Context, fn func(context.Context) error) error {
	_, err := DoContext(ctx, l, discard(fn))
	return err
}

// Take blocks until a slot is granted and returns its planned send time. The
// wait has no end but the grant, and MaxWaiting does not bound it: Take cannot
// return an error.
//
// Take the time when the call is really sent for Observe; the planned time is
// for a report that is safe from coordinated omission. Every Take ends in one
// of Observe, ObserveTruncated, Unavailable and Record. AnchorKnee depends on
// it; calls whose end is never reported are forgotten there after some minutes.
func (l *Limiter) Take() time.Time {
	slot, _, _ := l.bucket.take(context.Background(), false)
	return l.time.wall(slot)
}

// TakeContext is Take that can refuse: with ErrQueueFull, or with an error that
// matches ErrWait and ctx's own error when ctx ends or its deadline cannot be
// met by the queue at today's rate. A refusal costs no slot. Deadlines are wall
// time, as contexts have it, whatever Config.Clock is. A ctx that has ended
// before the call came is refused too, but not counted as shed.
func (l *Limiter) TakeContext(ctx context.Context) (time.Time, error) {
	slot, _, err := l.bucket.take(ctx, true)
	if err != nil {
		return time.Time{}, err
	}
	return l.time.wall(slot), nil
}

// Begin is TakeContext for callers who measure with Elapsed: in place of the
// planned send time it returns when the call may go out, on the clock of
// Elapsed, and saves them one reading of it.
func (l *Limiter) Begin(ctx context.Context) (start time.Duration, err error) {
	return l.begin(ctx)
}

// TryTake takes a slot that is free now and never waits. It does not overtake
// the queue. A refusal says that the rate is binding, but is not counted as
// shed: callers who poll would count many times.
func (l *Limiter) TryTake() (time.Time, bool) {
	slot, ok := l.bucket.poll()
	if !ok {
		return time.Time{}, false
	}
	return l.time.wall(slot), true
}

// Observe ends a call that reached the downstream and feeds back its round
// trip, measured from the moment it was really sent. A negative rtt counts as
// Aborted, one above 1 h as 1 h. Observe without a Take is a sample
// without an admission.
func (l *Limiter) Observe(rtt time.Duration) { l.finish(Reached, rtt, false) }

// ObserveTruncated ends a call that its own time-out ended after rtt: the
// downstream had it at least that long. AnchorKnee counts it as not delivered,
// the other anchors as any sample. A negative rtt counts as Aborted.
func (l *Limiter) ObserveTruncated(rtt time.Duration) { l.finish(Reached, rtt, true) }

// Unavailable ends a call that never reached the downstream. Under
// AnchorBaseline and AnchorSLO it is a sample of max(2 × window,
// 1.25 × SLOTarget), and none before there is a sample or an SLOTarget.
func (l *Limiter) Unavailable() { l.finish(Unreachable, 0, false) }

// Record ends a call by its Outcome: Observe for Reached and anything
// undefined, Unavailable for Unreachable, and for Aborted the end of a call
// without evidence.
func (l *Limiter) Record(o Outcome, rtt time.Duration) { l.finish(o, rtt, false) }

// Rate returns the rate in force, in requests per second.
func (l *Limiter) Rate() float64 { return l.bucket.currentRate() }

// Waiting returns the number of callers in the queue.
func (l *Limiter) Waiting() int { return l.bucket.queued() }

// InFlight returns the number of calls taken and not yet ended. It takes a full
// Stats to know it: for a look, not for the hot path.
func (l *Limiter) InFlight() int { return l.stats().InFlight }

// Stats returns a snapshot; its Target is the rate in requests per second.
func (l *Limiter) Stats() Stats { return l.stats() }

// Config returns the configuration with every default filled in and the bounds
// that are in force. Its InitialRate is moved between them, so that the result
// is valid.
func (l *Limiter) Config() Config { return l.inForce().config() }

// Elapsed returns the time since New on the limiter's clock; it never goes
// back. The difference of two is a round trip to Observe, for one monotonic
// read each: for adapters whose limiter may run on a virtual clock.
func (l *Limiter) Elapsed() time.Duration { return l.time.now() }

// finish ends a call that was driven by hand.
func (l *Limiter) finish(o Outcome, rtt time.Duration, truncated bool) {
	if l.area != nil {
		l.left(l.time.now(), rtt)
	}
	l.record(o, rtt, truncated)
}

// left tells the accounts of AnchorKnee that a call has ended.
func (l *Limiter) left(now, rtt time.Duration) {
	l.area.end(now)
	l.ages.ended.Add(int64(max(rtt, 0)))
}

func (l *Limiter) begin(ctx context.Context) (time.Duration, error) {
	_, now, err := l.bucket.take(ctx, true)
	return now, err
}

func (l *Limiter) end(start time.Duration, o Outcome, truncated bool) {
	now := l.time.now()
	if l.area != nil {
		l.left(now, now-start)
	}
	l.record(o, now-start, truncated)
}
