// Command httpserver shows a service that sheds load under a swarm of clients
// of three times its capacity, and what they see of it. Both live in the one
// process, on loopback. It runs for 24 seconds:
//
//	go run ./example/httpserver
//
// The service has ten workers of 20 ms a request and a queue without an end: 500
// requests a second. The swarm comes after six seconds and stays for twelve. The
// limiter's figures can be read all the while at the address printed first.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"agilelimiter"
	"agilelimiter/example/internal/pool"
	"agilelimiter/httpserver"
)

const slo = 200 * time.Millisecond

// phase is a stretch of time with an offered load.
type phase struct {
	seconds int
	offered float64 // requests a second
}

func main() {
	phases := []phase{{6, 300}, {12, 1500}, {6, 300}}
	if err := run(os.Stdout, phases, time.Second); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run plays the phases and writes a line every second, of which it can be told
// the length.
func run(out io.Writer, phases []phase, second time.Duration) error {
	lim := agilelimiter.NewConcurrency(agilelimiter.ConcurrencyConfig{
		MaxLimit:  500,
		SLOTarget: slo,
		Anchor:    agilelimiter.AnchorKnee,
	})
	lim.Start()
	defer lim.Stop()

	workers := pool.New(10, 20*time.Millisecond)
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		workers.Serve()
		io.WriteString(w, "done\n")
	})
	mux := http.NewServeMux()
	mux.Handle("/stats", httpserver.StatsHandler(lim)) // outside of Wrap: never shed
	mux.Handle("/", httpserver.Wrap(api, lim, httpserver.WithRetryAfter(time.Second)))

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: mux}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	url := "http://" + listener.Addr().String()

	s := newSwarm(url)
	fmt.Fprintf(out, "live figures: curl %s/stats\n\n", url)
	fmt.Fprintln(out, "second  offered  admitted  shed (429)     p99  limit  in flight  why the limit moved")
	n := 0
	for _, p := range phases {
		stop := make(chan struct{})
		s.callers.Go(func() { s.arrive(p.offered, stop) })
		for range p.seconds {
			time.Sleep(second)
			n++
			if err := s.line(out, n); err != nil {
				close(stop)
				return err
			}
		}
		close(stop)
	}
	s.callers.Wait()
	s.client.CloseIdleConnections()
	if err := server.Close(); err != nil {
		return err
	}
	if err := <-served; err != http.ErrServerClosed {
		return err
	}
	total := lim.Stats()
	fmt.Fprintf(out, "\nadmitted %d, shed %d; of those admitted %.1f %% were answered within %v, seen from the client\n",
		total.Admitted, total.Shed, 100*float64(s.good)/float64(max(s.answered, 1)), slo)
	return nil
}

// swarm is the clients of the service and what they saw.
type swarm struct {
	url     string
	client  *http.Client
	callers sync.WaitGroup

	mu             sync.Mutex // guards what follows
	good, answered int        // since the start
	offered, shed  int        // since the last line, like latencies
	latencies      []time.Duration
	failed         error
}

func newSwarm(url string) *swarm {
	// Enough idle connections that the swarm does not spend its time dialling.
	return &swarm{url: url, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}}
}

// arrive starts a request at the instants of a Poisson process: clients do not
// wait for each other.
func (s *swarm) arrive(perSecond float64, stop <-chan struct{}) {
	next := time.Now()
	for {
		next = next.Add(time.Duration(rand.ExpFloat64() / perSecond * float64(time.Second)))
		select {
		case <-stop:
			return
		case <-time.After(time.Until(next)):
			s.callers.Go(s.call)
		}
	}
}

func (s *swarm) call() {
	begin := time.Now()
	resp, err := s.client.Get(s.url)
	took := time.Since(begin)
	if err == nil {
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offered++
	switch {
	case err != nil:
		s.failed = err
	case resp.StatusCode == http.StatusTooManyRequests:
		s.shed++
	default:
		s.answered++
		if took <= slo {
			s.good++
		}
		s.latencies = append(s.latencies, took)
	}
}

// line prints what the clients saw since the last line, and what the service
// says of itself now.
func (s *swarm) line(out io.Writer, second int) error {
	resp, err := s.client.Get(s.url + "/stats")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var stats struct {
		Limit    int    `json:"limit"`
		InFlight int    `json:"in_flight"`
		Decision string `json:"decision"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&stats); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.latencies)
	p99 := time.Duration(0)
	if n := len(s.latencies); n > 0 {
		p99 = s.latencies[(99*n+99)/100-1]
	}
	fmt.Fprintf(out, "%6d %6d/s %7d/s %9d/s %5dms %6d %10d  %s\n", second, s.offered, len(s.latencies), s.shed,
		p99.Milliseconds(), stats.Limit, stats.InFlight, stats.Decision)
	s.offered, s.shed, s.latencies = 0, 0, nil
	return s.failed
}
