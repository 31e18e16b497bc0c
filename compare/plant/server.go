// Package plant is the downstream of the comparison: a queueing server with
// everything that goes wrong with one, and the load that meets it. It runs
// inside a testing/synctest bubble, in virtual time.
package plant

import (
	"container/heap"
	"sync"
	"time"
)

// Outcome is how a call ended, as its caller sees it.
type Outcome int

const (
	OK        Outcome = iota // answered after real work
	MarkedHit                // answered by a cache that says so
	Refused                  // the connection was refused at once
	Busy                     // 503 at once, without work
	TimedOut                 // ended by the caller's own time-out
)

// Fault is what a server does instead of its work.
type Fault int

const (
	None   Fault = iota
	Refuse       // refuses every connection within 0.1 ms
	Reject       // answers every call with a 503 within 1 ms
	Hang         // accepts calls and never answers them
)

const (
	refuseTime = 100 * time.Microsecond
	rejectTime = time.Millisecond
	hitTime    = time.Millisecond
)

// Server is a queueing server. The fields above the line are its configuration
// and may not change once Send has been called.
type Server struct {
	Workers func(t time.Duration) int // calls served at once, at least 1
	Slow    Curve                     // factor on service times; nil is 1
	Base    Curve                     // seconds added to every answer, no worker held; nil is 0
	Jitter  time.Duration             // uniform between 0 and this added to Base
	Sharing bool                      // processor sharing instead of FIFO
	Queue   int                       // calls that may wait, 503 beyond; 0 is no bound
	Fault   func(t time.Duration) Fault
	Timeout time.Duration // after which callers give up; 0 is never
	Marked  bool          // cache hits can be told from misses

	start time.Time
	mu    sync.Mutex // guards what follows; never held while done runs
	busy  int
	queue []*job // FIFO of those who wait
	share sharing
}

type job struct {
	Call
	sent    time.Duration
	done    func(Outcome, time.Duration)
	ended   bool // answered, or given up by its caller
	timeout *time.Timer
	finish  float64       // under processor sharing: the attained service at which it is done
	free    time.Duration // under FIFO: when its worker is free again
}

// Start sets time 0 to now.
func (s *Server) Start() { s.start = time.Now() }

// Now returns the time since Start.
func (s *Server) Now() time.Duration { return time.Since(s.start) }

// Faulty reports what is wrong with the server now.
func (s *Server) Faulty() Fault {
	if s.Fault == nil {
		return None
	}
	return s.Fault(s.Now())
}

// Send hands one call to the server and returns at once. done is called with
// the outcome and the round trip, once, in another goroutine; never, when the
// server hangs and its callers have no time-out.
func (s *Server) Send(c Call, done func(Outcome, time.Duration)) {
	j := &job{Call: c, sent: s.Now(), done: done}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Timeout > 0 {
		j.timeout = time.AfterFunc(s.Timeout+c.grain(), func() { s.end(j, TimedOut) })
	}
	switch s.Faulty() {
	case Refuse:
		s.endAfter(refuseTime, j, Refused)
		return
	case Reject:
		s.endAfter(rejectTime, j, Busy)
		return
	case Hang:
		return
	}
	if c.Hit {
		s.endAfter(hitTime, j, OK)
		return
	}
	switch {
	case s.Sharing:
		s.share.enter(s, j)
	case s.busy < s.Workers(j.sent):
		s.serve(j, j.sent)
	case s.Queue > 0 && len(s.queue) >= s.Queue:
		s.endAfter(rejectTime, j, Busy)
	default:
		s.queue = append(s.queue, j)
	}
}

// serve gives j a worker from at on. The caller holds mu.
func (s *Server) serve(j *job, at time.Duration) {
	s.busy++
	work := time.Duration(float64(j.Work) * s.Slow.At(at, 1))
	j.free = at + work + j.grain()
	time.AfterFunc(j.free-s.Now(), func() { s.served(j) })
}

// served takes the worker back and gives it to the next caller who still waits,
// from the moment at which it was free: on the wall clock timers are late, and
// a busy worker must not lose capacity by that.
func (s *Server) served(j *job) {
	s.mu.Lock()
	s.busy--
	for len(s.queue) > 0 && s.busy < s.Workers(j.free) {
		next := s.queue[0]
		s.queue = s.queue[1:]
		if !next.ended {
			s.serve(next, max(j.free, next.sent))
		}
	}
	s.mu.Unlock()
	s.answer(j)
}

// answer sends the answer on its way, which takes the base latency.
func (s *Server) answer(j *job) {
	base := time.Duration(s.Base.At(j.sent, 0)*float64(time.Second)) + time.Duration(j.Jitter*float64(s.Jitter))
	if base > 0 {
		s.endAfter(base, j, OK)
	} else {
		s.end(j, OK)
	}
}

func (s *Server) endAfter(d time.Duration, j *job, o Outcome) {
	time.AfterFunc(d+j.grain(), func() { s.end(j, o) })
}

func (s *Server) end(j *job, o Outcome) {
	if o == OK && j.Hit && s.Marked {
		o = MarkedHit
	}
	s.mu.Lock()
	ended := j.ended
	j.ended = true
	if j.timeout != nil {
		j.timeout.Stop()
	}
	s.mu.Unlock()
	if ended {
		return
	}
	j.done(o, s.Now()-j.sent)
}

// sharing is the state of a processor-sharing server. All calls in it attain
// service at one common speed, so the one that entered with the least left to
// attain leaves first, and one timer for that one is enough.
type sharing struct {
	jobs     jobHeap
	attained float64 // seconds of service per call since Start
	updated  time.Duration
	speed    float64 // d attained / dt since updated
	timer    *time.Timer
}

// enter adds j. The caller holds s.mu.
func (h *sharing) enter(s *Server, j *job) {
	h.advance(s.Now())
	j.finish = h.attained + j.Work.Seconds()
	heap.Push(&h.jobs, j)
	h.arm(s)
}

func (h *sharing) advance(now time.Duration) {
	h.attained += h.speed * (now - h.updated).Seconds()
	h.updated = now
}

// arm sets the timer for the next call to leave at the speed that holds now.
func (h *sharing) arm(s *Server) {
	if h.timer != nil {
		h.timer.Stop()
	}
	h.speed = 0
	if len(h.jobs) == 0 {
		return
	}
	now := s.Now()
	h.speed = min(1, float64(s.Workers(now))/float64(len(h.jobs))) / s.Slow.At(now, 1)
	left := (h.jobs[0].finish - h.attained) / h.speed
	h.timer = time.AfterFunc(time.Duration(left*float64(time.Second))+1, func() { h.leave(s) })
}

// leave lets out everybody who has attained what they need.
func (h *sharing) leave(s *Server) {
	s.mu.Lock()
	h.advance(s.Now())
	var out []*job
	for len(h.jobs) > 0 && h.jobs[0].finish <= h.attained {
		out = append(out, heap.Pop(&h.jobs).(*job))
	}
	h.arm(s)
	s.mu.Unlock()
	for _, j := range out {
		s.answer(j)
	}
}

type jobHeap []*job

func (h jobHeap) Len() int           { return len(h) }
func (h jobHeap) Less(i, k int) bool { return h[i].finish < h[k].finish }
func (h jobHeap) Swap(i, k int)      { h[i], h[k] = h[k], h[i] }
func (h *jobHeap) Push(x any)        { *h = append(*h, x.(*job)) }
func (h *jobHeap) Pop() any {
	last := len(*h) - 1
	j := (*h)[last]
	*h = (*h)[:last]
	return j
}
