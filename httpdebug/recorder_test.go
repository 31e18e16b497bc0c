package httpdebug_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agilelimiter"
	"agilelimiter/httpdebug"
)

const quarter = 250 * time.Millisecond

func TestTicksAreMergedIntoPoints(t *testing.T) {
	page := httpdebug.New()
	k := newTicker(page, "a", quarter)
	k.step(func(s *agilelimiter.Stats) { s.Admitted, s.Shed = 1000, 1000 }) // before the first tick: no rate
	k.step(func(s *agilelimiter.Stats) { s.Admitted += 50; s.Shed += 5 })
	k.step(func(s *agilelimiter.Stats) {
		s.Target, s.InFlight, s.PeakInFlight, s.Waiting = 90, 3, 12, 7
		s.Decision, s.P99 = agilelimiter.Backoff, 300*time.Millisecond
		s.Fast, s.Baseline, s.Window = 3*time.Second, 4*time.Second, 5*time.Second
		s.Admitted += 10
	})
	k.step(func(s *agilelimiter.Stats) {
		s.Target, s.InFlight, s.PeakInFlight, s.Waiting = 95, 2, 0, 1
		s.Decision, s.Admitted = agilelimiter.Probe, s.Admitted+20
		s.Fast, s.Baseline, s.Window = time.Second, 2*time.Second, 3*time.Second
		s.Shed += 4
	})
	k.step(nil) // an open point is not sent

	p := read(t, page, "").Limiters[0].Points
	for _, c := range []struct {
		name      string
		got, want any
	}{
		{"elapsed_seconds", p.Elapsed, []float64{0.5, 1}},
		{"target: the last", p.Target, []float64{100, 95}},
		{"in_flight: the peak", p.InFlight, []int{0, 12}},
		{"waiting: the peak", p.Waiting, []int{0, 7}},
		{"admitted_per_second", p.Admitted, []float64{100, 60}},
		{"shed_per_second", p.Shed, []float64{10, 8}},
		{"samples: the sum", p.Samples, []int{20, 20}},
		{"p99_seconds: the highest", p.P99, []float64{0.05, 0.3}},
		{"fast_seconds: the last", p.Fast, []float64{0, 1}},
		{"baseline_seconds: the last", p.Baseline, []float64{0, 2}},
		{"window_seconds: the last", p.Window, []float64{0, 3}},
		{"decision: the weightiest", p.Decision, []string{"hold", "backoff"}},
	} {
		if got, want := fmt.Sprint(c.got), fmt.Sprint(c.want); got != want {
			t.Errorf("%s: got %s, want %s", c.name, got, want)
		}
	}
}

func TestDecisionsTellTheLastMove(t *testing.T) {
	page := httpdebug.New()
	k := newTicker(page, "a", quarter)
	k.step(nil)
	if d := read(t, page, "").Limiters[0].Decisions; len(d) != 1 || d[0].Before != 100 || d[0].After != 100 {
		t.Errorf("the first step moved from nowhere: %+v", d)
	}
	for _, target := range []float64{80, 64} {
		k.step(func(s *agilelimiter.Stats) { s.Target, s.Decision = target, agilelimiter.Backoff })
	}
	k.step(nil)
	d := read(t, page, "").Limiters[0].Decisions
	if len(d) != 2 || d[0].Decision != "hold" || d[1].Decision != "backoff" {
		t.Fatalf("decisions %+v, want hold and backoff", d)
	}
	if b := d[1]; b.Count != 2 || b.Last != 0.75 || b.Before != 80 || b.After != 64 || b.Reason != httpdebug.Reasons[agilelimiter.Backoff] {
		t.Errorf("backoff: %+v", b)
	}
	if h := d[0]; h.Count != 2 || h.Last != 1 || h.Before != 64 || h.After != 64 {
		t.Errorf("hold: %+v", h)
	}
}

func TestRingIsBounded(t *testing.T) {
	for _, c := range []struct {
		tick        time.Duration
		ticks, span int
	}{
		{10 * time.Millisecond, 50 * (httpdebug.RingPoints + 50), 300},
		{quarter, 2 * (httpdebug.RingPoints + 50), 300},
		{time.Minute, httpdebug.RingPoints + 50, httpdebug.RingPoints * 60},
	} {
		page := httpdebug.New()
		k := newTicker(page, "a", c.tick)
		for i := range c.ticks {
			k.step(func(s *agilelimiter.Stats) { s.Target = float64(i) })
		}
		lim := read(t, page, "").Limiters[0]
		p := lim.Points
		if n := len(p.Target); n != httpdebug.RingPoints {
			t.Errorf("tick %v: %d points, want %d", c.tick, n, httpdebug.RingPoints)
		}
		if lim.Span != float64(c.span) {
			t.Errorf("tick %v: span %v s, want %d", c.tick, lim.Span, c.span)
		}
		if !slices.IsSorted(p.Elapsed) || lim.Elapsed-p.Elapsed[0] > lim.Span {
			t.Errorf("tick %v: points from %v to %v at %v", c.tick, p.Elapsed[0], p.Elapsed[len(p.Elapsed)-1], lim.Elapsed)
		}
		// Oldest first: 50 points and what they hold are gone.
		if got := p.Target[0]; got < 50 {
			t.Errorf("tick %v: the oldest target is %v", c.tick, got)
		}
	}
}

