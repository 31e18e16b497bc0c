package agilelimiter_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"agilelimiter"
)

// start is where the clocks of the examples stand at first.
var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

var errBusy = errors.New("busy")

func Example() {
	lim := agilelimiter.New(agilelimiter.Config{
		MinRate:   20,
		MaxRate:   500,
		SLOTarget: 200 * time.Millisecond,
	})
	lim.Start()
	defer lim.Stop()

	err := lim.Do(func() error { return nil }) // the call to the downstream
	fmt.Println(err, lim.Rate(), "req/s")
	// Output: <nil> 62.5 req/s
}

func ExampleNew() {
	defer func() { fmt.Println(recover()) }()
	agilelimiter.New(agilelimiter.Config{MaxRate: 500, MinRate: 600})
	// Output: agilelimiter: MinRate is 600, want 0.001 to MaxRate = 500
}

func ExampleConfig() {
	cfg := agilelimiter.New(agilelimiter.Config{MaxRate: 500}).Config()
	fmt.Println(cfg.MinRate, cfg.InitialRate, cfg.Tick, cfg.UpStep, cfg.DownStep, cfg.Anchor)
	// Output: 1 62.5 250ms 0.05 0.3 baseline
}

func ExampleConfig_Validate() {
	cfg := agilelimiter.Config{MaxRate: -1, Deadband: 2} // say, out of a file
	fmt.Println(cfg.Validate() != nil)
	cfg = agilelimiter.Config{MaxRate: 100}
	fmt.Println(cfg.Validate())
	// Output:
	// true
	// <nil>
}

func ExampleLimiter() {
	clock := agilelimiter.NewVirtualClock(start)
	lim := agilelimiter.New(agilelimiter.Config{
		MinRate: 10, MaxRate: 500, InitialRate: 500, Clock: clock,
	})
	lim.Start()
	defer lim.Stop()

	// Twenty calls per tick that take 20 ms, and then 100 ms.
	for i := range 12 {
		latency := 20 * time.Millisecond
		if i >= 4 {
			latency = 100 * time.Millisecond
		}
		for range 20 {
			lim.Observe(latency)
		}
		clock.Advance(250 * time.Millisecond)
		if i%2 == 1 {
			fmt.Printf("%.0f req/s, %v\n", lim.Rate(), lim.Stats().Decision)
		}
	}
	// Output:
	// 500 req/s, slow_start
	// 500 req/s, slow_start
	// 454 req/s, backoff
	// 223 req/s, backoff
	// 109 req/s, backoff
	// 53 req/s, backoff
}

func ExampleLimiter_DoContext() {
	lim := agilelimiter.New(agilelimiter.Config{MinRate: 0.01, MaxRate: 0.01, Clock: agilelimiter.NewVirtualClock(start)})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	call := func(context.Context) error { fmt.Println("called"); return nil }

	fmt.Println(lim.DoContext(ctx, call))
	// The next slot is 100 s away: no use in waiting for it.
	err := lim.DoContext(ctx, call)
	fmt.Println(errors.Is(err, agilelimiter.ErrWait), errors.Is(err, context.DeadlineExceeded))
	// Output:
	// called
	// <nil>
	// true true
}

func ExampleLimiter_Take() {
	clock := agilelimiter.NewVirtualClock(start)
	lim := agilelimiter.New(agilelimiter.Config{MinRate: 10, MaxRate: 10, Clock: clock})

	planned := lim.Take()
	sent := lim.Elapsed()
	clock.Advance(30 * time.Millisecond) // the call
	lim.Observe(lim.Elapsed() - sent)    // its round trip drives the limiter

	// For a report, count from when the call was due, not from when it was sent.
	fmt.Println("due", planned.Sub(start), "done", clock.Now().Sub(planned))
	// Output: due 0s done 30ms
}

func ExampleLimiter_TryTake() {
	clock := agilelimiter.NewVirtualClock(start)
	lim := agilelimiter.New(agilelimiter.Config{MinRate: 10, MaxRate: 10, Clock: clock})
	for range 3 {
		if due, ok := lim.TryTake(); ok {
			fmt.Println("send at", due.Sub(start))
			lim.Record(agilelimiter.Reached, 20*time.Millisecond)
		} else {
			fmt.Println("not now")
		}
		clock.Advance(60 * time.Millisecond)
	}
	// Output:
	// send at 0s
	// not now
	// send at 120ms
}

func ExampleDo() {
	lim := agilelimiter.New(agilelimiter.Config{MaxRate: 500})
	answer, err := agilelimiter.Do(lim, func() (string, error) {
		return "42", nil
	})
	fmt.Println(answer, err)
	// Output: 42 <nil>
}

