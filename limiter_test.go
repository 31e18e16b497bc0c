package agilelimiter

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
)

// outcomes are the counters of a Stats that say what calls proved.
type outcomes struct{ admitted, shed, reached, truncated, unreachable, aborted uint64 }

func outcomesOf(s Stats) outcomes {
	return outcomes{s.Admitted, s.Shed, s.Reached, s.Truncated, s.Unreachable, s.Aborted}
}

func wantOutcomes(t *testing.T, l interface{ Stats() Stats }, want outcomes) {
	t.Helper()
	s := l.Stats()
	if got := outcomesOf(s); got != want {
		t.Errorf("counters %+v, want %+v", got, want)
	}
	if s.InFlight != 0 {
		t.Errorf("%d in flight at the end, want 0", s.InFlight)
	}
}

// fast is a Limiter that never lets anybody wait noticeably.
func fast(classify func(error) Outcome) *Limiter {
	return New(Config{MaxRate: 1e9, InitialRate: 1e9, Classify: classify})
}

func TestDoMeasuresTheRoundTripAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := fixed(1, nil)
		for range 3 {
			if err := l.Do(func() error { time.Sleep(20 * time.Millisecond); return nil }); err != nil {
				t.Fatal(err)
			}
		}
		l.step()
		s := l.Stats()
		if s.Samples != 3 || s.P99 < 19600*time.Microsecond || s.P99 > 20400*time.Microsecond {
			t.Errorf("%d samples, p99 %v; want 3 of 20 ms although callers waited for seconds", s.Samples, s.P99)
		}
		if s.ThrottleWait != 2*time.Second-40*time.Millisecond {
			t.Errorf("throttle wait %v, want 1.96 s", s.ThrottleWait)
		}
	})
}

func TestDoOutcomes(t *testing.T) {
	boom := errors.New("boom")
	refused := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	always := func(o Outcome) func(error) Outcome { return func(error) Outcome { return o } }
	for _, c := range []struct {
		name     string
		classify func(error) Outcome
		err      error
		want     outcomes
	}{
		{"success", nil, nil, outcomes{admitted: 1, reached: 1}},
		{"an error is an answer", nil, boom, outcomes{admitted: 1, reached: 1}},
		{"refused without Classify", nil, refused, outcomes{admitted: 1, unreachable: 1}},
		{"a time-out", nil, context.DeadlineExceeded, outcomes{admitted: 1, reached: 1, truncated: 1}},
		{"another's time-out", nil, &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, outcomes{admitted: 1, reached: 1, truncated: 1}},
		{"someone else's cancellation", nil, context.Canceled, outcomes{admitted: 1, aborted: 1}},
		{"nested refusal: overloaded", nil, ErrOverloaded, outcomes{admitted: 1, aborted: 1}},
		{"nested refusal: queue full", nil, ErrQueueFull, outcomes{admitted: 1, aborted: 1}},
		{"nested refusal: no slot", nil, &waitError{"no slot", context.DeadlineExceeded}, outcomes{admitted: 1, aborted: 1}},
		{"Classify: unreachable", always(Unreachable), refused, outcomes{admitted: 1, unreachable: 1}},
		{"Classify: aborted", always(Aborted), boom, outcomes{admitted: 1, aborted: 1}},
		{"Classify is not asked about success", always(Aborted), nil, outcomes{admitted: 1, reached: 1}},
		{"Classify: a time-out that never arrived", always(Unreachable), context.DeadlineExceeded, outcomes{admitted: 1, unreachable: 1}},
		{"Classify: undefined is reached", always(77), boom, outcomes{admitted: 1, reached: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := fast(c.classify)
			if err := l.Do(func() error { return c.err }); err != c.err {
				t.Errorf("Do returned %v", err)
			}
			wantOutcomes(t, l, c.want)

			g := NewConcurrency(ConcurrencyConfig{MaxLimit: 8, Classify: c.classify})
			if v, err := Do(g, func() (int, error) { return 7, c.err }); v != 7 || err != c.err {
				t.Errorf("generic Do returned %v, %v", v, err)
			}
			wantOutcomes(t, g, c.want)
		})
	}
}