// TestMemory keeps the package comment's promise.
func TestMemory(t *testing.T) {
	if n := httpdebug.RecorderSize; n > 40<<10 {
		t.Errorf("a recorder takes %d bytes", n)
	}
	k := newTicker(httpdebug.New(), "a", quarter)
	if n := testing.AllocsPerRun(100, func() { k.onTick(k.stats) }); n != 0 {
		t.Errorf("OnTick allocates %v times", n)
	}
}

// TestAfter puts together what polling with after brings and compares it with
// one look at everything.
func TestAfter(t *testing.T) {
	page := httpdebug.New()
	a, b := newTicker(page, "a", quarter), newTicker(page, "b", quarter)
	var gotA, gotB []float64
	var seq uint64
	for i := range 40 {
		a.step(func(s *agilelimiter.Stats) { s.Target = float64(i) })
		if i%3 != 0 {
			b.step(func(s *agilelimiter.Stats) { s.Target = float64(i) })
		}
		if i%5 == 0 {
			r := read(t, page, fmt.Sprintf("&after=%d", seq))
			gotA, gotB = append(gotA, r.Limiters[0].Points.Target...), append(gotB, r.Limiters[1].Points.Target...)
			seq = r.Seq
		}
	}
	r := read(t, page, fmt.Sprintf("&after=%d", seq))
	gotA, gotB = append(gotA, r.Limiters[0].Points.Target...), append(gotB, r.Limiters[1].Points.Target...)
	all := read(t, page, "")
	if want := all.Limiters[0].Points.Target; len(want) != 20 || !slices.Equal(gotA, want) {
		t.Errorf("a: polled %v, whole %v", gotA, want)
	}
	if want := all.Limiters[1].Points.Target; len(want) != 13 || !slices.Equal(gotB, want) {
		t.Errorf("b: polled %v, whole %v", gotB, want)
	}
	if n := len(read(t, page, fmt.Sprintf("&after=%d", all.Seq)).Limiters[0].Points.Target); n != 0 {
		t.Errorf("%d points newer than the newest", n)
	}
}

// readHook is a clock that runs a function in the middle of a request.
type readHook struct {
	agilelimiter.Clock
	f func()
}

func (h *readHook) Now() time.Time {
	if f := h.f; f != nil {
		h.f = nil
		f()
	}
	return h.Clock.Now()
}

// TestPointDuringRequest finishes a point after a request has read seq and
// before it looks at the points: it belongs to the next answer only.
func TestPointDuringRequest(t *testing.T) {
	page := httpdebug.New()
	hook := &readHook{Clock: agilelimiter.SystemClock()}
	page.WatchConcurrency("first", agilelimiter.ConcurrencyConfig{MaxLimit: 1, Clock: hook})
	k := newTicker(page, "second", time.Second)
	k.step(nil)
	hook.f = func() { k.step(nil) }
	first := read(t, page, "")
	next := read(t, page, fmt.Sprintf("&after=%d", first.Seq))
	if a, b := first.Limiters[1].Points.Elapsed, next.Limiters[1].Points.Elapsed; len(a) != 1 || len(b) != 1 || a[0] != 1 || b[0] != 2 {
		t.Errorf("points at %v, then at %v; want one at 1 s, then one at 2 s", a, b)
	}
}

// TestClockStepsBack: no time passes then, and it goes on from there.
func TestClockStepsBack(t *testing.T) {
	page := httpdebug.New()
	k := newTicker(page, "a", quarter)
	for range 4 {
		k.step(nil)
	}
	k.clock.Jump(-time.Hour)
	for range 4 {
		k.step(nil)
	}
	lim := read(t, page, "").Limiters[0]
	// The step itself falls into the first tick after it, which adds nothing.
	if lim.Elapsed != 1.75 || lim.Age != 0 || !slices.IsSorted(lim.Points.Elapsed) {
		t.Errorf("elapsed %v, age %v, points at %v", lim.Elapsed, lim.Age, lim.Points.Elapsed)
	}
}

func TestOldPointsMoveOutOfSight(t *testing.T) {
	page := httpdebug.New()
	k := newTicker(page, "a", quarter)
	for range 8 {
		k.step(nil)
	}
	k.clock.Advance(299 * time.Second)
	lim := read(t, page, "").Limiters[0]
	if len(lim.Points.Target) != 3 || lim.Age != 299 || lim.Elapsed != 301 {
		t.Errorf("%d points, age %v, elapsed %v; want 3, 299, 301", len(lim.Points.Target), lim.Age, lim.Elapsed)
	}
}

