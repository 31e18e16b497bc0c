package httpdebug

import (
	"sync"
	"sync/atomic"
	"time"

	"agilelimiter"
)

const (
	ringPoints = 600                    // more than a chart has pixels on a phone
	resolution = 500 * time.Millisecond // × ringPoints: five minutes
	// defaultTick is the period of a config that names none.
	defaultTick = 250 * time.Millisecond
)

// point is what the charts need of one stretch of time. float32 because seven
// digits are more than a chart can show; the current numbers come from Stats.
type point struct {
	seq                             uint64
	elapsed                         time.Duration // at its last tick
	target, admitted, shed          float32       // the latter two per second
	inFlight, waiting, samples      uint32        // peak, peak, sum
	p99, fast, baseline, windowEdge float32       // seconds; p99: the highest
	decision                        agilelimiter.Decision
}

// made is the last occasion of one decision.
type made struct {
	at            time.Duration
	before, after float64
}

// identity is what Watch knows of a limiter; it never changes.
type identity struct {
	name, kind, unit string
	anchor           agilelimiter.Anchor
	tick, slo        time.Duration
}

// step is the length of a point, span how far the points reach back.
func (id *identity) step() time.Duration { return max(id.tick, resolution) }
func (id *identity) span() time.Duration { return ringPoints * id.step() }

// recorder keeps the recent past of one limiter.
type recorder struct {
	identity
	clock agilelimiter.Clock
	seq   *atomic.Uint64 // the page's; every finished point takes the next

	handle atomic.Pointer[handle] // nil: the page cannot change the limiter

	mu       sync.Mutex // guards what follows; held for copies only, never during a callback
	last     time.Time  // the clock's reading at the last tick, at first at Watch
	elapsed  time.Duration
	ticked   bool
	stats    agilelimiter.Stats
	made     [agilelimiter.NumDecisions]made
	open     point // being merged
	ticks    int   // in open
	openFrom time.Duration
	counted  agilelimiter.Stats // at openFrom
	blind    time.Duration      // how long no tick has brought samples
	blindAt  uint64             // Admitted when that began
	ring     [ringPoints]point  // a circle; where nothing has been yet, seq is 0
	next     int                // the oldest of them
}

func newRecorder(id identity, clock agilelimiter.Clock, seq *atomic.Uint64) *recorder {
	if clock == nil {
		clock = agilelimiter.SystemClock()
	}
	if id.tick <= 0 {
		id.tick = defaultTick
	}
	return &recorder{identity: id, clock: clock, seq: seq, last: clock.Now()}
}

// onTick records s and passes it on to next, which may be nil.
func (r *recorder) onTick(next func(agilelimiter.Stats)) func(agilelimiter.Stats) {
	return func(s agilelimiter.Stats) {
		r.record(r.clock.Now(), s)
		if next != nil {
			next(s)
		}
	}
}

func (r *recorder) record(now time.Time, s agilelimiter.Stats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// A clock that steps back adds nothing, it does not stop the record.
	passed := max(now.Sub(r.last), 0)
	r.elapsed += passed
	r.last = now
	before := r.stats.Target
	if !r.ticked {
		// What happened before the first tick belongs to no stretch of time.
		r.ticked, before = true, s.Target
		r.counted, r.openFrom = s, r.elapsed-r.tick
	}
	if s.Samples > 0 {
		r.blind, r.blindAt = 0, s.Admitted
	} else {
		r.blind += min(passed, 2*r.tick) // a suspended hour is not an hour of ticks
	}
	r.stats = s
	if int(s.Decision) < len(r.made) {
		r.made[s.Decision] = made{at: r.elapsed, before: before, after: s.Target}
	}
	r.merge(s)
	// Half a tick of grace, because ticks come a little early and late.
	if r.elapsed-r.openFrom >= r.step()-r.tick/2 {
		r.closePoint()
	}
}

// merge adds a tick to the open point.
func (r *recorder) merge(s agilelimiter.Stats) {
	p := &r.open
	if r.ticks == 0 || weight[s.Decision] >= weight[p.decision] {
		p.decision = s.Decision
	}
	r.ticks++
	p.target = float32(s.Target)
	p.inFlight = max(p.inFlight, uint32(max(s.PeakInFlight, s.InFlight)))
	p.waiting = max(p.waiting, uint32(s.Waiting))
	p.samples += uint32(s.Samples)
	p.p99 = max(p.p99, float32(s.P99.Seconds()))
	p.fast = float32(s.Fast.Seconds())
	p.baseline = float32(s.Baseline.Seconds())
	p.windowEdge = float32(s.Window.Seconds())
}

func (r *recorder) closePoint() {
	p := &r.open
	p.seq, p.elapsed = r.seq.Add(1), r.elapsed
	if dt := (r.elapsed - r.openFrom).Seconds(); dt > 0 {
		p.admitted = float32(float64(r.stats.Admitted-r.counted.Admitted) / dt)
		p.shed = float32(float64(r.stats.Shed-r.counted.Shed) / dt)
	}
	r.ring[r.next] = *p
	r.next = (r.next + 1) % ringPoints
	r.open, r.ticks, r.openFrom, r.counted = point{}, 0, r.elapsed, r.stats
}

// snapshot is a copy to encode without holding up a tick.
type snapshot struct {
	identity
	ticked  bool
	elapsed time.Duration
	age     time.Duration // since the last tick, or since Watch
	stats   agilelimiter.Stats
	made    [agilelimiter.NumDecisions]made
	blind   time.Duration
	unheard bool // calls were admitted since the last sample
	points  []point
}

// snapshot copies the state with the points whose seq lies in (after, upTo] and
// that are not older than the span: an idle limiter's past moves out of sight.
func (r *recorder) snapshot(after, upTo uint64) snapshot {
	now := r.clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	s := snapshot{
		identity: r.identity, ticked: r.ticked, age: max(now.Sub(r.last), 0), stats: r.stats, made: r.made,
		blind: r.blind, unheard: r.stats.Admitted > r.blindAt,
	}
	s.elapsed = r.elapsed + s.age
	for i := range ringPoints {
		p := &r.ring[(r.next+i)%ringPoints]
		if p.seq > after && p.seq <= upTo && s.elapsed-p.elapsed <= r.span() {
			s.points = append(s.points, *p)
		}
	}
	return s
}
