package agilelimiter

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// plenty stands for a total that bounds nothing.
const plenty = 1 << 30

// turn lets n epochs begin, a second apart, from now on.
func (f *flight) turn(now *time.Duration, n int) {
	for range n {
		*now += time.Second
		f.drain(*now, time.Second, plenty)
	}
}

func (o *openCalls) total() (sum int) {
	for _, n := range o.n {
		sum += int(n)
	}
	return sum
}

func TestFlightCountsOpenCallsByAge(t *testing.T) {
	f, now := &flight{}, time.Duration(0)
	for second := range 5 { // 1 call in the first second, 2 in the next, ...
		for range second + 1 {
			f.admit()
		}
		now += time.Second
		if second < 4 {
			f.drain(now, time.Second, plenty)
		}
	}
	elapsed, open := f.drain(now, time.Second, plenty)
	if elapsed != time.Second {
		t.Errorf("a second after the last drain, elapsed is %v", elapsed)
	}
	for i, want := range []int32{5, 4, 3, 2, 1, 0, 0} {
		if open.n[i] != want {
			t.Errorf("%d calls are open since %d s at least, want %d", open.n[i], i, want)
		}
	}
	for i := range 5 {
		if open.age[i] != float64(i) {
			t.Errorf("class %d begins at %v s, want %d", i, open.age[i], i)
		}
	}
	if n := open.between(2, 4); n != 5 {
		t.Errorf("%d calls of 2 to 4 s, want 5", n)
	}
}

// A drain before its time leaves the epoch as it is: ages reach back as far as
// they should, however fast the ticks come.
func TestFlightEpochsAreNoShorterThanTheirSpan(t *testing.T) {
	f, now := &flight{}, time.Duration(0)
	first := f.admit()
	for range 99 {
		now += 10 * ms
		f.drain(now, time.Second, plenty)
	}
	if got := f.admit(); got != first {
		t.Errorf("epoch %d after 0.99 s of epochs of a second, want %d", got, first)
	}
	now += 10 * ms
	f.drain(now, time.Second, plenty)
	if got := f.admit(); got != first+1 {
		t.Errorf("epoch %d after a second, want %d", got, first+1)
	}
}

// The end of a call takes it from the epoch in which it began, in any order.
func TestFlightEndsWhereTheCallBegan(t *testing.T) {
	f, now := &flight{}, time.Duration(0)
	old := f.admit()
	f.turn(&now, 1)
	middle := f.admit()
	f.turn(&now, 1)
	young := f.admit()
	for _, step := range []struct {
		end  uint32
		want [3]int32
	}{{middle, [3]int32{1, 0, 1}}, {young, [3]int32{0, 0, 1}}, {old, [3]int32{0, 0, 0}}} {
		f.end(step.end)
		if _, open := f.drain(now, time.Hour, plenty); [3]int32(open.n[:3]) != step.want {
			t.Errorf("open by age are %v after the end in epoch %d, want %v", open.n[:3], step.end, step.want)
		}
	}
}

// A counter that is used again starts from nothing, and the end of a call whose
// counter was given away takes no other call with it.
func TestFlightReusesItsCounters(t *testing.T) {
	f, now := &flight{}, time.Duration(0)
	stream := f.admit()
	f.turn(&now, epochs-1)
	if _, open := f.drain(now, time.Hour, plenty); open.total() != 1 || open.n[epochs-1] != 1 {
		t.Errorf("a call as old as the ring: %v, want it in the oldest class", open.n)
	}
	f.turn(&now, 1)
	f.admit() // has the stream's counter now
	if _, open := f.drain(now, time.Hour, plenty); open.total() != 1 || open.n[0] != 1 {
		t.Errorf("the counter is used again: %v, want the young call alone", open.n)
	}
	f.end(stream)
	if _, open := f.drain(now, time.Hour, plenty); open.n[0] != 1 {
		t.Errorf("the end of a call older than the ring: %v, want the young call untouched", open.n)
	}
	// Many times around.
	for range 10 * epochs {
		e := f.admit()
		f.turn(&now, 1)
		f.end(e)
	}
	f.turn(&now, epochs)
	if _, open := f.drain(now, time.Hour, plenty); open.total() != 0 {
		t.Errorf("everything has ended: %v", open.n)
	}
}

// Of a call by hand only the duration is known, and it leads to its epoch.
func TestFlightAtFindsTheEpochOfACallByHand(t *testing.T) {
	f, now := &flight{}, time.Duration(0)
	began := map[uint32]time.Duration{}
	for range 3*epochs + 5 {
		began[f.admit()] = now
		f.turn(&now, 1)
	}
	present := f.admit()
	for back := range uint32(epochs) {
		e := present - back
		start := now - time.Duration(back)*time.Second
		for _, at := range []time.Duration{start, start + 1, start + time.Second - 1} {
			if got := f.at(at); got != e {
				t.Errorf("a call that began at %v belongs to epoch %d, want %d of %d", at, got, e, present)
			}
		}
		if e != present && began[e] != start {
			t.Fatalf("epoch %d began at %v, this test takes it for %v", e, began[e], start)
		}
	}
	// In the future, by a clock that was read a moment earlier.
	if got := f.at(now + time.Second); got != present {
		t.Errorf("a call from the future belongs to epoch %d, want the present one, %d", got, present)
	}
	// At the very beginning there is only one.
	if got := new(flight).at(-time.Second); got != 0 {
		t.Errorf("before the first epoch: %d, want 0", got)
	}
}

