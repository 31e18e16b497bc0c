package agilelimiter

import (
	"context"
	"time"
)

// ConcurrencyLimiter protects a service from its callers. It admits calls while
// fewer than a limit are in flight, a limit that follows the service's own
// latency and never exceeds ConcurrencyConfig.MaxLimit, and refuses at once
// otherwise: waiting would queue up the very goroutines and connections that it
// is there to protect.
//
// Most callers want Do or DoContext, which return ErrOverloaded when they
// refuse. TryTake returns false instead, and leaves Release and the evidence to
// the caller.
//
// A ConcurrencyLimiter is made by NewConcurrency; its zero value is not usable.
// All methods are safe for concurrent use, before Start and after Stop too:
// without Start the limit stays where it is.
type ConcurrencyLimiter struct {
	core
	sem semaphore
}

// NewConcurrency returns a ConcurrencyLimiter at its initial limit; Start lets
// it adapt. It panics with the error of cfg.Validate if that is not nil.
func NewConcurrency(cfg ConcurrencyConfig) *ConcurrencyLimiter {
	p, err := cfg.resolve()
	if err != nil {
		panic(err)
	}
	l := &ConcurrencyLimiter{}
	l.init(p, &l.sem)
	l.sem.init(&l.time, p)
	l.install(newLaw(&l.params, false))
	return l
}

// Start begins adapting the limit, one step every ConcurrencyConfig.Tick.
// Starting twice is starting once. Start after Stop goes on where Stop left off.
// What was recorded before a Start is counted, but is no evidence.
func (l *ConcurrencyLimiter) Start() { l.loop.start() }

// Stop freezes the limit where it is. It returns once no step is running, but
// does not wait for OnTick and may be called from it. Stopping twice is
// stopping once.
func (l *ConcurrencyLimiter) Stop() { l.loop.stop() }

// SetBounds puts a new floor and ceiling in force at once, in calls in flight,
// as ConcurrencyConfig.MinLimit and MaxLimit have them: both in [1, 2^31-1], min
// not above max. Otherwise it changes nothing and returns an error that names
// the argument.
//
// A limit outside the bounds moves to the nearest one. A limit between them
// stays where it is: under a higher ceiling it grows by the controller's own
// steps. Where more calls are in flight than a lowered limit allows, nobody is
// admitted until enough have left. SetBounds(n, n) sets a fixed limit. It may be
// called at any time, from any goroutine, OnTick included.
func (l *ConcurrencyLimiter) SetBounds(min, max int) error {
	return l.setBounds(limitBounds, float64(min), float64(max))
}

// Pause refuses every call for d from now with ErrOverloaded. Of several pauses
// the one that ends last counts; Pause(0) ends them all. It panics if d is
// negative.
//
// Calls in flight are not touched. Afterwards the limit goes on from where it
// was: the ticks in which there was a pause are no evidence. It may be called at
// any time, from any goroutine.
func (l *ConcurrencyLimiter) Pause(d time.Duration) { l.pause(d) }

// SetShadow switches the shadow mode. While it is on, nobody is refused, by a
// Pause neither, and MaxLimit is not kept: the controller moves the limit by the
// real evidence, and Stats counts who would have been refused. For that the
// calls in flight are divided into those that would be there and the rest; a
// call that ends counts as one of the former with the share that they have.
// Switched off again, the limit refuses until enough have left.
//
// It shows whether the limiter would have done harm in healthy times, and how
// the limit moves. It cannot show what the limit would do in an overload: there
// the callers go on as if nothing had happened, the overload stays, and the
// limit falls lower than it would if it were in force.
//
// A call costs a mutex more while it is on. It may be called at any time, from
// any goroutine.
func (l *ConcurrencyLimiter) SetShadow(on bool) { l.sem.setShadow(on) }

// Do runs fn if there is room, feeds its duration back and returns its error;
// at the limit it returns ErrOverloaded at once and fn does not run.
//
// A non-nil error is judged by ConcurrencyConfig.Classify; one that is a
// time-out (see IsTimeout) and is judged Reached counts as ObserveTruncated
// does. A panic or runtime.Goexit in fn gives the slot back, counts as Aborted
// and goes on.
func (l *ConcurrencyLimiter) Do(fn func() error) error {
	return l.DoContext(context.Background(), func(context.Context) error { return fn() })
}

