// Command example shows a Limiter finding the capacity of a real HTTP server
// and following it down and up again. It runs for 26 seconds:
//
//	go run ./example
//
// The server, on loopback, has ten workers of 20 ms a call and a queue: 500
// calls a second. After seven seconds six of the workers leave, after fourteen
// they return. 450 new calls come every second, whatever became of the earlier
// ones. Each is of use only if it is answered within a second, the wait for
// its slot included.
//
// The same calls go at the same time to a second server of the same kind,
// without a limiter.
package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"agilelimiter"
	"agilelimiter/example/internal/pool"
	"agilelimiter/httpclient"
)

const (
	workers  = 10
	service  = 20 * time.Millisecond // of one call, on average
	offered  = 450                   // calls a second
	patience = time.Second
)

var phases = []pool.Phase{{Seconds: 7, Workers: workers}, {Seconds: 7, Workers: 4}, {Seconds: 12, Workers: workers}}

func main() {
	lim := agilelimiter.New(agilelimiter.Config{
		MinRate:    10,
		MaxRate:    1000,
		MaxWaiting: 50, // a quarter of a second at 200/s: the rest of a call's time is for the server
		SLOTarget:  200 * time.Millisecond,
		Anchor:     agilelimiter.AnchorKnee,
	})
	lim.Start()
	defer lim.Stop()

	limited := newSide(func(rt http.RoundTripper) http.RoundTripper { return httpclient.Wrap(rt, lim) })
	defer limited.server.Close()
	plain := newSide(func(rt http.RoundTripper) http.RoundTripper { return rt })
	defer plain.server.Close()

	var callers sync.WaitGroup
	stop := every(time.Second/offered, func() {
		callers.Go(limited.call)
		callers.Go(plain.call)
	})

	fmt.Println("                          with a limiter                    without")
	fmt.Println("second  capacity    rate  in time  refused    p99   in time    lost   why the rate moved")
	var story story
	go plain.pool.Play(phases, func(int, float64) {})
	limited.pool.Play(phases, func(second int, capacity float64) {
		story.tell(second, capacity)
		s := lim.Stats()
		with, without := limited.since(), plain.since()
		fmt.Printf("%6d %7.0f/s %5.0f/s %6d/s %6d/s %4dms %7d/s %5d/s   %v\n", second, capacity, s.Target,
			with.inTime, with.refused, s.P99.Milliseconds(), without.inTime, without.lost, s.Decision)
		story.add(with.inTime, without.inTime)
	})
	story.end()
	stop()
	callers.Wait()

	limited.summary("With the limiter:   ")
	plain.summary("Without a limiter:  ")
}

// every calls f at a steady pace until the function that it returns is called.
func every(d time.Duration, f func()) (stop func()) {
	ended := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		begin := time.Now()
		ticks := time.NewTicker(2 * time.Millisecond)
		defer ticks.Stop()
		for n := 0; ; {
			for ; time.Since(begin) > time.Duration(n)*d; n++ {
				f()
			}
			select {
			case <-ticks.C:
			case <-ended:
				return
			}
		}
	})
	return func() { close(ended); running.Wait() }
}

// side is one of the two servers with its client.
type side struct {
	pool   *pool.Pool
	server *httptest.Server
	client *http.Client

	mu          sync.Mutex
	total, last tally
}

// tally counts calls by what came of them for the caller.
type tally struct{ inTime, refused, lost int }

func newSide(wrap func(http.RoundTripper) http.RoundTripper) *side {
	s := &side{pool: pool.New(workers, service)}
	s.server = httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { s.pool.Serve() }))
	s.client = &http.Client{Transport: wrap(&http.Transport{MaxIdleConnsPerHost: 500}), Timeout: patience}
	return s
}

func (s *side) call() {
	resp, err := s.client.Get(s.server.URL)
	if err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.total.inTime++
	case agilelimiter.IsRefusal(err):
		s.total.refused++
	default:
		s.total.lost++
	}
}

// since returns what came in since the last look.
func (s *side) since() tally {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, l := s.total, s.last
	s.last = t
	return tally{t.inTime - l.inTime, t.refused - l.refused, t.lost - l.lost}
}

func (s *side) summary(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.total
	all := t.inTime + t.refused + t.lost
	fmt.Printf("%s%d of %d calls answered in time (%d %%), %d refused without being sent, %d sent for nothing.\n",
		name, t.inTime, all, 100*t.inTime/max(all, 1), t.refused, t.lost)
}

// story says in words what the lines between two changes of the capacity show.
type story struct {
	capacity      float64
	begin         int
	with, without []int // calls in time, second by second
}

// tell ends a chapter and begins the next one when the capacity has changed.
func (s *story) tell(second int, capacity float64) {
	if capacity == s.capacity {
		return
	}
	s.end()
	switch {
	case s.capacity == 0:
		fmt.Printf("-- The server can do %.0f calls a second, and %d are wanted.\n", capacity, offered)
	case capacity < s.capacity:
		fmt.Printf("-- Six of ten workers leave: the server can do %.0f calls a second.\n", capacity)
	default:
		fmt.Printf("-- The six workers are back: the server can do %.0f calls a second.\n", capacity)
	}
	*s = story{capacity: capacity, begin: second}
}

func (s *story) add(with, without int) {
	s.with, s.without = append(s.with, with), append(s.without, without)
}

// end says when the calls in time settled at what is possible.
func (s *story) end() {
	if s.capacity == 0 {
		return
	}
	possible := min(s.capacity, offered)
	for _, side := range []struct {
		name   string
		inTime []int
	}{{"With the limiter", s.with}, {"Without a limiter", s.without}} {
		settled := len(side.inTime) // the first of the seconds that are good up to the end
		for settled > 0 && float64(side.inTime[settled-1]) >= 0.8*possible {
			settled--
		}
		if settled == len(side.inTime) {
			fmt.Printf("-- %s: at the end %d calls in time of %.0f that are possible.\n", side.name, side.inTime[settled-1], possible)
			continue
		}
		fmt.Printf("-- %s: from second %d on at least 80 %% of the %.0f calls that are possible.\n", side.name, s.begin+settled, possible)
	}
}
