package agilelimiter

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// admitter is what both limiters have for calls that end by a Call.
type admitter interface {
	Admit(context.Context) (Call, error)
	TryAdmit() (Call, bool)
	InFlight() int
	Stats() Stats
	Start()
	Stop()
}

// bothKinds runs f with a limiter of each kind on a clock of its own. Its number
// stays: 1000/s, or 10 at once.
func bothKinds(t *testing.T, f func(t *testing.T, l admitter, c *core, clock *VirtualClock)) {
	t.Helper()
	for _, anchor := range []Anchor{AnchorBaseline, AnchorKnee} {
		t.Run("rate "+anchor.String(), func(t *testing.T) {
			clock := NewVirtualClock(epoch)
			l := New(Config{MinRate: 1000, MaxRate: 1000, Anchor: anchor, Clock: clock})
			f(t, l, &l.core, clock)
		})
		t.Run("limit "+anchor.String(), func(t *testing.T) {
			clock := NewVirtualClock(epoch)
			l := NewConcurrency(ConcurrencyConfig{MinLimit: 10, MaxLimit: 10, Anchor: anchor, Clock: clock})
			f(t, l, &l.core, clock)
		})
	}
}

// admitted returns a call that was admitted.
func admitted(t *testing.T, l admitter, clock *VirtualClock) *Call {
	t.Helper()
	clock.Advance(ms) // the rate's next slot
	call, err := l.Admit(t.Context())
	if err != nil {
		t.Fatalf("Admit: %v", err)
	}
	return &call
}

func TestCallFeedsBackItsOutcome(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(*Call)
		want Stats
	}{
		{"reached", func(c *Call) { c.End(Reached, c.Age()) }, Stats{Reached: 1}},
		{"unreachable", func(c *Call) { c.End(Unreachable, c.Age()) }, Stats{Unreachable: 1}},
		{"aborted", func(c *Call) { c.End(Aborted, c.Age()) }, Stats{Aborted: 1}},
		{"an undefined outcome", func(c *Call) { c.End(Outcome(99), c.Age()) }, Stats{Reached: 1}},
		{"a negative duration", func(c *Call) { c.End(Reached, -1) }, Stats{Aborted: 1}},
		{"truncated", func(c *Call) { c.EndTruncated(c.Age()) }, Stats{Reached: 1, Truncated: 1}},
		{"released without an answer", func(c *Call) { c.Release() }, Stats{Aborted: 1}},
		{"answered and released", func(c *Call) { c.Answer(Reached, c.Age()); c.Release() }, Stats{Reached: 1}},
		{"lost and released", func(c *Call) { c.Answer(Unreachable, c.Age()); c.Release() }, Stats{Unreachable: 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			bothKinds(t, func(t *testing.T, l admitter, core *core, clock *VirtualClock) {
				c := admitted(t, l, clock)
				if n := l.InFlight(); n != 1 {
					t.Errorf("%d calls in flight, want 1", n)
				}
				clock.Advance(30 * ms)
				if c.Age() != 30*ms {
					t.Errorf("age %v, want 30 ms", c.Age())
				}
				test.end(c)
				core.step()
				s := l.Stats()
				got := Stats{Reached: s.Reached, Truncated: s.Truncated, Unreachable: s.Unreachable, Aborted: s.Aborted}
				if got != test.want || s.Admitted != 1 || s.InFlight != 0 {
					t.Errorf("%+v, want %+v, one admitted and none in flight", s, test.want)
				}
				if test.want.Reached > 0 && test.name != "a negative duration" && !near(float64(s.P50), float64(30*ms), 0.02) {
					t.Errorf("p50 %v, want 30 ms", s.P50)
				}
			})
		})
	}
}

