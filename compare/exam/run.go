package exam

import (
	"math"
	"time"
)

const (
	refuseTime = 100 * time.Microsecond
	rejectTime = time.Millisecond
	hitTime    = time.Millisecond

	never = math.MaxInt64
)

// what says what a call is before anybody has seen it.
type what uint8

const (
	work what = iota
	cacheHit
	markedHit
	abortedCall
	stream
)

// one is a call on its way.
type one struct {
	arrived, sent int64
	work          int64 // of the stage it is at
	r             rng
	refs          int32 // events and queues that hold it
	gen           uint32
	caller        int32 // of a closed loop; -1: none
	instance      int32
	tries         int8
	stage         int8
	what          what
	ends          outcome // what an answer will say
	open          bool    // admitted and not ended
	wrong         bool    // its answer will be an error
	guarded       bool    // admitted by the service's own limiter
}

// run is one arm in one situation: an event simulation in one goroutine.
type run struct {
	spec *Spec
	arm  Arm
	now  int64
	end  int64
	ev   events

	calls []one
	free  []int32

	limiters []limiter
	queues   []waiters // of callers who wait for admission, by instance
	timers   []*timer
	clocks   []*clock

	arrivals rng
	oddments rng // for what is drawn in the order in which things happen
	count    uint64
	callers  []rng
	weights  []float64 // cumulative shares of the instances
	present  []bool
	top      float64 // the highest load, for thinning
	patience int64
	pause    time.Duration // of a closed-loop caller after a refusal

	capacity float64 // what the service can do now, where that does not change gradually

	plant
	account
	timeouts ring[deadline]
}

type deadline struct {
	at  int64
	id  int32
	gen uint32
}

type waiters struct {
	ring[int32]
	at  int64 // when the head asks again; never: nobody waits
	gen uint32
}

// play runs the arm through the situation and returns the account.
func play(s *Spec, a Arm) *run {
	n := &run{spec: s, arm: a, end: ns(s.Length), patience: ns(s.patience())}
	n.arrivals, n.oddments = random(s.Seed, 1, 0), random(s.Seed, 5, 0)
	n.capacity = s.capacity(0)
	n.pause = max(100*time.Millisecond, s.latency(), s.Think)
	n.plant.init(s)
	n.account.init(s)
	if !a.bubble {
		n.setUp()
		n.loop()
		return n
	}
	Bubble(func() {
		n.setUp()
		n.loop()
	})
	return n
}

func (n *run) setUp() {
	s := n.spec
	n.weights, n.present = make([]float64, s.Fleet), make([]bool, s.Fleet)
	for i := range n.present {
		n.present[i] = true
	}
	for _, j := range s.Joins {
		for i := s.Fleet - j.N; i < s.Fleet && !j.Leave; i++ {
			n.present[i] = false
		}
		n.ev.push(ns(j.At), begin, -1, 0)
	}
	n.share()
	instances := s.Fleet
	if n.arm.whole {
		instances = 1
	}
	n.limiters = make([]limiter, instances)
	n.queues = make([]waiters, instances)
	for i := range instances {
		n.queues[i].at = never
		n.clocks = append(n.clocks, &clock{run: n, instance: i})
		n.limiters[i] = n.arm.make(n, i)
		// Instances do not tick in step, and none in step with the load.
		at := ns(s.Unstarted) + int64(i)*ns(23*time.Millisecond+457)
		n.ev.push(at, begin, int32(i), 0)
	}
	if s.Behind != "" {
		n.guard(s)
	}
	for _, t := range s.edges(n.end) {
		n.ev.push(t, edge, 0, 0)
	}
	for b := 1; b <= bins; b++ {
		n.ev.push(n.end/bins*int64(b), sample, int32(b-1), 0)
	}
	if s.Callers > 0 {
		for c := range s.Callers {
			n.callers = append(n.callers, random(s.Seed, 2, uint64(c)))
			n.ev.push(int64(n.callers[c].exp()*float64(s.Think)), think, int32(c), 0)
		}
	} else {
		_, n.top = s.Load.span()
		if !s.PerSec {
			n.top *= s.nominal()
		}
		n.next(0)
	}
	if s.Burst.Calls > 0 {
		n.ev.push(ns(s.Burst.Every), burst, 0, 0)
	}
}

// next schedules the next arrival of the open load after t, a Poisson process
// whose rate follows the curve, by thinning.
func (n *run) next(t int64) {
	if n.top <= 0 {
		return
	}
	for {
		t += int64(n.arrivals.exp()/n.top*1e9) + 1
		if t >= n.end {
			return
		}
		if n.spec.Load.Form == "" && len(n.spec.Load.Points) == 1 || n.arrivals.float()*n.top < n.spec.offered(t) {
			n.ev.push(t, arrive, 0, 0)
			return
		}
	}
}

