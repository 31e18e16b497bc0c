package agilelimiter

import (
	"container/heap"
	"math"
	"sync"
	"time"
)

// Clock is what the library needs of time and no more. It can be implemented
// outside. It may start anywhere and may step back: a limiter then takes it
// that no time has passed. Implementations must be safe for concurrent use.
//
// The methods are called with a lock of the limiter held, so that no reading is
// older than the decision that it is for. They must return soon, must not wait
// for another goroutine that uses the limiter, and must not call the limiter. A
// panic in Now passes on to the limiter's caller and leaves the limiter usable;
// AfterFunc, Stop and Reset must not panic.
type Clock interface {
	// Now returns the current time.
	Now() time.Time
	// AfterFunc calls f once, d from now or later, and returns the timer that
	// will do it. A d of 0 or less means as soon as possible, but f must not
	// run before AfterFunc has returned. The library's f are short and never
	// wait; they may be called from any goroutine. AfterFunc, Stop and Reset
	// are called with a lock held that f takes, so they must not wait for f.
	AfterFunc(d time.Duration, f func()) Timer
}

// Timer is a pending call of Clock.AfterFunc, with time.Timer's semantics.
type Timer interface {
	// Stop cancels the call; false means that it has been made or stopped.
	Stop() bool
	// Reset arms the timer again for d from now. It exists so that a queue
	// with one armed timer need not allocate a new one for every departure.
	Reset(d time.Duration) bool
}

// SystemClock returns the clock of the machine, the default of both configs.
// Inside a testing/synctest bubble it is the bubble's clock; a limiter must not
// be shared between bubbles.
func SystemClock() Clock { return systemClock{} }

type systemClock struct{}

func (systemClock) Now() time.Time                            { return time.Now() }
func (systemClock) AfterFunc(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }

// timebase turns a Clock into the durations since New that the library counts
// in: int64 nanoseconds hold 292 years and subtract without rounding.
type timebase struct {
	clock  Clock
	epoch  time.Time
	system bool

	// Only for clocks that are not the system's, which is monotonic by itself.
	mu     sync.Mutex
	last   time.Duration // the largest elapsed time handed out
	offset time.Duration // what backward steps have cost so far
}

// jitter separates a clock that was set back from one whose readings go to and
// fro: were each of those taken for a step, the offset would grow and time would
// run fast. Below it time just stands still until the clock has caught up.
const jitter = 10 * time.Millisecond

func (t *timebase) init(c Clock) {
	_, t.system = c.(systemClock)
	t.clock, t.epoch = c, c.Now()
}

// now returns the time since New; it never goes back. On the system clock it
// is one monotonic read: time.Now would read the wall clock as well.
func (t *timebase) now() time.Duration {
	if t.system {
		return time.Since(t.epoch)
	}
	return t.foreign()
}

// foreign is now on another clock than the system's. That is read under the
// lock. Outside of it a caller may be stopped between his reading and the lock
// for any time; his old reading would then look like a step back.
func (t *timebase) foreign() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	reading := t.clock.Now().Sub(t.epoch)
	if back := t.last - (reading + t.offset); back > jitter {
		t.offset += back // a step back: go on from where we stood
	}
	t.last = max(t.last, reading+t.offset)
	return t.last
}

// after returns the time d after now, or a time that never comes.
func after(now, d time.Duration) time.Duration { return now + min(d, math.MaxInt64/2-now) }

// wall turns a time since New back into a time.Time, with a monotonic part on
// the system clock.
func (t *timebase) wall(d time.Duration) time.Time { return t.epoch.Add(d) }

// VirtualClock is a Clock that moves only when told to. It makes tests,
// Examples and simulators deterministic, in and outside of tests; where
// testing/synctest can be used, that is often simpler.
//
// Advance walks through time and runs what falls due on the way, in order of
// time and, at the same time, in order of arming. Functions of AfterFunc run in
// the goroutine that moves the clock, one after the other, so the library's own
// work, the controller's steps and the granting of slots, is finished when
// Advance returns. A goroutine that sleeps on the clock or waits for a slot is
// woken, and what it then does is not waited for. Two Advance calls at the same
// time share their way: the later one ends where the further of the two ends.
//
// A function that panics stops Advance at its own time. Time further than 292
// years from the start is not supported.
//
// The zero value stands at the zero time and is ready for use. All methods are
// safe for concurrent use. A function run by the clock must not wait for the
// clock to move.
type VirtualClock struct {
	mu      sync.Mutex
	cond    *sync.Cond    // on mu, made by the first BlockUntil
	start   time.Time     // the reading at elapsed 0; Jump back moves it
	elapsed time.Duration // what timers count in: never goes back
	seq     uint64
	timers  timerHeap
}

