package agilelimiter

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestVirtualClockMovesOnlyWhenTold(t *testing.T) {
	c := NewVirtualClock(epoch)
	if !c.Now().Equal(epoch) {
		t.Errorf("a fresh clock shows %v, want %v", c.Now(), epoch)
	}
	c.Advance(0)
	c.Advance(1500 * ms)
	if want := epoch.Add(1500 * ms); !c.Now().Equal(want) {
		t.Errorf("the clock shows %v, want %v", c.Now(), want)
	}
	var zero VirtualClock
	zero.Advance(time.Second)
	if !zero.Now().Equal(time.Time{}.Add(time.Second)) {
		t.Errorf("the zero value shows %v after a second", zero.Now())
	}
}

func TestVirtualClockAdvanceRunsEachAtItsOwnTime(t *testing.T) {
	c := NewVirtualClock(epoch)
	var log []string
	note := func(name string) func() {
		return func() { log = append(log, fmt.Sprint(name, " ", c.Now().Sub(epoch))) }
	}
	c.AfterFunc(3*time.Second, note("c"))
	c.AfterFunc(1*time.Second, func() {
		note("a")()
		c.AfterFunc(500*ms, note("armed on the way"))
		c.AfterFunc(0, note("armed for at once"))
	})
	c.AfterFunc(2*time.Second, note("b1"))
	c.AfterFunc(2*time.Second, note("b2")) // same time: in order of arming
	c.AfterFunc(9*time.Second, note("later"))
	c.AfterFunc(-time.Second, note("first"))
	if len(log) != 0 {
		t.Errorf("%q ran without Advance", log)
	}
	c.Advance(3 * time.Second)
	want := []string{"first 0s", "a 1s", "armed for at once 1s", "armed on the way 1.5s", "b1 2s", "b2 2s", "c 3s"}
	if !slices.Equal(log, want) {
		t.Errorf("ran %q, want %q", log, want)
	}
	if got := c.Sleepers(); got != 1 {
		t.Errorf("%d timers are armed, want 1", got)
	}
}

func TestVirtualClockJumpRunsLate(t *testing.T) {
	c := NewVirtualClock(epoch)
	var log []string
	note := func(name string) func() {
		return func() { log = append(log, fmt.Sprint(name, " ", c.Now().Sub(epoch))) }
	}
	c.AfterFunc(2*time.Second, note("b"))
	c.AfterFunc(1*time.Second, func() {
		note("a")()
		c.AfterFunc(time.Second, note("armed late"))
	})
	c.Jump(10 * time.Second)
	if want := []string{"a 10s", "b 10s"}; !slices.Equal(log, want) {
		t.Errorf("ran %q, want %q", log, want)
	}
	c.Advance(time.Second)
	if want := "armed late 11s"; log[len(log)-1] != want {
		t.Errorf("ran %q, want %q at last", log, want)
	}
}

func TestVirtualClockJumpBackKeepsTimers(t *testing.T) {
	c := NewVirtualClock(epoch)
	ran := false
	c.AfterFunc(time.Second, func() { ran = true })
	c.Advance(500 * ms)
	c.Jump(-time.Hour)
	if want := epoch.Add(500*ms - time.Hour); !c.Now().Equal(want) {
		t.Errorf("the clock shows %v, want %v", c.Now(), want)
	}
	c.Advance(499 * ms)
	if ran {
		t.Error("the timer ran early")
	}
	c.Advance(ms)
	if !ran {
		t.Error("the timer did not run a second after it was armed")
	}
}

func TestVirtualClockAdvanceRefusesToGoBack(t *testing.T) {
	defer func() {
		want := "agilelimiter: VirtualClock.Advance: negative duration -1s; Jump goes back"
		if r := recover(); r != want {
			t.Errorf("panic %v, want %q", r, want)
		}
	}()
	NewVirtualClock(epoch).Advance(-time.Second)
}

func TestVirtualTimerStopAndReset(t *testing.T) {
	c := NewVirtualClock(epoch)
	ran := 0
	timer := c.AfterFunc(time.Second, func() { ran++ })
	if !timer.Stop() {
		t.Error("Stop of an armed timer = false")
	}
	if timer.Stop() {
		t.Error("Stop of a stopped timer = true")
	}
	c.Advance(time.Minute)
	if ran != 0 {
		t.Error("a stopped timer ran")
	}
	if timer.Reset(time.Second) {
		t.Error("Reset of a stopped timer = true")
	}
	if !timer.Reset(2 * time.Second) {
		t.Error("Reset of an armed timer = false")
	}
	c.Advance(time.Second)
	if ran != 0 {
		t.Error("the timer ran at its old time")
	}
	c.Advance(time.Second)
	if ran != 1 {
		t.Errorf("the timer ran %d times, want once", ran)
	}
	if timer.Stop() || timer.Reset(time.Second) {
		t.Error("a timer that has run is said to be armed")
	}
	c.Advance(time.Second)
	if ran != 2 {
		t.Errorf("the timer ran %d times, want twice", ran)
	}
}

