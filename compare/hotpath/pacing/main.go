// Command pacing measures limiters of the rate on the wall clock: which share
// of the nominal rate callers that never stop asking really get, how many
// departures crowd into one window, and what a long pause earns.
//
//	go run ./pacing            all cells, about two and a half minutes a limiter
//	go run ./pacing -d 1s -arms uber,x-time -rates 1000 -callers 1
//
// A limiter without slack cannot keep a high rate here, because Linux rounds
// sleeps of less than a millisecond up to one; one with slack keeps it and
// may send a burst. The two tables have to be read together.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

func main() {
	log.SetFlags(0)
	duration := flag.Duration("d", 3*time.Second, "how long each cell runs")
	window := flag.Duration("window", 10*time.Millisecond, "the window whose fullest occurrence is shown")
	pause := flag.Duration("pause", time.Second, "the pause of the last table; 0 leaves it out")
	names := flag.String("arms", "", "limiters, comma-separated (default all)")
	rates := flag.String("rates", "100,1000,10000,50000", "nominal rates in requests per second")
	callers := flag.String("callers", "1,16,128", "numbers of concurrent callers")
	flag.Parse()

	chosen := choose(*names)
	rs, cs := ints(*rates), ints(*callers)
	fmt.Printf("%s %s/%s, GOMAXPROCS %d, %v a cell\n\n", runtime.Version(), runtime.GOOS, runtime.GOARCH,
		runtime.GOMAXPROCS(0), *duration)

	var share, crowd [][]string
	for _, a := range chosen {
		shareRow, crowdRow := []string{a.name}, []string{a.name}
		for _, r := range rs {
			for _, c := range cs {
				at := run(a, r, c, *duration)
				nominal := float64(r) * duration.Seconds()
				shareRow = append(shareRow, fmt.Sprintf("%.1f", 100*float64(len(at))/nominal))
				crowdRow = append(crowdRow, strconv.Itoa(fullest(at, *window)))
			}
		}
		share, crowd = append(share, shareRow), append(crowd, crowdRow)
	}
	header := []string{"req/s × callers"}
	for _, r := range rs {
		for _, c := range cs {
			header = append(header, fmt.Sprintf("%d × %d", r, c))
		}
	}
	fmt.Println("Achieved over nominal rate in %:")
	printTable(header, share)
	spaced := []string{"(evenly spaced)"}
	for _, r := range rs {
		for range cs {
			spaced = append(spaced, strconv.Itoa(max(1, int(float64(r)*window.Seconds()))))
		}
	}
	fmt.Printf("Most departures in any %v:\n", *window)
	printTable(header, append([][]string{spaced}, crowd...))

	if *pause <= 0 {
		return
	}
	header = []string{"req/s"}
	for _, r := range rs {
		header = append(header, strconv.Itoa(r))
	}
	var after [][]string
	for _, a := range chosen {
		cells := []string{a.name}
		for _, r := range rs {
			cells = append(cells, strconv.Itoa(afterPause(a, r, *pause, *window)))
		}
		after = append(after, cells)
	}
	fmt.Printf("Departures in the first %v after a pause of %v, one caller:\n", *window, *pause)
	printTable(header, after)
}

// run lets the callers take departures for d and returns when each of them
// happened, in order, measured from the start.
func run(a arm, rate, callers int, d time.Duration) []time.Duration {
	take, stop := a.start(rate)
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	each := make([][]time.Duration, callers)
	var wg sync.WaitGroup
	begin := time.Now()
	for i := range callers {
		mine := make([]time.Duration, 0, int(float64(rate)*d.Seconds()/float64(callers))+16)
		wg.Go(func() {
			for take(ctx) {
				now := time.Since(begin)
				if now >= d {
					break
				}
				mine = append(mine, now)
			}
			each[i] = mine
		})
	}
	wg.Wait()
	all := slices.Concat(each...)
	slices.Sort(all)
	return all
}

// afterPause brings one caller into its stride, pauses, and counts what the
// limiter then lets through at once.
func afterPause(a arm, rate int, pause, window time.Duration) int {
	take, stop := a.start(rate)
	defer stop()
	ctx := context.Background()
	for range min(50, rate/4) {
		take(ctx)
	}
	time.Sleep(pause)
	begin := time.Now()
	for n := 0; ; n++ {
		if !take(ctx) || time.Since(begin) >= window {
			return n
		}
	}
}

// fullest is the largest number of instants in any half-open window; at is
// sorted.
func fullest(at []time.Duration, window time.Duration) (most int) {
	first := 0
	for last := range at {
		for at[last]-at[first] >= window {
			first++
		}
		most = max(most, last-first+1)
	}
	return most
}

func choose(names string) []arm {
	if names == "" {
		return arms
	}
	var chosen []arm
	for _, name := range strings.Split(names, ",") {
		i := slices.IndexFunc(arms, func(a arm) bool { return a.name == name })
		if i < 0 {
			log.Fatalf("pacing: no limiter %q", name)
		}
		chosen = append(chosen, arms[i])
	}
	return chosen
}

func ints(list string) (ns []int) {
	for _, s := range strings.Split(list, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n <= 0 {
			log.Fatalf("pacing: %q is not a positive number", s)
		}
		ns = append(ns, n)
	}
	return ns
}

func printTable(header []string, rows [][]string) {
	fmt.Printf("\n| %s |\n|%s\n", strings.Join(header, " | "), strings.Repeat("---|", len(header)))
	for _, r := range rows {
		fmt.Printf("| %s |\n", strings.Join(r, " | "))
	}
	fmt.Println()
}