func TestNotes(t *testing.T) {
	const stopped = "warn: No step for 10 s: the limiter is stopped. Everything below is as of then."
	for _, c := range []struct {
		name string
		do   func(*ticker)
		want []string
	}{
		{"before the first tick", func(*ticker) {}, []string{
			"warn: No step yet: Start has not been called, or the first tick is still to come.",
		}},
		{"healthy", func(k *ticker) { k.step(nil) }, nil},
		{"stopped", func(k *ticker) { k.step(nil); k.clock.Advance(10 * time.Second) }, []string{stopped}},
		{"stopped for long", func(k *ticker) { k.step(nil); k.clock.Advance(10 * time.Minute) }, []string{
			strings.Replace(stopped, "10 s", "10 min", 1),
		}},
		{"stopped for very long", func(k *ticker) { k.step(nil); k.clock.Advance(10 * time.Hour) }, []string{
			strings.Replace(stopped, "10 s", "10 h", 1),
		}},
		{"a few ticks without samples", func(k *ticker) {
			for range 7 {
				k.step(func(s *agilelimiter.Stats) { s.Samples = 0 })
			}
		}, nil},
		{"no calls", func(k *ticker) {
			for range 12 {
				k.step(func(s *agilelimiter.Stats) { s.Samples = 0 })
			}
		}, []string{"info: No calls for 3 s; the rate stands still."}},
		{"no calls any more", func(k *ticker) {
			k.step(func(s *agilelimiter.Stats) { s.Admitted = 5 })
			for range 12 {
				k.step(func(s *agilelimiter.Stats) { s.Samples = 0 })
			}
		}, []string{"info: No calls for 3 s; the rate stands still."}},
		{"blind", func(k *ticker) {
			k.step(nil)
			for range 12 {
				k.step(func(s *agilelimiter.Stats) { s.Samples = 0; s.Admitted++ })
			}
		}, []string{"warn: Blind for 3 s: calls are let through, but no latency is reported back, so the rate stands still."}},
		{"sighted again", func(k *ticker) {
			for range 12 {
				k.step(func(s *agilelimiter.Stats) { s.Samples = 0; s.Admitted++ })
			}
			k.step(nil)
		}, nil},
		{"floor", func(k *ticker) { k.step(func(s *agilelimiter.Stats) { s.Target = 20 }) }, []string{
			"warn: At the floor of 20 req/s.",
		}},
		{"ceiling", func(k *ticker) { k.step(func(s *agilelimiter.Stats) { s.Target = 500 }) }, nil},
		{"ceiling in the way", func(k *ticker) {
			k.step(func(s *agilelimiter.Stats) { s.Target, s.Binding = 500, true })
		}, []string{"info: At the ceiling of 500 req/s, and callers want more."}},
		{"fixed", func(k *ticker) { k.step(func(s *agilelimiter.Stats) { s.Min, s.Target, s.Max = 0.125, 0.125, 0.125 }) }, []string{
			"info: Floor and ceiling are the same: the rate is fixed.",
		}},
		{"SLO out of reach", func(k *ticker) {
			k.step(func(s *agilelimiter.Stats) { s.Baseline = 201 * time.Millisecond })
		}, []string{"warn: The latency without our queue is above the SLO: no rate can keep it."}},
	} {
		t.Run(c.name, func(t *testing.T) {
			page := httpdebug.New()
			c.do(newTicker(page, "a", quarter))
			var got []string
			for _, n := range read(t, page, "").Limiters[0].Notes {
				got = append(got, n.Level+": "+n.Text)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("notes\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// TestConcurrentUse is for the race detector: ticks, requests for both forms
// and new limiters at once. Polling must lose no point and see none twice.
func TestConcurrentUse(t *testing.T) {
	const ticks = 400
	page := httpdebug.New()
	server := httptest.NewServer(page)
	defer server.Close()
	k := newTicker(page, "a", quarter)
	var wg sync.WaitGroup
	done := make(chan struct{})
	wg.Go(func() {
		defer close(done)
		for i := range ticks {
			k.step(func(s *agilelimiter.Stats) { s.Target = float64(i) })
		}
	})
	other := newTicker(page, "b", quarter)
	wg.Go(func() {
		for range ticks {
			other.step(nil)
		}
	})
	wg.Go(func() {
		for i := range 20 {
			page.WatchConcurrency(fmt.Sprint("limit ", i), agilelimiter.ConcurrencyConfig{MaxLimit: 1})
			resp, err := http.Get(server.URL)
			if err != nil {
				t.Error(err)
				return
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	})
	var got []float64
	var seq uint64
	poll := func() {
		r := read(t, page, fmt.Sprintf("&after=%d", seq))
		got, seq = append(got, r.Limiters[0].Points.Target...), r.Seq
	}
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
			poll()
		}
	}
	wg.Wait()
	poll()
	if len(got) != ticks/2 {
		t.Fatalf("%d points, want %d", len(got), ticks/2)
	}
	for i, v := range got {
		if v != float64(2*i+1) {
			t.Fatalf("point %d has target %v, want %d", i, v, 2*i+1)
		}
	}
}

func BenchmarkOnTick(b *testing.B) {
	k := newTicker(httpdebug.New(), "a", quarter)
	b.ReportAllocs()
	for b.Loop() {
		k.step(nil)
	}
}
