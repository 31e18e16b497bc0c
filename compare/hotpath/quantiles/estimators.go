package main

import (
	"math"
	"time"

	"agilelimiter"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/influxdata/tdigest"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

var estimators = []estimator{
	{"agilelimiter", ours},
	{"HDR, 2 digits", hdr},
	{"t-digest, compression 100", digest},
	{"Prometheus, 20 buckets", buckets},
}

// ours reads the quantiles as everybody can, from the Stats of a tick.
func ours(samples []time.Duration) (p50, p99 time.Duration) {
	clock := agilelimiter.NewVirtualClock(time.Unix(0, 0))
	l := agilelimiter.NewConcurrency(agilelimiter.ConcurrencyConfig{MaxLimit: 10, Clock: clock})
	l.Start()
	defer l.Stop()
	for _, s := range samples {
		l.Observe(s)
	}
	clock.Advance(l.Config().Tick)
	stats := l.Stats()
	return stats.P50, stats.P99
}

// hdr counts nanoseconds from one on: with its lower end at a microsecond it
// would be coarse there.
func hdr(samples []time.Duration) (p50, p99 time.Duration) {
	h := hdrhistogram.New(1, int64(longest), 2)
	for _, s := range samples {
		if err := h.RecordValue(int64(s)); err != nil {
			panic(err)
		}
	}
	return time.Duration(h.ValueAtQuantile(50)), time.Duration(h.ValueAtQuantile(99))
}

// digest has the compression that failsafe-go's adaptive limiter uses.
func digest(samples []time.Duration) (p50, p99 time.Duration) {
	t := tdigest.NewWithCompression(100)
	for _, s := range samples {
		t.Add(float64(s), 1)
	}
	return time.Duration(t.Quantile(0.50)), time.Duration(t.Quantile(0.99))
}

// buckets are twenty exponential ones over the whole range, interpolated as
// Prometheus's histogram_quantile does: linearly within a bucket.
func buckets(samples []time.Duration) (p50, p99 time.Duration) {
	const n = 20
	factor := math.Pow(float64(longest)/float64(shortest), 1.0/(n-1))
	h := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "latency_seconds", Buckets: prometheus.ExponentialBuckets(shortest.Seconds(), factor, n),
	})
	for _, s := range samples {
		h.Observe(s.Seconds())
	}
	var m dto.Metric
	if err := h.Write(&m); err != nil {
		panic(err)
	}
	return interpolate(m.GetHistogram(), 0.50), interpolate(m.GetHistogram(), 0.99)
}

func interpolate(h *dto.Histogram, q float64) time.Duration {
	rank := q * float64(h.GetSampleCount())
	var lower, below float64
	for _, b := range h.GetBucket() {
		upper, count := b.GetUpperBound(), float64(b.GetCumulativeCount())
		if count >= rank {
			return time.Duration((lower + (upper-lower)*(rank-below)/(count-below)) * 1e9)
		}
		lower, below = upper, count
	}
	return time.Duration(lower * 1e9)
}
