package agilelimiter

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// The histogram's buckets are logarithmic: every octave (a factor of two) has
// subBuckets equal ones. A value within a bucket [lo, hi) is reported as
// 2·lo·hi/(lo+hi), which is wrong by at most (hi-lo)/(hi+lo) in either
// direction: 1/(2·25+1) = 1.96 % at the start of an octave, half of that at its
// end. 25 is the smallest number that keeps p50 and p99 within 2 %.
const (
	unitBits   = 10 // values below 2^10 ns, about 1 µs, share the first bucket
	octaves    = 26 // whole ones: the last of them ends at 2^36 ns, 68.7 s
	subBuckets = 25
	topBuckets = 12 // of the last octave, which they take to 101.7 s
	numBuckets = 1 + octaves*subBuckets + topBuckets
)

// histogram counts latencies without a lock. Its zero value is ready for use. A
// bucket holds 4 billion samples between two drains.
type histogram struct {
	counts [numBuckets]atomic.Uint32
}

// snapshot is a histogram's content taken by one tick: plain numbers.
type snapshot struct {
	counts [numBuckets]uint32
	n      int
}

// bucketOf returns the bucket of d. Anything of 99 s and more lands in the last
// one, which stands for 100 s, anything below 1 µs, zero included, in the first.
func bucketOf(d time.Duration) int {
	v := uint64(d)
	octave := bits.Len64(v) - unitBits - 1
	if octave < 0 {
		return 0
	}
	// The bits behind the leading one, as a fraction of 2^32, times 25.
	fraction := v << (63 - unitBits - uint(octave)) & (1<<63 - 1) >> 31
	return min(1+octave*subBuckets+int(fraction*subBuckets>>32), numBuckets-1)
}

// valueOf returns the latency that bucket i stands for. The first one stands
// for its upper end, so that 1 µs is read within 2 % and anything less as 1 µs.
func valueOf(i int) time.Duration {
	if i == 0 {
		return 1<<unitBits - 20
	}
	octave, sub := uint(i-1)/subBuckets, (i-1)%subBuckets
	start := float64(uint64(1) << (unitBits + octave))
	lo := start * (1 + float64(sub)/subBuckets)
	hi := start * (1 + float64(sub+1)/subBuckets)
	return time.Duration(2 * lo * hi / (lo + hi))
}

// record counts d, which must not be negative.
func (h *histogram) record(d time.Duration) { h.counts[bucketOf(d)].Add(1) }

// drain moves the content into s. A sample recorded meanwhile is in this
// snapshot or in the next one, never in both or in neither, because each count
// is taken and zeroed in one swap.
func (h *histogram) drain(s *snapshot) {
	s.n = 0
	for i := range h.counts {
		s.counts[i] = 0
		if h.counts[i].Load() != 0 { // a load is cheaper than a swap
			s.counts[i] = h.counts[i].Swap(0)
			s.n += int(s.counts[i])
		}
	}
}

// count returns the number of samples since the last drain.
func (h *histogram) count() (n uint64) {
	for i := range h.counts {
		n += uint64(h.counts[i].Load())
	}
	return n
}

// add puts n more samples of d into the snapshot.
func (s *snapshot) add(d time.Duration, n int) {
	s.counts[bucketOf(d)] += uint32(n)
	s.n += n
}

// sum returns the sum of the samples, each of them cut off at most.
func (s *snapshot) sum(most time.Duration) (sum time.Duration) {
	for i, c := range s.counts {
		if c > 0 {
			sum += time.Duration(c) * min(valueOf(i), most)
		}
	}
	return sum
}

// quantile returns the nearest-rank percentile, percent in [1, 100]: the
// ⌈n·percent/100⌉-th smallest sample. It returns 0 for an empty snapshot.
func (s *snapshot) quantile(percent int) time.Duration {
	rank := (int64(s.n)*int64(percent) + 99) / 100
	for i, c := range s.counts {
		if rank -= int64(c); rank <= 0 && c > 0 {
			return valueOf(i)
		}
	}
	return 0
}