func ExampleDoContext() {
	lim := agilelimiter.NewConcurrency(agilelimiter.ConcurrencyConfig{MaxLimit: 8})
	length, err := agilelimiter.DoContext(context.Background(), lim, func(ctx context.Context) (int, error) {
		return 7, ctx.Err()
	})
	fmt.Println(length, err)
	// Output: 7 <nil>
}

// Both limiters are Admitters, so one function can serve both directions.
func ExampleAdmitter() {
	call := func(lim agilelimiter.Admitter) (int, error) {
		return agilelimiter.Do(lim, func() (int, error) { return 1, nil })
	}
	fmt.Println(call(agilelimiter.New(agilelimiter.Config{MaxRate: 500})))
	fmt.Println(call(agilelimiter.NewConcurrency(agilelimiter.ConcurrencyConfig{MaxLimit: 8})))
	// Output:
	// 1 <nil>
	// 1 <nil>
}

func ExampleConcurrencyLimiter() {
	lim := agilelimiter.NewConcurrency(agilelimiter.ConcurrencyConfig{MaxLimit: 16})
	lim.Start()
	defer lim.Stop()

	handle := func() error {
		fmt.Println("in flight:", lim.InFlight(), "of", lim.Limit())
		return nil
	}
	for range 3 {
		err := lim.Do(handle)
		if errors.Is(err, agilelimiter.ErrOverloaded) {
			fmt.Println("shed") // answer 429 or RESOURCE_EXHAUSTED
		}
		lim.TryTake() // somebody else comes and stays
	}
	// Output:
	// in flight: 1 of 2
	// in flight: 2 of 2
	// shed
}

func ExampleConcurrencyLimiter_TryTake() {
	clock := agilelimiter.NewVirtualClock(start)
	lim := agilelimiter.NewConcurrency(agilelimiter.ConcurrencyConfig{MaxLimit: 8, Clock: clock})
	handle := func() {
		if !lim.TryTake() {
			fmt.Println("shed")
			return
		}
		defer lim.Release() // also if what follows panics
		begun := lim.Elapsed()
		clock.Advance(20 * time.Millisecond) // the work
		lim.Observe(lim.Elapsed() - begun)
	}
	handle()
	fmt.Println(lim.Stats().Reached, "measured,", lim.InFlight(), "in flight")
	// Output: 1 measured, 0 in flight
}

func ExampleConcurrencyConfig() {
	cfg := agilelimiter.NewConcurrency(agilelimiter.ConcurrencyConfig{MaxLimit: 100}).Config()
	fmt.Println(cfg.MinLimit, cfg.InitialLimit, cfg.MaxLimit)
	// Output: 1 12 100
}

// What a failed call proves is said once, where the error is understood.
func ExampleOutcome() {
	errRefused := errors.New("connection refused")
	lim := agilelimiter.New(agilelimiter.Config{
		MaxRate: 1e6,
		Classify: func(err error) agilelimiter.Outcome {
			switch {
			case errors.Is(err, errRefused):
				return agilelimiter.Unreachable // it never arrived
			case errors.Is(err, errBusy):
				return agilelimiter.Aborted // it says nothing about the downstream
			}
			return agilelimiter.Reached // the downstream had it
		},
	})
	for _, err := range []error{errRefused, errBusy, errors.New("500"), nil} {
		lim.Do(func() error { return err })
	}
	s := lim.Stats()
	fmt.Println(s.Reached, "reached,", s.Unreachable, "unreachable,", s.Aborted, "aborted")
	// Output: 2 reached, 1 unreachable, 1 aborted
}

func ExampleAnchor() {
	// Calls slow down from 20 ms to 50 ms, well inside an SLO of 200 ms.
	for _, anchor := range []agilelimiter.Anchor{agilelimiter.AnchorBaseline, agilelimiter.AnchorSLO} {
		clock := agilelimiter.NewVirtualClock(start)
		lim := agilelimiter.New(agilelimiter.Config{
			MinRate: 10, MaxRate: 500, InitialRate: 500, SLOTarget: 200 * time.Millisecond,
			Anchor: anchor, Clock: clock,
		})
		lim.Start()
		for i := range 60 {
			latency := 20 * time.Millisecond
			if i >= 20 {
				latency = 50 * time.Millisecond
			}
			for range 20 {
				lim.Observe(latency)
			}
			clock.Advance(250 * time.Millisecond)
		}
		lim.Stop()
		fmt.Println(anchor, lim.Rate())
	}
	// Output:
	// baseline 10
	// slo 500
}

