package agilelimiter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var errWork = errors.New("work failed")

// virtualLimit returns a limiter with room for n on a clock of its own.
func virtualLimit(n int, classify func(error) Outcome) (*ConcurrencyLimiter, *VirtualClock) {
	clock := NewVirtualClock(epoch)
	return NewConcurrency(ConcurrencyConfig{MinLimit: n, MaxLimit: n, Clock: clock, Classify: classify}), clock
}

func TestDoMeasuresTheHandler(t *testing.T) {
	l, clock := virtualLimit(5, nil)
	err := l.Do(func() error {
		if l.InFlight() != 1 {
			t.Errorf("InFlight() = %d inside fn, want 1", l.InFlight())
		}
		clock.Advance(30 * ms)
		return errWork
	})
	if err != errWork {
		t.Errorf("Do returned %v, want fn's own error", err)
	}
	l.step()
	s := l.Stats()
	if s.Samples != 1 || !near(float64(s.P50), float64(30*ms), 0.02) || s.Reached != 1 || s.InFlight != 0 || s.Admitted != 1 {
		t.Errorf("after one call of 30 ms: %+v", s)
	}
}

func TestDoReturnsErrOverloadedAtOnce(t *testing.T) {
	classified := 0
	l, _ := virtualLimit(1, func(error) Outcome { classified++; return Reached })
	l.TryTake()
	ran := false
	fn := func() error { ran = true; return nil }
	if err := l.Do(fn); err != ErrOverloaded {
		t.Errorf("Do = %v, want the bare ErrOverloaded", err)
	}
	if v, err := Do(l, func() (int, error) { ran = true; return 7, nil }); v != 0 || err != ErrOverloaded {
		t.Errorf("Do[int] = %d, %v", v, err)
	}
	l.step()
	s := l.Stats()
	if ran || classified != 0 || s.Samples != 0 || s.Reached+s.Aborted+s.Unreachable != 0 || s.Shed != 2 || !s.Binding {
		t.Errorf("fn ran: %t, classified %d, %+v", ran, classified, s)
	}
	l.step()
	if l.Stats().Binding {
		t.Error("Binding in a tick in which nobody was refused")
	}
}

func TestGenericDoReturnsTheValue(t *testing.T) {
	l, _ := virtualLimit(1, nil)
	v, err := Do(l, func() (string, error) { return "value", errWork })
	if v != "value" || err != errWork {
		t.Errorf("Do = %q, %v, want what fn returned", v, err)
	}
	type key struct{}
	ctx := context.WithValue(context.Background(), key{}, 42)
	n, err := DoContext(ctx, l, func(ctx context.Context) (any, error) { return ctx.Value(key{}), nil })
	if n != 42 || err != nil {
		t.Errorf("DoContext = %v, %v, want the value of the context", n, err)
	}
}

func TestDoContextThatHasEnded(t *testing.T) {
	l, _ := virtualLimit(1, func(error) Outcome { t.Error("classified"); return Reached })
	for _, cause := range []error{context.Canceled, context.DeadlineExceeded} {
		ctx, cancel := context.WithCancel(context.Background())
		if cause == context.DeadlineExceeded {
			ctx, cancel = context.WithDeadline(ctx, time.Unix(1, 0))
		}
		cancel()
		err := l.DoContext(ctx, func(context.Context) error { t.Error("fn ran"); return nil })
		if !errors.Is(err, ErrWait) || !errors.Is(err, cause) {
			t.Errorf("%v matches neither ErrWait nor %v", err, cause)
		}
		var timeout interface{ Timeout() bool }
		if !errors.As(err, &timeout) || timeout.Timeout() != (cause == context.DeadlineExceeded) {
			t.Errorf("%v: Timeout() is not %t", err, cause == context.DeadlineExceeded)
		}
	}
	if s := l.Stats(); s.Admitted != 0 || s.InFlight != 0 || s.Aborted != 0 {
		t.Errorf("%+v, want nothing admitted", s)
	}
}

