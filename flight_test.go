package agilelimiter

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The average is exact: in every interval the integral of the calls in flight
// over time, to the nanosecond.
func TestAreaIsTheIntegral(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var a area
	var now, drained time.Duration
	open, integral := 0, int64(0)
	for range 20000 {
		step := time.Duration(r.ExpFloat64() * float64(3*time.Millisecond))
		now += step
		integral += int64(open) * int64(step)
		switch n := r.IntN(40); {
		case n == 0:
			elapsed, inFlight := a.drain(now, open)
			if elapsed != now-drained {
				t.Fatalf("at %v: %v since the last drain, want %v", now, elapsed, now-drained)
			}
			if want := float64(integral) / float64(elapsed); elapsed > 0 && math.Abs(inFlight-want) > 1e-9*max(want, 1) {
				t.Fatalf("at %v: %v in flight, want %v", now, inFlight, want)
			}
			drained, integral = now, 0
		case n%2 == 0 && open < 50:
			a.start(now)
			open++
		case open > 0:
			a.end(now)
			open--
		}
	}
}

func TestAreaOfNoTime(t *testing.T) {
	var a area
	a.start(0)
	if elapsed, inFlight := a.drain(0, 1); elapsed != 0 || inFlight != 1 {
		t.Errorf("drained after no time: %v, %v in flight; want 0 and the 1 that is open", elapsed, inFlight)
	}
	if _, inFlight := a.drain(time.Second, 1); inFlight != 1 {
		t.Errorf("one call open all the time is %v in flight", inFlight)
	}
}

// A drain that races with the calls is wrong by no more than the calls that
// were being counted, for that one tick, and nothing of it is left over.
func TestAreaRacesWithDrain(t *testing.T) {
	const callers = 8
	var a area
	var open atomic.Int64
	var wg sync.WaitGroup
	epoch := time.Now()
	stop := make(chan struct{})
	for range callers {
		wg.Go(func() {
			for range 20000 {
				open.Add(1)
				a.start(time.Since(epoch))
				a.end(time.Since(epoch))
				open.Add(-1)
			}
		})
	}
	go func() { wg.Wait(); close(stop) }()
	for done := false; !done; {
		select {
		case <-stop:
			done = true
		default:
		}
		_, inFlight := a.drain(time.Since(epoch), int(open.Load()))
		if !(inFlight >= 0 && inFlight <= 1e6) {
			t.Fatalf("%v calls in flight, with %d callers", inFlight, callers)
		}
	}
	a.drain(time.Since(epoch), 0)
	if _, inFlight := a.drain(time.Since(epoch)+time.Second, 0); inFlight != 0 {
		t.Errorf("%v calls in flight when all have ended", inFlight)
	}
}

// flightLimiter is a Limiter under AnchorKnee that keeps what its law sees. Its
// rate cannot move: on a clock that stands, nobody may have to wait.
type flightLimiter struct {
	*Limiter
	clock *VirtualClock
	spy   *tickSpy
}

// tickSpy keeps what the core tells its law.
type tickSpy struct {
	law
	last tickInput
}

func (s *tickSpy) step(in tickInput) (float64, Decision) {
	s.last = in
	return s.law.step(in)
}

func newFlightLimiter() *flightLimiter {
	c := NewVirtualClock(time.Time{})
	l := New(Config{MinRate: 1e6, MaxRate: 1e6, Anchor: AnchorKnee, SLOTarget: time.Second, Clock: c})
	spy := &tickSpy{law: l.law}
	l.law = spy
	return &flightLimiter{l, c, spy}
}

func newFlightConcurrency() (*ConcurrencyLimiter, *VirtualClock, *tickSpy) {
	c := NewVirtualClock(time.Time{})
	l := NewConcurrency(ConcurrencyConfig{MaxLimit: 1000, InitialLimit: 1000, Anchor: AnchorKnee, SLOTarget: time.Second, Clock: c})
	spy := &tickSpy{law: l.law}
	l.law = spy
	return l, c, spy
}

