// Command pacing measures, in real time, how close a Limiter comes to its
// nominal rate, and how many calls depart in the fullest 10 ms.
//
//	go run ./example/pacing           # 3 s a cell, 36 s in all
//	go run ./example/pacing -for 1s
package main

import (
	"flag"
	"fmt"
	"slices"
	"sync"
	"time"

	"agilelimiter"
)

func main() {
	span := flag.Duration("for", 3*time.Second, "how long to measure each cell")
	flag.Parse()
	fmt.Println("achieved/nominal in %, and the most departures in any 10 ms against rate × 10 ms")
	fmt.Printf("%10s %22s %22s %22s\n", "req/s", "1 caller", "16 callers", "128 callers")
	for _, rate := range []float64{100, 1000, 10000, 50000} {
		fmt.Printf("%10.0f", rate)
		for _, callers := range []int{1, 16, 128} {
			share, most := measure(rate, callers, *span)
			fmt.Printf(" %11.2f %4d/%5.0f", 100*share, most, rate/100)
		}
		fmt.Println()
	}
}

// measure lets callers take slots as fast as they get them.
func measure(rate float64, callers int, span time.Duration) (share float64, most int) {
	lim := agilelimiter.New(agilelimiter.Config{MinRate: rate, MaxRate: rate, InitialRate: rate})
	lim.Take() // the schedule begins here
	start := time.Now()
	end := start.Add(span)
	departed := make([][]time.Duration, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for {
				// The slot after the end is not counted, however early it came.
				if slot := lim.Take(); slot.After(end) {
					return
				}
				departed[i] = append(departed[i], time.Since(start))
			}
		})
	}
	wg.Wait()
	all := slices.Concat(departed...)
	slices.Sort(all)
	first := 0
	for i, at := range all {
		for at-all[first] > 10*time.Millisecond {
			first++
		}
		most = max(most, i-first+1)
	}
	return float64(len(all)) / (rate * span.Seconds()), most
}
