package agilelimiter

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// The slots of ten that wait at 10/s when a pause of five seconds begins.
func TestPauseLetsNobodyDepart(t *testing.T) { // FR19
	for _, tt := range []struct {
		name   string
		pauses func(l *Limiter) // at 250 ms, after departures at 0, 100 and 200 ms
		first  time.Duration    // the next departure
	}{
		{"none", func(l *Limiter) {}, 300 * ms},
		{"shorter than the interval", func(l *Limiter) { l.Pause(ms) }, 300 * ms},
		{"five seconds", func(l *Limiter) { l.Pause(5 * time.Second) }, 5250 * ms},
		{"the longer one wins", func(l *Limiter) { l.Pause(5 * time.Second); l.Pause(time.Second) }, 5250 * ms},
		{"the longer one wins, in the other order", func(l *Limiter) { l.Pause(time.Second); l.Pause(5 * time.Second) }, 5250 * ms},
		{"prolonged", func(l *Limiter) {
			l.Pause(time.Second)
			time.AfterFunc(900*ms, func() { l.Pause(time.Second) })
		}, 2150 * ms},
		{"ended", func(l *Limiter) {
			l.Pause(time.Hour)
			time.AfterFunc(2*time.Second, func() { l.Pause(0) })
		}, 2250 * ms},
		{"ended at once", func(l *Limiter) { l.Pause(time.Hour); l.Pause(0) }, 300 * ms},
	} {
		bubble(t, func(t *testing.T) {
			l := fixed(10, nil)
			var mu sync.Mutex
			var order []int
			var slots []time.Duration
			var wg sync.WaitGroup
			for i := range 13 {
				wg.Go(func() {
					time.Sleep(time.Duration(i))
					l.Take()
					mu.Lock()
					defer mu.Unlock()
					order = append(order, i)
					slots = append(slots, l.Elapsed())
				})
			}
			time.Sleep(250 * ms)
			tt.pauses(l)
			wg.Wait()
			if !slices.IsSorted(order) {
				t.Errorf("%s: departed in the order %v", tt.name, order)
			}
			if slots[3] != tt.first {
				t.Errorf("%s: the next departure came at %v, want %v", tt.name, slots[3], tt.first)
			}
			wantGaps(t, slots[3:], 100*ms) // no burst
			if l.Rate() != 10 || l.Stats().Paused != 0 {
				t.Errorf("%s: rate %g, paused for %v", tt.name, l.Rate(), l.Stats().Paused)
			}
		})
	}
}

func TestWhoIsRefusedDuringAPause(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := New(Config{MinRate: 10, MaxRate: 10, MaxWaiting: 1})
		l.Pause(5 * time.Second)
		if got := l.Stats().Paused; got != 5*time.Second {
			t.Errorf("Stats.Paused = %v, want 5s", got)
		}
		if _, ok := l.TryTake(); ok {
			t.Error("TryTake departed in a pause")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		before := l.Elapsed()
		_, err := l.TakeContext(ctx)
		if !errors.Is(err, ErrWait) || !errors.Is(err, context.DeadlineExceeded) || l.Elapsed() != before {
			t.Errorf("a deadline within the pause: %v after %v, want a refusal at once", err, l.Elapsed()-before)
		}
		patient, cancel := context.WithTimeout(t.Context(), 6*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := l.TakeContext(patient); err != nil || l.Elapsed() != 5*time.Second {
				t.Errorf("a deadline behind the pause: %v at %v, want a slot at 5s", err, l.Elapsed())
			}
		})
		synctest.Wait()
		if _, err := l.TakeContext(patient); !errors.Is(err, ErrQueueFull) {
			t.Errorf("beyond MaxWaiting: %v", err)
		}
		wg.Wait()
	})
}