func TestDoContextCancelledCallerIsNoEvidence(t *testing.T) { // B80, B47
	reached := func(error) Outcome { return Reached }
	for _, c := range []struct {
		name string
		fn   func(ctx context.Context, cancel func()) error
		want outcomes
	}{
		{"cancelled", func(ctx context.Context, cancel func()) error { cancel(); return ctx.Err() }, outcomes{admitted: 1, aborted: 1}},
		{"cancelled, another error", func(_ context.Context, cancel func()) error { cancel(); return errors.New("x") }, outcomes{admitted: 1, aborted: 1}},
		{"cancelled, and answered all the same", func(_ context.Context, cancel func()) error { cancel(); return nil }, outcomes{admitted: 1, reached: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := fast(reached)
			ctx, cancel := context.WithCancel(t.Context())
			_ = l.DoContext(ctx, func(ctx context.Context) error { return c.fn(ctx, cancel) })
			wantOutcomes(t, l, c.want)
		})
	}
}

func TestDoContextDeadlineOnTheDownstreamIsEvidence(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := fast(nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := l.DoContext(ctx, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrWait) {
			t.Errorf("error %v", err)
		}
		wantOutcomes(t, l, outcomes{admitted: 1, reached: 1, truncated: 1})
		l.step()
		if p := l.Stats().P50; p < 980*time.Millisecond || p > 1020*time.Millisecond {
			t.Errorf("sample %v, want the full second", p)
		}
	})
}

func TestDoPanicAndGoexit(t *testing.T) { // B43, B84
	value := errors.New("a panic's value")
	for _, c := range []struct {
		name string
		fn   func() error
		cl   func(error) Outcome
	}{
		{"fn panics", func() error { panic(value) }, nil},
		{"Classify panics", func() error { return errors.New("x") }, func(error) Outcome { panic(value) }},
		{"fn exits", func() error { runtime.Goexit(); return nil }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := fast(c.cl)
			g := NewConcurrency(ConcurrencyConfig{MaxLimit: 5, InitialLimit: 5, Classify: c.cl})
			for range 50 {
				for _, do := range []func(func() error) error{l.Do, g.Do} {
					done := make(chan any)
					go func() {
						defer func() { done <- recover() }()
						_ = do(c.fn)
					}()
					if got := <-done; got != value && c.name != "fn exits" {
						t.Fatalf("recovered %v, want the same value", got)
					}
				}
			}
			wantOutcomes(t, l, outcomes{admitted: 50, aborted: 50})
			wantOutcomes(t, g, outcomes{admitted: 50, aborted: 50})
			for i := range 5 {
				if !g.TryTake() {
					t.Fatalf("slot %d is gone", i)
				}
			}
		})
	}
}

func TestManualPathEndsCalls(t *testing.T) {
	for _, anchor := range []Anchor{AnchorBaseline, AnchorKnee} {
		l := New(Config{MaxRate: 1e9, InitialRate: 1e9, Anchor: anchor, Clock: NewVirtualClock(time.Time{})})
		for range 6 {
			if _, err := l.TakeContext(t.Context()); err != nil {
				t.Fatal(err)
			}
			l.Config().Clock.(*VirtualClock).Advance(time.Millisecond)
		}
		if got := l.InFlight(); got != 6 {
			t.Errorf("%v: %d in flight, want 6", anchor, got)
		}
		l.Observe(time.Millisecond)
		l.ObserveTruncated(time.Second)
		l.Unavailable()
		l.Record(Aborted, time.Millisecond)
		l.Record(Reached, time.Millisecond)
		l.Observe(-5 * time.Millisecond) // B23
		wantOutcomes(t, l, outcomes{admitted: 6, reached: 3, truncated: 1, unreachable: 1, aborted: 2})

		// Ends without an admission never make the number negative.
		for range 3 {
			l.Observe(time.Millisecond)
		}
		if got := l.InFlight(); got != 0 {
			t.Errorf("%v: %d in flight after ends without an admission", anchor, got)
		}
		l.step()
		l.Take()
		if got := l.InFlight(); got != 1 {
			t.Errorf("%v: %d in flight after one more Take, want 1", anchor, got)
		}
	}
}

