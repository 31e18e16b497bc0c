package agilelimiter

import (
	"sync"
	"time"
)

// loop runs a step every tick. It is a chain of timer calls rather than a
// goroutine that sleeps: at rest it costs a timer, there is nothing to leak,
// and on a VirtualClock every step is finished when Advance returns.
type loop struct {
	time *timebase
	tick time.Duration
	stepper

	mu       sync.Mutex // guards what follows; free while a step runs
	idle     sync.Cond  // on mu: stepping has become false
	run      int        // counts Starts: a timer of an earlier one does nothing
	started  bool
	timer    Timer
	due      time.Duration // when the next step is due, since New
	stepping bool
	busy     bool // stepping, or in ticked
}

// stepper is what a loop drives: restart comes before the first step after each
// start, step is the library's work, ticked the user's part behind it, which may
// call start and stop.
type stepper interface {
	restart()
	step()
	ticked()
}

func (l *loop) init(t *timebase, tick time.Duration, s stepper) {
	l.time, l.tick, l.stepper = t, tick, s
	l.idle.L = &l.mu
}

// start waits for the step of a loop that another goroutine is just stopping.
func (l *loop) start() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.stepping && !l.started {
		l.idle.Wait()
	}
	if l.started {
		return
	}
	l.restart()
	l.started = true
	l.run++
	run := l.run
	l.due = l.time.now() + l.tick
	l.timer = l.time.clock.AfterFunc(l.tick, func() { l.fire(run) })
}

// stop returns once no step is running and none will. It does not wait for
// ticked, from which it may well be called.
func (l *loop) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.started {
		l.started = false
		l.timer.Stop()
	}
	for l.stepping {
		l.idle.Wait()
	}
}

// fire makes one step, however late it is: after a suspended hour there is one
// step to make and not 14 400. The next one is due on the grid of ticks again.
func (l *loop) fire(run int) {
	live, free := l.begin(run)
	if !live {
		return
	}
	// Deferred, so that a panic in ticked does not stop the ticks of a clock
	// whose owner recovers it.
	defer l.rearm(run, free)
	if free {
		l.step()
		l.stepped()
		l.ticked()
	}
}

// begin reports whether this run is still on, and whether there is a step to
// make now. There is none while ticked, which has stopped and started the loop,
// is still running; the next tick makes up for it.
func (l *loop) begin(run int) (live, free bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.started || run != l.run {
		return false, false
	}
	if l.busy {
		return true, false
	}
	l.busy, l.stepping = true, true
	return true, true
}

func (l *loop) stepped() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stepping = false
	l.idle.Broadcast()
}

// rearm sets the timer for the next tick, unless the loop was stopped.
func (l *loop) rearm(run int, free bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if free {
		l.busy = false
	}
	if !l.started || run != l.run {
		return
	}
	now := l.time.now()
	l.due += l.tick
	if late := now - l.due; late >= 0 {
		l.due += late - late%l.tick + l.tick
	}
	if l.due-now > l.tick { // the clock has stepped back
		l.due = now + l.tick
	}
	l.timer.Reset(l.due - now)
}
