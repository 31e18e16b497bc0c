// Package pool is the downstream of the examples: a service with a number of
// workers and a queue in front of them, whose capacity changes while you watch.
package pool

import (
	"math/rand/v2"
	"time"
)

// Pool serves calls with as many workers as it has at the moment. Calls beyond
// that wait in order, for as long as it takes: the pool itself sheds nothing.
type Pool struct {
	workers chan struct{} // one token per idle worker
	service time.Duration
}

// New returns a pool of workers whose calls take service on average,
// exponentially distributed.
func New(workers int, service time.Duration) *Pool {
	p := &Pool{make(chan struct{}, workers), service}
	p.Hire(workers)
	return p
}

// Serve waits for a worker and keeps him busy for one call.
func (p *Pool) Serve() {
	<-p.workers
	time.Sleep(time.Duration(rand.ExpFloat64() * float64(p.service)))
	p.workers <- struct{}{}
}

// Hire lets n workers begin.
func (p *Pool) Hire(n int) {
	for range n {
		p.workers <- struct{}{}
	}
}

// LayOff lets n workers go; each finishes his call first.
func (p *Pool) LayOff(n int) {
	for range n {
		<-p.workers
	}
}

// Phase is a stretch of time with a number of workers.
type Phase struct {
	Seconds int
	Workers int
}

// Play changes the number of workers from phase to phase and calls line once a
// second with the second and the capacity then, in calls a second.
func (p *Pool) Play(phases []Phase, line func(second int, capacity float64)) {
	second, have := 0, cap(p.workers)
	ticks := time.NewTicker(time.Second)
	defer ticks.Stop()
	for _, phase := range phases {
		if phase.Workers > have {
			p.Hire(phase.Workers - have)
		} else {
			go p.LayOff(have - phase.Workers) // waits for workers who are busy
		}
		have = phase.Workers
		for range phase.Seconds {
			<-ticks.C
			second++
			line(second, float64(have)/p.service.Seconds())
		}
	}
}