func (n *run) loop() {
	for len(n.ev.h) > 0 {
		e := n.ev.pop()
		if e.at > n.end {
			return
		}
		n.sleep(e.at)
		n.now = e.at
		switch e.kind {
		case arrive:
			n.next(n.now)
			n.offer(n.fresh(-1))
		case burst:
			for range n.spec.Burst.Calls {
				n.offer(n.fresh(-1))
			}
			n.ev.push(n.now+ns(n.spec.Burst.Every), burst, 0, 0)
		case think:
			n.offer(n.fresh(e.arg))
		case retry:
			n.calls[e.arg].refs--
			n.offer(e.arg)
		case served:
			n.served(e.arg)
		case shared:
			n.left(int(e.arg), e.gen)
		case answer:
			c := &n.calls[e.arg]
			c.refs--
			n.finish(e.arg, c.ends)
		case expire:
			n.expire()
		case poll:
			if q := &n.queues[e.arg]; q.gen == e.gen {
				q.at = never
				n.poll(int(e.arg))
			}
		case fire:
			n.fire(e)
		case edge:
			n.changed()
		case sample:
			n.sample(int(e.arg))
		case begin:
			n.begin(int(e.arg))
		}
	}
}

// begin starts an instance's limiter, or lets instances come and go.
func (n *run) begin(i int) {
	if i >= 0 {
		if l, ok := n.limiters[i].(starter); ok {
			l.start()
		}
		return
	}
	for _, j := range n.spec.Joins {
		if ns(j.At) == n.now {
			for k := n.spec.Fleet - j.N; k < n.spec.Fleet; k++ {
				n.present[k] = !j.Leave
			}
		}
	}
	n.share()
}

// share divides the calls among the instances that are there.
func (n *run) share() {
	sum := 0.0
	for k, w := range n.spec.shares() {
		if n.present[k] {
			sum += w
		}
		n.weights[k] = sum
	}
}

// fresh draws the next call.
func (n *run) fresh(caller int32) int32 {
	s := n.spec
	var id int32
	if last := len(n.free) - 1; last >= 0 {
		id = n.free[last]
		n.free = n.free[:last]
	} else {
		n.calls = append(n.calls, one{})
		id = int32(len(n.calls) - 1)
	}
	c := &n.calls[id]
	*c = one{gen: c.gen + 1, caller: caller, arrived: n.now}
	if caller >= 0 {
		// Not by the order of arrival, which depends on the arm.
		c.r = random(s.Seed, 3, n.callers[caller].next())
	} else {
		c.r = random(s.Seed, 4, n.count)
		n.count++
	}
	if s.Fleet > 1 {
		x := c.r.float() * n.weights[len(n.weights)-1]
		if caller >= 0 {
			x = float64(caller) / float64(s.Callers) * n.weights[len(n.weights)-1]
		}
		for int(c.instance) < s.Fleet-1 && x >= n.weights[c.instance] {
			c.instance++
		}
	}
	x := c.r.float()
	for _, kind := range [...]struct {
		share float64
		what  what
	}{{s.Hits, cacheHit}, {s.Marked, markedHit}, {s.Aborted, abortedCall}, {s.Streams.Share, stream}} {
		if x < kind.share {
			c.what = kind.what
			break
		}
		x -= kind.share
	}
	if c.what == work {
		c.work = s.Service.draw(&c.r)
		c.wrong = s.Errors > 0 && c.r.chance(s.Errors)
	}
	return id
}

// offer asks the instance's limiter for leave.
func (n *run) offer(id int32) {
	c := &n.calls[id]
	n.asked(c, n.now)
	i := n.limiterOf(c)
	l, q := n.limiters[i], &n.queues[i]
	if q.size == 0 && (!n.arm.waits || l.due() <= n.now) && l.take(id) {
		n.admit(id)
		return
	}
	if !n.arm.waits {
		n.refuse(id)
		return
	}
	if f, ok := l.(foreseer); ok && f.wait(q.size) > n.patience {
		if g, ok := l.(giver); ok {
			g.gaveUp()
		}
		n.refuse(id)
		return
	}
	c.arrived = n.now
	q.push(id)
	if q.size == 1 {
		n.poll(i)
	}
}

func (n *run) limiterOf(c *one) int {
	if n.arm.whole {
		return 0
	}
	return int(c.instance)
}