// DoContext is Do with a context, which it passes on to fn. With a ctx that has
// ended already fn does not run and the error matches ErrWait and ctx's own.
// When ctx is cancelled while fn runs and fn returns an error, the call is
// Aborted whatever Classify says. A deadline that ends it is not a cancellation,
// and neither is a cancellation whose cause is a time-out: such a call is a
// time-out, whatever its error says. ctx must not be nil.
func (l *ConcurrencyLimiter) DoContext(ctx context.Context, fn func(context.Context) error) error {
	_, err := DoContext(ctx, l, discard(fn))
	return err
}

// TryTake admits one call if there is room. Every true must be followed by
// exactly one Release, and by Observe or one of its kind where there is
// evidence.
func (l *ConcurrencyLimiter) TryTake() bool {
	if !l.sem.tryAcquire() {
		return false
	}
	if l.area != nil {
		l.area.start(l.time.now())
	}
	return true
}

// Release gives back the slot of a TryTake. It panics without a matching
// TryTake.
func (l *ConcurrencyLimiter) Release() {
	l.sem.release()
	if l.area != nil {
		l.area.end(l.time.now())
	}
}

// Observe feeds back the handling time of one admitted call. A negative d
// counts as Aborted, one above 1 h as 1 h.
func (l *ConcurrencyLimiter) Observe(d time.Duration) { l.record(Reached, d, false) }

// ObserveTruncated feeds back a call that its own time-out ended after d.
// AnchorKnee counts it as not delivered, the other anchors as any sample. A
// negative d counts as Aborted.
func (l *ConcurrencyLimiter) ObserveTruncated(d time.Duration) { l.record(Reached, d, true) }

// Unavailable is for a call that was answered without any work, say with an
// instant 503. Under AnchorBaseline and AnchorSLO it is a sample of
// max(2 × window, 1.25 × SLOTarget), and none before there is a sample or an
// SLOTarget.
func (l *ConcurrencyLimiter) Unavailable() { l.record(Unreachable, 0, false) }

// Record feeds back one call by its Outcome: Observe for Reached and anything
// undefined, Unavailable for Unreachable, nothing but a count for Aborted.
func (l *ConcurrencyLimiter) Record(o Outcome, d time.Duration) { l.record(o, d, false) }

// Limit returns the limit in force, in whole calls. A Pause does not change it.
func (l *ConcurrencyLimiter) Limit() int { return l.sem.whole() }

// InFlight returns the number of calls admitted and not yet released.
func (l *ConcurrencyLimiter) InFlight() int { return int(l.sem.open()) }

// Stats returns a snapshot; its Target is the limit before rounding down.
func (l *ConcurrencyLimiter) Stats() Stats { return l.stats() }

// Config returns the configuration with every default filled in and the bounds
// that are in force. Its InitialLimit is moved between them, so that the result
// is valid.
func (l *ConcurrencyLimiter) Config() ConcurrencyConfig { return l.inForce().concurrencyConfig() }

// Elapsed returns the time since NewConcurrency on the limiter's clock; it never
// goes back. The difference of two is a duration to Observe, for one monotonic
// read each: for adapters whose limiter may run on a virtual clock.
func (l *ConcurrencyLimiter) Elapsed() time.Duration { return l.time.now() }

func (l *ConcurrencyLimiter) begin(ctx context.Context) (time.Duration, error) {
	if err := ctx.Err(); err != nil {
		return 0, &waitError{"agilelimiter: not admitted: " + err.Error(), err}
	}
	if !l.sem.tryAcquire() {
		return 0, ErrOverloaded
	}
	now := l.time.now()
	if l.area != nil {
		l.area.start(now)
	}
	return now, nil
}

func (l *ConcurrencyLimiter) end(start time.Duration, o Outcome, truncated bool) {
	now := l.time.now()
	l.sem.release()
	if l.area != nil {
		l.area.end(now)
	}
	l.record(o, now-start, truncated)
}
