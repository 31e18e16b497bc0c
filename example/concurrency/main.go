// Command concurrency shows a ConcurrencyLimiter keeping a service within its
// SLO while its capacity falls and returns under a swarm of callers that offers
// twice what it can serve. It runs for 26 seconds:
//
//	go run ./example/concurrency
//
// The service has ten workers of 20 ms a call and a queue without an end: 500
// calls a second. After eight seconds six of the workers leave, after sixteen
// they return.
package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"agilelimiter"
	"agilelimiter/example/internal/pool"
)

const (
	slo     = 200 * time.Millisecond
	offered = 1000.0 // calls a second
)

func main() {
	service := pool.New(10, 20*time.Millisecond)
	lim := agilelimiter.NewConcurrency(agilelimiter.ConcurrencyConfig{
		MaxLimit:  500,
		SLOTarget: slo,
		Anchor:    agilelimiter.AnchorKnee,
	})
	lim.Start()
	defer lim.Stop()

	var good, shed atomic.Int64 // since the last line
	handle := func() {
		arrived := time.Now()
		err := lim.Do(func() error { service.Serve(); return nil })
		switch {
		case errors.Is(err, agilelimiter.ErrOverloaded):
			shed.Add(1)
		case time.Since(arrived) <= slo:
			good.Add(1)
		}
	}

	stop := make(chan struct{})
	var swarm sync.WaitGroup
	swarm.Go(func() { arrive(&swarm, handle, stop) })

	fmt.Println("second  capacity  limit  in flight  goodput    shed  baseline  latency    p99  why the limit moved")
	phases := []pool.Phase{{Seconds: 8, Workers: 10}, {Seconds: 8, Workers: 4}, {Seconds: 10, Workers: 10}}
	service.Play(phases, func(second int, capacity float64) {
		s := lim.Stats()
		fmt.Printf("%6d %7.0f/s %6.1f %10d %6d/s %5d/s %7dms %6dms %4dms  %v\n", second, capacity, s.Target, s.InFlight,
			good.Swap(0), shed.Swap(0), s.Baseline.Milliseconds(), s.Fast.Milliseconds(), s.P99.Milliseconds(), s.Decision)
	})
	close(stop)
	swarm.Wait()
}

// arrive starts a caller at the instants of a Poisson process: callers do not
// wait for each other, as those of a public service do not.
func arrive(swarm *sync.WaitGroup, call func(), stop <-chan struct{}) {
	next := time.Now()
	for {
		next = next.Add(time.Duration(rand.ExpFloat64() / offered * float64(time.Second)))
		select {
		case <-stop:
			return
		case <-time.After(time.Until(next)):
			swarm.Go(call)
		}
	}
}
