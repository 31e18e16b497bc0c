package redisshare

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// The simulation plays a share on virtual time against everything that may go
// wrong at once, and looks at the sum of what is in force after every instant.
// Amounts are units of 0.001 req/s, times are µs of real time.

const second = int64(1e6)

type event struct {
	at  int64
	seq int
	do  func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// faults says what a simulation may do. Zero: nothing goes wrong.
type faults struct {
	crash, freeze, partition  bool // of members
	lose                      float64
	drift                     float64
	empty, stale, failover    bool // of the server
	pause, full, step, mayEnd bool
	failback                  bool // not with partitions: docs/fleet.md, two masters
}

var allFaults = faults{
	crash: true, freeze: true, partition: true, lose: 0.1, drift: 0.01,
	empty: true, stale: true, failover: true, pause: true, full: true, step: true, mayEnd: true,
}

type sim struct {
	*rand.Rand
	faults
	now     int64
	queue   events
	nextSeq int
	terms

	server   *model
	run      int64
	runs     int64 // so far
	down     bool
	paused   []func() // requests that wait for the end of a pause
	isPaused bool
	isFull   bool
	skew     int64 // of the server's clock
	lastStep int64
	rate     float64  // of the server's clock
	history  []*model // copies of its memory, one each 100 ms

	members []*simMember
	highest int64
	broken  string
}

type simMember struct {
	*sim
	h           holder
	rate        float64
	skew        int64
	want        int64
	applied     int64
	dead        bool
	frozen      bool
	cut         bool // from the server
	held        []func()
	generation  int // of its timers
	outstanding int // the request that may still be answered
	served      bool
}

func (s *sim) after(d int64, do func()) {
	s.nextSeq++
	heap.Push(&s.queue, event{s.now + max(d, 0), s.nextSeq, do})
}

func (s *sim) sum() (total int64) {
	for _, m := range s.members {
		if !m.dead && !m.frozen {
			total += m.applied
		}
	}
	return total
}

func newSim(seed uint64, f faults, t terms, n int) *sim {
	s := &sim{Rand: rand.New(rand.NewPCG(seed, 18)), faults: f, terms: t, server: &model{}, run: 1, runs: 1, rate: 1}
	s.rate += (s.Float64()*2 - 1) * f.drift
	s.skew = int64(s.Float64() * 1e9)
	for range n {
		s.after(s.Int64N(2*second), func() { s.join("") })
	}
	s.after(0, s.remember)
	return s
}

func (s *sim) join(instance string) {
	m := &simMember{sim: s, rate: 1 + (s.Float64()*2-1)*s.drift, skew: s.Int64N(100 * second), want: s.Int64N(s.promise / 4)}
	id := instance
	if id == "" {
		id = fmt.Sprint("m", s.nextSeq)
	}
	m.h = holder{terms: s.terms, id: id, nonce: s.now + 1, luck: s.Int64N(1000)}
	s.members = append(s.members, m)
	m.renew()
}

// clock is the member's own.
func (m *simMember) clock() time.Time {
	return time.UnixMicro(m.skew + int64(float64(m.now)*m.rate))
}

// on runs do now, or when the member is awake again.
func (m *simMember) on(do func()) {
	switch {
	case m.dead:
	case m.frozen:
		m.held = append(m.held, do)
	default:
		do()
		m.apply()
	}
}

func (m *simMember) apply() {
	now := m.clock()
	m.applied = m.h.inForce(now)
	m.generation++
	if d := m.h.changes(now); d > 0 {
		g := m.generation
		m.after(int64(float64(d.Microseconds())/m.rate)+1, func() {
			if g == m.generation {
				m.on(func() {})
			}
		})
	}
}

func (m *simMember) renew() { m.send(opRenew) }

func (m *simMember) send(op string) {
	if m.dead || m.h.replaced {
		return
	}
	if m.IntN(10) == 0 {
		m.want = m.Int64N(m.promise)
	}
	sent := m.clock()
	q := m.h.renewal(op, sent, m.want, 0)
	id := m.h.seq
	m.outstanding = int(id)
	answered := func(r reply) {
		m.on(func() {
			if m.outstanding != int(id) {
				return // timed out: never looked at
			}
			m.outstanding = 0
			again, err := m.h.take(&q, sent, m.clock(), r)
			m.apply() // before anybody else hears of it
			if r.status == statusOK && err == nil {
				m.served = true
			}
			if again {
				m.renew()
			} else {
				m.after(m.pauseTime(), func() { m.on(m.renew) })
			}
		})
	}
	timeout := int64(float64(m.lease.Microseconds()/6) / m.rate)
	m.after(timeout, func() {
		m.on(func() {
			if m.outstanding == int(id) {
				m.outstanding = 0
				m.after(m.Int64N(second/2), func() { m.on(m.renew) })
			}
		})
	})
	copies := 1
	if m.lose > 0 && m.IntN(20) == 0 {
		copies = 2 // the client's own retry
	}
	for range copies {
		if m.Float64() < m.lose {
			continue
		}
		delay := m.delay()
		m.after(delay, func() {
			if m.cut || m.down {
				return
			}
			serve := func() {
				if m.down || m.isFull {
					return
				}
				r := m.server.answer(m.serverClock(), m.run, &q)
				if m.Float64() < m.lose || m.cut {
					return
				}
				m.after(m.delay(), func() {
					if !m.cut {
						answered(r)
					}
				})
			}
			if m.isPaused {
				m.paused = append(m.paused, serve)
			} else {
				serve()
			}
		})
	}
}

func (m *simMember) pauseTime() int64 {
	t := m.lease.Microseconds() / 3
	return t*9/10 + m.Int64N(t/5)
}

// delay is mostly a millisecond and now and then long, past any time-out.
func (s *sim) delay() int64 {
	switch {
	case s.lose == 0:
		return 1000
	case s.IntN(50) == 0:
		return s.Int64N(10 * second)
	case s.IntN(10) == 0:
		return s.Int64N(second / 2)
	}
	return 100 + s.Int64N(3000)
}

func (s *sim) serverClock() int64 { return s.skew + int64(float64(s.now)*s.rate) }

func (s *sim) remember() {
	s.history = append(s.history, s.server.clone())
	if len(s.history) > 100 {
		s.history = s.history[1:]
	}
	s.after(second/10, s.remember)
}

// mischief does one thing of what may go wrong.
func (s *sim) mischief() {
	defer s.after(s.Int64N(2*second), s.mischief)
	alive := func() *simMember {
		for range 20 {
			if m := s.members[s.IntN(len(s.members))]; !m.dead && !m.frozen {
				return m
			}
		}
		return nil
	}
	switch s.IntN(10) {
	case 0:
		if m := alive(); s.crash && m != nil {
			m.dead = true
			instance := ""
			if s.IntN(2) == 0 {
				instance = m.h.id
			}
			s.after(s.Int64N(3*second), func() { s.join(instance) })
		}
	case 1:
		if m := alive(); s.mayEnd && m != nil {
			// Down to nothing first, and then tell.
			m.h.registered = false
			m.outstanding = 0
			m.apply()
			q := m.h.renewal(opLeave, m.clock(), 0, 0)
			m.after(m.delay(), func() {
				if !m.cut && !m.down && !m.isFull && !m.isPaused {
					m.server.answer(m.serverClock(), m.run, &q)
				}
			})
			m.dead = true
			s.after(s.Int64N(3*second), func() { s.join("") })
		}
	case 2, 3:
		if m := alive(); s.freeze && m != nil {
			m.frozen = true
			m.after(s.Int64N(8*second), func() {
				m.frozen = false
				held := m.held
				m.held = nil
				s.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
				m.apply()
				for _, do := range held {
					m.on(do)
				}
			})
		}
	case 4, 5:
		if m := alive(); s.partition && m != nil && !m.cut {
			m.cut = true
			m.after(s.Int64N(15*second), func() { m.cut = false })
		}
	case 6:
		if s.down {
			return
		}
		var memory *model
		switch {
		case s.empty && s.IntN(2) == 0:
			memory = &model{}
		case s.stale && len(s.history) > 0:
			memory = s.history[s.IntN(len(s.history))]
		default:
			return
		}
		s.down = true
		s.paused = nil
		s.after(s.Int64N(10*second), func() {
			s.runs++
			s.run = s.runs
			s.server, s.down, s.history = memory.clone(), false, nil
		})
	case 7:
		if s.failover && !s.down && len(s.history) > 0 {
			old, oldRun, oldSkew := s.server, s.run, s.skew
			s.runs++
			s.run = s.runs
			s.server = s.history[max(0, len(s.history)-1-s.IntN(10))].clone()
			s.history = nil
			s.paused = nil
			s.jump()
			// And sometimes back to the first, which has not heard of it.
			s.after(3*second+s.Int64N(5*second), func() {
				if s.failback && s.IntN(2) == 0 && !s.down {
					s.server, s.run, s.skew, s.paused, s.history = old, oldRun, oldSkew, nil, nil
				}
			})
		}
	case 8:
		switch {
		case s.pause && !s.isPaused && s.IntN(2) == 0:
			s.isPaused = true
			s.after(s.Int64N(5*second), func() {
				s.isPaused = false
				waiting := s.paused
				s.paused = nil
				for _, serve := range waiting {
					serve()
				}
			})
		case s.full && !s.isFull:
			s.isFull = true
			s.after(s.Int64N(5*second), func() { s.isFull = false })
		}
	case 9:
		if s.step {
			s.jump()
		}
	}
}

// jump sets the server's clock, once in a lease at most: more often is beyond
// the promise.
func (s *sim) jump() {
	if s.now-s.lastStep > 2*s.lease.Microseconds() {
		s.lastStep = s.now
		s.skew += s.Int64N(20*second) - 10*second
	}
}

// play runs until end and calls look after every instant.
func (s *sim) play(end int64, look func()) {
	for len(s.queue) > 0 && s.queue[0].at <= end {
		e := heap.Pop(&s.queue).(event)
		if e.at > s.now {
			total := s.sum()
			s.highest = max(s.highest, total)
			if total > s.promise && s.broken == "" {
				s.broken = fmt.Sprintf("at %.3f s the members have %d of %d units in force", float64(s.now)/1e6, total, s.promise)
			}
			if look != nil {
				look()
			}
			s.now = e.at
		}
		e.do()
	}
}

func rateTerms(n int) terms {
	return terms{
		kind: rateKind, lease: 3 * time.Second, fallbackFor: 20 * time.Second,
		promise: 500_000, floor: 1000, cap: 500_000, fixed: -1,
	}
}

func TestSimNeverAboveThePromise(t *testing.T) {
	seeds := uint64(20)
	if n, err := strconv.ParseUint(os.Getenv("REDISSHARE_SEEDS"), 10, 64); err == nil {
		seeds = n
	}
	for _, c := range []struct {
		name   string
		faults faults
		fixed  int64
	}{
		{"nothing wrong", faults{}, -1},
		{"members crash", faults{crash: true, mayEnd: true}, -1},
		{"members freeze", faults{freeze: true}, -1},
		{"partitions", faults{partition: true}, -1},
		{"lost and late replies", faults{lose: 0.2}, -1},
		{"clocks drift and jump", faults{drift: 0.01, step: true}, -1},
		{"restarts empty", faults{empty: true}, -1},
		{"restarts with old memory", faults{stale: true}, -1},
		{"fails over to a late replica", faults{failover: true}, -1},
		{"fails over and back", faults{failover: true, failback: true}, -1},
		{"slow and full", faults{pause: true, full: true}, -1},
		{"all together", allFaults, -1},
		{"all together, no fallback", allFaults, 0},
		{"all together, fixed fallback", allFaults, 1000},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var highest, served int64
			for seed := range seeds {
				terms := rateTerms(10)
				terms.fixed = c.fixed
				s := newSim(seed, c.faults, terms, 10)
				s.after(3*second, s.mischief)
				s.play(60*second, nil)
				if s.broken != "" {
					t.Fatalf("seed %d: %s", seed, s.broken)
				}
				highest = max(highest, s.highest)
				for _, m := range s.members {
					if m.served {
						served++
					}
				}
			}
			t.Logf("highest sum %d of 500000 units, %d members served", highest, served)
			if highest < 450_000 {
				t.Errorf("the highest sum is %d: the promise is hardly used", highest)
			}
		})
	}
}
