package exam

import (
	"slices"
	"time"
)

// plant is the service.
type plant struct {
	stages  []station
	buckets []bucket  // of the quota
	guarded limiter   // the service's own limiter; nil: none
	still   []stretch // when nothing is done, in order
	wrong   string    // what is wrong now
	gradual bool      // the workers change without jumps
}

type stretch struct{ from, to int64 }

// station is one stage: workers and those who wait for them.
type station struct {
	work    Work
	full    int // workers when all are there
	workers int
	busy    int
	queue   ring[int32]

	// Under processor sharing: all calls attain service at one common speed.
	jobs     jobs
	attained float64 // nanoseconds of service per call
	updated  int64
	speed    float64
	gen      uint32
}

type bucket struct {
	tokens float64
	last   int64
	window int64
}

func (p *plant) init(s *Spec) {
	p.stages = append(p.stages, station{work: s.Service, full: s.Workers, workers: s.staffed(0)})
	for _, t := range s.Then {
		p.stages = append(p.stages, station{work: t.Service, full: t.Workers, workers: t.Workers})
	}
	p.buckets = make([]bucket, s.Fleet)
	for i := range p.buckets {
		p.buckets[i] = bucket{tokens: s.Quota.Burst, window: -1}
	}
	for _, f := range s.Faults {
		if f.Kind == "pause" {
			p.still = append(p.still, stretch{ns(f.At), ns(f.At + f.For)})
		}
	}
	p.wrong = s.fault(0)
	p.gradual = s.Staff.gradual() || s.Slow.gradual()
}

// edges returns when the plant changes.
func (s *Spec) edges(end int64) (at []int64) {
	at = slices.Concat(s.Staff.edges(end), s.Slow.edges(end), s.Load.edges(end))
	for _, f := range s.Faults {
		at = append(at, ns(f.At), ns(f.At+f.For))
	}
	slices.Sort(at)
	return slices.Compact(at)
}

// changed puts what holds from now on in force.
func (n *run) changed() {
	n.wrong = n.spec.fault(n.now)
	n.capacity = n.spec.capacity(n.now)
	st := &n.stages[0]
	if n.spec.Sharing {
		n.advance(st)
		st.workers = n.spec.staffed(n.now)
		n.rearm(0)
	} else {
		st.workers = n.spec.staffed(n.now)
		n.feed(0)
	}
	for i := range n.queues {
		n.poll(i)
	}
}

// answerAfter ends the call after d with this outcome.
func (n *run) answerAfter(id int32, d time.Duration, o outcome) {
	c := &n.calls[id]
	c.ends = o
	c.refs++
	n.ev.push(n.now+ns(d), answer, id, 0)
}

// send hands a call to the service.
func (n *run) send(id int32) {
	c, s := &n.calls[id], n.spec
	switch n.wrong {
	case "refuse":
		n.answerAfter(id, refuseTime, refused)
		return
	case "reject":
		n.answerAfter(id, rejectTime, busy)
		return
	case "hang":
		if c.what == abortedCall {
			n.answerAfter(id, s.AbortedAfter, gone)
		}
		return
	}
	if s.Quota.Rate > 0 && !n.granted(int(c.instance)) {
		n.answerAfter(id, rejectTime, busy)
		return
	}
	switch c.what {
	case cacheHit:
		n.answerAfter(id, hitTime, answered)
		return
	case markedHit:
		n.answerAfter(id, hitTime, hitSaid)
		return
	case abortedCall:
		n.answerAfter(id, s.AbortedAfter, gone)
		return
	case stream:
		o := answered
		if s.Streams.Marked {
			o = gone
		}
		n.answerAfter(id, s.Streams.Last, o)
		return
	}
	if n.guarded != nil {
		if !n.guarded.take(id) {
			n.answerAfter(id, rejectTime, busy)
			return
		}
		c.guarded = true
	}
	n.enter(id)
}

// granted takes one call from the quota.
func (n *run) granted(instance int) bool {
	q := n.spec.Quota
	b := &n.buckets[0]
	if q.Each {
		b = &n.buckets[instance]
	}
	if q.Window > 0 {
		if w := n.now / ns(q.Window); w != b.window {
			b.window, b.tokens = w, q.Rate*q.Window.Seconds()
		}
	} else {
		b.tokens = min(q.Burst, b.tokens+q.Rate*float64(n.now-b.last)/1e9)
		b.last = n.now
	}
	if b.tokens < 1-1e-9 {
		return false
	}
	b.tokens--
	return true
}

// enter brings the call to its stage.
func (n *run) enter(id int32) {
	c := &n.calls[id]
	st := &n.stages[c.stage]
	if c.stage > 0 {
		c.work = st.work.draw(&c.r)
	}
	c.refs++
	full := c.stage == 0 && n.spec.Queue >= 0
	switch {
	case n.spec.Sharing && !(full && len(st.jobs.h) >= st.workers+n.spec.Queue):
		n.advance(st)
		st.jobs.push(job{st.attained + float64(c.work), id})
		n.rearm(int(c.stage))
	case !n.spec.Sharing && st.busy < n.crew(int(c.stage)):
		n.serve(int(c.stage), id)
	case n.spec.Sharing || full && st.queue.size >= n.spec.Queue:
		c.refs--
		if c.guarded {
			c.guarded = false
			n.guarded.done(id, busy, 0)
		}
		n.answerAfter(id, rejectTime, busy)
	default:
		st.queue.push(id)
	}
}

