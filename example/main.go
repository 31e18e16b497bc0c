// Command example shows a Limiter finding the capacity of a real HTTP server
// and following it down and up again. It runs for 26 seconds:
//
//	go run ./example
//
// The server, on loopback, has ten workers of 20 ms a call and a queue: 500
// calls a second. After eight seconds six of the workers leave, after sixteen
// they return. A hundred callers want as much as they can get.
package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"time"

	"agilelimiter"
	"agilelimiter/example/internal/pool"
	"agilelimiter/httpclient"
)

const slo = 200 * time.Millisecond

func main() {
	service := pool.New(10, 20*time.Millisecond)
	var good atomic.Int64 // calls that the server answered within the SLO, since the last line
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		arrived := time.Now()
		service.Serve()
		if time.Since(arrived) <= slo {
			good.Add(1)
		}
	}))
	defer server.Close()

	lim := agilelimiter.New(agilelimiter.Config{
		MinRate:   10,
		MaxRate:   1000,
		SLOTarget: slo,
		Anchor:    agilelimiter.AnchorKnee,
	})
	lim.Start()
	defer lim.Stop()
	client := &http.Client{Transport: httpclient.Wrap(&http.Transport{MaxIdleConnsPerHost: 100}, lim)}

	var stop atomic.Bool
	var callers sync.WaitGroup
	for range 100 {
		callers.Go(func() {
			for !stop.Load() {
				get(client, server.URL)
			}
		})
	}

	fmt.Println("second  capacity    rate  goodput  in flight  baseline  latency    p99  why the rate moved")
	phases := []pool.Phase{{Seconds: 8, Workers: 10}, {Seconds: 8, Workers: 4}, {Seconds: 10, Workers: 10}}
	service.Play(phases, func(second int, capacity float64) {
		s := lim.Stats()
		fmt.Printf("%6d %7.0f/s %5.0f/s %6d/s %10d %7dms %6dms %4dms  %v\n", second, capacity, s.Target,
			good.Swap(0), s.InFlight, s.Baseline.Milliseconds(), s.Fast.Milliseconds(), s.P99.Milliseconds(), s.Decision)
	})
	stop.Store(true)
	callers.Wait()
}

func get(client *http.Client, url string) {
	resp, err := client.Get(url)
	if err != nil {
		log.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
}
