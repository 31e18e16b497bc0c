package agilelimiter

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"
)

// nearestRank is the oracle: the ⌈n·percent/100⌉-th smallest of the samples.
func nearestRank(samples []time.Duration, percent int) time.Duration {
	sorted := slices.Sorted(slices.Values(samples))
	return sorted[(len(sorted)*percent+99)/100-1]
}

// snapshotOf records the samples and drains them again.
func snapshotOf(samples []time.Duration) *snapshot {
	var h histogram
	for _, d := range samples {
		h.record(d)
	}
	var s snapshot
	h.drain(&s)
	return &s
}

// checkQuantiles compares p50 and p99 with the oracle, within the promised 2 %.
func checkQuantiles(t *testing.T, name string, samples []time.Duration) {
	t.Helper()
	s := snapshotOf(samples)
	if s.n != len(samples) {
		t.Errorf("%s: %d of %d samples counted", name, s.n, len(samples))
	}
	for _, percent := range []int{50, 99} {
		got, want := s.quantile(percent), nearestRank(samples, percent)
		if !near(float64(got), float64(want), 0.02) {
			t.Errorf("%s: p%d of %d samples is %v, want %v", name, percent, len(samples), got, want)
		}
	}
}

func TestEveryLatencyIsWithinTwoPerCent(t *testing.T) {
	worst := 0.0
	for d := 1024.0; d <= 3.6e12; d *= 1.00037 {
		want := time.Duration(d)
		got := valueOf(bucketOf(want))
		worst = max(worst, math.Abs(float64(got-want))/float64(want))
	}
	if worst > 0.02 {
		t.Errorf("worst error %.2f %%, want at most 2 %%", 100*worst)
	}
}

func TestBucketsAreOrderedAndHoldTheirOwnValue(t *testing.T) {
	for i := range numBuckets {
		if got := bucketOf(valueOf(i)); got != i {
			t.Errorf("bucket %d stands for %v, which lies in bucket %d", i, valueOf(i), got)
		}
		if i > 0 && valueOf(i) <= valueOf(i-1) {
			t.Errorf("bucket %d stands for %v, the one before it for %v", i, valueOf(i), valueOf(i-1))
		}
	}
	last := 0
	for d := 1.0; d < math.MaxInt64; d *= 1.001 {
		i := bucketOf(time.Duration(d))
		if i < last || i >= numBuckets {
			t.Fatalf("%v lies in bucket %d, a shorter one in %d", time.Duration(d), i, last)
		}
		last = i
	}
}

func TestTheEndsOfTheHistogram(t *testing.T) {
	for _, d := range []time.Duration{0, 1, 999} {
		if got := bucketOf(d); got != 0 {
			t.Errorf("%v lies in bucket %d, want the first", d, got)
		}
	}
	if got := bucketOf(time.Hour); got != overflow-1 {
		t.Errorf("an hour lies in bucket %d, want the last but one, %d", got, overflow-1)
	}
	for _, d := range []time.Duration{61 * time.Minute, 24 * time.Hour, math.MaxInt64} {
		if got := bucketOf(d); got != overflow {
			t.Errorf("%v lies in bucket %d, want the last, %d", d, got, overflow)
		}
	}
	if top := valueOf(overflow); !near(float64(top), float64(time.Hour), 0.02) {
		t.Errorf("the last bucket stands for %v, want an hour", top)
	}
}

func TestQuantilesOfFewSamples(t *testing.T) {
	for _, n := range []int{1, 2, 3, 99, 100, 101, 1000} {
		samples := make([]time.Duration, n)
		for i := range samples {
			samples[i] = 20 * ms
		}
		checkQuantiles(t, "equal", samples)
		// One slow call: p99 is that call as long as n is below 100, never above it.
		checkQuantiles(t, "one slow", append(samples, 70*ms))
		checkQuantiles(t, "two slow", append(samples, 70*ms, 80*ms))
	}
	var empty snapshot
	if p50, p99 := empty.quantile(50), empty.quantile(99); p50 != 0 || p99 != 0 {
		t.Errorf("quantiles of nothing are %v and %v, want 0", p50, p99)
	}
}