func TestCallbacksMayAskTheLimiter(t *testing.T) { // B82
	var l *Limiter
	asked := 0
	l = fast(func(error) Outcome {
		asked++
		_, _, _, _ = l.Rate(), l.Stats(), l.Waiting(), l.InFlight()
		l.Observe(time.Millisecond)
		return Reached
	})
	_ = l.Do(func() error { return errors.New("x") })
	if asked != 1 {
		t.Errorf("Classify ran %d times", asked)
	}
	wantOutcomes(t, l, outcomes{admitted: 1, reached: 2})
}

func TestConfigIsFilledAndCopied(t *testing.T) { // B127
	cfg := Config{MaxRate: 400}
	l := New(cfg)
	cfg.MaxRate = 1
	got := l.Config()
	if got.MinRate != 1 || got.MaxRate != 400 || got.InitialRate != 50 || got.Tick != 250*time.Millisecond ||
		got.FastHalfLife != time.Second || got.SlowHalfLife != time.Minute || got.TargetInflation != 1 ||
		got.Deadband != 0.2 || got.Gain != 1 || got.UpStep != 0.05 || got.DownStep != 0.3 ||
		got.SlowStartGain != 2 || got.RecoverRamp != 0 || got.MaxBaselineRise != 0.0005 ||
		got.BackoffTicks != 1 || got.RecoverTicks != 1 || got.Clock == nil || got.Classify == nil {
		t.Errorf("Config() = %+v", got)
	}
	for _, anchor := range []Anchor{AnchorBaseline, AnchorSLO, AnchorKnee} {
		filled := New(Config{MaxRate: 400, Anchor: anchor, SLOTarget: time.Second, MaxWaiting: 3}).Config()
		if err := filled.Validate(); err != nil || filled.MaxWaiting != 3 {
			t.Errorf("%v: a filled Config is not accepted: %v", anchor, err)
		}
	}
}

// Everything at once, for the race detector, from the first instant on. B127,
// B129.
func TestLimiterUsedByEverybodyAtOnce(t *testing.T) {
	for _, anchor := range []Anchor{AnchorBaseline, AnchorKnee} {
		bubble(t, func(t *testing.T) {
			l := New(Config{MinRate: 100, MaxRate: 1e5, Anchor: anchor, SLOTarget: time.Second, Tick: time.Millisecond,
				OnTick: func(s Stats) {
					if !(s.Target >= 100 && s.Target <= 1e5) {
						t.Errorf("rate %v", s.Target)
					}
				}})
			var wg sync.WaitGroup
			for i := range 50 {
				wg.Go(func() {
					for range 20 {
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond)
						_ = l.DoContext(ctx, func(context.Context) error { time.Sleep(time.Millisecond); return nil })
						cancel()
						if l.Rate() < 100 {
							t.Error("a rate below the floor")
						}
						_ = l.Stats()
						if _, ok := l.TryTake(); ok {
							l.Record(Outcome(i%3), time.Millisecond)
						}
						switch i {
						case 0:
							l.Stop()
						default:
							l.Start()
						}
					}
				})
			}
			wg.Wait()
			l.Stop()
			synctest.Wait()
			if s := l.Stats(); s.InFlight != 0 || s.Waiting != 0 ||
				s.Admitted != s.Reached+s.Unreachable+s.Aborted {
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestTenThousandWaitersUnderAMovingRate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := New(Config{MinRate: 1, MaxRate: 1e6, InitialRate: 1})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var mu sync.Mutex
		granted, gaveUp := 0, 0
		for i := range 10000 {
			wg.Go(func() {
				c := t.Context()
				if i%2 == 0 {
					c = ctx
				}
				_, err := l.TakeContext(c)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					granted++
				} else if errors.Is(err, context.Canceled) {
					gaveUp++
				}
			})
		}
		synctest.Wait()
		for i := range 20 {
			time.Sleep(100 * time.Millisecond)
			l.bucket.set(float64(1 + i*i*50%700))
		}
		cancel()
		l.bucket.set(1e6)
		wg.Wait()
		if granted+gaveUp != 10000 || granted < 5000 || l.Waiting() != 0 {
			t.Errorf("%d granted, %d gave up, %d left", granted, gaveUp, l.Waiting())
		}
	})
}

