package hotpath

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/influxdata/tdigest"
	"github.com/prometheus/client_golang/prometheus"
)

// latencies are lognormal around 20 ms, drawn once with a fixed seed: with
// one constant the branch predictor and the cache would do the recording.
var latencies = func() (ds [1024]time.Duration) {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range ds {
		ds[i] = time.Duration(20e6 * math.Exp(rng.NormFloat64()))
	}
	return ds
}()

// observeRow: record one duration so that a quantile can be read later.
// Arms that are not safe for concurrent use are guarded by a mutex, as a
// limiter would have to guard them.
var observeRow = row{"Observe", slices.Concat([]arm{
	{"floor", func(testing.TB) func() worker {
		h := new(plainHistogram)
		return func() worker {
			return func(n int) int {
				for i := range n {
					h.observe(latencies[i%len(latencies)])
				}
				return n
			}
		}
	}},
	{"hdr-unlocked", func(tb testing.TB) func() worker {
		// Of two significant digits; 1 µs to 100 s. Unlocked, so that only
		// the figure of one caller means something: each worker has its own.
		return func() worker {
			h := hdrhistogram.New(1, int64(100*time.Second/time.Microsecond), 2)
			return func(n int) (recorded int) {
				for i := range n {
					if h.RecordValue(int64(latencies[i%len(latencies)]/time.Microsecond)) == nil {
						recorded++
					}
				}
				return recorded
			}
		}
	}},
	{"hdr-mutex", func(tb testing.TB) func() worker {
		var mu sync.Mutex
		h := hdrhistogram.New(1, int64(100*time.Second/time.Microsecond), 2)
		return func() worker {
			return func(n int) (recorded int) {
				for i := range n {
					mu.Lock()
					if h.RecordValue(int64(latencies[i%len(latencies)]/time.Microsecond)) == nil {
						recorded++
					}
					mu.Unlock()
				}
				return recorded
			}
		}
	}},
	{"prometheus-classic", func(testing.TB) func() worker {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "latency_seconds", Buckets: prometheus.ExponentialBuckets(1e-4, 2, 20),
		})
		return observeSeconds(h)
	}},
	{"prometheus-native", func(testing.TB) func() worker {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "latency_seconds", NativeHistogramBucketFactor: 1.05,
		})
		return observeSeconds(h)
	}},
	{"tdigest-mutex", func(testing.TB) func() worker {
		var mu sync.Mutex
		t := tdigest.NewWithCompression(100)
		return func() worker {
			return func(n int) int {
				for i := range n {
					mu.Lock()
					t.Add(float64(latencies[i%len(latencies)]), 1)
					mu.Unlock()
				}
				return n
			}
		}
	}},
}, oursObserve)}

func observeSeconds(h prometheus.Histogram) func() worker {
	return func() worker {
		return func(n int) int {
			for i := range n {
				h.Observe(latencies[i%len(latencies)].Seconds())
			}
			return n
		}
	}
}