// NewVirtualClock returns a clock that stands at start.
func NewVirtualClock(start time.Time) *VirtualClock { return &VirtualClock{start: start} }

// Now returns the clock's reading.
func (c *VirtualClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.start.Add(c.elapsed)
}

// AfterFunc arms f for d from now. It runs at the next Advance or Jump that
// reaches it, also when d is 0 or less.
func (c *VirtualClock) AfterFunc(d time.Duration, f func()) Timer {
	t := &virtualTimer{clock: c, f: f, index: -1}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.arm(t, d)
	return t
}

// Sleep blocks until the clock has moved by d. It returns at once when d is 0
// or less.
func (c *VirtualClock) Sleep(d time.Duration) {
	if d <= 0 {
		return
	}
	woken := make(chan struct{})
	c.AfterFunc(d, func() { close(woken) })
	<-woken
}

// Advance moves the clock by d and runs everything due on the way, each at its
// own time, including what those functions arm. It panics if d is negative.
func (c *VirtualClock) Advance(d time.Duration) {
	if d < 0 {
		panic("agilelimiter: VirtualClock.Advance: negative duration " + d.String() + "; Jump goes back")
	}
	c.mu.Lock()
	target := c.elapsed + d
	c.runDue(target, true)
	c.elapsed = max(c.elapsed, target)
	c.mu.Unlock()
}

// Jump moves the reading by d at once, as a suspended machine or a corrected
// wall clock does. Forward: what fell due meanwhile runs afterwards, late, at
// the new time. Back (negative d): only the reading changes, armed timers still
// run after the time that they were armed for.
func (c *VirtualClock) Jump(d time.Duration) {
	c.mu.Lock()
	if d < 0 {
		c.start = c.start.Add(d)
	} else {
		c.elapsed += d
		c.runDue(c.elapsed, false)
	}
	// Not deferred: the mutex is free while a function runs, also if it panics.
	c.mu.Unlock()
}

// Sleepers returns how many timers are armed: goroutines in Sleep, controllers
// waiting for their tick, and one per Limiter that has a queue.
func (c *VirtualClock) Sleepers() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.timers)
}

// BlockUntil blocks until at least n timers are armed (see Sleepers).
func (c *VirtualClock) BlockUntil(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cond == nil {
		c.cond = sync.NewCond(&c.mu)
	}
	for len(c.timers) < n {
		c.cond.Wait()
	}
}

// runDue runs the timers up to target. The mutex is held on entry and return
// and free while a function runs.
func (c *VirtualClock) runDue(target time.Duration, walk bool) {
	for len(c.timers) > 0 && c.timers[0].due <= target {
		t := heap.Pop(&c.timers).(*virtualTimer)
		if walk {
			c.elapsed = max(c.elapsed, t.due)
		}
		c.mu.Unlock()
		t.f()
		c.mu.Lock()
	}
}

func (c *VirtualClock) arm(t *virtualTimer, d time.Duration) {
	c.seq++
	t.due, t.seq = c.elapsed+max(d, 0), c.seq
	heap.Push(&c.timers, t)
	if c.cond != nil {
		c.cond.Broadcast()
	}
}

type virtualTimer struct {
	clock *VirtualClock
	f     func()
	due   time.Duration
	seq   uint64
	index int // in the heap, -1 when not armed
}

func (t *virtualTimer) Stop() bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	return t.disarm()
}

func (t *virtualTimer) Reset(d time.Duration) bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	was := t.disarm()
	t.clock.arm(t, d)
	return was
}

func (t *virtualTimer) disarm() bool {
	if t.index < 0 {
		return false
	}
	heap.Remove(&t.clock.timers, t.index)
	return true
}

type timerHeap []*virtualTimer

func (h timerHeap) Len() int { return len(h) }
func (h timerHeap) Less(i, j int) bool {
	return h[i].due < h[j].due || h[i].due == h[j].due && h[i].seq < h[j].seq
}
func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *timerHeap) Push(x any) {
	t := x.(*virtualTimer)
	t.index = len(*h)
	*h = append(*h, t)
}
func (h *timerHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	*h, t.index = old[:len(old)-1], -1
	return t
}
