package redisshare

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Member is one limiter's membership of a share. It is made by Share.Join; its
// zero value is not usable. All methods are safe for concurrent use.
type Member struct {
	share *Share

	mu      sync.Mutex // guards all below; held for no longer than it takes to reckon
	hand    hand
	holder  holder
	applied int64 // units in force
	leased  bool  // when they were put in force
	looked  time.Time
	want    float64
	renewal *time.Timer
	watch   *time.Timer
	stopped bool

	promise          float64
	members          int
	disagree, grace  bool
	renewals, errors uint64
	expired          uint64
	lastErr          error
}

// State says what a member's part rests on.
type State uint8

const (
	// Waiting: there is no part, the limiter is stopped. Redis has not answered
	// yet, or has been away for longer than FallbackFor, or has lost its memory
	// and waits for members to show what they hold.
	Waiting State = iota
	// Leased: Redis has granted the part and the lease is in force.
	Leased
	// OnFallback: the lease has run out, the fallback is in force.
	OnFallback
	// Stopped: Stop has been called, or a later process has taken the Instance.
	Stopped
)

var stateNames = [...]string{"waiting", "leased", "on_fallback", "stopped"}

// String returns the state in lower case with underscores.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// Stats is a snapshot of a member. Amounts are requests per second for a share
// with MaxRate, and calls in flight for one with MaxLimit. It is one comparable
// value.
type Stats struct {
	Share string
	State State
	// Part is what is in force now: the limiter's ceiling.
	Part float64
	// Fallback is what is left of it when the lease runs out.
	Fallback float64
	// Want is what the member asked for last.
	Want float64
	// Promise is the share's, the lowest of all members, as of the last renewal.
	Promise float64
	// Disagree says that not all members have the same promise.
	Disagree bool
	// Members is the number of members with a lease, as of the last renewal.
	Members int
	// Recovering says that Redis had lost its memory within the last lease: parts
	// do not grow until members have shown what they hold.
	Recovering bool
	// Age is the time since the last renewal that succeeded; 0 before the first.
	Age time.Duration
	// Renewals and Errors count renewals that succeeded and that failed, Expired
	// the leases that ran out.
	Renewals, Errors, Expired uint64
	// LastError is why the last renewal failed; empty if it succeeded.
	LastError string
}

// Stats returns a snapshot.
func (m *Member) Stats() Stats {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.holder.kind
	s := Stats{
		Share: m.share.name, Part: k.amount(m.applied), Want: m.want,
		Promise: m.promise, Disagree: m.disagree, Members: m.members, Recovering: m.grace,
		Renewals: m.renewals, Errors: m.errors, Expired: m.expired,
	}
	if m.holder.registered {
		s.Age = max(now.Sub(m.holder.since), 0)
		if now.Sub(m.holder.since) < trusted(m.holder.fallbackFor) {
			s.Fallback = k.amount(m.holder.fall)
		}
	}
	if m.lastErr != nil {
		s.LastError = m.lastErr.Error()
	}
	switch {
	case m.stopped || m.holder.replaced:
		s.State, s.Fallback = Stopped, 0
	case m.applied == 0:
		s.State = Waiting
	case m.holder.leased(now):
		s.State = Leased
	default:
		s.State = OnFallback
	}
	return s
}

// Stop ends the membership: the limiter is stopped at once, the part is given
// back to the others by a message that Stop does not wait for. Callers who wait
// in the limiter go on waiting, so end them first. To go on alone afterwards call
// the limiter's SetBounds and Pause(0). Stopping twice is stopping once.
func (m *Member) Stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped {
		return
	}
	m.stopped = true
	m.renewal.Stop()
	m.watch.Stop()
	m.hand.set(0)
	m.applied = 0
	if !m.holder.registered || m.holder.replaced {
		return
	}
	m.holder.registered = false
	q := m.holder.renewal(opLeave, time.Now(), 0, 0)
	go func() {
		for end := time.Now().Add(m.holder.lease); m.hand.busy() > 0; time.Sleep(m.holder.lease / 100) {
			if time.Now().After(end) {
				return // what is still in flight is not given back before the lease ends
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), m.share.timeout)
		defer cancel()
		m.share.ask(ctx, &q) // lost: the lease runs out by itself
	}()
}

