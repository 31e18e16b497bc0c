package agilelimiter

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// 300 wait at 100/s. After half a second the operator raises the rate to 200/s,
// after a second he lowers it to 20/s. Nobody loses his place.
func TestSetBoundsReachesThoseWhoWait(t *testing.T) { // FR01
	bubble(t, func(t *testing.T) {
		l := fixed(100, nil)
		order := make([]int, 0, 300)
		var slots []time.Duration
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range 300 {
			wg.Go(func() {
				time.Sleep(time.Duration(i)) // one after the other into the queue
				l.Take()
				mu.Lock()
				defer mu.Unlock()
				order = append(order, i)
				slots = append(slots, l.Elapsed())
			})
		}
		setAt := func(at time.Duration, rate float64) {
			time.Sleep(at - l.Elapsed())
			if err := l.SetBounds(rate, rate); err != nil {
				t.Error(err)
			}
		}
		setAt(501*ms, 200)
		setAt(1001*ms, 20)
		wg.Wait()
		if !slices.IsSorted(order) || len(order) != 300 {
			t.Errorf("%d departed, in the order %v", len(order), order)
		}
		for i, gap := range gaps(slots) {
			want := 10 * ms
			switch {
			case slots[i] >= time.Second:
				want = 50 * ms
			case slots[i] >= 500*ms:
				want = 5 * ms
			}
			if gap != want {
				t.Fatalf("gap %d, after %v, is %v, want %v", i, slots[i], gap, want)
			}
		}
	})
}

func TestSetBoundsMovesTheNumberToTheNearestBound(t *testing.T) {
	l := New(Config{MinRate: 10, MaxRate: 100, InitialRate: 50})
	c := NewConcurrency(ConcurrencyConfig{MinLimit: 10, MaxLimit: 100, InitialLimit: 50})
	for _, tt := range []struct{ lo, hi, want, initial int }{
		{10, 30, 30, 30},  // a lower ceiling binds at once
		{10, 500, 30, 50}, // a higher one is room to grow
		{70, 500, 70, 70}, // a higher floor lifts
		{1, 500, 70, 50},  // a lower one is room to fall
		{9, 9, 9, 9},      // fixed
		{40, 60, 40, 50},  //
		{1, 1000, 40, 50}, //
	} {
		if err := l.SetBounds(float64(tt.lo), float64(tt.hi)); err != nil {
			t.Fatal(err)
		}
		if err := c.SetBounds(tt.lo, tt.hi); err != nil {
			t.Fatal(err)
		}
		if l.Rate() != float64(tt.want) || c.Limit() != tt.want {
			t.Errorf("SetBounds(%d, %d): rate %g, limit %d, want %d", tt.lo, tt.hi, l.Rate(), c.Limit(), tt.want)
		}
		rate, limit := l.Config(), c.Config()
		if rate.MinRate != float64(tt.lo) || rate.MaxRate != float64(tt.hi) || rate.InitialRate != float64(tt.initial) {
			t.Errorf("SetBounds(%d, %d): Config has %g, %g, initial %g, want initial %d",
				tt.lo, tt.hi, rate.MinRate, rate.MaxRate, rate.InitialRate, tt.initial)
		}
		if limit.MinLimit != tt.lo || limit.MaxLimit != tt.hi || limit.InitialLimit != tt.initial {
			t.Errorf("SetBounds(%d, %d): Config has %d, %d, initial %d, want initial %d",
				tt.lo, tt.hi, limit.MinLimit, limit.MaxLimit, limit.InitialLimit, tt.initial)
		}
		if err := errors.Join(rate.Validate(), limit.Validate()); err != nil {
			t.Errorf("Config() after SetBounds(%d, %d): %v", tt.lo, tt.hi, err)
		}
		for _, s := range []Stats{l.Stats(), c.Stats()} {
			if s.Min != float64(tt.lo) || s.Max != float64(tt.hi) || s.Target != float64(tt.want) {
				t.Errorf("SetBounds(%d, %d): Stats %g in [%g, %g]", tt.lo, tt.hi, s.Target, s.Min, s.Max)
			}
		}
	}
}

