package agilelimiter

import (
	"math/rand/v2"
	"slices"
	"time"
)

// plant is a queueing server, the callers that meet it through a limiter, and
// an account of how they fared. It runs on a VirtualClock: the same seed gives
// the same run, to the last call.
//
// Everything happens in the goroutine that moves the clock. Take would block it,
// so a caller who waits for a rate stands in the bucket's queue without one.
type plant struct {
	// The server.
	workers func(t time.Duration) int // calls served at once
	service time.Duration             // mean of an exponential
	base    func(t time.Duration) time.Duration
	fault   func(t time.Duration) plantFault
	backlog int // calls of others that stand in its queue at the start

	// The callers.
	load     float64       // calls per second, Poisson
	timeout  time.Duration // after which they give a call up; 0: never
	patience time.Duration // for admission; 0: 500 ms
	hits     float64       // share of calls that a cache answers
	marked   bool          // and that can be told from the rest
	slo      time.Duration

	clock   *VirtualClock
	r       *rand.Rand
	admit   func() // offers one call
	end     func(o Outcome, rtt time.Duration, truncated bool)
	rate    *Limiter // nil: a limit
	waiting []*plantWaiter

	busy  int
	queue []*plantCall

	bins  []plantBin // of plantBinSize each
	ticks []plantTick
}

const plantBinSize = 250 * time.Millisecond

type plantFault uint8

const (
	plantUp      plantFault = iota
	plantRefuses            // every call is refused within 0.1 ms
	plantHangs              // calls are accepted and never answered
)

// plantBin is what the callers saw in one stretch of time.
type plantBin struct {
	offered, admitted int
	served            int // answered, hits included
	inSLO             int // those of served that took no longer than slo
	lost              int // refused or timed out
}

// plantTick is one step of the limiter.
type plantTick struct {
	at time.Duration
	Stats
}

type plantCall struct {
	sent  time.Duration
	ended bool
}

type plantWaiter struct {
	*waiter
	timer Timer
}

// Now and AfterFunc make plant the limiter's clock: whatever runs may have
// granted slots, and those who got them call the server at that very time.
func (p *plant) Now() time.Time { return p.clock.Now() }

func (p *plant) AfterFunc(d time.Duration, f func()) Timer {
	return p.clock.AfterFunc(d, func() { f(); p.collect() })
}

func newPlant(seed uint64) *plant {
	return &plant{
		workers: func(time.Duration) int { return 10 },
		service: 20 * time.Millisecond,
		base:    func(time.Duration) time.Duration { return 0 },
		fault:   func(time.Duration) plantFault { return plantUp },
		slo:     200 * time.Millisecond,
		clock:   NewVirtualClock(time.Time{}),
		r:       rand.New(rand.NewPCG(seed, 0x9a27)),
	}
}

// capacity is what the server can do at t, in calls per second, hits included.
func (p *plant) capacity(t time.Duration) float64 {
	return float64(p.workers(t)) / p.service.Seconds() / (1 - p.hits)
}

// runRate lets the callers through a Limiter for length.
func (p *plant) runRate(cfg Config, length time.Duration) *plant {
	cfg.Clock, cfg.OnTick, cfg.Anchor = p, p.ticked, AnchorKnee
	l := New(cfg)
	p.rate = l
	p.admit = func() {
		if _, ok := l.TryTake(); ok {
			p.send()
			return
		}
		p.wait()
	}
	p.end = func(o Outcome, rtt time.Duration, truncated bool) {
		switch {
		case truncated:
			l.ObserveTruncated(rtt)
		default:
			l.Record(o, rtt)
		}
	}
	l.Start()
	defer l.Stop()
	p.run(length)
	return p
}

// runLimit lets them through a ConcurrencyLimiter.
func (p *plant) runLimit(cfg ConcurrencyConfig, length time.Duration) *plant {
	cfg.Clock, cfg.OnTick, cfg.Anchor = p, p.ticked, AnchorKnee
	l := NewConcurrency(cfg)
	p.admit = func() {
		if l.TryTake() {
			p.send()
		}
	}
	p.end = func(o Outcome, rtt time.Duration, truncated bool) {
		l.Release()
		switch {
		case truncated:
			l.ObserveTruncated(rtt)
		default:
			l.Record(o, rtt)
		}
	}
	l.Start()
	defer l.Stop()
	p.run(length)
	return p
}

