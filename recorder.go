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
	over        atomic.Uint64 // above slo, since New
	truncated   atomic.Uint64 // since New
	unreachable atomic.Uint64 // since New
	aborted     atomic.Uint64 // since New

	mu      sync.Mutex // makes a drain one step for readers of the totals
	reached uint64     // latencies drained so far
	longer  uint64     // those of them above the histogram's range
	drained struct{ over, truncated, unreachable, aborted, admitted uint64 }
	// Calls that will never report their end, less ends without an admission.
	writtenOff int64
	// The samples of thin ticks until minSettled are together.
	thin  [minSettled - 1]uint16 // buckets
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
	r.latencies.drain(&s)
	r.reached += uint64(s.n)
	r.longer += uint64(s.counts[overflow])
	in.reached = s.n
	// A call counts its attributes before its latency. Those of one that comes
	// in between count here at the most, one tick before the latency itself.
	in.truncated = upTo(s.n, &r.drained.truncated, r.truncated.Load())
	over := upTo(s.n, &r.drained.over, r.over.Load())
	in.unreachable = since(&r.drained.unreachable, r.unreachable.Load())
	in.aborted = since(&r.drained.aborted, r.aborted.Load())
	in.admitted = since(&r.drained.admitted, admitted)
	// Of real latencies only: no synthetic one may move a baseline.
	in.settled = r.settle(&s)
	if synthetic > 0 && in.unreachable > 0 {
		s.add(synthetic, in.unreachable)
		if r.slo > 0 && synthetic > r.slo {
			over += in.unreachable
		}
	}
	in.samples, in.overSLO = s.n, over
	in.p50, in.p99 = s.quantile(50), s.quantile(99)
	return in
}

// ended returns the calls recorded since New.
func (r *recorder) ended() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.endedLocked()
}

func (r *recorder) endedLocked() uint64 {
	return r.reached + r.latencies.count() + r.unreachable.Load() + r.aborted.Load()
}

// open returns the calls admitted and not yet ended, from the two numbers since
// New. Ends without an admission are forgiven: they make no later call invisible.
func (r *recorder) open(admitted, ended uint64) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	open := int64(admitted-ended) - r.writtenOff
	if open < 0 {
		r.writtenOff += open
		return 0
	}
	return int(open)
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
				r.thin[r.thinN] = uint16(i)
				r.thinN++
			}
		}
		return 0
	}
	kept := r.thin[:r.thinN]
	for _, i := range kept {
		s.counts[i]++
	}
	s.n += len(kept)
	median := s.quantile(50)
	for _, i := range kept {
		s.counts[i]--
	}
	s.n -= len(kept)
	r.thinN = 0
	return median
}

// since returns how much now is ahead of *last, and moves *last there.
func since(last *uint64, now uint64) int {
	n := now - *last
	*last = now
	return int(n)
}

// upTo is since, but takes no more than n and leaves the rest for next time.
func upTo(n int, last *uint64, now uint64) int {
	taken := min(uint64(n), now-*last)
	*last += taken
	return int(taken)
}

// forget drops the samples that wait for minSettled to be together.
func (r *recorder) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.thinN = 0
}

// inFlight is open for a reader, who changes nothing.
func (r *recorder) inFlight(admitted, ended uint64) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(0, int(int64(admitted-ended)-r.writtenOff))
}

// report fills in the counters that the recorder knows, and returns the calls
// recorded since New.
func (r *recorder) report(s *Stats) (ended uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Reached = r.reached + r.latencies.count()
	s.Overflow = r.longer + uint64(r.latencies.counts[overflow].Load())
	s.Truncated = r.truncated.Load()
	s.Unreachable = r.unreachable.Load()
	s.Aborted = r.aborted.Load()
	return s.Reached + s.Unreachable + s.Aborted
}