// A second end does nothing: it counts no call and frees nobody else's slot.
func TestCallEndsOnce(t *testing.T) {
	ends := map[string]func(*Call){
		"End":          func(c *Call) { c.End(Reached, ms) },
		"EndTruncated": func(c *Call) { c.EndTruncated(ms) },
		"Answer":       func(c *Call) { c.Answer(Reached, ms) },
		"Release":      func(c *Call) { c.Release() },
	}
	for first, end := range ends {
		for second, again := range ends {
			if first == "Answer" {
				continue // see below
			}
			t.Run(first+" "+second, func(t *testing.T) {
				bothKinds(t, func(t *testing.T, l admitter, _ *core, clock *VirtualClock) {
					mine, other := admitted(t, l, clock), admitted(t, l, clock)
					end(mine)
					want := l.Stats()
					for range 3 {
						again(mine)
					}
					if got := l.Stats(); got != want || got.InFlight != 1 {
						t.Errorf("%+v after the second end, want %+v", got, want)
					}
					end(other)
					if n := l.InFlight(); n != 0 {
						t.Errorf("%d in flight, want 0", n)
					}
				})
			})
		}
	}
}

// Between Answer and Release the evidence is in, and the slot is taken.
func TestCallAnswerKeepsTheSlot(t *testing.T) {
	bothKinds(t, func(t *testing.T, l admitter, c *core, clock *VirtualClock) {
		spy := spyOn(c, 10)
		call := admitted(t, l, clock)
		call.Answer(Reached, 20*ms)
		call.Answer(Unreachable, 20*ms) // nothing
		for range 3 {
			if s := l.Stats(); s.InFlight != 1 || l.InFlight() != 1 || s.Reached != 1 || s.Unreachable != 0 {
				t.Errorf("answered: InFlight() is %d, %+v; want 1 in flight and 1 reached", l.InFlight(), s)
			}
			c.step()
		}
		if in := spy.ticks[0]; in.reached != 1 || in.inFlight != 1 || in.held != 1 {
			t.Errorf("the tick of the answer saw reached %d, in flight %d, held %d; want 1 each", in.reached, in.inFlight, in.held)
		}
		if in := spy.ticks[2]; in.reached != 0 || in.inFlight != 1 || in.held != 1 || in.ages.total() != 0 {
			t.Errorf("a later tick saw reached %d, in flight %d, held %d, %d open; want 0, 1, 1, 0", in.reached, in.inFlight, in.held, in.ages.total())
		}
		other := admitted(t, l, clock)
		call.End(Unreachable, time.Hour) // the slot, and no more evidence
		call.Release()
		if s := l.Stats(); s.InFlight != 1 || s.Reached != 1 || s.Unreachable+s.Aborted != 0 {
			t.Errorf("released: %+v, want the other call in flight and no more evidence", s)
		}
		other.End(Reached, ms)
		if n := l.InFlight(); n != 0 {
			t.Errorf("%d in flight, want 0", n)
		}
	})
}

// A Limit is full of calls that were answered and not released.
func TestCallAnsweredFillsTheLimit(t *testing.T) {
	l, _ := virtualLimit(2, nil)
	var calls [2]Call
	for i := range calls {
		c, err := l.Admit(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c.Answer(Reached, ms)
		calls[i] = Call{core: c.core, sem: c.sem, start: c.start, epoch: c.epoch}
		calls[i].state.Store(callAnswered)
	}
	if _, err := l.Admit(t.Context()); err != ErrOverloaded {
		t.Errorf("Admit at the limit: %v, want ErrOverloaded", err)
	}
	if c, ok := l.TryAdmit(); ok || c.core != nil {
		t.Error("TryAdmit at the limit: admitted")
	}
	calls[0].Release()
	if _, ok := l.TryAdmit(); !ok {
		t.Error("TryAdmit after a Release: refused")
	}
}

func TestZeroCallDoesNothing(t *testing.T) {
	var c Call
	c.Answer(Reached, ms)
	c.End(Reached, ms)
	c.EndTruncated(ms)
	c.Release()
	if c.Age() != 0 {
		t.Errorf("the zero Call is %v old", c.Age())
	}
}

// What is refused is a zero Call: a deferred End does no harm.
func TestAdmitRefuses(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	bothKinds(t, func(t *testing.T, l admitter, _ *core, clock *VirtualClock) {
		call, err := l.Admit(ended)
		if !errors.Is(err, ErrWait) || !errors.Is(err, context.Canceled) {
			t.Errorf("Admit with a context that has ended: %v, want ErrWait and Canceled", err)
		}
		call.End(Reached, ms)
		if s := l.Stats(); s.InFlight != 0 || s.Admitted != 0 || s.Reached != 0 {
			t.Errorf("the end of a refused call counts: %+v", s)
		}
	})
	rate := fixed(10, NewVirtualClock(epoch))
	if _, ok := rate.TryAdmit(); !ok {
		t.Error("TryAdmit of the first call: refused")
	}
	if c, ok := rate.TryAdmit(); ok || c.core != nil {
		t.Error("TryAdmit before the next slot: admitted")
	}
	short, stop := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer stop()
	if _, err := rate.Admit(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Admit after its deadline: %v, want DeadlineExceeded", err)
	}
}

// The age begins with the departure, not with the wait for it.
func TestAdmitWaitsForItsSlot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := fixed(10, nil)
		for i := range 3 {
			call, err := l.Admit(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got, want := l.Elapsed(), time.Duration(i)*100*ms; got != want {
				t.Errorf("call %d departs at %v, want %v", i, got, want)
			}
			if call.Age() != 0 {
				t.Errorf("call %d is %v old at its departure", i, call.Age())
			}
			call.End(Reached, call.Age())
		}
	})
}

