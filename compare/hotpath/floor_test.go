package hotpath

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// The floors' methods are kept from being inlined: a limiter is reached
// through a call, and a floor that melts into the benchmark's loop would be
// one that no package can reach.

// roomy is a limit that no benchmark reaches.
const roomy = 1 << 20

// casGate is the least that bounds concurrency without ever exceeding the
// limit: one compare-and-swap in, one add out.
type casGate struct {
	limit    int64
	inFlight atomic.Int64
}

//go:noinline
func (g *casGate) tryTake() bool {
	for {
		n := g.inFlight.Load()
		if n >= g.limit {
			return false
		}
		if g.inFlight.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

//go:noinline
func (g *casGate) release() { g.inFlight.Add(-1) }

// plainHistogram is the least that records a duration so that quantiles can
// be read to within 1/32: octaves by bits.Len64, 32 steps each, one add.
type plainHistogram struct {
	counts [64 * 32]atomic.Uint32
}

//go:noinline
func (h *plainHistogram) observe(d time.Duration) {
	v := uint64(max(d, 0)) | 32
	exp := bits.Len64(v) - 6
	h.counts[exp<<5+int(v>>exp)-32].Add(1)
}

// spacing is the least that spaces departures: a mutex, one monotonic read
// and the time of the next slot.
type spacing struct {
	mu    sync.Mutex
	epoch time.Time
	next  time.Duration
	gap   time.Duration
}

// take returns how long to wait for the slot it reserved.
//
//go:noinline
func (s *spacing) take() time.Duration {
	s.mu.Lock()
	now := time.Since(s.epoch)
	slot := max(now, s.next)
	s.next = slot + s.gap
	s.mu.Unlock()
	return slot - now
}

// measure is a call through the gate, the clock and the histogram: what an
// adaptive limiter has to do around any call, and nothing else.
type measure struct {
	gate      casGate
	histogram plainHistogram
	epoch     time.Time
}

func newMeasure() *measure {
	return &measure{gate: casGate{limit: roomy}, epoch: time.Now()}
}

//go:noinline
func (m *measure) do(fn func() error) bool {
	if !m.gate.tryTake() {
		return false
	}
	begin := time.Since(m.epoch)
	err := fn()
	m.histogram.observe(time.Since(m.epoch) - begin)
	m.gate.release()
	return err == nil
}