func TestHotPathAllocatesNothing(t *testing.T) {
	nop := func() error { return nil }
	ctx := t.Context()
	nopCtx := func(context.Context) error { return nil }
	for _, anchor := range []Anchor{AnchorBaseline, AnchorKnee} {
		l := New(Config{MaxRate: 1e9, InitialRate: 1e9, Anchor: anchor})
		g := NewConcurrency(ConcurrencyConfig{MaxLimit: 10, Anchor: anchor})
		full := NewConcurrency(ConcurrencyConfig{MaxLimit: 1, Anchor: anchor})
		full.TryTake()
		for name, op := range map[string]func(){
			"Take":                       func() { l.Take(); l.Observe(1) },
			"TakeContext":                func() { _, _ = l.TakeContext(ctx); l.Record(Aborted, 1) },
			"TryTake":                    func() { l.TryTake(); l.Unavailable() },
			"Do":                         func() { _ = l.Do(nop) },
			"DoContext":                  func() { _ = l.DoContext(ctx, nopCtx) },
			"Do[T]":                      func() { _, _ = Do(l, func() (int, error) { return 1, nil }) },
			"Limiter step":               l.step,
			"concurrency Do":             func() { _ = g.Do(nop) },
			"concurrency DoContext":      func() { _ = g.DoContext(ctx, nopCtx) },
			"concurrency Do[T]":          func() { _, _ = Do(g, func() (int, error) { return 1, nil }) },
			"concurrency TryTake":        func() { g.TryTake(); g.Observe(1); g.Release() },
			"concurrency refusal":        func() { _ = full.Do(nop) },
			"ConcurrencyLimiter step":    g.step,
			"ConcurrencyLimiter refusal": func() { full.TryTake() },
		} {
			n := testing.AllocsPerRun(100, op)
			for range 2 { // other tests' leftovers allocate too, but not every time
				n = min(n, testing.AllocsPerRun(100, op))
			}
			if n != 0 {
				t.Errorf("%v: %s allocates %v times", anchor, name, n)
			}
		}
	}
}

// A waiting call allocates nothing either once the bucket has a waiter to reuse.
func TestWaitingAllocatesNothing(t *testing.T) {
	l := fixed(10000, nil)
	l.Take()
	if n := testing.AllocsPerRun(20, func() { l.Take(); l.Observe(1) }); n != 0 {
		t.Errorf("a Take that waits allocates %v times", n)
	}
}

func TestOneLimiterFitsInto4KB(t *testing.T) {
	const most = 4096
	rest := unsafe.Sizeof(histogram{}) + unsafe.Sizeof(knee{}) + unsafe.Sizeof(flight{})
	if n := unsafe.Sizeof(Limiter{}) + rest; n > most {
		t.Errorf("a Limiter takes %d bytes", n)
	}
	if n := unsafe.Sizeof(ConcurrencyLimiter{}) + rest; n > most {
		t.Errorf("a ConcurrencyLimiter takes %d bytes", n)
	}
}
