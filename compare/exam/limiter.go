package exam

import (
	"slices"
	"time"
)

// limiter is an arm at work, for one instance. It is driven from one goroutine
// and never blocks: callers who wait stand in the queue of the run, and its
// head asks again when due says so.
type limiter interface {
	// take asks for leave to send the call in this slot of the run's table.
	take(id int32) bool
	// due is the earliest time at which take can succeed as things stand, for
	// arms whose callers wait.
	due() int64
	// done tells how the call ended and how long it took from its sending.
	done(id int32, o outcome, rtt time.Duration)
	// target is the rate or the limit that holds now.
	target() float64
}

// ticker is a limiter with timers of its own.
type ticker interface {
	// ticking is called just before one of its timers is due, ticked after it.
	ticking(waiting bool)
	ticked()
}

// foreseer says how long a caller would wait behind so many others. Those who
// would wait longer than they will are refused at once.
type foreseer interface{ wait(ahead int) int64 }

// giver is told when a caller has given up waiting.
type giver interface{ gaveUp() }

// starter is a limiter that adapts only from start on.
type starter interface{ start() }

// outcome is how a call ended, as its caller sees it.
type outcome uint8

const (
	answered outcome = iota // after real work, or by a cache that does not say so
	errored                 // the same with an error judged Unreachable
	hitSaid                 // answered by a cache that says so
	gone                    // given up by its caller, who says so; a marked stream
	refused                 // the connection was refused
	busy                    // 503 or 429 at once, without work
	timedOut                // ended by the caller's own time-out
)

// Arm is a way to make a limiter.
type Arm struct {
	Name   string
	Ours   bool
	waits  bool // its callers wait for admission
	whole  bool // one for the whole fleet
	frees  bool // a call that ends may let one go that waits
	bubble bool // it knows no clock but the system's
	make   func(*run, int) limiter
}

// Arms returns every arm but the oracle, which always plays.
func Arms() []Arm { return append(Peers(), Ours()...) }

// ByName returns the arms of these names, in this order.
func ByName(names ...string) (arms []Arm) {
	for _, name := range names {
		i := slices.IndexFunc(Arms(), func(a Arm) bool { return a.Name == name })
		if i < 0 {
			panic("exam: no arm " + name)
		}
		arms = append(arms, Arms()[i])
	}
	return arms
}
