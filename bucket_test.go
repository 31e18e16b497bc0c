package agilelimiter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// fixed is a Limiter whose rate cannot move.
func fixed(rate float64, c Clock) *Limiter {
	return New(Config{MinRate: rate, MaxRate: rate, InitialRate: rate, Clock: c})
}

// bubble runs f in a synctest bubble, where the system clock is virtual and a
// goroutine left behind is a failure.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// gaps returns the distances between neighbours.
func gaps(times []time.Duration) []time.Duration {
	var out []time.Duration
	for i := 1; i < len(times); i++ {
		out = append(out, times[i]-times[i-1])
	}
	return out
}

func wantGaps(t *testing.T, times []time.Duration, want time.Duration) {
	t.Helper()
	for i, g := range gaps(times) {
		// Slots are whole nanoseconds of an exact schedule.
		if d := g - want; d < -1 || d > 1 {
			t.Fatalf("gap %d is %v, want %v; departures %v", i, g, want, times)
		}
	}
}

// departures lets n callers Take one after the other and returns when.
func departures(l *Limiter, n int) []time.Duration {
	var out []time.Duration
	for range n {
		l.Take()
		out = append(out, l.Elapsed())
	}
	return out
}

func TestTakeAfterIdleIsPacedAtOnce(t *testing.T) { // B01, B21
	for _, idle := range []time.Duration{time.Second, 30 * time.Second, 17 * time.Hour} {
		bubble(t, func(t *testing.T) {
			l := fixed(10, nil)
			wantGaps(t, departures(l, 3), 100*time.Millisecond)
			time.Sleep(idle)
			start := l.Elapsed()
			got := departures(l, 20)
			wantGaps(t, got, 100*time.Millisecond)
			if got[0] != start {
				t.Errorf("the first call after %v idle waited %v", idle, got[0]-start)
			}
		})
	}
}

func TestTakePlannedTimesOfACrowd(t *testing.T) { // B03, B28
	bubble(t, func(t *testing.T) {
		l := fixed(100, nil)
		start := time.Now()
		time.Sleep(10 * time.Minute)
		var mu sync.Mutex
		var planned []time.Duration
		var early int
		var wg sync.WaitGroup
		began := time.Now()
		for range 1000 {
			wg.Go(func() {
				t0 := l.Take()
				mu.Lock()
				defer mu.Unlock()
				planned = append(planned, t0.Sub(start))
				if time.Since(began) < 9*time.Millisecond {
					early++
				}
			})
		}
		wg.Wait()
		slices.Sort(planned)
		wantGaps(t, planned, 10*time.Millisecond)
		if len(planned) != 1000 || early != 1 {
			t.Errorf("%d planned times, %d departures in the first 9 ms; want 1000 and 1", len(planned), early)
		}
	})
}

func TestRateIsExact(t *testing.T) { // B10, B12: fractions of a nanosecond are carried
	for _, rate := range []float64{0.5, 3, 700, 1500, 3000, 30000, 3e6} {
		b := &bucket{}
		tb := &timebase{}
		tb.init(NewVirtualClock(time.Time{}))
		b.init(tb, params{min: rate, max: rate, initial: rate}, nil)
		const span = 10 * time.Second
		n := 0
		for now := time.Duration(0); now < span; {
			if slot, ok := b.depart(now); !ok {
				now = slot
			} else {
				n++
			}
		}
		if want := rate * span.Seconds(); float64(n) < 0.9999*want || float64(n) > 1.0001*want+1 {
			t.Errorf("%v/s departed %d times in 10 s, want %v", rate, n, want)
		}
	}
}

func TestClockStepsBack(t *testing.T) { // B19
	c := NewVirtualClock(time.Unix(1e9, 0))
	l := fixed(10, c)
	l.Take()
	c.Jump(-time.Hour)
	granted := make(chan time.Time)
	go func() { granted <- l.Take() }()
	c.BlockUntil(1)
	c.Advance(100 * time.Millisecond)
	if got, want := (<-granted).Sub(time.Unix(1e9, 0)), 100*time.Millisecond; got != want {
		t.Errorf("after a step back by an hour the next slot is %v after the first, want %v", got, want)
	}
	if _, ok := l.TryTake(); ok {
		t.Error("a third call departed in the same interval")
	}
}