func wantFlight(t *testing.T, when string, in tickInput, inFlight float64, end int) {
	t.Helper()
	if math.Abs(in.inFlight-inFlight) > 1e-6 || in.inFlightEnd != end {
		t.Errorf("%s: the law sees %v in flight and %d at the end, want %v and %d", when, in.inFlight, in.inFlightEnd, inFlight, end)
	}
}

func TestTheLawSeesTheCallsInFlight(t *testing.T) {
	const ms = time.Millisecond
	l := newFlightLimiter()
	c, cc, spy := newFlightConcurrency()
	take := func() {
		if _, ok := l.TryTake(); !ok || !c.TryTake() {
			t.Fatal("not admitted")
		}
	}
	end := func(o Outcome, d time.Duration) {
		l.Record(o, d)
		c.Release()
		c.Record(o, d)
	}
	pass := func(d time.Duration) { l.clock.Advance(d); cc.Advance(d) }
	both := func(when string, inFlight float64, open int, reached, unreachable, aborted, admitted int) {
		t.Helper()
		l.step()
		c.step()
		for _, in := range []tickInput{l.spy.last, spy.last} {
			wantFlight(t, when, in, inFlight, open)
			if in.reached != reached || in.unreachable != unreachable || in.aborted != aborted || in.admitted != admitted {
				t.Errorf("%s: %+v", when, in)
			}
		}
		if l.InFlight() != open || c.InFlight() != open {
			t.Errorf("%s: InFlight is %d and %d, want %d", when, l.InFlight(), c.InFlight(), open)
		}
	}

	// Whatever a call's outcome, it was in flight until its end.
	for _, o := range []Outcome{Reached, Unreachable, Aborted} {
		take()
		pass(50 * ms)
		end(o, 50*ms)
		pass(50 * ms)
	}
	pass(200 * ms)
	both("three calls of 50 ms in 500 ms", 0.3, 0, 1, 1, 1, 3)

	take()
	pass(100 * ms)
	take()
	pass(150 * ms)
	both("two calls go on", (250.0+150)/250, 2, 0, 0, 0, 2)
	pass(50 * ms)
	end(Reached, 300*ms)
	pass(200 * ms)
	both("one of them ends", (50.0+250)/250, 1, 1, 0, 0, 0)
	pass(250 * ms)
	both("the other goes on", 1, 1, 0, 0, 0, 0)
	end(Reached, 650*ms)
	pass(250 * ms)
	both("nothing", 0, 0, 1, 0, 0, 0)
}

// A limiter whose calls never report an end must not be taken for a stalled
// downstream before anything has returned.
func TestTakenAndNeverEndedIsNoStall(t *testing.T) {
	l := newFlightLimiter()
	for range 40 {
		for range 20 {
			l.clock.Advance(time.Millisecond)
			if _, ok := l.TryTake(); !ok {
				t.Fatal("not admitted")
			}
		}
		l.clock.Advance(230 * time.Millisecond)
		l.step()
		wantFlight(t, "nothing has ended so far", l.spy.last, 0, 0)
		if why := l.Stats().Decision; why != Blind {
			t.Fatalf("decision %v without any evidence, want blind", why)
		}
	}
	if got := l.InFlight(); got != 800 {
		t.Errorf("InFlight is %d, want the 800 taken", got)
	}
	// The first end says that ends are reported.
	l.Observe(time.Second)
	l.clock.Advance(250 * time.Millisecond)
	l.step()
	if in := l.spy.last; in.inFlightEnd != 799 || math.Abs(in.inFlight-799) > 1e-6 {
		t.Errorf("after the first end the law sees %v and %d in flight, want 799", in.inFlight, in.inFlightEnd)
	}
}

