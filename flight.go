package agilelimiter

import (
	"sync/atomic"
	"time"
)

// flight counts the open calls by when they were admitted. A call costs one
// atomic add at each end.
//
// Time is cut into epochs, one tick long or more. Each epoch has one counter in
// a ring: an admission adds one to that of the present epoch, the end takes one
// from the same counter. An epoch that is older than the ring gives its counter
// to a new one. What was still open in it is then only part of the total that
// the actuator knows: such a call holds a slot and is no evidence any more.
//
// An end that races with the reuse of its own counter is taken from the new
// epoch instead. That is wrong by one call until the counter is reused again.
type flight struct {
	epoch atomic.Uint32 // the present one
	open  [epochs]atomic.Int32
	// begin is when each epoch began, see epochTime. Only the loop writes it.
	begin [epochs]atomic.Uint32
	// drained is when the loop last looked. Only the loop uses it.
	drained time.Duration
}

// epochTime returns t in units of 100 µs, modulo 5 days: more than the ring ever
// reaches back, in half the room.
func epochTime(t time.Duration) uint32 { return uint32(t / (100 * time.Microsecond)) }

// admit counts one call in and returns the epoch that end needs.
func (f *flight) admit() (epoch uint32) {
	epoch = f.epoch.Load()
	f.open[epoch%epochs].Add(1)
	return epoch
}

// end counts one call out.
func (f *flight) end(epoch uint32) {
	if f.epoch.Load()-epoch < epochs {
		f.open[epoch%epochs].Add(-1)
	}
}

// at returns the epoch in which a call began that was admitted at start, or one
// too old for the ring. It is for calls driven by hand, of which only the
// duration is known.
func (f *flight) at(start time.Duration) (epoch uint32) {
	epoch = f.epoch.Load()
	for range epochs {
		if epoch == 0 || int32(epochTime(start)-f.begin[epoch%epochs].Load()) >= 0 {
			break
		}
		epoch--
	}
	return epoch
}

// drain returns the time since the last drain and the open calls by age, and
// begins a new epoch if the present one is at least span long. total bounds
// what is counted: calls whose end was never reported are in the ring, but not
// in flight.
func (f *flight) drain(now, span time.Duration, total int) (elapsed time.Duration, open openCalls) {
	elapsed = max(0, now-f.drained)
	f.drained = now
	epoch := f.epoch.Load()
	present := epochTime(now)
	end := present
	for i := range min(int(epoch)+1, epochs) {
		slot := (epoch - uint32(i)) % epochs
		n := min(max(0, int(f.open[slot].Load())), total)
		total -= n
		open.n[i] = int32(n)
		open.age[i] = float64(present-end) / 1e4 // seconds
		end = f.begin[slot].Load()
	}
	if present-f.begin[epoch%epochs].Load() >= epochTime(span) {
		next := epoch + 1
		f.open[next%epochs].Store(0)
		f.begin[next%epochs].Store(present)
		f.epoch.Store(next)
	}
	return elapsed, open
}
