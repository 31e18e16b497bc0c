package arm

import (
	"sync"
	"time"
)

// oracle paces at OracleShare of the true capacity at every instant: what a
// limiter that knew everything would do. It knows nothing of chance: which
// calls will be long is hidden from it too.
type oracle struct {
	env Env

	mu      sync.Mutex
	credit  float64 // of one departure, at most 1
	updated time.Time
	waiters []chan struct{}
	timer   *time.Timer
}

// OracleShare leaves the queue that 100 % would build up for ever.
const OracleShare = 0.95

// poll is how often the oracle looks at the capacity while callers wait and
// nothing can be sent.
const poll = 10 * time.Millisecond

func newOracle(env Env) Limiter { return &oracle{env: env, credit: 1, updated: time.Now()} }

func (o *oracle) Target() float64 { return OracleShare * o.env.Capacity() }
func (o *oracle) Stop()           {}

func (o *oracle) Acquire() (Done, bool) {
	o.mu.Lock()
	o.earn()
	if len(o.waiters) == 0 && o.credit >= 1 {
		o.credit--
		o.mu.Unlock()
		return ignore, true
	}
	turn := make(chan struct{})
	o.waiters = append(o.waiters, turn)
	if len(o.waiters) == 1 {
		o.arm()
	}
	o.mu.Unlock()

	giveUp := time.NewTimer(o.env.Wait)
	defer giveUp.Stop()
	select {
	case <-turn:
		return ignore, true
	case <-giveUp.C:
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, w := range o.waiters {
		if w == turn {
			o.waiters = append(o.waiters[:i], o.waiters[i+1:]...)
			return nil, false
		}
	}
	return ignore, true // granted at the very instant of giving up
}

func (o *oracle) earn() {
	now := time.Now()
	o.credit = min(1, o.credit+o.Target()*now.Sub(o.updated).Seconds())
	o.updated = now
}

// arm sets the timer for the next departure, or for the next look at the
// capacity if that is sooner. The caller holds mu.
func (o *oracle) arm() {
	d := poll
	if rate := o.Target(); rate > 0 {
		d = min(d, time.Duration((1-o.credit)/rate*float64(time.Second))+1)
	}
	o.timer = time.AfterFunc(d, o.grant)
}

func (o *oracle) grant() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.earn()
	for o.credit >= 1 && len(o.waiters) > 0 {
		o.credit--
		close(o.waiters[0])
		o.waiters = o.waiters[1:]
	}
	if len(o.waiters) > 0 {
		o.arm()
	}
}