// poll lets those go whose time has come, from the head on, and arms the next
// look.
func (n *run) poll(i int) {
	l, q := n.limiters[i], &n.queues[i]
	for q.size > 0 {
		id := q.first()
		due := l.due()
		if due <= n.now {
			if l.take(id) {
				q.pop()
				n.admit(id)
				continue
			}
			if due = l.due(); due <= n.now {
				due = n.now + 1000
			}
		}
		gives := n.calls[id].arrived + n.patience
		if gives <= n.now {
			q.pop()
			if g, ok := l.(giver); ok {
				g.gaveUp()
			}
			n.refuse(id)
			continue
		}
		if next := min(due, gives); next != q.at {
			q.at = next
			q.gen++
			n.ev.push(next, poll, int32(i), q.gen)
		}
		return
	}
	q.at = never
	q.gen++
}

// refuse ends a call that was not sent.
func (n *run) refuse(id int32) {
	c := &n.calls[id]
	n.shed(c, n.now)
	if n.again(id) {
		return
	}
	n.over(id, true)
	n.drop(id)
}

// again schedules another try, if the caller makes one.
func (n *run) again(id int32) bool {
	c := &n.calls[id]
	if int(c.tries) >= n.spec.Retries {
		return false
	}
	back := float64(n.spec.Backoff) * math.Pow(2, float64(c.tries)) * (0.5 + c.r.float())
	c.tries++
	if c.stage > 0 {
		c.stage, c.work = 0, n.spec.Service.draw(&c.r)
	}
	c.wrong = c.what == work && n.spec.Errors > 0 && c.r.chance(n.spec.Errors)
	c.refs++
	n.ev.push(n.now+int64(back)+1000, retry, id, 0)
	return true
}

// over lets the closed loop go on.
func (n *run) over(id int32, refused bool) {
	caller := n.calls[id].caller
	if caller < 0 {
		return
	}
	wait := int64(n.callers[caller].exp() * float64(n.spec.Think))
	if refused {
		wait += ns(n.pause)
	}
	n.ev.push(n.now+wait+1000, think, caller, 0)
}

// drop frees the slot once nothing holds it any more.
func (n *run) drop(id int32) {
	if c := &n.calls[id]; c.refs == 0 && !c.open {
		c.gen++
		n.free = append(n.free, id)
	}
}

// admit sends the call.
func (n *run) admit(id int32) {
	c := &n.calls[id]
	c.open, c.sent = true, n.now
	n.sending(c, n.now)
	if t := n.spec.Timeout; t > 0 {
		n.timeouts.push(deadline{n.now + ns(t), id, c.gen})
		if n.timeouts.size == 1 {
			n.ev.push(n.now+ns(t), expire, 0, 0)
		}
	}
	n.send(id)
}

// expire ends the calls whose time-out is over; all time-outs are equally long,
// so they stand in order.
func (n *run) expire() {
	for n.timeouts.size > 0 {
		d := n.timeouts.first()
		live := n.calls[d.id].gen == d.gen && n.calls[d.id].open
		if live && d.at > n.now {
			n.ev.push(d.at, expire, 0, 0)
			return
		}
		n.timeouts.pop()
		if live {
			n.finish(d.id, timedOut)
		}
	}
}

// finish ends a call that was sent, unless it has ended before.
func (n *run) finish(id int32, o outcome) {
	c := &n.calls[id]
	if !c.open {
		n.drop(id)
		return
	}
	c.open = false
	// A retry that is under way keeps its own time-out.
	c.gen++
	rtt := n.now - c.sent
	i := n.limiterOf(c)
	if n.guarded != nil && c.guarded {
		c.guarded = false
		n.guarded.done(id, o, time.Duration(rtt))
	}
	n.limiters[i].done(id, o, time.Duration(rtt))
	n.ended(c, o, rtt, n.now)
	failed := o == errored || o == refused || o == busy || o == timedOut
	if c.refs > 0 && failed && int(c.tries) < n.spec.Retries {
		// The service still works on the call that its caller gave up.
		id = n.copyOf(id)
	}
	if !failed || !n.again(id) {
		n.over(id, false)
		n.drop(id)
	}
	if n.arm.frees && n.queues[i].size > 0 {
		n.poll(i)
	}
}

// copyOf gives a caller who tries again a slot of his own.
func (n *run) copyOf(id int32) int32 {
	count := n.count
	again := n.fresh(-1)
	n.count = count // no new call
	c, old := &n.calls[again], &n.calls[id]
	gen := c.gen
	*c = *old
	c.gen, c.refs, c.arrived = gen, 0, n.now
	old.caller = -1
	return again
}