// A clock that steps back while somebody waits: no time has passed since the
// last look at it, so the waiter stays one interval longer and not an hour.
func TestWaiterSurvivesAStepBack(t *testing.T) {
	c := NewVirtualClock(time.Unix(1e9, 0))
	l := fixed(10, c)
	l.Take()
	granted := make(chan struct{})
	go func() { l.Take(); close(granted) }()
	c.BlockUntil(1)
	c.Jump(-time.Hour)
	c.Advance(200 * time.Millisecond)
	if l.Waiting() != 0 {
		t.Fatal("still waiting after two intervals")
	}
	<-granted
}

func TestSuspendIsOneStepAndNoBurst(t *testing.T) { // B21
	c := NewVirtualClock(time.Unix(0, 0))
	l := New(Config{MinRate: 20, MaxRate: 500, InitialRate: 50, Clock: c})
	l.Start()
	defer l.Stop()
	for range 8 {
		for range 20 {
			l.Observe(20 * time.Millisecond)
		}
		c.Advance(250 * time.Millisecond)
	}
	before := l.Stats()
	c.Jump(17 * time.Hour)
	after := l.Stats()
	if after.Ticks != before.Ticks+1 || after.Target != before.Target {
		t.Errorf("17 h in one jump: %d ticks, rate %v -> %v; want 1 tick and no change",
			after.Ticks-before.Ticks, before.Target, after.Target)
	}
	departed := 0
	for range 50 {
		if _, ok := l.TryTake(); ok {
			departed++
		}
	}
	if departed != 1 {
		t.Errorf("%d calls departed at once after the jump, want 1", departed)
	}
	c.Advance(250 * time.Millisecond)
	if got := l.Stats().Ticks; got != after.Ticks+1 {
		t.Errorf("%d ticks in the tick after the jump, want 1", got-after.Ticks)
	}
}

func TestQueueIsFIFO(t *testing.T) { // B41
	bubble(t, func(t *testing.T) {
		l := fixed(50, nil)
		l.Take()
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond / 10)
				l.Take()
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
			})
		}
		wg.Wait()
		if !slices.IsSorted(order) || len(order) != 100 {
			t.Errorf("grant order %v", order)
		}
	})
}

func TestRaiseReachesThoseWhoWait(t *testing.T) { // B37, B39
	bubble(t, func(t *testing.T) {
		l := New(Config{MinRate: 1, MaxRate: 100, InitialRate: 1})
		var mu sync.Mutex
		var at []time.Duration
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				l.Take()
				mu.Lock()
				at = append(at, l.Elapsed())
				mu.Unlock()
			})
		}
		time.Sleep(2100 * time.Millisecond)
		l.bucket.set(100)
		wg.Wait()
		slices.Sort(at)
		wantGaps(t, at[:3], time.Second)
		wantGaps(t, at[3:], 10*time.Millisecond)
		if at[3] != 2100*time.Millisecond {
			t.Errorf("first departure at the new rate after %v, want at once (2.1 s)", at[3])
		}
	})
}

func TestLoweringReachesThoseWhoWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := New(Config{MinRate: 1, MaxRate: 100, InitialRate: 100})
		l.Take()
		done := make(chan time.Duration)
		go func() { l.Take(); done <- l.Elapsed() }()
		time.Sleep(5 * time.Millisecond)
		l.bucket.set(1)
		if got := <-done; got != time.Second {
			t.Errorf("departed after %v, want one new interval after the last departure", got)
		}
	})
}

func TestCeilingHoldsInTheBucket(t *testing.T) { // B06, B65
	l := New(Config{MinRate: 20, MaxRate: 500})
	for _, c := range []struct{ set, want float64 }{
		{1e6, 500}, {0, 20}, {-1, 20}, {inf(), 500}, {-inf(), 20}, {100, 100}, {nan(), 100},
	} {
		l.bucket.set(c.set)
		if got := l.Rate(); got != c.want {
			t.Errorf("set(%v): rate %v, want %v", c.set, got, c.want)
		}
	}
}

