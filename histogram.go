package agilelimiter

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// The histogram's buckets are as wide as 2 % allows. A value within a bucket
// [lo, hi) is reported as 2·lo·hi/(lo+hi), which is wrong by at most
// (hi-lo)/(hi+lo) in either direction. Every octave (a factor of two) is divided
// at the same 18 edges, each the largest 256th for which that is at most 2 %: 18
// is the smallest number of buckets an octave that does it, where equally wide
// ones would need 25. So an hour takes less room than 100 seconds would.
const (
	unitBits   = 10 // values below 2^10 ns, about 1 µs, share the first bucket
	octaves    = 31 // whole ones: the last of them ends at 2^41 ns, 36.7 min
	subBuckets = 18
	topBuckets = 13 // of the last octave, which they take to 60.4 min
	overflow   = 1 + octaves*subBuckets + topBuckets
	numBuckets = overflow + 1 // the last one counts what is longer
)

// subEdges are the edges of an octave's buckets, in 256ths of its beginning.
var subEdges = [subBuckets + 1]uint16{
	256, 266, 276, 287, 298, 310, 322, 335, 348, 362, 376, 391, 406, 422, 439, 456, 474, 493, 512,
}

// subBucketOf is their inverse: the bucket of each 256th of an octave.
var subBucketOf = func() (table [256]uint8) {
	for sub := range subBuckets {
		for i := subEdges[sub]; i < subEdges[sub+1]; i++ {
			table[i-256] = uint8(sub)
		}
	}
	return table
}()

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

// bucketOf returns the bucket of d. Anything below 1 µs, zero included, lands in
// the first one, and anything from 60.4 min on in the last.
func bucketOf(d time.Duration) int {
	v := uint64(d)
	octave := bits.Len64(v) - unitBits - 1
	if octave < 0 {
		return 0
	}
	// The 8 bits behind the leading one.
	fraction := uint8(v >> (uint(octave) + unitBits - 8))
	return min(1+octave*subBuckets+int(subBucketOf[fraction]), overflow)
}

// valueOf returns the latency that bucket i stands for. The first one stands
// for its upper end, so that 1 µs is read within 2 % and anything less as 1 µs;
// the last one for its lower end, so that anything longer is read as an hour.
func valueOf(i int) time.Duration {
	if i == 0 {
		return 1<<unitBits - 20
	}
	octave, sub := uint(i-1)/subBuckets, (i-1)%subBuckets
	unit := float64(uint64(1)<<(unitBits+octave)) / 256
	lo, hi := unit*float64(subEdges[sub]), unit*float64(subEdges[sub+1])
	if i == overflow {
		return time.Duration(lo)
	}
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
