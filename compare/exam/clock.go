package exam

import (
	"time"

	"agilelimiter"
)

// epoch is the reading of every clock at the start of a run.
var epoch = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// clock is the agilelimiter.Clock of one instance: its timers are events of the
// run, and come late where the situation says so.
type clock struct {
	run      *run
	instance int
	last     int64 // when a timer fired last
}

type timer struct {
	clock *clock
	f     func()
	index int32
	gen   uint32
	armed bool
}

func (c *clock) Now() time.Time { return epoch.Add(time.Duration(c.run.now)) }

func (c *clock) AfterFunc(d time.Duration, f func()) agilelimiter.Timer {
	t := &timer{clock: c, f: f, index: int32(len(c.run.timers))}
	c.run.timers = append(c.run.timers, t)
	t.arm(d)
	return t
}

func (t *timer) arm(d time.Duration) {
	t.gen++
	t.armed = true
	r := t.clock.run
	r.ev.push(t.clock.late(r.now+ns(max(d, 0))), fire, t.index, t.gen)
}

// late is when a timer that is due at this time fires.
func (c *clock) late(due int64) int64 {
	s := c.run.spec
	due = max(due, c.last+int64(s.Ticks.at(c.run.now)*1e9))
	if s.Stall.Every > 0 {
		every := ns(s.Stall.Every)
		if in := due % every; in >= every-ns(s.Stall.For) {
			due += every - in
		}
	}
	return due
}

func (t *timer) Stop() bool {
	was := t.armed
	t.armed = false
	t.gen++
	return was
}

func (t *timer) Reset(d time.Duration) bool {
	was := t.armed
	t.arm(d)
	return was
}

// fire runs a limiter's timer.
func (n *run) fire(e event) {
	t := n.timers[e.arg]
	if t.gen != e.gen || !t.armed {
		return
	}
	t.armed = false
	t.clock.last = n.now
	i := t.clock.instance
	if i < 0 { // the service's own limiter
		t.f()
		return
	}
	l, ok := n.limiters[i].(ticker)
	if ok {
		n.poll(i)
		l.ticking(n.queues[i].size > 0)
	}
	t.f()
	if ok {
		l.ticked()
		n.poll(i)
	}
}