func TestEndedContextGetsNoSlot(t *testing.T) { // B31
	l := fixed(10, NewVirtualClock(time.Time{}))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.TakeContext(ctx); !errors.Is(err, context.Canceled) || !errors.Is(err, ErrWait) {
		t.Fatalf("TakeContext with an ended context: %v", err)
	}
	if _, ok := l.TryTake(); !ok {
		t.Error("the refused call cost a slot")
	}
}

func TestCancelledWaitersCostNothing(t *testing.T) { // B30, B32
	bubble(t, func(t *testing.T) {
		l := fixed(10, nil)
		var wg sync.WaitGroup
		var granted, refused int
		var mu sync.Mutex
		for range 500 {
			wg.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(200*time.Millisecond, cancel)
				defer cancel()
				_, err := l.TakeContext(ctx)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					granted++
				case errors.Is(err, context.Canceled) && errors.Is(err, ErrWait) && l.Elapsed() == 200*time.Millisecond:
					refused++
				default:
					t.Errorf("after %v: %v", l.Elapsed(), err)
				}
			})
		}
		wg.Wait()
		if granted < 2 || granted > 3 || granted+refused != 500 {
			t.Errorf("%d granted, %d refused; want 2 or 3 of 500 granted in 200 ms", granted, refused)
		}
		if s := l.Stats(); s.Waiting != 0 || s.Shed != uint64(refused) || s.Admitted != uint64(granted) {
			t.Errorf("stats %+v", s)
		}
		time.Sleep(800 * time.Millisecond)
		began := l.Elapsed()
		l.Take()
		if wait := l.Elapsed() - began; wait > 100*time.Millisecond {
			t.Errorf("a late caller waited %v behind cancelled ones", wait)
		}
	})
}

func TestDeadlineThatCannotBeMet(t *testing.T) { // B35
	bubble(t, func(t *testing.T) {
		l := fixed(1, nil)
		l.Take()
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { _, _ = l.TakeContext(ctx) })
		}
		synctest.Wait()
		hurried, stop := context.WithTimeout(t.Context(), 2*time.Second)
		defer stop()
		before := l.Elapsed()
		_, err := l.TakeContext(hurried)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrWait) || !IsTimeout(err) {
			t.Errorf("error %v", err)
		}
		if !strings.Contains(err.Error(), "11s") || !strings.Contains(err.Error(), "2s") {
			t.Errorf("the message names neither the predicted wait nor the deadline: %v", err)
		}
		if l.Elapsed() != before || l.Waiting() != 10 {
			t.Errorf("took %v, %d waiting; want at once and 10", l.Elapsed()-before, l.Waiting())
		}
		patient, stop := context.WithTimeout(t.Context(), 12*time.Second)
		defer stop()
		if _, err := l.TakeContext(patient); err != nil || l.Elapsed() != 11*time.Second {
			t.Errorf("a deadline that can be met: %v after %v", err, l.Elapsed())
		}
		cancel()
		wg.Wait()
	})
}

func TestMaxWaiting(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := New(Config{MinRate: 1, MaxRate: 1, MaxWaiting: 2})
		l.Take()
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { l.Take() })
		}
		synctest.Wait()
		if _, err := l.TakeContext(t.Context()); err != ErrQueueFull {
			t.Errorf("TakeContext: %v", err)
		}
		called := false
		if err := l.Do(func() error { called = true; return nil }); err != ErrQueueFull || called {
			t.Errorf("Do: %v, fn called: %v", err, called)
		}
		if s := l.Stats(); s.Shed != 2 || s.Waiting != 2 {
			t.Errorf("shed %d, waiting %d; want 2 and 2", s.Shed, s.Waiting)
		}
		wg.Go(func() { l.Take() }) // not bounded: it cannot say no
		synctest.Wait()
		if l.Waiting() != 3 {
			t.Errorf("%d waiting, want Take to join as the third", l.Waiting())
		}
		wg.Wait()
	})
}

