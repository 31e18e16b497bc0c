package hotpath

import (
	"runtime"
	"testing"
	"time"

	"agilelimiter"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/go-kratos/aegis/ratelimit/bbr"
	"github.com/juju/ratelimit"
	uber "go.uber.org/ratelimit"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
)

// memoryArms build one limiter each, as a user would with its defaults, and
// return it so that it stays alive.
var memoryArms = []struct {
	name  string
	build func() any
}{
	{"floor-gate", func() any { return &casGate{limit: 1} }},
	{"floor-measured", func() any { return newMeasure() }},
	{"x-sync-semaphore", func() any { return semaphore.NewWeighted(1) }},
	{"kratos-bbr", func() any { return bbr.NewLimiter() }},
	{"go-zero-shedder", func() any { return goZero(neverBusy) }},
	{"failsafe-adaptive", func() any { return failsafeAdaptive(200) }},
	{"failsafe-ratelimiter", func() any { return ratelimiter.NewSmooth[any](100, time.Second) }},
	{"uber", func() any { return uber.New(100) }},
	{"juju", func() any { return ratelimit.NewBucketWithRate(100, 1) }},
	{"x-time", func() any { return rate.NewLimiter(100, 1) }},
	{"agilelimiter-rate", func() any { return agilelimiter.New(agilelimiter.Config{MaxRate: 100}) }},
	{"agilelimiter-concurrency", func() any {
		return agilelimiter.NewConcurrency(agilelimiter.ConcurrencyConfig{MaxLimit: 100})
	}},
	{"agilelimiter-rate-started", func() any {
		l := agilelimiter.New(agilelimiter.Config{MaxRate: 100})
		l.Start()
		return l
	}},
	{"hdr", func() any {
		return hdrhistogram.New(1, int64(100*time.Second/time.Microsecond), 2)
	}},
}

// BenchmarkMemory reports the live bytes of one limiter, heap and stacks of
// its goroutines together. Its ns/op is the cost of the measurement and says
// nothing.
func BenchmarkMemory(b *testing.B) {
	for _, a := range memoryArms {
		b.Run("arm="+a.name, func(b *testing.B) {
			var bytes float64
			for b.Loop() {
				bytes = bytesEach(a.build)
			}
			b.ReportMetric(bytes, "B/limiter")
		})
	}
}

// bytesEach builds so many limiters that whatever else the runtime keeps, a
// span of stacks say, weighs less than ten bytes in their mean.
func bytesEach(build func() any) float64 {
	const n = 4096
	keep := make([]any, n)
	before := liveBytes()
	for i := range keep {
		keep[i] = build()
	}
	after := liveBytes()
	for _, l := range keep {
		if s, ok := l.(interface{ Stop() }); ok {
			s.Stop()
		}
	}
	return (float64(after) - float64(before)) / n
}

func liveBytes() uint64 {
	// Twice, because the first collection only moves sync.Pools to their
	// victim caches.
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

func TestMemoryOfTheFloor(t *testing.T) {
	if got := bytesEach(memoryArms[0].build); got < 16 || got > 32 {
		t.Errorf("a gate of two words measures %.0f bytes", got)
	}
}
