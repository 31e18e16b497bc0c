package plant

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// ended is how and when a call came back.
type ended struct {
	o   Outcome
	rtt time.Duration
}

// sent sends calls of 10 ms of work each, gap apart, and returns how each of
// them ended within a minute, round trips rounded to milliseconds.
func sent(t *testing.T, s *Server, calls int, gap time.Duration, hit bool) []ended {
	t.Helper()
	got := make([]ended, calls)
	synctest.Test(t, func(*testing.T) {
		var mu sync.Mutex
		s.Start()
		for i := range calls {
			s.Send(Call{Work: mean, Hit: hit, Jitter: 0.5}, func(o Outcome, rtt time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				if got[i] != (ended{}) {
					t.Errorf("call %d ended twice", i)
				}
				got[i] = ended{o, rtt.Round(time.Millisecond)}
			})
			time.Sleep(gap)
		}
		time.Sleep(time.Minute)
	})
	return got
}

func TestServer(t *testing.T) {
	const ms = time.Millisecond
	always := func(f Fault) func(time.Duration) Fault { return func(time.Duration) Fault { return f } }
	for _, c := range []struct {
		name  string
		s     *Server
		calls int
		gap   time.Duration
		hit   bool
		want  []ended
	}{
		{name: "FIFO queue", s: &Server{Workers: workers(1)}, calls: 3,
			want: []ended{{OK, 10 * ms}, {OK, 20 * ms}, {OK, 30 * ms}}},
		{name: "two workers", s: &Server{Workers: workers(2)}, calls: 3,
			want: []ended{{OK, 10 * ms}, {OK, 10 * ms}, {OK, 20 * ms}}},
		{name: "sharing", s: &Server{Workers: workers(1), Sharing: true}, calls: 3,
			want: []ended{{OK, 30 * ms}, {OK, 30 * ms}, {OK, 30 * ms}}},
		{name: "sharing, arrivals apart", s: &Server{Workers: workers(1), Sharing: true}, calls: 2, gap: 5 * ms,
			want: []ended{{OK, 15 * ms}, {OK, 15 * ms}}},
		{name: "slow", s: &Server{Workers: workers(1), Slow: Const(3)}, calls: 1, want: []ended{{OK, 30 * ms}}},
		{name: "slow from 10 ms on", s: &Server{Workers: workers(1), Slow: Step(10*ms, 1, 3)}, calls: 2, gap: 10 * ms,
			want: []ended{{OK, 10 * ms}, {OK, 30 * ms}}},
		{name: "base latency holds no worker", s: &Server{Workers: workers(1), Base: Const(0.1)}, calls: 2,
			want: []ended{{OK, 110 * ms}, {OK, 120 * ms}}},
		{name: "jitter", s: &Server{Workers: workers(1), Jitter: 40 * ms}, calls: 1, want: []ended{{OK, 30 * ms}}},
		{name: "queue bound", s: &Server{Workers: workers(1), Queue: 1}, calls: 3,
			want: []ended{{OK, 10 * ms}, {OK, 20 * ms}, {Busy, ms}}},
		{name: "timeout; the abandoned cost nothing", s: &Server{Workers: workers(1), Timeout: 15 * ms}, calls: 4,
			want: []ended{{OK, 10 * ms}, {TimedOut, 15 * ms}, {TimedOut, 15 * ms}, {TimedOut, 15 * ms}}},
		{name: "refuse", s: &Server{Workers: workers(1), Fault: always(Refuse)}, calls: 1, want: []ended{{Refused, 0}}},
		{name: "reject", s: &Server{Workers: workers(1), Fault: always(Reject)}, calls: 1, want: []ended{{Busy, ms}}},
		{name: "hang", s: &Server{Workers: workers(1), Fault: always(Hang)}, calls: 1, want: []ended{{}}},
		{name: "hang with a timeout", s: &Server{Workers: workers(1), Fault: always(Hang), Timeout: time.Second},
			calls: 1, want: []ended{{TimedOut, time.Second}}},
		{name: "hits cost no worker", s: &Server{Workers: workers(1)}, calls: 2, hit: true,
			want: []ended{{OK, ms}, {OK, ms}}},
		{name: "marked hits", s: &Server{Workers: workers(1), Marked: true}, calls: 1, hit: true,
			want: []ended{{MarkedHit, ms}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := sent(t, c.s, c.calls, c.gap, c.hit); !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// TestWorkersReturn: a worker that comes back takes up the queue.
func TestWorkersReturn(t *testing.T) {
	const ms = time.Millisecond
	s := &Server{Workers: func(t time.Duration) int { return int(Step(20*ms, 1, 3)(t)) }}
	want := []ended{{OK, 10 * ms}, {OK, 20 * ms}, {OK, 30 * ms}, {OK, 30 * ms}, {OK, 30 * ms}}
	if got := sent(t, s, 5, 0, false); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestCurves(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name string
		c    Curve
		at   time.Duration
		want float64
	}{
		{"nil", nil, s, 7},
		{"step before", Step(s, 1, 2), s - 1, 1},
		{"step after", Step(s, 1, 2), s, 2},
		{"pulse before", Pulse(s, 2*s, 1, 2), s - 1, 1},
		{"pulse inside", Pulse(s, 2*s, 1, 2), s, 2},
		{"pulse after", Pulse(s, 2*s, 1, 2), 2 * s, 1},
		{"ramp before", Ramp(s, 3*s, 1, 2), 0, 1},
		{"ramp inside", Ramp(s, 3*s, 1, 2), 2 * s, 1.5},
		{"ramp after", Ramp(s, 3*s, 1, 2), 4 * s, 2},
		{"square first", Square(2*s, 1, 2), 2*s + s/2, 1},
		{"square second", Square(2*s, 1, 2), s, 2},
		{"wave top", Wave(4*s, 1, 2), 4 * s, 2},
		{"wave bottom", Wave(4*s, 1, 2), 2 * s, 1},
	} {
		if got := c.c.At(c.at, 7); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestDraw: calls are a pure function of seed, stream and index, differ in
// each, and have the mean and the share of hits that the mix says.
func TestDraw(t *testing.T) {
	for name, d := range map[string]Dist{
		"exponential": nil, "lognormal": Lognormal(1), "bimodal": Bimodal(0.1, 10), "deterministic": Deterministic,
	} {
		m, n := Mix{Mean: mean, Dist: d, Hits: 0.25}, 200_000
		var sum time.Duration
		hits := 0
		for i := range n {
			c := m.Draw(1, 2, uint64(i))
			sum += c.Work
			if c.Hit {
				hits++
			}
		}
		if got := float64(sum) / float64(n) / float64(mean); got < 0.99 || got > 1.01 {
			t.Errorf("%s: mean work is %.3f of what was asked for", name, got)
		}
		if got := float64(hits) / float64(n); got < 0.245 || got > 0.255 {
			t.Errorf("%s: share of hits is %.3f, want 0.25", name, got)
		}
	}
	m := Mix{Mean: mean}
	c := m.Draw(1, 2, 3)
	if again := m.Draw(1, 2, 3); again != c {
		t.Errorf("drawn twice: %v and %v", c, again)
	}
	for _, other := range []Call{m.Draw(2, 2, 3), m.Draw(1, 3, 3), m.Draw(1, 2, 4)} {
		if other.Work == c.Work {
			t.Errorf("another call is the same: %v", other)
		}
	}
}

func TestOpen(t *testing.T) {
	arrivals := func(slow bool) (times []time.Duration) {
		synctest.Test(t, func(*testing.T) {
			var mu sync.Mutex
			start := time.Now()
			Open(1, Pulse(2*time.Second, 3*time.Second, 100, 0), 5*time.Second, func(uint64) {
				mu.Lock()
				times = append(times, time.Since(start))
				mu.Unlock()
				if slow {
					time.Sleep(10 * time.Second)
				}
			})
			if got := time.Since(start); got != 5*time.Second {
				t.Errorf("returned after %v, want 5s", got)
			}
			time.Sleep(time.Minute)
		})
		return times
	}
	times := arrivals(false)
	if n := len(times); n < 340 || n > 460 {
		t.Errorf("%d arrivals in 4 s at 100 a second", n)
	}
	for _, at := range times {
		// The first gap after the pause may begin before it.
		if at > 2*time.Second+50*time.Millisecond && at < 3*time.Second {
			t.Errorf("an arrival at %v, where the rate is 0", at)
		}
	}
	if !slices.Equal(times, arrivals(true)) {
		t.Error("arrivals depend on what becomes of the calls")
	}
}

func TestClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		start, calls, at, most := time.Now(), 0, 0, 0
		Closed(1, 3, 10*time.Millisecond, 10*time.Second, func(int, uint64) {
			mu.Lock()
			calls, at = calls+1, at+1
			most = max(most, at)
			mu.Unlock()
			time.Sleep(20 * time.Millisecond)
			mu.Lock()
			at--
			mu.Unlock()
		})
		if got := time.Since(start); got < 10*time.Second || got > 11*time.Second {
			t.Errorf("returned after %v, want 10s and the last calls", got)
		}
		// Three callers, one call each per 30 ms on average.
		if calls < 950 || calls > 1050 || most != 3 {
			t.Errorf("%d calls, at most %d at once; want about 1000 and 3", calls, most)
		}
	})
}