func TestWhatAnEndedCallProves(t *testing.T) {
	unreachable := func(error) Outcome { return Unreachable }
	for _, tt := range []struct {
		name     string
		classify func(error) Outcome
		cancel   bool // the caller gives up while fn runs
		err      error
		want     Stats // counters only
	}{
		{"success", nil, false, nil, Stats{Reached: 1}},
		{"an error", nil, false, errWork, Stats{Reached: 1}},
		{"a time-out", nil, false, context.DeadlineExceeded, Stats{Reached: 1, Truncated: 1}},
		{"a time-out of another kind", nil, false, fmt.Errorf("read: %w", os.ErrDeadlineExceeded), Stats{Reached: 1, Truncated: 1}},
		{"an error that never arrived", unreachable, false, errWork, Stats{Unreachable: 1}},
		{"a time-out that never arrived", unreachable, false, context.DeadlineExceeded, Stats{Unreachable: 1}},
		{"success is not classified", unreachable, false, nil, Stats{Reached: 1}},
		{"cancelled", nil, true, context.Canceled, Stats{Aborted: 1}},
		{"cancelled, whatever Classify says", unreachable, true, errWork, Stats{Aborted: 1}},
		{"cancelled, but done", nil, true, nil, Stats{Reached: 1}},
		{"a cancellation that was not the caller's", nil, false, context.Canceled, Stats{Aborted: 1}},
		{"a refusal further in", nil, false, fmt.Errorf("db: %w", ErrOverloaded), Stats{Aborted: 1}},
		{"an outcome out of range", func(error) Outcome { return 99 }, false, errWork, Stats{Reached: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, clock := virtualLimit(1, tt.classify)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			err := l.DoContext(ctx, func(context.Context) error {
				clock.Advance(5 * ms)
				if tt.cancel {
					cancel()
				}
				return tt.err
			})
			if err != tt.err {
				t.Errorf("DoContext = %v, want %v", err, tt.err)
			}
			s := l.Stats()
			got := Stats{Reached: s.Reached, Truncated: s.Truncated, Unreachable: s.Unreachable, Aborted: s.Aborted}
			if got != tt.want || s.InFlight != 0 {
				t.Errorf("reached %d, truncated %d, unreachable %d, aborted %d, in flight %d",
					s.Reached, s.Truncated, s.Unreachable, s.Aborted, s.InFlight)
			}
		})
	}
}

func TestADeadlineOfTheCallersOwnIsReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := fixedLimit(1)
		ctx, cancel := context.WithTimeout(t.Context(), 30*ms)
		defer cancel()
		err := l.DoContext(ctx, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		if s := l.Stats(); err != context.DeadlineExceeded || s.Reached != 1 || s.Truncated != 1 || s.Aborted != 0 {
			t.Errorf("%v, reached %d, truncated %d, aborted %d, want a truncated sample", err, s.Reached, s.Truncated, s.Aborted)
		}
		if l.step(); !near(float64(l.Stats().P50), float64(30*ms), 0.02) {
			t.Errorf("a sample of %v, want 30 ms", l.Stats().P50)
		}
	})
}

func TestPanicsAndGoexitGiveTheSlotBack(t *testing.T) {
	panicking := func(error) Outcome { panic("classify") }
	for _, tt := range []struct {
		name     string
		classify func(error) Outcome
		call     func(l *ConcurrencyLimiter)
		want     any // the panic's value
	}{
		{"Do", nil, func(l *ConcurrencyLimiter) { l.Do(func() error { panic("fn") }) }, "fn"},
		{"Do[T]", nil, func(l *ConcurrencyLimiter) { Do(l, func() (int, error) { panic("fn") }) }, "fn"},
		{"a panic with an error", nil, func(l *ConcurrencyLimiter) { l.Do(func() error { panic(errWork) }) }, errWork},
		{"after a cancellation", nil, func(l *ConcurrencyLimiter) {
			ctx, cancel := context.WithCancel(context.Background())
			l.DoContext(ctx, func(context.Context) error { cancel(); panic("fn") })
		}, "fn"},
		{"Classify", panicking, func(l *ConcurrencyLimiter) { l.Do(func() error { return errWork }) }, "classify"},
		{"Classify in Do[T]", panicking, func(l *ConcurrencyLimiter) { Do(l, func() (int, error) { return 0, errWork }) }, "classify"},
		{"Goexit", nil, func(l *ConcurrencyLimiter) { l.Do(func() error { runtime.Goexit(); return nil }) }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, clock := virtualLimit(5, tt.classify)
			for range 50 {
				var wg sync.WaitGroup
				wg.Go(func() { // Goexit ends its goroutine
					defer func() {
						if r := recover(); r != tt.want {
							t.Errorf("the caller recovers %v, want %v", r, tt.want)
						}
					}()
					tt.call(l)
				})
				wg.Wait()
				clock.Advance(ms)
			}
			l.step()
			s := l.Stats()
			if s.InFlight != 0 || s.Admitted != 50 || s.Aborted != 50 || s.Samples != 0 || s.Shed != 0 {
				t.Errorf("after 50 such calls: %+v", s)
			}
			for i := range 5 {
				if !l.TryTake() {
					t.Fatalf("slot %d is lost", i)
				}
			}
		})
	}
}