// What the timer was late by before a pause is not caught up behind it.
func TestNothingIsCaughtUpBehindAPause(t *testing.T) {
	clock := &lateClock{NewVirtualClock(epoch), 20 * ms}
	l := New(Config{MinRate: 1000, MaxRate: 1000, Clock: clock})
	l.Take()
	var wg sync.WaitGroup
	wg.Go(func() { l.Take() })
	clock.BlockUntil(1)
	clock.Advance(21 * ms) // 20 ms late: nineteen more are due
	wg.Wait()
	l.Pause(10 * ms)
	clock.Advance(10 * ms)
	n := 0
	for range 100 {
		if _, ok := l.TryTake(); ok {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d departed at the end of the pause, want 1", n)
	}
}

func TestAPausedLimitRefuses(t *testing.T) {
	clock := NewVirtualClock(epoch)
	l := NewConcurrency(ConcurrencyConfig{MinLimit: 3, MaxLimit: 3, Clock: clock})
	take := func() (n int) {
		for range 10 {
			if l.Do(func() error { return nil }) == nil {
				n++
			}
		}
		return n
	}
	l.TryTake()
	l.Pause(time.Second)
	l.Pause(time.Millisecond) // the longer one wins
	if got := l.Stats().Paused; got != time.Second {
		t.Errorf("Stats.Paused = %v, want 1s", got)
	}
	clock.Advance(time.Second - 1)
	if n := take(); n != 0 || l.Limit() != 3 || l.InFlight() != 1 {
		t.Errorf("%d admitted in a pause; limit %d, want 3; %d in flight, want 1", n, l.Limit(), l.InFlight())
	}
	if err := l.SetBounds(2, 2); err != nil { // is in force behind the pause
		t.Fatal(err)
	}
	l.Release()
	if take() != 0 {
		t.Error("SetBounds ended the pause")
	}
	clock.Advance(1)
	if n := take(); n != 10 || l.Limit() != 2 || !l.TryTake() || !l.TryTake() || l.TryTake() {
		t.Errorf("%d of 10 calls admitted behind the pause, limit %d", n, l.Limit())
	}
	l.Release()
	l.Pause(time.Hour)
	l.Pause(0)
	if !l.TryTake() || l.Stats().Paused != 0 {
		t.Error("Pause(0) did not end the pause")
	}
	if s := l.Stats(); s.Shed != 21 {
		t.Errorf("%d shed, want 21", s.Shed)
	}
}

// The pause is no evidence, whatever comes in during it: the number goes on from
// where it was.
func TestAPauseIsNoEvidence(t *testing.T) {
	for _, cfg := range []Config{
		{Anchor: AnchorBaseline}, {Anchor: AnchorSLO, SLOTarget: time.Second}, {Anchor: AnchorKnee, SLOTarget: time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var decisions []Decision
			cfg.MinRate, cfg.MaxRate, cfg.InitialRate = 1, 1000, 100
			cfg.OnTick = func(s Stats) {
				mu.Lock()
				defer mu.Unlock()
				decisions = append(decisions, s.Decision)
			}
			l := New(cfg)
			l.Start()
			defer l.Stop()
			var callers sync.WaitGroup
			for range 20 {
				callers.Go(func() {
					for l.Elapsed() < 34*time.Second {
						l.Do(func() error { time.Sleep(20 * ms); return nil })
					}
				})
			}
			time.Sleep(2100 * ms)
			before := l.Rate()
			mu.Lock()
			decided := len(decisions)
			mu.Unlock()
			l.Pause(30 * time.Second)
			for range 10 { // what was in flight is refused
				l.Unavailable()
			}
			time.Sleep(30*time.Second + 140*ms) // to the end of the last tick with a pause in it
			if got := l.Rate(); got != before {
				t.Errorf("%v: rate %g behind the pause, %g before", cfg.Anchor, got, before)
			}
			mu.Lock()
			for _, d := range decisions[decided:] {
				if d != Hold {
					t.Errorf("%v: a step was called %v in a pause", cfg.Anchor, d)
				}
			}
			mu.Unlock()
			callers.Wait()
			if got := l.Rate(); got < before {
				t.Errorf("%v: the rate fell from %g to %g behind the pause", cfg.Anchor, before, got)
			}
		})
	}
}

func TestPauseRefusesANegativeDuration(t *testing.T) {
	for _, pause := range []func(time.Duration){
		New(Config{MaxRate: 1}).Pause, NewConcurrency(ConcurrencyConfig{MaxLimit: 1}).Pause,
	} {
		func() {
			defer func() {
				if s, _ := recover().(string); !strings.HasPrefix(s, "agilelimiter: Pause: negative duration -1ns") {
					t.Errorf("Pause(-1) panicked with %q", s)
				}
			}()
			pause(-1)
		}()
	}
}

func TestAPauseWithoutEnd(t *testing.T) {
	clock := NewVirtualClock(epoch)
	l := New(Config{MinRate: 1, MaxRate: 1, Clock: clock})
	c := NewConcurrency(ConcurrencyConfig{MaxLimit: 1, Clock: clock})
	clock.Advance(time.Hour)
	l.Pause(math.MaxInt64)
	c.Pause(math.MaxInt64)
	clock.Advance(100 * 365 * 24 * time.Hour)
	if _, ok := l.TryTake(); ok || c.TryTake() {
		t.Error("somebody departed in a pause without end")
	}
	l.Pause(0)
	c.Pause(0)
	if _, ok := l.TryTake(); !ok || !c.TryTake() {
		t.Error("Pause(0) did not end it")
	}
}

// Callers come and go while pauses begin and end.
func TestPausesUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Config{MinRate: 2000, MaxRate: 2000})
		c := NewConcurrency(ConcurrencyConfig{MinLimit: 4, MaxLimit: 4})
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				for range 50 {
					l.Do(func() error {
						time.Sleep(ms)
						return nil
					})
					c.Do(func() error { time.Sleep(ms); return nil })
				}
			})
		}
		for range 200 {
			time.Sleep(3 * ms)
			l.Pause(2 * ms)
			c.Pause(2 * ms)
			time.Sleep(ms)
			l.Pause(0)
		}
		wg.Wait()
		if s := l.Stats(); s.Admitted != 2500 || s.Reached != 2500 || s.Waiting != 0 || s.InFlight != 0 {
			t.Errorf("%d admitted, %d reached, %d wait, %d in flight", s.Admitted, s.Reached, s.Waiting, s.InFlight)
		}
		if s := c.Stats(); s.Admitted+s.Shed != 2500 || s.InFlight != 0 || s.Admitted == 0 || s.Shed == 0 {
			t.Errorf("%d admitted, %d shed, %d in flight", s.Admitted, s.Shed, s.InFlight)
		}
	})
}