func TestQuantilesOfDistributions(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{100, 101, 1000, 10_000} {
		for _, median := range []float64{2e-6, 1e-3, 0.02, 1, 20, 900} {
			lognormal := make([]time.Duration, n)
			bimodal := make([]time.Duration, n)
			for i := range n {
				clamp := func(s float64) time.Duration {
					return time.Duration(min(max(s, 1.1e-6), 3600) * 1e9)
				}
				lognormal[i] = clamp(median * math.Exp(0.8*rng.NormFloat64()))
				bimodal[i] = clamp(median * (1 + 0.1*rng.Float64()))
				if rng.IntN(20) == 0 {
					bimodal[i] = clamp(median / 50)
				}
			}
			checkQuantiles(t, "lognormal", lognormal)
			checkQuantiles(t, "bimodal", bimodal)
		}
	}
}

func FuzzQuantilesAgainstSorting(f *testing.F) {
	f.Add([]byte("\x00\x00\x01\x00\x00\x02\xff\xff\xff\x80\x00\x00"))
	f.Add([]byte("\x10\x20\x30"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var samples []time.Duration
		for ; len(data) >= 3; data = data[3:] {
			// Three bytes spread evenly over the octaves from 1.1 µs to 1 h.
			x := float64(binary.BigEndian.Uint32([]byte{0, data[0], data[1], data[2]})) / (1 << 24)
			samples = append(samples, time.Duration(1100*math.Pow(3.6e12/1100, x)))
		}
		if len(samples) > 0 {
			checkQuantiles(t, "fuzzed", samples)
		}
	})
}

// Writers go on while ticks drain: each sample is in exactly one snapshot.
func TestNoSampleIsLostByAConcurrentDrain(t *testing.T) {
	const writers, each = 4, 20_000
	var h histogram
	var running atomic.Int32
	running.Store(writers)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				h.record(time.Duration(1+(i*7+w)%100) * ms)
			}
			running.Add(-1)
		})
	}
	total := 0
	for running.Load() > 0 {
		var s snapshot
		h.drain(&s)
		total += s.n
	}
	wg.Wait()
	var s snapshot
	h.drain(&s)
	if total += s.n; total != writers*each {
		t.Errorf("%d samples in the snapshots, want %d", total, writers*each)
	}
	h.drain(&s)
	if s.n != 0 || s.quantile(50) != 0 || h.count() != 0 {
		t.Errorf("%d samples after the last drain, %d in the histogram", s.n, h.count())
	}
}

func TestALimiterTakesAtMostFourKilobytes(t *testing.T) {
	for _, tt := range []struct {
		name  string
		bytes uintptr
	}{
		{"Limiter", unsafe.Sizeof(Limiter{}) + unsafe.Sizeof(histogram{}) + unsafe.Sizeof(gradient{}) + unsafe.Sizeof(knobs{})},
		{"Limiter with AnchorKnee", unsafe.Sizeof(Limiter{}) + unsafe.Sizeof(histogram{}) + unsafe.Sizeof(knee{}) + unsafe.Sizeof(flight{})},
		{"ConcurrencyLimiter", unsafe.Sizeof(ConcurrencyLimiter{}) + unsafe.Sizeof(histogram{}) + unsafe.Sizeof(gradient{}) + unsafe.Sizeof(knobs{})},
		{"ConcurrencyLimiter with AnchorKnee", unsafe.Sizeof(ConcurrencyLimiter{}) + unsafe.Sizeof(histogram{}) + unsafe.Sizeof(knee{}) + unsafe.Sizeof(flight{})},
	} {
		if tt.bytes > 4096 {
			t.Errorf("a %s takes %d bytes, want at most 4096", tt.name, tt.bytes)
		}
	}
}