func TestCallbacksMayCallTheLimiter(t *testing.T) {
	var l *ConcurrencyLimiter
	l, _ = virtualLimit(3, func(error) Outcome {
		l.Limit()
		l.InFlight()
		l.Stats()
		l.Config()
		l.Observe(ms)
		l.Unavailable()
		l.Start()
		l.Stop()
		if l.TryTake() {
			l.Release()
		}
		return Reached
	})
	l.Do(func() error {
		return l.Do(func() error { return errWork }) // nested, and it fails twice
	})
	if s := l.Stats(); s.InFlight != 0 || s.Reached != 4 || s.Unreachable != 2 || s.Admitted != 4 {
		t.Errorf("%+v", s)
	}
}

func TestANestedRefusalIsNoEvidence(t *testing.T) {
	outer, clock := virtualLimit(10, nil)
	inner, _ := virtualLimit(1, nil)
	inner.TryTake()
	for range 100 {
		err := outer.Do(func() error {
			clock.Advance(20 * time.Microsecond)
			return inner.Do(func() error { return nil })
		})
		if !errors.Is(err, ErrOverloaded) {
			t.Fatal(err)
		}
	}
	outer.step()
	if s := outer.Stats(); s.Aborted != 100 || s.Samples != 0 || s.Reached != 0 {
		t.Errorf("a hundred refusals further in: %+v", s)
	}
}

func TestTheLimitMovesByTheSameLaw(t *testing.T) {
	l := NewConcurrency(ConcurrencyConfig{MinLimit: 1, MaxLimit: 500, InitialLimit: 10})
	tick := func(d time.Duration) {
		for range 100 {
			l.Observe(d)
		}
		l.step()
	}
	for _, want := range []int{20, 40, 80, 160, 320, 500} {
		tick(20 * ms)
		if got := l.Limit(); got != want {
			t.Fatalf("Limit() = %d, want %d", got, want)
		}
	}
	for range 60 {
		tick(2 * time.Second)
	}
	if got := l.Limit(); got != 1 {
		t.Fatalf("Limit() = %d after 60 ticks of 2 s, want 1", got)
	}
	for range 300 {
		tick(10 * ms)
	}
	if got := l.Limit(); got != 500 {
		t.Errorf("Limit() = %d after 300 ticks of 10 ms, want 500: it must not freeze below 20", got)
	}
}

func TestTheFractionIsKeptAndTheLimitIsWhatIsEnforced(t *testing.T) {
	l := NewConcurrency(ConcurrencyConfig{MaxLimit: 100, InitialLimit: 4, SlowStartGain: 1})
	targets := []float64{4.2, 4.41, 4.6305, 4.862025, 5.10512625}
	for i, want := range targets {
		for range 100 {
			l.Observe(20 * ms)
		}
		l.step()
		if s := l.Stats(); !near(s.Target, want, 1e-9) || l.Limit() != int(want) {
			t.Errorf("step %d: target %g, Limit() %d, want %g and %d", i, s.Target, l.Limit(), want, int(want))
		}
		n := 0
		for l.TryTake() {
			n++
		}
		if n != int(want) {
			t.Errorf("step %d: %d calls admitted at target %g", i, n, want)
		}
		for range n {
			l.Release()
		}
	}
}

func TestManualCallsUnderEveryAnchor(t *testing.T) {
	for _, anchor := range []Anchor{AnchorBaseline, AnchorSLO, AnchorKnee} {
		clock := NewVirtualClock(epoch)
		l := NewConcurrency(ConcurrencyConfig{MaxLimit: 100, InitialLimit: 50, SLOTarget: time.Second, Anchor: anchor, Clock: clock})
		l.Start()
		for range 200 {
			if !l.TryTake() {
				t.Fatalf("%v: refused with nobody in flight", anchor)
			}
			start := l.Elapsed()
			clock.Advance(20 * ms)
			l.Release()
			l.Observe(l.Elapsed() - start)
		}
		s := l.Stats()
		if s.Ticks != 16 || s.Reached != 200 || s.Admitted != 200 || s.InFlight != 0 || !near(float64(s.P50), float64(20*ms), 0.02) {
			t.Errorf("%v: %+v", anchor, s)
		}
		l.Stop()
	}
}
