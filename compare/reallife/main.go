// Command reallife puts httpclient.Wrap, and what one would use instead,
// between a real load generator (vegeta) and a real server (nginx) whose
// capacity changes twice while the load goes on.
//
//	./run.sh              installs nginx from Debian's packages if need be, then runs this
//	go run . -phase 8s    three phases of this length; all arms at the same time
//
// The server is nginx with limit_req: it serves a fixed number of requests per
// second, lets a bounded number wait their turn, and answers 503 beyond that.
// For the second phase its configuration is reloaded with a lower rate, for
// the third with the first one again. Every arm has a port and a queue of its
// own there, and gets the same open load, which is more than the server can
// take. Everything stays on the loopback interface.
//
// Where there is no nginx the program says so and ends without an error.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"sync"
	"time"
)

// A scenario is what all arms go through.
type scenario struct {
	rates   []int // the server's capacity in each phase, requests per second
	phase   time.Duration
	queue   int // how many requests nginx lets wait
	offered int // requests per second
	slo     time.Duration
	timeout time.Duration // of a caller, for waiting and call together
	wait    time.Duration // what an arm that has such a knob may wait for admission
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("reallife: ")
	s := scenario{rates: []int{200, 60, 200}, queue: 200}
	flag.DurationVar(&s.phase, "phase", 8*time.Second, "length of each of the three phases")
	flag.IntVar(&s.offered, "offered", 300, "requests per second for each arm")
	flag.DurationVar(&s.slo, "slo", 200*time.Millisecond, "latency inside of which an answer counts")
	flag.DurationVar(&s.timeout, "timeout", 2*time.Second, "a caller's patience")
	flag.DurationVar(&s.wait, "wait", 200*time.Millisecond, "longest wait for admission, where an arm can be told")
	flag.Parse()

	if err := run(os.Stdout, s); errors.Is(err, errNoServer) {
		fmt.Println("reallife: skipped: nginx is not installed here; run.sh installs it from Debian's packages")
	} else if err != nil {
		log.Fatal(err)
	}
}

func run(w io.Writer, s scenario) error {
	server, err := startServer(len(arms), s.rates[0], s.queue)
	if err != nil {
		return err
	}
	defer server.stop()

	fmt.Fprintf(w, "%s as the server: %v req/s in phases of %v, %d may queue there; %d req/s offered to each arm; SLO %v.\n",
		server.version, s.rates, s.phase, s.queue, s.offered, s.slo)
	meters := make([]*meter, len(arms))
	callers := make([][]call, len(arms))
	var wg sync.WaitGroup
	begin := time.Now()
	for i, a := range arms {
		meters[i] = newMeter(begin)
		rt, stop := a.wrap(meters[i], s)
		defer stop()
		wg.Go(func() { callers[i] = attack(server.url(i), rt, s, begin) })
	}
	var reloadErr error
	for phase, rate := range s.rates[1:] {
		time.Sleep(time.Until(begin.Add(time.Duration(phase+1) * s.phase)))
		reloadErr = errors.Join(reloadErr, server.setRate(rate))
	}
	wg.Wait()
	if reloadErr != nil {
		return reloadErr
	}
	server.end()
	logged, err := server.logged()
	if err != nil {
		return err
	}
	report(w, s, meters, callers, logged)
	return nil
}
