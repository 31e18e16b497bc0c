package agilelimiter

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// shadowed lets n calls come at random to a limiter, in shadow or not, and
// returns its Stats and the longest that a call was delayed. Those who come do
// not mind what has become of the others, so the two can be compared.
func shadowed(t *testing.T, cfg Config, load float64, n int, patience time.Duration, operate func(l *Limiter)) (s Stats, delay time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(8, 15))
		l := New(cfg)
		var mu sync.Mutex
		var wg sync.WaitGroup
		if operate != nil {
			wg.Go(func() { operate(l) })
		}
		for range n {
			time.Sleep(time.Duration(rng.ExpFloat64() / load * float64(time.Second)))
			wg.Go(func() {
				ctx := context.Background()
				if patience > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, patience)
					defer cancel()
				}
				came := l.Elapsed()
				if _, err := l.TakeContext(ctx); err == nil {
					l.Record(Aborted, 0)
				}
				mu.Lock()
				defer mu.Unlock()
				delay = max(delay, l.Elapsed()-came)
			})
		}
		wg.Wait()
		time.Sleep(time.Minute) // until those would have departed who would wait
		s = l.Stats()
	})
	return s, delay
}

func TestShadowCountsWhatTheRateWouldDo(t *testing.T) {
	fixed := Config{MinRate: 100, MaxRate: 100}
	bounded := Config{MinRate: 100, MaxRate: 100, MaxWaiting: 5}
	for _, tt := range []struct {
		name     string
		cfg      Config
		load     float64
		patience time.Duration
		operate  func(l *Limiter)
	}{
		{"half a load", fixed, 50, 0, nil},
		{"nearly full", fixed, 95, 0, nil},
		{"too much", fixed, 120, 0, nil},
		{"too much for the queue", bounded, 150, 0, nil},
		{"too much for their patience", fixed, 150, 50 * ms, nil},
		{"a pause", fixed, 50, 0, func(l *Limiter) { time.Sleep(5 * time.Second); l.Pause(2 * time.Second) }},
		{"an ended pause", fixed, 50, 0, func(l *Limiter) {
			time.Sleep(5 * time.Second)
			l.Pause(time.Hour)
			time.Sleep(2 * time.Second)
			l.Pause(0)
		}},
		{"a rate that moves", fixed, 90, 0, func(l *Limiter) {
			for range 5 {
				time.Sleep(time.Second)
				l.SetBounds(50, 50)
				time.Sleep(time.Second)
				l.SetBounds(150, 150)
			}
		}},
	} {
		const n = 2000
		real, _ := shadowed(t, tt.cfg, tt.load, n, tt.patience, tt.operate)
		tt.cfg.Shadow = true
		got, delay := shadowed(t, tt.cfg, tt.load, n, tt.patience, tt.operate)
		if delay != 0 || got.Admitted != n || got.Shed != 0 || got.ThrottleWait != 0 || !got.Shadow {
			t.Errorf("%s: %d of %d admitted, delayed by up to %v", tt.name, got.Admitted, n, delay)
		}
		if !near(float64(got.WouldShed), float64(real.Shed), 0.02) {
			t.Errorf("%s: WouldShed %d, really %d", tt.name, got.WouldShed, real.Shed)
		}
		if !near(got.WouldWaitTime.Seconds(), real.ThrottleWait.Seconds(), 0.02) {
			t.Errorf("%s: WouldWaitTime %v, really %v", tt.name, got.WouldWaitTime, real.ThrottleWait)
		}
		if got.WouldWait == 0 || got.WouldWait > n || real.WouldWait != 0 || real.WouldShed != 0 || real.WouldWaitTime != 0 {
			t.Errorf("%s: WouldWait %d; in force: %d, %d, %v", tt.name, got.WouldWait, real.WouldWait, real.WouldShed, real.WouldWaitTime)
		}
	}
}