func TestVirtualTimerMayResetItself(t *testing.T) {
	c := NewVirtualClock(epoch)
	var times []time.Duration
	var timer Timer
	timer = c.AfterFunc(time.Second, func() {
		times = append(times, c.Now().Sub(epoch))
		timer.Reset(time.Second)
	})
	c.Advance(3 * time.Second)
	if want := []time.Duration{1e9, 2e9, 3e9}; !slices.Equal(times, want) {
		t.Errorf("ran at %v, want %v", times, want)
	}
}

func TestVirtualClockWakesSleepersInOrder(t *testing.T) {
	c := NewVirtualClock(epoch)
	c.Sleep(0)
	c.Sleep(-time.Second)
	woken := make(chan int)
	for i := range 5 {
		go func() {
			c.Sleep(time.Duration(5-i) * time.Second)
			woken <- 5 - i
		}()
	}
	c.BlockUntil(5)
	for second := 1; second <= 5; second++ {
		c.Advance(time.Second)
		if got := <-woken; got != second {
			t.Errorf("second %d woke the sleeper of second %d", second, got)
		}
		if got := c.Sleepers(); got != 5-second {
			t.Errorf("%d sleepers after second %d, want %d", got, second, 5-second)
		}
	}
}

func TestBlockUntilWaitsForSleepers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewVirtualClock(epoch)
		c.BlockUntil(0)
		done := false
		go func() {
			c.BlockUntil(2)
			done = true
		}()
		go c.Sleep(time.Second)
		synctest.Wait()
		if done {
			t.Error("BlockUntil(2) returned with one sleeper")
		}
		go c.Sleep(time.Second)
		synctest.Wait()
		if !done {
			t.Error("BlockUntil(2) still blocks with two sleepers")
		}
		c.Advance(time.Second)
	})
}

func TestVirtualClockFromManyGoroutines(t *testing.T) {
	c := NewVirtualClock(epoch)
	var mu sync.Mutex
	ran := 0
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 500 {
				timer := c.AfterFunc(ms, func() { mu.Lock(); ran++; mu.Unlock() })
				c.Advance(ms)
				timer.Stop()
				c.Now()
				c.Sleepers()
			}
		})
	}
	wg.Wait()
	c.Advance(time.Second)
	// Advances at the same time may share their way.
	if d := c.Now().Sub(epoch); d < time.Second+500*ms || d > 3*time.Second {
		t.Errorf("4 × 500 Advances by 1 ms and one by 1 s moved the clock by %v", d)
	}
	if c.Sleepers() != 0 || ran == 0 {
		t.Errorf("%d timers left, %d ran", c.Sleepers(), ran)
	}
}

// clockFunc is a Clock of readings.
type clockFunc func() time.Time

func (f clockFunc) Now() time.Time { return f() }
func (f clockFunc) AfterFunc(d time.Duration, _ func()) Timer {
	return time.AfterFunc(time.Hour, func() {})
}

func TestTimebaseNeverGoesBack(t *testing.T) {
	reading := epoch
	var tb timebase
	tb.init(clockFunc(func() time.Time { return reading }))
	for i, row := range []struct{ move, want time.Duration }{
		{0, 0},
		{time.Second, time.Second},
		{-time.Hour, time.Second}, // a step back: no time has passed
		{time.Second, 2 * time.Second},
		{time.Second, 3 * time.Second},
		{24 * time.Hour, 24*time.Hour + 3*time.Second},
		{-48 * time.Hour, 24*time.Hour + 3*time.Second},
		{ms, 24*time.Hour + 3*time.Second + ms},
		// A little to and fro: time stands still.
		{-5 * ms, 24*time.Hour + 3*time.Second + ms},
		{4 * ms, 24*time.Hour + 3*time.Second + ms},
		{2 * ms, 24*time.Hour + 3*time.Second + 2*ms},
	} {
		reading = reading.Add(row.move)
		if got := tb.now(); got != row.want {
			t.Errorf("row %d: %v after the clock moved by %v, want %v", i, got, row.move, row.want)
		}
	}
}

