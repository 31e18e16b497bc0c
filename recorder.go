package agilelimiter

import (
	"sync"
	"sync/atomic"
	"time"
)

// recorder takes the evidence of finished calls and hands it to the controller
// tick by tick. A call costs one atomic add, and one more where it was over the
// SLO, truncated, unreachable or aborted.
type recorder struct {
	slo         time.Duration
	latencies   *histogram
	over        atomic.Uint32 // since the last drain, like latencies
	truncated   atomic.Uint64 // since New
	unreachable atomic.Uint64 // since New
	aborted     atomic.Uint64 // since New

	mu      sync.Mutex // makes a drain one step for readers of the totals
	reached uint64     // latencies drained so far
	drained struct{ truncated, unreachable, aborted, admitted uint64 }
	// Calls that will never report their end, less ends without an admission.
	writtenOff int64
	// The samples of thin ticks until minSettled are together.
	thin  [minSettled - 1]time.Duration
	thinN int
}

func (r *recorder) init(slo time.Duration) {
	// Apart from the rest, because the two together would just miss an
	// allocator's size class and waste a quarter of it.
	r.slo, r.latencies = slo, new(histogram)
}

// observe counts a call that reached the resource. The caller has checked that
// d is not negative.
func (r *recorder) observe(d time.Duration) {
	if r.slo > 0 && d > r.slo {
		r.over.Add(1)
	}
	r.latencies.record(d)
}

// drain returns what the calls since the last drain showed. An unreachable call
// is a sample of the latency synthetic, if that is not 0. admitted is the number
// of calls since New.
func (r *recorder) drain(synthetic time.Duration, admitted uint64) (in tickInput) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var s snapshot
	// over before latencies: a sample that comes in between is then counted
	// over the SLO a tick late, never without being there.
	over := int(r.over.Swap(0))
	r.latencies.drain(&s)
	r.reached += uint64(s.n)
	in.reached = s.n
	in.truncated = since(&r.drained.truncated, r.truncated.Load())
	in.unreachable = since(&r.drained.unreachable, r.unreachable.Load())
	in.aborted = since(&r.drained.aborted, r.aborted.Load())
	in.admitted = since(&r.drained.admitted, admitted)
	if synthetic > 0 && in.unreachable > 0 {
		s.add(synthetic, in.unreachable)
		if r.slo > 0 && synthetic > r.slo {
			over += in.unreachable
		}
	}
	in.samples, in.overSLO = s.n, over
	in.p50, in.p99 = s.quantile(50), s.quantile(99)
	in.settled = r.settle(&s)
	return in
}

// open returns the calls admitted and not yet ended, admitted being those since
// New. Ends without an admission are set right at the latest by the next drain:
// until then the number may be negative.
func (r *recorder) open(admitted uint64) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.openLocked(admitted)
}

func (r *recorder) openLocked(admitted uint64) int {
	ended := r.reached + r.latencies.count() + r.unreachable.Load() + r.aborted.Load()
	return int(int64(admitted-ended) - r.writtenOff)
}

// writeOff takes n calls out of flight that will never report their end.
func (r *recorder) writeOff(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writtenOff += int64(n)
}

// settle returns the median of s if it is full, and otherwise keeps its few
// values until there are enough for one. The values kept join a full tick too.
func (r *recorder) settle(s *snapshot) time.Duration {
	if s.n < minSettled && r.thinN+s.n < minSettled {
		for i, c := range s.counts {
			for range c {
				r.thin[r.thinN] = valueOf(i)
				r.thinN++
			}
		}
		return 0
	}
	for _, d := range r.thin[:r.thinN] {
		s.add(d, 1)
	}
	r.thinN = 0
	return s.quantile(50)
}

// since returns how much now is ahead of *last, and moves *last there.
func since(last *uint64, now uint64) int {
	n := now - *last
	*last = now
	return int(n)
}

// report fills in the counters that the recorder knows.
func (r *recorder) report(s *Stats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.InFlight == notCounted {
		s.InFlight = max(0, r.openLocked(s.Admitted))
	}
	s.Reached = r.reached + r.latencies.count()
	s.Truncated = r.truncated.Load()
	s.Unreachable = r.unreachable.Load()
	s.Aborted = r.aborted.Load()
}