func TestShadowCountsWhatTheLimitWouldDo(t *testing.T) {
	run := func(shadow bool, load float64, operate func(*ConcurrencyLimiter)) (s Stats) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(8, 16))
			l := NewConcurrency(ConcurrencyConfig{MinLimit: 20, MaxLimit: 20, Shadow: shadow})
			var wg sync.WaitGroup
			if operate != nil {
				wg.Go(func() { operate(l) })
			}
			for range 20_000 {
				time.Sleep(time.Duration(rng.ExpFloat64() / load * float64(time.Second)))
				lasts := time.Duration(rng.ExpFloat64() * float64(20*ms))
				wg.Go(func() {
					l.Do(func() error { time.Sleep(lasts); return nil })
				})
			}
			wg.Wait()
			s = l.Stats()
		})
		return s
	}
	for _, tt := range []struct {
		name    string
		load    float64 // 1000/s are 20 in flight
		operate func(*ConcurrencyLimiter)
	}{
		{"a fifth of the load", 200, nil},
		{"full", 1000, nil},
		{"twice too much", 2000, nil},
		{"a limit that moves", 1000, func(l *ConcurrencyLimiter) {
			for range 10 {
				time.Sleep(time.Second)
				l.SetBounds(10, 10)
				time.Sleep(time.Second)
				l.SetBounds(20, 20)
			}
		}},
		{"a pause", 500, func(l *ConcurrencyLimiter) { time.Sleep(5 * time.Second); l.Pause(5 * time.Second) }},
	} {
		real, got := run(false, tt.load, tt.operate), run(true, tt.load, tt.operate)
		if got.Admitted != 20_000 || got.Shed != 0 || got.InFlight != 0 || !got.Shadow {
			t.Errorf("%s: %d of 20000 admitted, %d shed, %d left", tt.name, got.Admitted, got.Shed, got.InFlight)
		}
		if d := float64(got.WouldShed) - float64(real.Shed); max(d, -d) > 20+0.03*float64(real.Shed) {
			t.Errorf("%s: WouldShed %d, really %d", tt.name, got.WouldShed, real.Shed)
		}
		if real.WouldShed != 0 {
			t.Errorf("%s: WouldShed %d in force", tt.name, real.WouldShed)
		}
	}
}

// The law is led by real evidence: in healthy times the number rises to its
// ceiling, also where the calls need all of it.
func TestTheLawRunsInShadow(t *testing.T) {
	for _, anchor := range []Anchor{AnchorBaseline, AnchorKnee} {
		clock := NewVirtualClock(epoch)
		l := New(Config{MinRate: 1, MaxRate: 1000, InitialRate: 10, SLOTarget: time.Second, Anchor: anchor, Shadow: true, Clock: clock})
		l.Start()
		for range 5000 { // 500/s
			if _, ok := l.TryTake(); !ok {
				t.Fatal("refused in shadow")
			}
			clock.AfterFunc(20*ms, func() { l.Observe(20 * ms) })
			clock.Advance(2 * ms)
		}
		l.Stop()
		if l.Rate() < 500 {
			t.Errorf("%v: the rate rose to %g in ten healthy seconds, want 500 and more", anchor, l.Rate())
		}
	}
}

func TestAPauseInShadowIsOnlyCounted(t *testing.T) {
	clock := NewVirtualClock(epoch)
	l := New(Config{MinRate: 1, MaxRate: 1000, InitialRate: 10, SlowStartGain: 1, Shadow: true, Clock: clock})
	l.Start()
	defer l.Stop()
	l.Pause(time.Minute)
	if _, err := l.TakeContext(t.Context()); err != nil {
		t.Error(err)
	}
	if s := l.Stats(); s.Admitted != 1 || s.WouldWait != 1 || s.WouldWaitTime != 0 {
		t.Errorf("%d admitted, %d would wait, for %v so far", s.Admitted, s.WouldWait, s.WouldWaitTime)
	}
	observe(l, 40, 20*ms)
	clock.Advance(250 * ms)
	if got := l.Rate(); got != 10.5 {
		t.Errorf("rate %g after a healthy tick, want 10.5: the calls were real", got)
	}
	clock.Advance(2 * time.Minute)
	if got := l.Stats().WouldWaitTime; got != time.Minute {
		t.Errorf("the one caller would have waited %v, want 1m", got)
	}
}