func TestTryTakeNeverOvertakes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := fixed(1, nil)
		l.Take()
		go l.Take()
		synctest.Wait()
		time.Sleep(time.Second - 1)
		if _, ok := l.TryTake(); ok {
			t.Error("TryTake departed before its slot")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if _, ok := l.TryTake(); ok {
			t.Error("TryTake took the waiter's slot")
		}
		time.Sleep(time.Second)
		if t0, ok := l.TryTake(); !ok || !t0.Equal(time.Now()) {
			t.Errorf("TryTake after a free interval: %v at %v, now %v", ok, t0, time.Now())
		}
	})
}

// A grant and a cancellation at the same instant: each round ends as one of the
// two, and the schedule never loses or gains a slot. B34.
func TestCancelAtTheInstantOfTheGrant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := fixed(1000, nil)
		granted := 0
		for range 10000 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Millisecond, cancel)
			if _, err := l.TakeContext(ctx); err == nil {
				granted++
			} else if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			cancel()
		}
		if got := l.Stats(); got.Admitted != uint64(granted) || got.Waiting != 0 ||
			got.Admitted+got.Shed != 10000 {
			t.Errorf("%d granted; %+v", granted, got)
		}
		wantGaps(t, departures(l, 100), time.Millisecond)
	})
}

func TestStopStrandsNobody(t *testing.T) { // B115
	bubble(t, func(t *testing.T) {
		l := New(Config{MinRate: 10, MaxRate: 100, InitialRate: 10})
		l.Start()
		l.Take()
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { l.Take() })
		}
		synctest.Wait()
		l.Stop()
		wg.Wait()
		if l.Elapsed() != 2*time.Second || l.Rate() != 10 {
			t.Errorf("20 waiters gone after %v at %v/s, want 2 s at the frozen 10/s", l.Elapsed(), l.Rate())
		}
	})
}

// lateClock fires every timer late by lateness of the moment.
type lateClock struct {
	*VirtualClock
	late time.Duration
}

func (c *lateClock) AfterFunc(d time.Duration, f func()) Timer {
	return &lateTimer{c, c.VirtualClock.AfterFunc(d+c.late, f)}
}

type lateTimer struct {
	c *lateClock
	Timer
}

func (t *lateTimer) Reset(d time.Duration) bool { return t.Timer.Reset(d + t.c.late) }

func TestOversleepingIsRepaid(t *testing.T) { // B15
	for _, c := range []struct {
		late, most time.Duration
		want       float64 // achieved/nominal
	}{
		{0, 0, 1}, {ms, 0, 1}, {10 * ms, 0, 1}, {20 * ms, 0, 1},
		// Beyond MaxLateness, by default 20 ms, a wake-up repays so much and no more.
		{40 * ms, 0, 0.5},
		{10 * ms, 2 * ms, 0.2},
		{50 * ms, 100 * ms, 1},
	} {
		clock := &lateClock{NewVirtualClock(time.Time{}), c.late}
		l := New(Config{MinRate: 20000, MaxRate: 20000, MaxLateness: c.most, Clock: clock})
		n := 0
		for clock.Now().Sub(time.Time{}) < 2*time.Second {
			if _, ok := l.TryTake(); ok {
				n++
				continue
			}
			// One caller who has to wait.
			granted := make(chan struct{})
			go func() { l.Take(); close(granted) }()
			clock.BlockUntil(1)
			for l.Waiting() > 0 {
				clock.Advance(50 * time.Microsecond)
			}
			<-granted
			n++
		}
		// What it is late by at the end is still to be caught up.
		if got := float64(n) / 40000; got < c.want-0.01-c.late.Seconds()/2 || got > c.want+0.01 {
			t.Errorf("timer late by %v: %.3f of the rate, want %.3f", c.late, got, c.want)
		}
		l.step() // a tick ends
		s := l.Stats()
		if d := s.Lateness - c.late; d < -50*time.Microsecond || d > 50*time.Microsecond {
			t.Errorf("timer late by %v: Stats.Lateness is %v", c.late, s.Lateness)
		}
		if lost, want := s.LatenessLost.Seconds()/2, 1-c.want; lost < want-0.01 || lost > want+0.01 {
			t.Errorf("timer late by %v: Stats.LatenessLost is %.3f of the time, want %.3f", c.late, lost, want)
		}
	}
}

