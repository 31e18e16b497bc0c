package hotpath

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
)

// A worker performs one arm's operation n times and returns how many of them
// had the outcome that the row measures: admitted in most rows, refused in
// the row of refusals. A worker belongs to one goroutine.
type worker func(n int) int

// An arm is one limiter in one row. start builds the limiter, registers what
// has to be undone with tb, and returns a factory of workers that share it.
type arm struct {
	name  string
	start func(tb testing.TB) func() worker
}

// A row is one operation over all arms; the first arm is the floor.
type row struct {
	name string
	arms []arm
}

// rows is every row that is counted in nanoseconds a call.
var rows = []row{gateRow, measuredRow, refusalRow, takeRow, observeRow, handlerRow, transportRow}

func BenchmarkGate(b *testing.B)      { gateRow.bench(b) }
func BenchmarkMeasured(b *testing.B)  { measuredRow.bench(b) }
func BenchmarkRefusal(b *testing.B)   { refusalRow.bench(b) }
func BenchmarkTake(b *testing.B)      { takeRow.bench(b) }
func BenchmarkObserve(b *testing.B)   { observeRow.bench(b) }
func BenchmarkHandler(b *testing.B)   { handlerRow.bench(b) }
func BenchmarkTransport(b *testing.B) { transportRow.bench(b) }

// bench runs every arm with one caller, with one caller a processor and with
// 128 callers.
//
// The callers are goroutines that get their whole share of b.N at once, not
// testing.B.RunParallel: its Next and the call through a closure for each
// iteration cost as much as the cheapest rows measure, which would pull every
// ratio towards one.
func (r row) bench(b *testing.B) {
	for _, a := range r.arms {
		procs := runtime.GOMAXPROCS(0)
		for _, c := range []struct {
			name    string
			callers int
		}{{"1", 1}, {"procs", procs}, {"128", 128}} {
			b.Run(fmt.Sprintf("arm=%s/callers=%s", a.name, c.name), func(b *testing.B) {
				newWorker := a.start(b)
				b.ReportAllocs()
				if c.callers == 1 {
					w := newWorker()
					b.ResetTimer()
					check(b, w(b.N), b.N)
					return
				}
				var wg sync.WaitGroup
				begin := make(chan struct{})
				done := make([]int, c.callers)
				for i := range c.callers {
					share := b.N / c.callers
					if i < b.N%c.callers {
						share++
					}
					w := newWorker()
					wg.Go(func() {
						<-begin
						done[i] = w(share)
					})
				}
				b.ResetTimer()
				close(begin)
				wg.Wait()
				b.StopTimer()
				sum := 0
				for _, n := range done {
					sum += n
				}
				check(b, sum, b.N)
			})
		}
	}
}

func check(tb testing.TB, got, want int) {
	tb.Helper()
	if got != want {
		tb.Fatalf("%d of %d operations had the outcome that this row measures", got, want)
	}
}

// TestArmsDoTheOperation keeps the benchmarks honest: an arm that refuses
// where it should admit, or skips work, would look fast.
func TestArmsDoTheOperation(t *testing.T) {
	for _, r := range rows {
		for _, a := range r.arms {
			t.Run(r.name+"/"+a.name, func(t *testing.T) {
				newWorker := a.start(t)
				first, second := newWorker(), newWorker()
				check(t, first(1), 1)
				check(t, second(100), 100)
				check(t, first(100), 100)
			})
		}
	}
}
