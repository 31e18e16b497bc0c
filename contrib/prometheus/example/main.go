// Example serves the metrics of two limiters at work:
//
//	go run ./example
//
// It prints the address to scrape and ends by itself after a minute (-for
// changes that). Both dependencies are worker pools inside this process.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"agilelimiter"
	limiterprom "agilelimiter/contrib/prometheus"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:0", "address to listen on")
	length := flag.Duration("for", time.Minute, "how long to run")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, *length)
	defer cancel()
	if err := run(ctx, *addr); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, addr string) error {
	orders := agilelimiter.New(agilelimiter.Config{
		MinRate: 5, MaxRate: 200, MaxWaiting: 50,
		SLOTarget: 100 * time.Millisecond, Anchor: agilelimiter.AnchorKnee,
	})
	orders.Start()
	defer orders.Stop()
	api := agilelimiter.NewConcurrency(agilelimiter.ConcurrencyConfig{
		MinLimit: 2, MaxLimit: 32,
		SLOTarget: 100 * time.Millisecond, Anchor: agilelimiter.AnchorKnee,
	})
	api.Start()
	defer api.Stop()

	registry := prometheus.NewRegistry()
	registry.MustRegister(
		limiterprom.NewCollector("orders", orders),
		limiterprom.NewCollector("api", api),
	)
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	fmt.Printf("http://%s/metrics\n", listener.Addr())

	var work sync.WaitGroup
	defer work.Wait()
	downstream, backend := newPool(4), newPool(4)
	work.Go(func() {
		offer(ctx, 150, func() { _ = orders.DoContext(ctx, downstream.call) })
	})
	work.Go(func() {
		offer(ctx, 250, func() { _ = api.DoContext(ctx, backend.call) })
	})
	select {
	case err = <-served:
	case <-ctx.Done():
		err = server.Close()
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// offer calls f perSecond times a second with the irregularity of independent
// callers, each in a goroutine of its own, until ctx ends.
func offer(ctx context.Context, perSecond float64, f func()) {
	var calls sync.WaitGroup
	defer calls.Wait()
	next := time.Now()
	for ctx.Err() == nil {
		next = next.Add(time.Duration(rand.ExpFloat64() / perSecond * float64(time.Second)))
		time.Sleep(time.Until(next))
		calls.Go(f)
	}
}

// pool is a dependency: a number of workers, each busy with one call at a time.
type pool chan struct{}

func newPool(workers int) pool { return make(pool, workers) }

// call waits for a worker and has it work for about 20 ms.
func (p pool) call(ctx context.Context) error {
	select {
	case p <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-p }()
	time.Sleep(time.Duration(rand.ExpFloat64() * float64(20*time.Millisecond)))
	return nil
}