// Four callers that never wait, beside a clock that somebody else moves.
func TestAVirtualSecondLetsNoMoreDepart(t *testing.T) { // FR14
	clock := NewVirtualClock(epoch)
	l := New(Config{MinRate: 100, MaxRate: 100, Clock: clock})
	var departed atomic.Int64
	stop := make(chan struct{})
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, ok := l.TryTake(); ok {
					departed.Add(1)
				}
			}
		})
	}
	for range 10_000 {
		clock.Advance(ms)
	}
	close(stop)
	callers.Wait()
	if n := departed.Load(); n > 1001 {
		t.Errorf("%d departed in 10 s at 100/s, want at most 1001", n)
	}
	if got, want := l.Elapsed(), clock.Now().Sub(epoch); got != want {
		t.Errorf("the limiter's time is %v, the clock's %v", got, want)
	}
}

// Waiters at many goroutines on a clock of the user's own around time.Now.
func TestAUsersClockLetsNoMoreDepart(t *testing.T) { // FR14
	l := New(Config{MinRate: 2000, MaxRate: 2000, MaxLateness: ms, Clock: ownClock{}})
	var mu sync.Mutex
	var slots []time.Duration
	var callers sync.WaitGroup
	for range 50 {
		callers.Go(func() {
			for l.Elapsed() < 20*ms {
				slot, ok := l.TryTake()
				if !ok {
					slot = l.Take()
				}
				mu.Lock()
				slots = append(slots, slot.Sub(l.time.epoch))
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	slices.Sort(slots)
	for i, gap := range gaps(slots) {
		if gap < 500*time.Microsecond {
			t.Fatalf("slots %v and %v are %v apart, want at least 500µs", slots[i], slots[i+1], gap)
		}
	}
}

// ownClock is a user's clock around the machine's.
type ownClock struct{}

func (ownClock) Now() time.Time                            { return time.Now() }
func (ownClock) AfterFunc(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }

// A caller is stopped on the way to the lock. His slot is of the time at which
// he departs, or the next caller could depart at the same time.
func TestACallerStoppedBeforeTheLockOpensNoSecondDeparture(t *testing.T) {
	for _, clock := range []Clock{nil, ownClock{}} {
		l := New(Config{MinRate: 1000, MaxRate: 1000, Clock: clock})
		l.bucket.mu.Lock()
		slot := make(chan time.Time)
		go func() {
			at, _ := l.TryTake()
			slot <- at
		}()
		time.Sleep(5 * ms) // he stands before the lock now
		free := l.time.wall(l.time.now())
		l.bucket.mu.Unlock()
		if at := <-slot; at.Before(free) {
			t.Errorf("the slot lies %v before the departure", free.Sub(at))
		}
	}
}

func TestAPanickingClockLeavesTheLimiterUsable(t *testing.T) {
	panics := false
	clock := NewVirtualClock(epoch)
	l := New(Config{MinRate: 10, MaxRate: 10, Clock: hookedClock{clock, func() {
		if panics {
			panic("broken")
		}
	}}})
	for range 3 {
		panics = true
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic did not pass on")
				}
			}()
			l.TryTake()
		}()
		panics = false
		clock.Advance(100 * ms)
		if _, ok := l.TryTake(); !ok {
			t.Fatal("no departure after the clock had been mended")
		}
	}
}

// hookedClock runs a hook before each reading.
type hookedClock struct {
	*VirtualClock
	hook func()
}

func (c hookedClock) Now() time.Time { c.hook(); return c.VirtualClock.Now() }

// The idle time of a caller is not our lateness and earns nothing.
func TestThinkTimeIsNotRepaid(t *testing.T) {
	clock := &lateClock{NewVirtualClock(time.Time{}), time.Millisecond}
	l := fixed(1000, clock)
	l.Take()
	granted := make(chan struct{})
	go func() { l.Take(); close(granted) }()
	clock.BlockUntil(1)
	clock.Advance(2 * time.Millisecond) // slot at 1 ms, granted at 2 ms: 1 ms owed, next slot 2 ms
	<-granted
	clock.Advance(10 * time.Second)
	n := 0
	for range 100 {
		if _, ok := l.TryTake(); ok {
			n++
		}
	}
	if n > 2 {
		t.Errorf("%d calls at once after 10 s of thinking; one and at most one owed are due", n)
	}
}

// TestPromise holds the bucket to its promise over random interleavings.
func TestPromise(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		ops := make([]byte, 400)
		for i := range ops {
			ops[i] = byte(r.UintN(256))
		}
		if err := promise(ops); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func FuzzBucket(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 250, 251, 100, 7, 7, 7, 200})
	f.Fuzz(func(t *testing.T, ops []byte) {
		if err := promise(ops[:min(len(ops), 2000)]); err != nil {
			t.Error(err)
		}
	})
}

