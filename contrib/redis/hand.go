package redisshare

import (
	"math"
	"time"

	"agilelimiter"
)

// hand is what a member does to its limiter and reads of it.
type hand interface {
	// stop lets nothing through until set, and returns the limiter's own ceiling.
	stop() float64
	// set puts a part of n units in force.
	set(n int64)
	// want returns what the limiter would use, as a rate or a number of calls,
	// judged by the time since the last mark.
	want(since, renewal time.Duration) float64
	mark()
	// busy returns the units in use now that a lower part does not end.
	busy() int64
}

// forever is longer than any process lives.
const forever = 100 * 365 * 24 * time.Hour

// usage is the part of Stats that demand is read from.
type usage struct {
	admitted, shed, backoffs uint64
	congested                int // for so many marks more: the law has backed off
}

// next returns the usage as s has it, one mark later.
func (u usage) next(s agilelimiter.Stats) usage {
	n := usage{s.Admitted, s.Shed, backoffs(s), max(u.congested-1, 0)}
	if n.backoffs > u.backoffs {
		n.congested = 3 // a lease
	}
	return n
}

// heldBack says that the law holds the number well below the ceiling because of
// congestion, and not because it has only begun.
func (u usage) heldBack(s agilelimiter.Stats) bool {
	return s.Target < 0.95*s.Max && (u.congested > 0 || backoffs(s) > u.backoffs)
}

func backoffs(s agilelimiter.Stats) uint64 {
	return s.Decisions[agilelimiter.Backoff] + s.Decisions[agilelimiter.TailBackoff] + s.Decisions[agilelimiter.Outage]
}

type rateHand struct {
	lim      *agilelimiter.Limiter
	min, max float64 // of the limiter's own Config
	known    bool
	stopped  bool
	last     usage
}

func (h *rateHand) stop() float64 {
	if !h.known {
		c := h.lim.Config()
		h.min, h.max, h.known = c.MinRate, c.MaxRate, true
		h.mark()
	}
	h.set(0)
	return h.max
}

func (h *rateHand) set(n int64) {
	if n <= 0 {
		h.lim.Pause(forever)
		h.stopped = true
	}
	part := min(rateKind.amount(max(n, 1)), h.max) // 0.001 is the least there is
	least := min(h.min, part)
	if h.min == h.max {
		least = part
	}
	if err := h.lim.SetBounds(least, part); err != nil {
		panic(err) // both lie in [0.001, MaxRate]
	}
	if n > 0 && h.stopped {
		h.stopped = false
		h.lim.Pause(0)
	}
}

func (h *rateHand) busy() int64 { return 0 }

func (h *rateHand) want(since, renewal time.Duration) float64 {
	return wantedRate(h.last, h.lim.Stats(), since, renewal)
}

func (h *rateHand) mark() {
	h.last = h.last.next(h.lim.Stats())
}

// wantedRate is what a rate would use: what came since the last mark, and what it
// takes to serve those who wait within one renewal. Where the law holds the
// rate back, more than twice the rate is of no use to it.
func wantedRate(last usage, s agilelimiter.Stats, since, renewal time.Duration) float64 {
	came := float64(s.Admitted-last.admitted) + float64(s.Shed-last.shed)
	want := float64(s.Waiting) / renewal.Seconds()
	if since > 0 {
		want += came / since.Seconds()
	}
	if last.heldBack(s) {
		want = min(want, 2*s.Target)
	}
	return want
}

type limitHand struct {
	lim      *agilelimiter.ConcurrencyLimiter
	min, max int
	known    bool
	stopped  bool
	last     usage
}

func (h *limitHand) stop() float64 {
	if !h.known {
		c := h.lim.Config()
		h.min, h.max, h.known = c.MinLimit, c.MaxLimit, true
		h.mark()
	}
	h.set(0)
	return float64(h.max)
}

func (h *limitHand) set(n int64) {
	if n <= 0 {
		h.lim.Pause(forever)
		h.stopped = true
	}
	part := min(max(int(min(n, math.MaxInt32)), 1), h.max)
	least := min(h.min, part)
	if h.min == h.max {
		least = part
	}
	if err := h.lim.SetBounds(least, part); err != nil {
		panic(err) // both lie in [1, MaxLimit]
	}
	if n > 0 && h.stopped {
		h.stopped = false
		h.lim.Pause(0)
	}
}

func (h *limitHand) busy() int64 { return int64(h.lim.InFlight()) }

func (h *limitHand) want(time.Duration, time.Duration) float64 {
	return wantedLimit(h.last, h.lim.Stats())
}

func (h *limitHand) mark() {
	h.last = h.last.next(h.lim.Stats())
}

// wantedLimit is what a limit would use: the most that was in flight, and where
// calls were refused the limit times those that came for each that was let in,
// but not more than twice and one. Twice what the law allows is enough for it too.
func wantedLimit(last usage, s agilelimiter.Stats) float64 {
	want := float64(max(s.PeakInFlight, s.InFlight))
	admitted, shed := float64(s.Admitted-last.admitted), float64(s.Shed-last.shed)
	if shed > 0 {
		limit := math.Floor(s.Target)
		want = max(want, limit) * min(1+shed/max(admitted, 1), 2)
		want = max(want, limit+1)
	}
	if last.heldBack(s) {
		want = min(want, 2*s.Target)
	}
	return math.Ceil(want)
}
