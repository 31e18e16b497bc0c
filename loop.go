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

	mu       sync.Mutex // guards what follows; free while the stepper runs
	idle     sync.Cond  // on mu: stepping has become false
	run      int        // counts Starts: a timer of an earlier one does nothing
	started  bool
	timer    Timer
	due      time.Duration // when the next step is due, since New
	stepping bool
	busy     bool // stepping, or in ticked
}

// stepper is what a loop drives: step is the library's work, ticked the user's
// part behind it, which may call start and stop.
type stepper interface {
	step()
	ticked()
}

func (l *loop) init(t *timebase, tick time.Duration, s stepper) {
	l.time, l.tick, l.stepper = t, tick, s
	l.idle.L = &l.mu
}

func (l *loop) start() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.started {
		return
	}
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
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.started || run != l.run {
		return
	}
	// busy here means that ticked stopped and started the loop and is still
	// running; the next tick makes up for this one.
	if !l.busy {
		l.busy, l.stepping = true, true
		l.mu.Unlock()
		l.step()
		l.mu.Lock()
		l.stepping = false
		l.idle.Broadcast()
		l.mu.Unlock()
		l.ticked()
		l.mu.Lock()
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
	l.timer.Reset(l.due - now)
}