func TestSetBoundsThatAreWrongChangeNothing(t *testing.T) {
	l, c := fixed(100, nil), fixedLimit(100)
	for _, tt := range []struct {
		lo, hi float64
		want   []string // one fault each
	}{
		{0, 0, []string{"SetBounds: max is 0, want 0.001 to 1e+09", "SetBounds: min is 0, want 0.001 to max = 1e+09"}},
		{0, 50, []string{"SetBounds: min is 0, want 0.001 to max = 50"}},
		{60, 50, []string{"SetBounds: min is 60, want 0.001 to max = 50"}},
		{-1, 50, []string{"SetBounds: min is -1, want"}},
		{1, 2e9, []string{"SetBounds: max is 2e+09, want"}},
		{nan(), 50, []string{"SetBounds: min is NaN, want"}},
		{1, nan(), []string{"SetBounds: max is NaN, want"}},
		{1, inf(), []string{"SetBounds: max is +Inf, want"}},
		{inf(), -inf(), []string{"SetBounds: max is -Inf, want", "SetBounds: min is +Inf, want"}},
	} {
		wantFaults(t, l.SetBounds(tt.lo, tt.hi), tt.want)
	}
	for _, tt := range []struct {
		lo, hi int
		want   []string
	}{
		{0, 0, []string{"SetBounds: max is 0, want 1 to 2147483647", "SetBounds: min is 0, want 1 to max = 2147483647"}},
		{0, 50, []string{"SetBounds: min is 0, want 1 to max = 50"}},
		{60, 50, []string{"SetBounds: min is 60, want 1 to max = 50"}},
		{-3, -2, []string{"SetBounds: max is -2, want", "SetBounds: min is -3, want"}},
		{1, math.MaxInt, []string{"SetBounds: max is 9223372036854775807, want 1 to 2147483647"}},
	} {
		wantFaults(t, c.SetBounds(tt.lo, tt.hi), tt.want)
	}
	if cfg := l.Config(); l.Rate() != 100 || cfg.MinRate != 100 || cfg.MaxRate != 100 {
		t.Errorf("rate %g in [%g, %g], want it unchanged", l.Rate(), cfg.MinRate, cfg.MaxRate)
	}
	if cfg := c.Config(); c.Limit() != 100 || cfg.MinLimit != 100 || cfg.MaxLimit != 100 {
		t.Errorf("limit %d in [%d, %d], want it unchanged", c.Limit(), cfg.MinLimit, cfg.MaxLimit)
	}
}

func wantFaults(t *testing.T, err error, want []string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want %q", want)
		return
	}
	got := strings.Split(err.Error(), "\n")
	if len(got) != len(want) {
		t.Errorf("faults %q, want %d", got, len(want))
		return
	}
	for i := range want {
		if !strings.HasPrefix(got[i], "agilelimiter: "+want[i]) {
			t.Errorf("fault %q, want it to begin with %q", got[i], want[i])
		}
	}
}

// The law goes on from the bound: it must not hold a number of its own behind
// the actuator's back and bring it out when there is room again.
func TestTheLawGoesOnFromTheNewBounds(t *testing.T) {
	for _, anchor := range []Anchor{AnchorBaseline, AnchorSLO, AnchorKnee} {
		c := NewVirtualClock(time.Unix(0, 0))
		l := New(Config{MinRate: 10, MaxRate: 1000, InitialRate: 800, SLOTarget: time.Second, Anchor: anchor, Clock: c})
		l.Start()
		defer l.Stop()
		tick := func() float64 { // one that gives no reason to move
			c.Advance(250 * ms)
			return l.Rate()
		}
		tick()
		if err := l.SetBounds(10, 100); err != nil {
			t.Fatal(err)
		}
		if got := tick(); got != 100 {
			t.Errorf("%v: %g under a ceiling of 100", anchor, got)
		}
		if err := l.SetBounds(10, 1000); err != nil {
			t.Fatal(err)
		}
		if got := tick(); got != 100 {
			t.Errorf("%v: %g after the ceiling was raised again, want 100", anchor, got)
		}
		if err := l.SetBounds(300, 1000); err != nil {
			t.Fatal(err)
		}
		tick()
		if err := l.SetBounds(10, 1000); err != nil {
			t.Fatal(err)
		}
		if got := tick(); got != 300 {
			t.Errorf("%v: %g after a floor of 300 was taken away, want 300", anchor, got)
		}
	}
}

func TestTheLawStepsWithinTheNewBounds(t *testing.T) {
	c := NewVirtualClock(time.Unix(0, 0))
	l := New(Config{MinRate: 10, MaxRate: 100, InitialRate: 100, Clock: c})
	l.Start()
	defer l.Stop()
	healthy := func() float64 {
		for range 8 {
			l.Observe(ms)
		}
		c.Advance(250 * ms)
		return l.Rate()
	}
	if got := healthy(); got != 100 {
		t.Fatalf("%g, want the ceiling of 100", got)
	}
	if err := l.SetBounds(10, 150); err != nil {
		t.Fatal(err)
	}
	if got := healthy(); got != 150 {
		t.Errorf("%g after a doubling under a ceiling of 150", got)
	}
}