// A call by hand that began before the ring is in no counter any more: its end
// must take nobody else's place.
func TestFlightForgetsACallByHandOlderThanTheRing(t *testing.T) {
	f, now := &flight{}, time.Duration(0)
	f.admit() // the old call
	f.turn(&now, epochs)
	e := f.epoch.Load() - (epochs - 1)
	f.open[e%epochs].Add(1) // somebody in the oldest epoch there is
	f.end(f.at(0))
	if _, open := f.drain(now, time.Hour, plenty); open.n[epochs-1] != 1 {
		t.Errorf("open by age are %v: the end of a call that is in no epoch took one away", open.n)
	}
}

// Calls whose end is never reported, and ends without an admission, leave the
// counts inside of what is really in flight.
func TestFlightStaysBelowTheTotal(t *testing.T) {
	f, now := &flight{}, time.Duration(0)
	for range 10 {
		f.admit()
	}
	f.turn(&now, 1)
	for range 3 {
		f.admit()
	}
	_, open := f.drain(now, time.Hour, 5)
	if open.n[0] != 3 || open.n[1] != 2 {
		t.Errorf("13 in the ring and 5 in flight: %v, want 3 young and 2 old", open.n[:2])
	}
	if _, open = f.drain(now, time.Hour, 0); open.total() != 0 {
		t.Errorf("nothing in flight: %v", open.n[:2])
	}
	for range 20 { // ends without an admission
		f.end(f.epoch.Load())
	}
	if _, open = f.drain(now, time.Hour, plenty); open.n[0] != 0 || open.n[1] != 10 {
		t.Errorf("more ends than calls: %v, want none young, and 10 old untouched", open.n[:2])
	}
}

// After a gap of an hour, say a process that was suspended, there is one tick:
// its time is an hour, and old calls are an hour old.
func TestFlightAfterAGapOfAnHour(t *testing.T) {
	f, now := &flight{}, time.Duration(0)
	f.turn(&now, 5)
	before := f.admit()
	f.turn(&now, 1)
	now += time.Hour
	f.admit()
	elapsed, open := f.drain(now, time.Second, plenty)
	if elapsed != time.Hour {
		t.Errorf("elapsed %v, want an hour", elapsed)
	}
	// The call of the present epoch may be as young as now.
	if open.n[0] != 1 || open.n[1] != 1 || open.age[0] != 0 || open.age[1] != time.Hour.Seconds() {
		t.Errorf("open %v at ages %v, want one of 0 s or more and one of an hour or more", open.n[:2], open.age[:2])
	}
	now += time.Second
	f.drain(now, time.Second, plenty)
	f.end(before)
	if _, open := f.drain(now, time.Second, plenty); open.total() != 1 {
		t.Errorf("%v after the old call's end, want the other one", open.n)
	}
	// A clock that steps back makes no negative time.
	if elapsed, open = f.drain(now-time.Minute, time.Second, plenty); elapsed != 0 {
		t.Errorf("the clock stepped back: elapsed %v, want 0", elapsed)
	}
}

// Random calls against a list of them: the ring knows each call that is young
// enough, by the second.
func TestFlightAgainstAList(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 7))
		f, now := &flight{}, time.Duration(0)
		type call struct {
			epoch uint32
			tick  int
		}
		var open []call
		for tick := range 200 {
			for range r.IntN(20) {
				open = append(open, call{f.admit(), tick})
			}
			for range min(r.IntN(20), len(open)) {
				i := r.IntN(len(open))
				f.end(open[i].epoch)
				open[i] = open[len(open)-1]
				open = open[:len(open)-1]
			}
			var want [epochs]int32
			for _, c := range open {
				if age := tick - c.tick; age < epochs {
					want[age]++
				}
			}
			now += time.Duration(1+r.IntN(3000)) * time.Second
			if _, got := f.drain(now, time.Second, plenty); got.n != want {
				t.Fatalf("seed %d, tick %d: open by age %v, want %v", seed, tick, got.n, want)
			}
		}
	}
}

// Calls from everywhere while the epochs turn: none is lost for longer than the
// ring lasts, and the race detector has nothing to say.
func TestFlightInParallel(t *testing.T) {
	f := &flight{}
	var stop atomic.Bool
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for range 5000 {
				e := f.admit()
				f.at(time.Duration(f.begin[e%epochs].Load()))
				f.end(e)
			}
		})
	}
	var loop sync.WaitGroup
	now := time.Duration(0)
	loop.Go(func() {
		for !stop.Load() {
			now += ms
			f.drain(now, ms, plenty)
		}
	})
	callers.Wait()
	stop.Store(true)
	loop.Wait()
	f.turn(&now, epochs)
	if _, open := f.drain(now, time.Hour, plenty); open.total() != 0 {
		t.Errorf("%v open after the last end", open.n)
	}
}