// Calls that were lost by their caller are written off after some minutes, those
// that only take long are not.
func TestLostCallsAgeOut(t *testing.T) {
	l := newFlightLimiter()
	const lost = 100
	for range lost {
		l.clock.Advance(time.Microsecond)
		l.Take()
	}
	// Ten calls a second of 100 ms go on all the while.
	second := func() {
		for range 10 {
			l.clock.Advance(time.Millisecond)
			l.Take()
			l.clock.Advance(99 * time.Millisecond)
			l.Observe(99 * time.Millisecond)
		}
		l.step()
	}
	for range 60 {
		second()
	}
	if got := l.InFlight(); got != lost {
		t.Errorf("after a minute %d in flight, want the %d lost ones: a call may take that long", got, lost)
	}
	for range 540 {
		second()
	}
	if got := l.InFlight(); got > 2 {
		t.Errorf("after ten minutes %d in flight, want the lost ones forgotten", got)
	}
	if got := l.spy.last.inFlight; got > 3 {
		t.Errorf("after ten minutes the law sees %v in flight, want about 1", got)
	}
	// What is forgotten and ends after all takes nothing below zero.
	for range lost {
		l.Observe(10 * time.Minute)
	}
	l.clock.Advance(250 * time.Millisecond)
	l.step()
	if got, in := l.InFlight(), l.spy.last; got < 0 || in.inFlight < 0 || in.inFlightEnd < 0 {
		t.Errorf("late ends of lost calls: %d in flight, the law sees %v and %d", got, in.inFlight, in.inFlightEnd)
	}
}

func TestLongCallsAreNotLost(t *testing.T) {
	// Every second one call that takes 90 s: 90 in flight for as long as it goes on.
	l := newFlightLimiter()
	const long = 90
	for s := range 15 * 60 {
		if s >= long {
			l.Observe(long * time.Second)
		}
		l.Take()
		l.clock.Advance(time.Second)
		l.step()
		if got, want := l.InFlight(), min(s+1, long); got != want {
			t.Fatalf("after %d s %d in flight, want %d", s+1, got, want)
		}
	}
}

// Observe without a Take is a sample without an admission: in flight stays at
// zero, and the next Take counts.
func TestObserveWithoutTake(t *testing.T) {
	l := newFlightLimiter()
	for i := range 20 {
		for range 10 {
			l.Observe(5 * time.Millisecond)
			if got := l.InFlight(); got < 0 {
				t.Fatalf("%d in flight", got)
			}
		}
		l.clock.Advance(250 * time.Millisecond)
		l.step()
		in := l.spy.last
		if in.reached != 10 || in.inFlightEnd != 0 || in.inFlight < 0 {
			t.Fatalf("tick %d: %+v", i, in)
		}
	}
	l.Take()
	l.clock.Advance(250 * time.Millisecond)
	l.step()
	wantFlight(t, "a Take after Observes without one", l.spy.last, 1, 1)
	l.Observe(250 * time.Millisecond)
	l.clock.Advance(250 * time.Millisecond)
	l.step()
	wantFlight(t, "and its end", l.spy.last, 0, 0)
}

// Steps that race with calls leave no call in flight that is none.
func TestNoPhantomsInFlight(t *testing.T) {
	l := New(Config{MinRate: 1e9, MaxRate: 1e9, InitialRate: 1e9, Anchor: AnchorKnee, SLOTarget: time.Second})
	c := NewConcurrency(ConcurrencyConfig{MinLimit: 1000, MaxLimit: 1000, Anchor: AnchorKnee, SLOTarget: time.Second})
	var calls, steps sync.WaitGroup
	var done atomic.Bool
	for range 4 {
		calls.Go(func() {
			for range 20000 {
				l.Take()
				l.Observe(0)
				c.TryTake()
				c.Release()
			}
		})
	}
	steps.Go(func() {
		for !done.Load() {
			l.step()
			c.step()
		}
	})
	calls.Wait()
	done.Store(true)
	steps.Wait()
	l.step()
	c.step()
	if l.InFlight() != 0 || c.InFlight() != 0 {
		t.Errorf("all calls have ended, and %d and %d are in flight", l.InFlight(), c.InFlight())
	}
}

// The peak is the most of the last tick, those included that came before it.
func TestPeakInFlight(t *testing.T) {
	l, _, _ := newFlightConcurrency()
	want := func(peak int) {
		t.Helper()
		l.step()
		if got := l.Stats().PeakInFlight; got != peak {
			t.Errorf("peak %d, want %d", got, peak)
		}
	}
	for range 5 {
		l.TryTake()
	}
	for range 3 {
		l.Release()
	}
	l.TryTake()
	want(5)
	want(3)
	for range 3 {
		l.Release()
	}
	want(3) // three stood there when the tick began
	want(0)
}