// Ten thousand callers come, wait and give up while the bounds move: no gap
// between two departures is shorter than the ceiling in force allows, the queue
// keeps its order, and everybody gets an answer.
func TestTenThousandCallersUnderMovingBounds(t *testing.T) {
	const waves, perWave = 4, 2500 // the race detector follows 8128 goroutines at once
	bubble(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(15, 1))
		l := New(Config{MinRate: 500, MaxRate: 1000, Tick: 10 * ms})
		l.Start()
		type departure struct {
			caller int
			at     time.Duration
		}
		var mu sync.Mutex
		var departed []departure
		type change struct {
			at      time.Duration
			ceiling float64
		}
		changes := []change{{0, 1000}}
		var refused atomic.Int64
		stop := make(chan struct{})
		var operator sync.WaitGroup
		operator.Go(func() {
			rng := rand.New(rand.NewPCG(15, 2))
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(1+rng.IntN(20_000)) * time.Microsecond):
				}
				lo := 100 * math.Exp(4*rng.Float64())
				hi := lo * (1 + rng.Float64())
				mu.Lock() // so that a departure sees the list as it was
				changes = append(changes, change{l.Elapsed(), hi})
				if err := l.SetBounds(lo, hi); err != nil {
					t.Error(err)
				}
				mu.Unlock()
			}
		})
		for wave := range waves {
			var wg sync.WaitGroup
			for i := range perWave {
				caller, comes := wave*perWave+i, time.Duration(1+i)*17*time.Microsecond
				patience := time.Hour
				if rng.IntN(2) == 0 {
					patience = time.Duration(rng.IntN(2_000_000)) * time.Microsecond
				}
				wg.Go(func() {
					time.Sleep(comes)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					giveUp := time.AfterFunc(patience, cancel)
					defer giveUp.Stop()
					slot, err := l.TakeContext(ctx)
					if err != nil {
						refused.Add(1)
						return
					}
					l.Record(Aborted, 0)
					mu.Lock()
					defer mu.Unlock()
					departed = append(departed, departure{caller, slot.Sub(l.time.epoch)})
				})
			}
			wg.Wait()
		}
		close(stop)
		operator.Wait()
		l.Stop()

		slices.SortFunc(departed, func(a, b departure) int { return int(a.at - b.at) })
		next := 0
		ceiling := 0.0
		for i, d := range departed {
			// A departure at the very instant of a change may be of either.
			for next < len(changes) && changes[next].at < d.at {
				ceiling = changes[next].ceiling
				next++
			}
			highest := ceiling
			for _, c := range changes[next:] {
				if c.at > d.at {
					break
				}
				highest = max(highest, c.ceiling)
			}
			if i == 0 {
				continue
			}
			last := departed[i-1]
			if d.caller < last.caller {
				t.Fatalf("caller %d departed after caller %d", d.caller, last.caller)
			}
			if gap, least := d.at-last.at, time.Duration(1e9/highest)-1; gap < least {
				t.Fatalf("departure %d at %v: %v after the last one, ceiling %g allows %v", i, d.at, gap, highest, least)
			}
		}
		s := l.Stats()
		if n := uint64(len(departed)); n+uint64(refused.Load()) != waves*perWave || s.Admitted != n || s.Shed != uint64(refused.Load()) {
			t.Errorf("%d departed and %d refused of %d; Stats has %d and %d", n, refused.Load(), waves*perWave, s.Admitted, s.Shed)
		}
		if s.Waiting != 0 || s.InFlight != 0 {
			t.Errorf("%d wait and %d in flight at the end", s.Waiting, s.InFlight)
		}
		if refused.Load() < 500 || len(departed) < 5000 || len(changes) < 100 {
			t.Errorf("%d departed, %d refused, %d changes: the test has lost its point", len(departed), refused.Load(), len(changes))
		}
	})
}

// The same for a limit. A call may come in under a limit that is lowered while
// it does; each lowering lets one such call in at the most.
func TestALimitHoldsMovingBounds(t *testing.T) {
	l := NewConcurrency(ConcurrencyConfig{MinLimit: 1, MaxLimit: 50, InitialLimit: 50})
	var ceiling, version, open, checked, admitted, refused atomic.Int64
	ceiling.Store(50)
	done := make(chan struct{})
	var operator sync.WaitGroup
	operator.Go(func() {
		rng := rand.New(rand.NewPCG(15, 3))
		for {
			select {
			case <-done:
				return
			default:
			}
			next := 1 + rng.IntN(50)
			version.Add(1) // odd: it moves
			if err := l.SetBounds(1+rng.IntN(next), next); err != nil {
				t.Error(err)
				return
			}
			for l.InFlight() > next {
				runtime.Gosched()
			}
			ceiling.Store(int64(next))
			version.Add(1)
			for range 20 {
				runtime.Gosched()
			}
		}
	})
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			for range 100 {
				before, most := version.Load(), ceiling.Load()
				if !l.TryTake() {
					refused.Add(1)
					runtime.Gosched()
					continue
				}
				n := open.Add(1)
				if version.Load() == before && before%2 == 0 {
					checked.Add(1)
					if n > most+1 {
						t.Errorf("%d in flight under a ceiling of %d", n, most)
					}
				}
				admitted.Add(1)
				runtime.Gosched()
				open.Add(-1)
				l.Release()
			}
		})
	}
	wg.Wait()
	close(done)
	operator.Wait()
	if s := l.Stats(); s.InFlight != 0 || s.Admitted != uint64(admitted.Load()) || s.Shed != uint64(refused.Load()) || s.Admitted+s.Shed != 10_000 {
		t.Errorf("%d in flight, %d admitted, %d shed; want 0, %d, %d", s.InFlight, s.Admitted, s.Shed, admitted.Load(), refused.Load())
	}
	if checked.Load() == 0 {
		t.Error("nothing was checked: the test has lost its point")
	}
}