func ExampleStats() {
	clock := agilelimiter.NewVirtualClock(start)
	lim := agilelimiter.New(agilelimiter.Config{MaxRate: 500, Clock: clock, OnTick: func(s agilelimiter.Stats) {
		if s.Samples == 0 {
			fmt.Println("blind: the rate cannot follow anything")
			return
		}
		fmt.Printf("%.0f req/s because %v, baseline about %v\n", s.Target, s.Decision, s.Baseline.Round(time.Millisecond))
	}})
	lim.Start()
	defer lim.Stop()
	for range 20 {
		lim.Observe(20 * time.Millisecond)
	}
	clock.Advance(500 * time.Millisecond)
	fmt.Println(lim.Stats().Decisions[agilelimiter.Blind], "blind tick")
	// Output:
	// 125 req/s because slow_start, baseline about 20ms
	// blind: the rate cannot follow anything
	// 1 blind tick
}

func ExampleDecision() {
	for _, d := range []agilelimiter.Decision{agilelimiter.Probe, agilelimiter.TailBackoff, agilelimiter.Blind} {
		fmt.Println(d)
	}
	// Output:
	// probe
	// tail_backoff
	// blind
}

func ExampleIsRefusal() {
	lim := agilelimiter.NewConcurrency(agilelimiter.ConcurrencyConfig{MaxLimit: 1})
	lim.TryTake()
	err := lim.Do(func() error { return nil })
	fmt.Println(agilelimiter.IsRefusal(err), agilelimiter.IsRefusal(errBusy))
	// Output: true false
}

func ExampleIsTimeout() {
	fmt.Println(agilelimiter.IsTimeout(context.DeadlineExceeded), agilelimiter.IsTimeout(context.Canceled))
	// Output: true false
}

func ExampleVirtualClock() {
	clock := agilelimiter.NewVirtualClock(start)
	done := make(chan time.Duration)
	go func() {
		clock.Sleep(time.Hour)
		done <- clock.Now().Sub(start)
	}()
	clock.BlockUntil(1) // until the goroutine sleeps
	clock.Advance(time.Hour)
	fmt.Println(<-done)
	// Output: 1h0m0s
}

func ExampleVirtualClock_Jump() {
	clock := agilelimiter.NewVirtualClock(start)
	clock.AfterFunc(time.Second, func() { fmt.Println("ran at", clock.Now().Sub(start)) })
	clock.Jump(17 * time.Hour) // the machine was asleep
	// Output: ran at 17h0m0s
}

// offsetClock is a Clock of one's own: the system's, set forward.
type offsetClock struct {
	agilelimiter.Clock
	by time.Duration
}

func (c offsetClock) Now() time.Time { return c.Clock.Now().Add(c.by) }

func ExampleClock() {
	clock := agilelimiter.NewVirtualClock(start)
	lim := agilelimiter.New(agilelimiter.Config{MaxRate: 10, Clock: offsetClock{clock, time.Hour}})
	fmt.Println(lim.Take().Sub(start))
	// Output: 1h0m0s
}

func ExampleTimer() {
	clock := agilelimiter.NewVirtualClock(start)
	var timer agilelimiter.Timer = clock.AfterFunc(time.Second, func() { fmt.Println("never") })
	fmt.Println(timer.Stop(), timer.Stop())
	clock.Advance(time.Minute)
	// Output: true false
}

func ExampleSystemClock() {
	lim := agilelimiter.New(agilelimiter.Config{MaxRate: 10})
	fmt.Println(lim.Config().Clock == agilelimiter.SystemClock())
	// Output: true
}

// A call whose start and end lie apart, say in two callbacks: a Call carries
// what is needed from one to the other.
func ExampleCall() {
	lim := agilelimiter.NewConcurrency(agilelimiter.ConcurrencyConfig{
		MaxLimit: 100, SLOTarget: 200 * time.Millisecond, Anchor: agilelimiter.AnchorKnee,
	})
	lim.Start()
	defer lim.Stop()

	call, err := lim.Admit(context.Background())
	if err != nil {
		fmt.Println("refused:", err)
		return
	}
	defer call.Release() // does nothing after End

	fmt.Println(lim.InFlight(), "in flight")
	call.End(agilelimiter.Reached, call.Age())
	fmt.Println(lim.InFlight(), "in flight,", lim.Stats().Reached, "answered")
	// Output:
	// 1 in flight
	// 0 in flight, 1 answered
}