// serve gives the call a worker.
func (n *run) serve(stage int, id int32) {
	st := &n.stages[stage]
	st.busy++
	w := float64(n.calls[id].work)
	if stage == 0 {
		w *= n.spec.Slow.at(n.now)
		if n.spec.USL != (USL{}) {
			w *= n.spec.USL.factor(st.busy)
		}
	}
	n.ev.push(n.worked(n.now, int64(w)), served, id, 0)
}

// worked is when so much work is done that begins at t, while the service
// stands still now and then.
func (n *run) worked(t, work int64) int64 {
	if th := n.spec.Throttle; th.Every > 0 {
		// The service runs in the first part of each period.
		every, runs := ns(th.Every), ns(th.Every-th.For)
		done := t/every*runs + min(t%every, runs) + work
		t, work = done/runs*every+done%runs, 0
		return t
	}
	for _, p := range n.still {
		switch {
		case t >= p.to:
		case t >= p.from:
			t = p.to
		case t+work > p.from:
			work -= p.from - t
			t = p.to
		}
	}
	return t + work
}

// crew returns the workers that a stage has now.
func (n *run) crew(stage int) int {
	st := &n.stages[stage]
	if stage == 0 && n.gradual {
		st.workers = n.spec.staffed(n.now)
	}
	return st.workers
}

// served takes the worker back, feeds the next one and passes the call on.
func (n *run) served(id int32) {
	c := &n.calls[id]
	stage := int(c.stage)
	c.refs--
	n.stages[stage].busy--
	n.feed(stage)
	n.pass(id)
}

func (n *run) feed(stage int) {
	st := &n.stages[stage]
	for st.queue.size > 0 && st.busy < n.crew(stage) {
		id := st.queue.pop()
		c := &n.calls[id]
		if !c.open { // its caller has given up
			c.refs--
			n.drop(id)
			continue
		}
		n.serve(stage, id)
	}
}

// pass sends a call on to the next stage, or its answer on the way.
func (n *run) pass(id int32) {
	c := &n.calls[id]
	if !c.open {
		n.drop(id)
		return
	}
	if int(c.stage)+1 < len(n.stages) {
		c.stage++
		n.enter(id)
		return
	}
	o := answered
	if c.wrong {
		o = errored
	}
	late := time.Duration(n.spec.Base.at(c.sent) * 1e9)
	if j := n.spec.Jitter; j > 0 {
		late += time.Duration(c.r.float() * float64(j))
	}
	if late > 0 {
		n.answerAfter(id, late, o)
		return
	}
	n.finish(id, o)
}

// job is a call under processor sharing: it leaves when it has attained finish.
type job struct {
	finish float64
	id     int32
}

type jobs struct{ h []job }

func (j *jobs) push(x job) {
	j.h = append(j.h, x)
	i := len(j.h) - 1
	for i > 0 && x.finish < j.h[(i-1)/2].finish {
		j.h[i] = j.h[(i-1)/2]
		i = (i - 1) / 2
	}
	j.h[i] = x
}

func (j *jobs) pop() job {
	first, last := j.h[0], len(j.h)-1
	x := j.h[last]
	j.h = j.h[:last]
	i := 0
	for {
		c := 2*i + 1
		if c >= last {
			break
		}
		if c+1 < last && j.h[c+1].finish < j.h[c].finish {
			c++
		}
		if x.finish <= j.h[c].finish {
			break
		}
		j.h[i] = j.h[c]
		i = c
	}
	if last > 0 {
		j.h[i] = x
	}
	return first
}

// advance brings what every call has attained up to now.
func (n *run) advance(st *station) {
	st.attained += st.speed * float64(n.now-st.updated)
	st.updated = n.now
}

// rearm schedules the next call to leave at the speed that holds now.
func (n *run) rearm(stage int) {
	st := &n.stages[stage]
	st.speed = 0
	st.gen++
	size := len(st.jobs.h)
	if size == 0 || n.wrong == "pause" {
		return
	}
	st.speed = min(1, float64(st.workers)/float64(size))
	if stage == 0 {
		st.speed /= n.spec.Slow.at(n.now)
		if n.spec.USL != (USL{}) {
			st.speed /= n.spec.USL.factor(size)
		}
	}
	if th := n.spec.Throttle; th.Every > 0 {
		st.speed *= 1 - float64(th.For)/float64(th.Every)
	}
	left := (st.jobs.h[0].finish - st.attained) / st.speed
	n.ev.push(n.now+int64(max(0, left))+1, shared, int32(stage), st.gen)
}

// left lets out everybody who has attained what they need.
func (n *run) left(stage int, gen uint32) {
	st := &n.stages[stage]
	if gen != st.gen {
		return
	}
	n.advance(st)
	var out [8]int32
	leaving := out[:0]
	for len(st.jobs.h) > 0 && st.jobs.h[0].finish <= st.attained {
		leaving = append(leaving, st.jobs.pop().id)
	}
	n.rearm(stage)
	for _, id := range leaving {
		n.calls[id].refs--
		n.pass(id)
	}
}
