package agilelimiter

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// semaphore admits calls while fewer than limit are in flight and refuses at
// once otherwise. A call meets atomics only. It is admitted under a limit that was
// in force at some instant of its tryAcquire, so those that race with a lowered
// limit may still get in; after that a lowered limit admits nobody until enough
// have left.
type semaphore struct {
	// word holds the calls in flight in its lower half and the calls admitted,
	// modulo 2^32, in its upper half: one atomic operation counts both.
	word   atomic.Uint64
	limit  atomic.Int64 // what is enforced: the target's whole part, at least 1; 0 in a pause; unlimited in shadow
	peak   atomic.Int64 // the most in flight since the last drain
	peaked atomic.Int64 // the peak that the last drain found
	// shed lies in a cache line of its own: refusals come fastest when the
	// machine is overloaded, and must not slow down those who leave. Stripes
	// would keep the refusing cores apart too, but picking one costs as much as
	// counting: a random number on every refusal, 5 ns, or unsafe.
	_    [64]byte
	shed atomic.Uint64
	_    [56]byte

	time  *timebase
	until atomic.Int64 // the end of the pause since New, 0: none; written with mu held

	mu       sync.Mutex // guards what follows, and the writing of limit
	min, max float64
	target   float64 // with its fraction, so that 5 % of 4 is not lost for ever
	seen     uint32  // upper half of word when last looked at
	admitted uint64
	lastShed uint64 // at the last drain
	paused   bool   // a pause was in force since the last drain

	shadow    bool
	inside    float64 // in shadow: those of the calls in flight that would be there
	wouldShed uint64
}

const (
	oneAdmitted = 1<<32 + 1
	inFlight    = 1<<32 - 1
	unlimited   = math.MaxInt64
)

func (s *semaphore) init(t *timebase, p params) {
	s.time = t
	s.min, s.max, s.shadow = p.min, p.max, p.shadow
	s.set(p.initial)
}

// set puts a new limit in force. A value outside the bounds is clamped;
// NaN changes nothing.
func (s *semaphore) set(target float64) {
	if math.IsNaN(target) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.change(target)
}

// setBounds puts new bounds in force. The limit moves to the nearest of them if
// it lies outside.
func (s *semaphore) setBounds(lo, hi float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.min, s.max = lo, hi
	s.change(s.target)
}

func (s *semaphore) setShadow(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if on == s.shadow {
		return
	}
	s.shadow = on
	s.inside = min(float64(s.open()), math.Floor(s.target))
	s.enforce()
}

func (s *semaphore) settings() (lo, hi float64, shadow bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.min, s.max, s.shadow
}

// change puts a limit in force. The mutex is held.
func (s *semaphore) change(target float64) {
	s.target = min(max(target, s.min), s.max)
	s.enforce()
}

// enforce puts in force what target, pause and shadow ask for. The mutex is held.
func (s *semaphore) enforce() {
	limit := max(1, int64(s.target))
	switch {
	case s.shadow:
		limit = unlimited
	case s.until.Load() != 0:
		limit = 0
	}
	s.limit.Store(limit)
}

// enter books a call that was admitted in shadow.
func (s *semaphore) enter() {
	over := s.until.Load() == 0 || s.resume()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.shadow: // switched off just now
	case over && math.Round(s.inside) < max(1, math.Floor(s.target)):
		s.inside++
	default:
		s.wouldShed++
	}
}

// leave books the end of one of the open calls, which may or may not be one that
// would have been admitted.
func (s *semaphore) leave(open uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inside -= s.inside / float64(open)
}

// whole returns the limit without a pause.
func (s *semaphore) whole() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(1, int(s.target))
}

func (s *semaphore) pause(d time.Duration) {
	now := s.time.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if d == 0 {
		s.until.Store(0)
	} else {
		s.until.Store(max(s.until.Load(), int64(after(now, d))))
		s.paused = true
	}
	s.enforce()
}

// resume ends a pause whose time is over, and reports whether it has just ended
// or there is none. The first caller after it does that: no timer is needed.
func (s *semaphore) resume() bool {
	if until := s.until.Load(); until != 0 && int64(s.time.now()) < until {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if until := s.until.Load(); until != 0 && int64(s.time.now()) >= until {
		s.until.Store(0)
		s.enforce()
	}
	return s.until.Load() == 0
}

func (s *semaphore) tryAcquire() bool {
	for {
		word := s.word.Load()
		limit := s.limit.Load()
		if int64(word&inFlight) >= limit {
			if limit == 0 && s.resume() {
				continue
			}
			s.shed.Add(1)
			return false
		}
		if s.word.CompareAndSwap(word, word+oneAdmitted) {
			if open := int64(word&inFlight) + 1; open > s.peak.Load() {
				s.raisePeak(open)
			}
			if limit == unlimited {
				s.enter()
			}
			return true
		}
	}
}

func (s *semaphore) raisePeak(open int64) {
	for old := s.peak.Load(); open > old; old = s.peak.Load() {
		if s.peak.CompareAndSwap(old, open) {
			return
		}
	}
}

// release panics when nobody is in flight, before it changes anything.
func (s *semaphore) release() {
	for {
		word := s.word.Load()
		if word&inFlight == 0 {
			panic("agilelimiter: Release without a matching TryTake")
		}
		if s.word.CompareAndSwap(word, word-1) {
			if s.limit.Load() == unlimited {
				s.leave(word & inFlight)
			}
			return
		}
	}
}

func (s *semaphore) open() int { return int(s.word.Load() & inFlight) }

func (s *semaphore) drain() (admitted uint64, open int, binding, paused bool) {
	over := s.resume()
	s.mu.Lock()
	defer s.mu.Unlock()
	shed := s.shed.Load() + s.wouldShed
	binding = shed != s.lastShed
	s.lastShed = shed
	s.peaked.Store(s.peak.Swap(int64(s.open())))
	paused = s.paused && !s.shadow
	s.paused = !over
	return s.count(), s.open(), binding, paused
}

// count extends the word's 32 bits of admissions to 64. It is right as long as
// a tick or a look at Stats comes at least once in four billion admissions. The
// mutex is held.
func (s *semaphore) count() uint64 {
	now := uint32(s.word.Load() >> 32)
	s.admitted += uint64(now - s.seen)
	s.seen = now
	return s.admitted
}

// report fills in the gauges and counters that the semaphore knows.
func (s *semaphore) report(out *Stats) {
	out.InFlight, out.PeakInFlight = s.open(), int(s.peaked.Load())
	out.Shed = s.shed.Load()
	now := s.time.now()
	s.mu.Lock()
	out.Shadow, out.WouldShed = s.shadow, s.wouldShed
	out.Paused = max(0, time.Duration(s.until.Load())-now)
	out.Target, out.Min, out.Max = s.target, s.min, s.max
	out.Admitted = s.count()
	s.mu.Unlock()
}