// Calls outlive Stop: they end as ever.
func TestCallEndsAfterStop(t *testing.T) {
	bothKinds(t, func(t *testing.T, l admitter, _ *core, clock *VirtualClock) {
		l.Start()
		call := admitted(t, l, clock)
		clock.Advance(time.Second)
		l.Stop()
		clock.Advance(time.Hour)
		if call.Age() != time.Hour+time.Second {
			t.Errorf("age %v, want 1 h and 1 s", call.Age())
		}
		call.End(Reached, call.Age())
		if s := l.Stats(); s.InFlight != 0 || s.Reached != 1 {
			t.Errorf("after the end: %+v", s)
		}
		l.Start()
		clock.Advance(time.Second)
		if s := l.Stats(); s.Ticks != 8 || s.Samples != 0 {
			t.Errorf("after Start: %d ticks, %d samples in the last; want 8 and none", s.Ticks, s.Samples)
		}
		l.Stop()
	})
}

// Many ends of one call at once: one of them counts.
func TestCallConcurrentEnds(t *testing.T) {
	bothKinds(t, func(t *testing.T, l admitter, c *core, clock *VirtualClock) {
		for range 200 {
			call := admitted(t, l, clock)
			var ends sync.WaitGroup
			for i := range 8 {
				ends.Go(func() {
					switch i % 4 {
					case 0:
						call.End(Reached, ms)
					case 1:
						call.EndTruncated(ms)
					case 2:
						call.Answer(Unreachable, ms)
					default:
						call.Release()
					}
				})
			}
			ends.Wait()
		}
		s := l.Stats()
		if n := s.Reached + s.Unreachable + s.Aborted; n != 200 || s.InFlight != 0 || c.held.Load() != 0 {
			t.Errorf("200 calls: %d ends, %d in flight, %d held; want 200, 0, 0", n, s.InFlight, c.held.Load())
		}
	})
}

// Calls come and go from everywhere while ticks look at them.
func TestCallsInParallelWithTicks(t *testing.T) {
	l := NewConcurrency(ConcurrencyConfig{MinLimit: 50, MaxLimit: 50, Anchor: AnchorKnee, SLOTarget: time.Second})
	var callers, loop sync.WaitGroup
	done := make(chan struct{})
	loop.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				l.step()
				if n := l.InFlight(); n < 0 || n > 50 {
					t.Errorf("%d in flight of 50", n)
				}
			}
		}
	})
	for range 16 {
		callers.Go(func() {
			for i := range 2000 {
				call, err := l.Admit(context.Background())
				if err != nil {
					t.Errorf("Admit: %v, there are 16 callers for 50 slots", err)
					return
				}
				if i%2 == 0 {
					call.Answer(Reached, call.Age())
				}
				call.End(Reached, call.Age())
			}
		})
	}
	callers.Wait()
	close(done)
	loop.Wait()
	l.step()
	if s := l.Stats(); s.InFlight != 0 || s.Reached != 32000 || s.Admitted != 32000 {
		t.Errorf("32000 calls: %+v", s)
	}
}