func (p *plant) run(length time.Duration) {
	p.bins = make([]plantBin, length/plantBinSize+1)
	for range p.backlog {
		p.enter(&plantCall{ended: true})
	}
	p.after(p.gap(), p.arrive)
	p.clock.Advance(length)
}

func (p *plant) elapsed() time.Duration { return p.clock.Now().Sub(time.Time{}) }

func (p *plant) after(d time.Duration, f func()) Timer { return p.AfterFunc(d, f) }

func (p *plant) bin() *plantBin { return &p.bins[p.elapsed()/plantBinSize] }

func (p *plant) gap() time.Duration {
	return time.Duration(p.r.ExpFloat64() / p.load * float64(time.Second))
}

func (p *plant) arrive() {
	p.bin().offered++
	p.admit()
	p.after(p.gap(), p.arrive)
}

// wait lets one caller wait for the rate, in the bucket's own queue but without
// a goroutine that blocks.
func (p *plant) wait() {
	b := &p.rate.bucket
	now := p.rate.Elapsed()
	b.mu.Lock()
	w := &plantWaiter{waiter: b.push(now)}
	b.mu.Unlock()
	p.waiting = append(p.waiting, w)
	w.timer = p.after(max(p.patience, 500*time.Millisecond), func() {
		if b.leave(w.waiter) {
			p.waiting = slices.DeleteFunc(p.waiting, func(other *plantWaiter) bool { return other == w })
		}
	})
}

// collect takes over from those who have got their slot.
func (p *plant) collect() {
	for len(p.waiting) > 0 && p.waiting[0].granted {
		w := p.waiting[0]
		p.waiting = p.waiting[1:]
		w.timer.Stop()
		<-w.ready
		p.rate.bucket.woke(w.waiter)
		p.send()
	}
}

// send makes one call to the server.
func (p *plant) send() {
	p.bin().admitted++
	c := &plantCall{sent: p.elapsed()}
	if p.timeout > 0 {
		p.after(p.timeout, func() { p.ended(c, Reached, true) })
	}
	switch p.fault(c.sent) {
	case plantRefuses:
		p.after(100*time.Microsecond, func() { p.ended(c, Unreachable, false) })
		return
	case plantHangs:
		return
	}
	if p.r.Float64() < p.hits {
		o := Reached
		if p.marked {
			o = Aborted
		}
		p.after(time.Millisecond, func() { p.ended(c, o, false) })
		return
	}
	p.enter(c)
}

// enter queues c for a worker.
func (p *plant) enter(c *plantCall) {
	p.queue = append(p.queue, c)
	p.serve()
}

// serve gives free workers to those who wait.
func (p *plant) serve() {
	for len(p.queue) > 0 && p.busy < p.workers(p.elapsed()) {
		c := p.queue[0]
		p.queue = p.queue[1:]
		if c.ended && c.sent > 0 {
			continue // its caller has given up
		}
		p.busy++
		work := time.Duration(p.r.ExpFloat64() * float64(p.service))
		p.after(work, func() {
			p.busy--
			p.serve()
			if base := p.base(c.sent); base > 0 {
				p.after(base, func() { p.ended(c, Reached, false) })
			} else {
				p.ended(c, Reached, false)
			}
		})
	}
}

func (p *plant) ended(c *plantCall, o Outcome, truncated bool) {
	if c.ended {
		return
	}
	c.ended = true
	rtt := p.elapsed() - c.sent
	p.end(o, rtt, truncated)
	b := p.bin()
	switch {
	case o == Unreachable || truncated:
		b.lost++
		return
	case rtt <= p.slo:
		b.inSLO++
	}
	b.served++
}

func (p *plant) ticked(s Stats) {
	p.ticks = append(p.ticks, plantTick{p.elapsed(), s})
}

// over adds up the bins of [from, to).
func (p *plant) over(from, to time.Duration) (sum plantBin) {
	for _, b := range p.bins[from/plantBinSize : to/plantBinSize] {
		sum.offered += b.offered
		sum.admitted += b.admitted
		sum.served += b.served
		sum.inSLO += b.inSLO
		sum.lost += b.lost
	}
	return sum
}

// goodput is the answers inside the SLO in [from, to), in calls per second.
func (p *plant) goodput(from, to time.Duration) float64 {
	return float64(p.over(from, to).inSLO) / (to - from).Seconds()
}

// at returns the last tick before t.
func (p *plant) at(t time.Duration) Stats {
	var last Stats
	for _, tick := range p.ticks {
		if tick.at > t {
			break
		}
		last = tick.Stats
	}
	return last
}