// Those who wait depart when the shadow mode comes on; behind it the rate goes
// on from the last departure.
func TestSwitchingTheShadow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := fixed(10, nil)
		var mu sync.Mutex
		var at []time.Duration
		var wg sync.WaitGroup
		come := func(n int) {
			for range n {
				wg.Go(func() {
					l.Take()
					mu.Lock()
					defer mu.Unlock()
					at = append(at, l.Elapsed())
				})
			}
			synctest.Wait()
		}
		come(5)
		time.Sleep(150 * ms)
		l.SetShadow(true)
		l.SetShadow(true)
		synctest.Wait()
		come(3)
		if s := l.Stats(); !s.Shadow || !l.Config().Shadow || s.Waiting != 0 || s.WouldWait != 3 {
			t.Errorf("%d wait, %d would", s.Waiting, s.WouldWait)
		}
		l.SetShadow(false)
		come(2)
		wg.Wait()
		slices.Sort(at)
		want := []time.Duration{0, 100 * ms, 150 * ms, 150 * ms, 150 * ms, 150 * ms, 150 * ms, 150 * ms, 250 * ms, 350 * ms}
		if !slices.Equal(at, want) {
			t.Errorf("departures at %v, want %v", at, want)
		}
		if s := l.Stats(); s.Shadow || l.Config().Shadow || s.WouldWait != 3 {
			t.Errorf("still in shadow, or %d would have waited", s.WouldWait)
		}
	})
}

func TestSwitchingTheShadowOfALimit(t *testing.T) {
	l := fixedLimit(2)
	l.TryTake()
	l.TryTake()
	l.SetShadow(true)
	for range 3 {
		if !l.TryTake() {
			t.Error("refused in shadow")
		}
	}
	if s := l.Stats(); !s.Shadow || !l.Config().Shadow || s.WouldShed != 3 || s.InFlight != 5 || l.Limit() != 2 {
		t.Errorf("%d would be shed, %d in flight, limit %d", s.WouldShed, s.InFlight, l.Limit())
	}
	l.SetShadow(false)
	for open := 5; open > 0; open-- {
		if got := l.TryTake(); got != (open < 2) {
			t.Errorf("TryTake = %t with %d in flight", got, open)
		} else if got {
			l.Release()
		}
		l.Release()
	}
}

func TestSwitchingTheShadowUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Config{MinRate: 1000, MaxRate: 1000, MaxWaiting: 40})
		c := NewConcurrency(ConcurrencyConfig{MinLimit: 4, MaxLimit: 4})
		l.Start()
		c.Start()
		var done, refused, overloaded atomic.Uint64
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				for range 100 {
					switch err := l.Do(func() error { time.Sleep(ms); return nil }); {
					case err == nil:
						done.Add(1)
					case errors.Is(err, ErrQueueFull):
						refused.Add(1)
						time.Sleep(ms)
					}
					if errors.Is(c.Do(func() error { time.Sleep(ms); return nil }), ErrOverloaded) {
						overloaded.Add(1)
					}
				}
			})
		}
		for i := range 300 {
			time.Sleep(3 * ms)
			l.SetShadow(i%2 == 0)
			c.SetShadow(i%2 == 0)
		}
		wg.Wait()
		l.Stop()
		c.Stop()
		if s := l.Stats(); s.Admitted != done.Load() || s.Shed != refused.Load() || s.Admitted+s.Shed != 5000 || s.Waiting != 0 || s.InFlight != 0 {
			t.Errorf("%d admitted, %d shed, %d wait, %d in flight; want %d, %d, 0, 0", s.Admitted, s.Shed, s.Waiting, s.InFlight, done.Load(), refused.Load())
		}
		if s := c.Stats(); s.Shed != overloaded.Load() || s.Admitted+s.Shed != 5000 || s.InFlight != 0 {
			t.Errorf("%d admitted, %d shed, %d in flight", s.Admitted, s.Shed, s.InFlight)
		}
	})
}