func TestTimebaseStartsAnywhere(t *testing.T) {
	for _, start := range []time.Time{{}, time.Unix(0, 0), epoch, time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)} {
		reading := start
		var tb timebase
		tb.init(clockFunc(func() time.Time { return reading }))
		reading = reading.Add(time.Minute)
		if got := tb.now(); got != time.Minute {
			t.Errorf("a clock that starts at %v: %v after a minute", start, got)
		}
		if got := tb.wall(time.Minute); !got.Equal(reading) {
			t.Errorf("a minute after New is %v, want %v", got, reading)
		}
	}
}

func TestSystemClockInsideABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := SystemClock()
		start := c.Now()
		var at time.Duration
		c.AfterFunc(time.Hour, func() { at = c.Now().Sub(start) })
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if at != time.Hour {
			t.Errorf("the timer ran after %v, want 1h", at)
		}
	})
}

// The whole library on its system clock inside a user's bubble: ticks, waiters
// that are granted and that give up, a Stop, and no goroutine left.
func TestTheLibraryWorksInsideABubble(t *testing.T) {
	before := runtime.NumGoroutine()
	synctest.Test(t, func(t *testing.T) {
		lim := New(Config{MinRate: 10, MaxRate: 1000, InitialRate: 10, SlowStartGain: 1})
		sem := NewConcurrency(ConcurrencyConfig{MaxLimit: 8, InitialLimit: 8})
		lim.Start()
		sem.Start()
		start := time.Now()
		var grants []time.Duration
		var wg sync.WaitGroup
		var mu sync.Mutex
		for range 5 {
			wg.Go(func() {
				lim.Do(func() error {
					mu.Lock()
					grants = append(grants, time.Since(start))
					mu.Unlock()
					time.Sleep(20 * ms)
					return nil
				})
			})
		}
		wg.Go(func() {
			if err := sem.Do(func() error { time.Sleep(20 * ms); return nil }); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		if want := 5; len(grants) != want || grants[0] != 0 {
			t.Errorf("calls started at %v, want five from 0 on", grants)
		}
		for i := 1; i < len(grants); i++ {
			// 100 ms at 10/s, and the rate rises by 5 % at the tick of 250 ms.
			if gap := grants[i] - grants[i-1]; gap > 100*ms || gap < 90*ms {
				t.Errorf("calls started at %v: a gap of %v", grants, gap)
			}
		}
		time.Sleep(time.Second)
		lim.Stop()
		sem.Stop()
		ticks := lim.Stats().Ticks
		if want := uint64(time.Since(start) / (250 * ms)); ticks != want || sem.Stats().Ticks != want {
			t.Errorf("%d and %d ticks, want %d", ticks, sem.Stats().Ticks, want)
		}
		// Waiters outlive Stop: they are granted at the rate as it stands.
		for range 3 {
			wg.Go(func() { lim.Take(); lim.Observe(ms) })
		}
		wg.Wait()
		time.Sleep(time.Hour)
		if got := lim.Stats(); got.Ticks != ticks || got.Waiting != 0 || got.InFlight != 0 {
			t.Errorf("an hour after Stop: %+v", got)
		}
	})
	for range 100 {
		if runtime.NumGoroutine() <= before {
			return
		}
		runtime.Gosched()
		time.Sleep(ms / 10)
	}
	t.Errorf("%d goroutines, %d before", runtime.NumGoroutine(), before)
}

func TestAVirtualLimiterTakesNoHarmFromAJumpByCenturies(t *testing.T) {
	clock := NewVirtualClock(epoch)
	lim := New(Config{MinRate: 10, MaxRate: 10, Clock: clock})
	clock.Jump(200 * 365 * 24 * time.Hour)
	lim.Take()
	clock.Jump(-200 * 365 * 24 * time.Hour)
	before := lim.Elapsed()
	clock.Advance(time.Second)
	if got := lim.Elapsed() - before; got != time.Second {
		t.Errorf("%v pass in a second after the jumps", got)
	}
	if before < 0 || before > math.MaxInt64/2+math.MaxInt64/4 {
		t.Errorf("elapsed %v", before)
	}
}

// A caller is stopped behind his reading while the clock and another caller go
// on. His old reading is no step back: time must not run fast from then on.
func TestAStaleReadingIsNoStepBack(t *testing.T) { // FR14
	clock := NewVirtualClock(epoch)
	var tb timebase
	var stopped atomic.Bool
	tb.init(clockFunc(func() time.Time {
		reading := clock.Now()
		if stopped.CompareAndSwap(true, false) {
			clock.Advance(time.Second)
			other := make(chan struct{})
			go func() { tb.now(); close(other) }()
			select {
			case <-other:
			case <-time.After(2 * ms): // he waits for us
			}
		}
		return reading
	}))
	stopped.Store(true)
	tb.now()
	if got := tb.now(); got != time.Second {
		t.Errorf("%v after a second", got)
	}
}