// promise plays ops against a bucket whose timer is late at random: takes,
// try-takes, cancellations, rate changes, passing time. It checks order, the
// bound on departures in every window, and that nobody is stranded.
func promise(ops []byte) error {
	const ceiling = 1000.0
	maxLateness := 2 * ms
	if len(ops) > 0 {
		maxLateness = time.Duration(1+int(ops[0])*100) * time.Microsecond // up to 25 ms
	}
	clock := &lateClock{NewVirtualClock(time.Unix(0, 0)), 0}
	tb := &timebase{}
	tb.init(clock)
	b := &bucket{}
	b.init(tb, params{min: 1, max: ceiling, initial: 100, maxLateness: maxLateness}, nil)
	type grant struct{ slot, at time.Duration }
	var grants []grant
	var queue []*waiter
	// collect takes the grants out of the queue's front, in order.
	collect := func() error {
		for len(queue) > 0 && queue[0].granted {
			grants = append(grants, grant{queue[0].slot, tb.now()})
			queue = queue[1:]
		}
		for _, w := range queue {
			if w.granted {
				return fmt.Errorf("granted out of order")
			}
		}
		return nil
	}
	take := func() {
		now := tb.now()
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.head == nil {
			if slot, ok := b.depart(now); ok {
				grants = append(grants, grant{slot, now})
				return
			}
		}
		// Waiters are told apart here, so none may come from the free list.
		b.free, b.freed = nil, 0
		queue = append(queue, b.push(now))
	}
	for i, op := range ops {
		switch x := op % 8; {
		case x < 3:
			take()
		case x == 3:
			if slot, now, _, ok := b.tryTake(); ok {
				if len(queue) > 0 {
					return fmt.Errorf("op %d: TryTake overtook the queue", i)
				}
				grants = append(grants, grant{slot, now})
			}
		case x == 4 && len(queue) > 0:
			k := int(op) % len(queue)
			if b.leave(queue[k]) {
				queue = slices.Delete(queue, k, k+1)
			}
		case x == 5:
			b.set(float64(op) * float64(op) / 32) // 0 … 2032, clamped
		case x == 6:
			clock.late = time.Duration(op) * 200 * time.Microsecond // up to 50 ms
		default:
			// In small steps, so that a grant is collected at its own time.
			for range 1 + int(op)/8 {
				clock.Advance(100 * time.Microsecond)
				if err := collect(); err != nil {
					return err
				}
			}
		}
		if err := collect(); err != nil {
			return fmt.Errorf("op %d: %w", i, err)
		}
		if len(queue) != b.waiting {
			return fmt.Errorf("op %d: %d waiters counted, %d there", i, b.waiting, len(queue))
		}
	}
	for i := range grants {
		if i > 0 && grants[i].slot <= grants[i-1].slot {
			return fmt.Errorf("slots %v and %v out of order", grants[i-1].slot, grants[i].slot)
		}
		// Against the ceiling: the rate in force was never above it. The last
		// term is the grain in which grants are collected.
		for j := i; j < len(grants); j++ {
			window := grants[j].at - grants[i].at + maxLateness + 100*time.Microsecond
			if n := float64(j - i + 1); n > 1+ceiling*window.Seconds()+1e-6 {
				return fmt.Errorf("%v departures within %v", n, window)
			}
		}
	}
	// Nobody is stranded.
	for range len(queue) {
		clock.Advance(1100 * time.Millisecond)
	}
	if err := collect(); err != nil || len(queue) > 0 {
		return fmt.Errorf("%d waiters stranded, %v", len(queue), err)
	}
	return nil
}

func inf() float64 { return math.Inf(1) }
func nan() float64 { return math.NaN() }