// begin makes the first renewal and starts the timers.
func (m *Member) begin(ctx context.Context, now time.Time) error {
	m.looked = now
	m.holder.luck = rand.Int64N(1000)
	m.mu.Lock()
	m.renewal = time.AfterFunc(time.Hour, m.renew)
	m.watch = time.AfterFunc(time.Hour, m.onWatch)
	m.renewal.Stop()
	m.watch.Stop()
	m.mu.Unlock()
	wait, err := m.exchange(ctx)
	if err != nil && !transient(err) {
		m.mu.Lock()
		m.stopped = true
		m.mu.Unlock()
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.renewal.Reset(wait)
	return nil
}

// renew is one renewal on its own goroutine; the next is set when it is over.
func (m *Member) renew() {
	wait, _ := m.exchange(context.Background())
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.stopped && !m.holder.replaced {
		m.renewal.Reset(wait)
	}
}

// exchange asks and takes in the answer, several times where the protocol says
// so, and returns how long to wait for the next renewal.
func (m *Member) exchange(ctx context.Context) (wait time.Duration, err error) {
	for range 4 {
		m.mu.Lock()
		if m.stopped || m.holder.replaced {
			m.mu.Unlock()
			return 0, nil
		}
		now := time.Now()
		period := m.holder.lease / 3
		q := m.holder.renewal(opRenew, now, m.holder.kind.units(m.demand(now)), m.hand.busy())
		m.mu.Unlock()

		call, cancel := context.WithTimeout(ctx, m.share.timeout)
		var r reply
		r, err = m.share.ask(call, &q)
		cancel()

		m.mu.Lock()
		again := false
		if !m.stopped {
			if err == nil {
				again, err = m.holder.take(&q, now, time.Now(), r)
			}
			m.note(r, err)
			m.apply()
		}
		grows := m.applied > q.hold+q.hold/8
		m.mu.Unlock()
		if !again {
			wait = period*9/10 + rand.N(period/5)
			if err != nil || grows { // others give way one by one
				wait /= 2
			}
			return wait, err
		}
	}
	return m.holder.lease / 12, err
}

// demand looks at the limiter, but not so often that it sees too little. The
// caller holds m.mu.
func (m *Member) demand(now time.Time) float64 {
	if since := now.Sub(m.looked); m.renewals == 0 || since >= m.holder.lease/30 {
		m.looked = now
		m.want = m.hand.want(since, m.holder.lease/3)
		m.hand.mark()
	}
	return m.want
}

// note keeps what Stats tells. The caller holds m.mu.
func (m *Member) note(r reply, err error) {
	m.lastErr = err
	switch {
	case err != nil:
		m.errors++
	case r.status == statusOK:
		m.renewals++
		m.promise = m.holder.kind.amount(r.numbers[5])
		m.disagree, m.members, m.grace = r.numbers[6] > 0, int(r.numbers[7]), r.numbers[10] > 0
	}
}

// apply puts in force what the clock allows, looks at the clock again, for the
// process may have been frozen in between, and sets the watch. The caller holds
// m.mu.
func (m *Member) apply() {
	if m.stopped {
		return
	}
	for {
		now := time.Now()
		n := m.holder.inForce(now)
		m.leased = m.holder.leased(now)
		if n == m.applied {
			if d := m.holder.changes(now); d > 0 {
				m.watch.Reset(min(d, m.holder.lease/6))
			}
			return
		}
		m.hand.set(n)
		m.applied = n
	}
}

// onWatch runs when a lease may have run out. It comes six times a lease, since
// the timers of a machine that was suspended do not know of it.
//
// A member that wakes up renews at once: it would have to wait for its turn, and
// tell then of the few callers who came just before. Timer.Stop says whether the
// renewal is waiting for its turn and not under way.
func (m *Member) onWatch() {
	m.mu.Lock()
	defer m.mu.Unlock()
	leased := m.leased
	m.apply()
	if m.stopped {
		return
	}
	if leased && !m.leased {
		m.expired++
	}
	since := time.Since(m.looked)
	if since < m.holder.lease/30 {
		return
	}
	want := m.hand.want(since, m.holder.lease/3)
	if m.holder.kind.units(want) > m.applied && want > 2*m.want && m.renewal.Stop() {
		m.renewal.Reset(0)
	}
}

// ask runs the script once.
func (s *Share) ask(ctx context.Context, q *request) (reply, error) {
	v, err := shareScript.Run(ctx, s.client, s.keys, q.args()...).Result()
	if err != nil {
		return reply{}, fmt.Errorf("%sshare %q: %w", prefix, s.name, err)
	}
	return parseReply(v)
}

// refusal is an answer of the script that will not change by itself.
type refusal struct{ text string }

func (r refusal) Error() string { return prefix + r.text }

func refuse(format string, args ...any) error { return refusal{fmt.Sprintf(format, args...)} }

// transient says that err may mend by itself. Refusals of the script do not, and
// answers of Redis that say that the command or the key is wrong.
func transient(err error) bool {
	if _, ok := errors.AsType[refusal](err); ok {
		return false
	}
	answer, ok := errors.AsType[redis.Error](err)
	if !ok {
		return true
	}
	for _, state := range []string{
		"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "OOM", "NOREPLICAS", "MISCONF", "MOVED", "ASK",
	} {
		if strings.Contains(answer.Error(), state) {
			return true
		}
	}
	return false
}