// Long calls are never taken for lost: 20 calls of five minutes are 20 in flight
// to their end, whatever else goes by.
func TestLongCallsUnderDoStayInFlight(t *testing.T) { // L17
	for _, test := range []struct {
		name  string
		other time.Duration // a short call every so often; 0: none
		slo   time.Duration
	}{
		{"alone", 0, 0}, {"beside short ones", 100 * ms, 0}, {"beside short ones, with an SLO", 100 * ms, 200 * ms},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				rate := New(Config{MinRate: 100, MaxRate: 1000, Anchor: AnchorKnee, SLOTarget: test.slo})
				limit := NewConcurrency(ConcurrencyConfig{MinLimit: 30, MaxLimit: 1000, Anchor: AnchorKnee, SLOTarget: test.slo})
				long := func() error { time.Sleep(5 * time.Minute); return nil }
				rate.Start()
				limit.Start()
				defer rate.Stop()
				defer limit.Stop()
				var calls sync.WaitGroup
				for range 20 {
					calls.Go(func() { rate.Do(long) })
					calls.Go(func() { limit.Do(long) })
				}
				time.Sleep(time.Second) // all are admitted
				for begin := time.Now(); time.Since(begin) < 298*time.Second; {
					if n, m := rate.InFlight(), limit.InFlight(); n != 20 || m != 20 {
						t.Fatalf("after %v the rate has %d calls in flight, the limit %d; want 20 each", time.Since(begin), n, m)
					}
					if test.other == 0 {
						time.Sleep(10 * time.Second)
						continue
					}
					time.Sleep(test.other)
					short := func() error { time.Sleep(10 * ms); return nil }
					if err := limit.Do(short); err != nil {
						t.Fatalf("after %v a short call is refused: %v", time.Since(begin), err)
					}
					rate.Do(short)
				}
				calls.Wait()
				synctest.Wait()
				if n, m := rate.InFlight(), limit.InFlight(); n != 0 || m != 0 {
					t.Errorf("all have ended: %d and %d in flight", n, m)
				}
			})
		})
	}
}

// A limiter that was used for a minute before its Start has learnt nothing: the
// first tick sees the calls of that tick only.
func TestNothingBeforeStartIsEvidence(t *testing.T) { // L6
	bothKinds(t, func(t *testing.T, l admitter, c *core, clock *VirtualClock) {
		spy := spyOn(c, 1000)
		for range 600 {
			clock.Advance(100 * ms)
			for _, o := range []Outcome{Reached, Unreachable, Aborted} {
				call := admitted(t, l, clock)
				call.End(o, 100*time.Microsecond)
			}
		}
		if l.Stats().Reached != 600 {
			t.Fatalf("%d calls before Start, want 600", l.Stats().Reached)
		}
		l.Start()
		clock.Advance(100 * ms)
		call := admitted(t, l, clock)
		clock.Advance(20 * ms)
		call.End(Reached, call.Age())
		clock.Advance(250*ms - 121*ms)
		l.Stop()
		if len(spy.ticks) != 1 {
			t.Fatalf("%d ticks in the first 250 ms, want 1", len(spy.ticks))
		}
		in := spy.ticks[0]
		if in.reached != 1 || in.unreachable != 0 || in.aborted != 0 || in.admitted != 1 || in.lostTime != 0 || in.abortedTime != 0 ||
			in.settled != 0 || !near(float64(in.p50), float64(20*ms), 0.02) {
			t.Errorf("the first tick saw %+v, want one call of 20 ms", in)
		}
		if c.flight != nil && in.elapsed != 0.25 {
			t.Errorf("the first tick took %v s, want 0.25", in.elapsed)
		}
		if l.Stats().Reached != 601 {
			t.Errorf("%d calls are counted, want 601", l.Stats().Reached)
		}
	})
}
