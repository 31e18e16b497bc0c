// Dashboard shows two limiters at work on the page of package httpdebug:
//
//	go run ./example/dashboard
//
// It prints an address to open in a browser and ends by itself after a minute
// (-for changes that). Both dependencies are worker pools inside this process
// that become three times slower for a while, and recover.
//
//   - payments: a Limiter paces calls to a downstream; callers wait up to 300 ms.
//   - api: a ConcurrencyLimiter protects a service; callers beyond it are shed.
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

	"agilelimiter"
	"agilelimiter/httpdebug"
)

const path = "/debug/limiters"

func main() {
	addr := flag.String("addr", "127.0.0.1:0", "address to listen on; keep it a loopback one")
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

// run serves the page and drives both limiters until ctx ends.
func run(ctx context.Context, addr string) error {
	page := httpdebug.New()
	payments := agilelimiter.New(page.Watch("payments", agilelimiter.Config{
		MinRate: 20, MaxRate: 500, InitialRate: 50, MaxWaiting: 200,
		SLOTarget: 200 * time.Millisecond, Anchor: agilelimiter.AnchorKnee,
	}))
	payments.Start()
	defer payments.Stop()
	api := agilelimiter.NewConcurrency(page.WatchConcurrency("api", agilelimiter.ConcurrencyConfig{
		MinLimit: 2, MaxLimit: 64,
		SLOTarget: 150 * time.Millisecond, Anchor: agilelimiter.AnchorKnee,
	}))
	api.Start()
	defer api.Stop()

	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle(path, page)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	fmt.Printf("http://%s%s\n", listener.Addr(), path)

	downstream := newPool(8, 20*time.Millisecond)
	backend := newPool(6, 15*time.Millisecond)
	var work sync.WaitGroup
	for _, f := range []func(){
		func() { downstream.degrade(ctx, 14*time.Second) },
		func() { backend.degrade(ctx, 20*time.Second) },
		func() {
			offer(ctx, 300, func() {
				wait, done := context.WithTimeout(ctx, 300*time.Millisecond)
				defer done()
				if _, err := payments.TakeContext(wait); err != nil {
					return
				}
				sent := time.Now()
				downstream.call()
				payments.Observe(time.Since(sent))
			})
		},
		func() { offer(ctx, 280, func() { _ = api.Do(backend.call) }) },
	} {
		work.Go(f)
	}

	select {
	case err = <-served:
	case <-ctx.Done():
		work.Wait()
		downstream.close()
		backend.close()
		err = server.Close()
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// offer calls f perSecond times a second with the irregularity of independent
// callers, each in a goroutine of its own, and waits for the last of them.
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

// pool is a dependency: a number of workers with a queue in front of them.
type pool struct {
	jobs    chan chan struct{}
	workers sync.WaitGroup

	mu   sync.Mutex // guards mean
	mean time.Duration
}

// newPool returns workers whose service times are exponential around mean.
func newPool(workers int, mean time.Duration) *pool {
	p := &pool{jobs: make(chan chan struct{}, 10_000), mean: mean}
	for range workers {
		p.workers.Go(func() {
			for done := range p.jobs {
				p.mu.Lock()
				mean := p.mean
				p.mu.Unlock()
				time.Sleep(time.Duration(rand.ExpFloat64() * float64(mean)))
				close(done)
			}
		})
	}
	return p
}

// call queues for a worker and waits until it has done the work.
func (p *pool) call() error {
	done := make(chan struct{})
	p.jobs <- done
	<-done
	return nil
}

// degrade makes the pool three times slower for ten seconds, again and again,
// with healthy seconds in between.
func (p *pool) degrade(ctx context.Context, healthy time.Duration) {
	for {
		if !sleep(ctx, healthy) {
			return
		}
		p.scale(3, 1)
		if !sleep(ctx, 10*time.Second) {
			return
		}
		p.scale(1, 3)
	}
}

func (p *pool) scale(by, over time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mean = p.mean * by / over
}

func (p *pool) close() {
	close(p.jobs)
	p.workers.Wait()
}

// sleep reports false when ctx ended it.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
