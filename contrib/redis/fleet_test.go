package redisshare

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"agilelimiter"
)

// modelClient answers scripts from models, for tests on virtual time.
type modelClient struct {
	redis.Scripter // the rest is never called

	mu     sync.Mutex
	models map[string]*model
	delay  time.Duration
	err    error // no answer but this
	hang   bool
	run    int64
	calls  int
}

func (c *modelClient) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	time.Sleep(c.delay)
	c.mu.Lock()
	c.calls++
	err, hang := c.err, c.hang
	c.mu.Unlock()
	if hang {
		<-ctx.Done()
		err = ctx.Err()
	}
	if err != nil {
		cmd.SetErr(err)
		return cmd
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.models == nil {
		c.models = map[string]*model{}
	}
	m := c.models[keys[0]]
	if m == nil {
		m = &model{}
		c.models[keys[0]] = m
	}
	q := parseRequest(args)
	r := m.answer(time.Now().UnixMicro(), c.run, &q)
	list := []any{r.status}
	for _, n := range r.numbers {
		list = append(list, n)
	}
	cmd.SetVal(list)
	return cmd
}

func (c *modelClient) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// parseRequest is the inverse of request.args.
func parseRequest(args []any) request {
	n := func(i int) int64 {
		switch v := args[i].(type) {
		case int64:
			return v
		case int:
			return int64(v)
		}
		panic(fmt.Sprintf("argument %d is a %T", i, args[i]))
	}
	us := func(i int) time.Duration { return time.Duration(n(i)) * time.Microsecond }
	return request{
		op: args[0].(string), id: args[1].(string), nonce: n(2), seq: n(3), gen: n(4),
		terms: terms{
			kind: kind(n(5)), lease: us(6), fallbackFor: us(7), drain: us(8),
			promise: n(9), floor: n(10), cap: n(11), fixed: n(12),
		},
		want: n(13), hold: n(14), fall: n(15), viewN: n(16), viewF: n(17), was: n(18) == 1, luck: n(19),
	}
}

// user is one process of the fleet: a member, its limiter, and callers that come
// at a steady rate.
type user struct {
	lim     *agilelimiter.Limiter
	member  *Member
	mu      sync.Mutex
	rate    float64 // calls per second
	latency time.Duration
}

func (u *user) set(rate float64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.rate = rate
}

// run makes the calls until ctx ends.
func (u *user) run(ctx context.Context) {
	const step = 20 * time.Millisecond
	var due float64
	for ctx.Err() == nil {
		time.Sleep(step)
		u.mu.Lock()
		due += u.rate * step.Seconds()
		latency := u.latency
		u.mu.Unlock()
		for ; due >= 1; due-- {
			go u.lim.DoContext(ctx, func(context.Context) error {
				time.Sleep(latency)
				return nil
			})
		}
	}
}

// fleet starts n users that share 500 requests per second.
func fleet(t *testing.T, ctx context.Context, c redis.Scripter, n int, cfg Config) []*user {
	t.Helper()
	var users []*user
	for range n {
		u := &user{latency: 5 * time.Millisecond}
		u.lim = agilelimiter.New(agilelimiter.Config{MinRate: 1, MaxRate: 500, MaxWaiting: 100})
		u.lim.Start()
		var err error
		if u.member, err = New(c, "payments", cfg).Join(ctx, u.lim); err != nil {
			t.Fatal(err)
		}
		users = append(users, u)
		go u.run(ctx)
	}
	return users
}

func end(cancel context.CancelFunc, users []*user) {
	cancel()
	for _, u := range users {
		u.member.Stop()
		u.lim.Stop()
	}
	time.Sleep(time.Minute) // what is under way ends
}

func TestFairByDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := &modelClient{delay: time.Millisecond}
		const n, promise = 30, 500.0
		users := fleet(t, ctx, c, n, Config{MaxRate: promise})
		defer end(cancel, users)

		// Zipf demand of 1.5 times the promise.
		var harmonic float64
		for i := range n {
			harmonic += 1 / float64(i+1)
		}
		demand := make([]float64, n)
		for i, u := range users {
			demand[i] = 1.5 * promise / harmonic / float64(i+1)
			u.set(demand[i])
		}
		time.Sleep(30 * time.Second)
		before := make([]uint64, n)
		for i, u := range users {
			before[i] = u.lim.Stats().Admitted
		}
		const span = 30
		time.Sleep(span * time.Second)

		var used, sum, squares, unsatisfied float64
		for i, u := range users {
			rate := float64(u.lim.Stats().Admitted-before[i]) / span
			used += rate
			if rate < 0.97*demand[i] {
				sum, squares, unsatisfied = sum+rate, squares+rate*rate, unsatisfied+1
			}
		}
		jain := sum * sum / (unsatisfied * squares)
		t.Logf("used %.4f of the promise, Jain %.4f over %v unsatisfied", used/promise, jain, unsatisfied)
		if used < 0.97*promise || used > 1.001*promise {
			t.Errorf("used %.1f of %v/s, want 97 %% at least", used, promise)
		}
		if unsatisfied < 2 || jain < 0.98 {
			t.Errorf("Jain is %.4f over %v unsatisfied members, want 0.98 over several", jain, unsatisfied)
		}
	})
}

// A member that was idle has its fair part within a lease, whenever it wakes up:
// two renewals in most cases, three of them where its first tells of few callers.
func TestWakesUpWithinALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := &modelClient{delay: time.Millisecond}
		users := fleet(t, ctx, c, 10, Config{MaxRate: 500})
		defer end(cancel, users)
		for _, u := range users[1:] {
			u.set(100) // 900 together
		}
		var longest, total time.Duration
		const times = 30
		for i := range times {
			time.Sleep(20*time.Second + time.Duration(i)*37*time.Millisecond)
			if idle := users[0].member.Stats().Part; idle > 10 {
				t.Fatalf("the idle member has %v/s", idle)
			}
			users[0].set(200)
			woke := time.Now()
			for users[0].member.Stats().Part < 45 {
				time.Sleep(time.Millisecond)
			}
			longest, total = max(longest, time.Since(woke)), total+time.Since(woke)
			users[0].set(0)
		}
		t.Logf("90 %% of its fair part %v after it woke up, at most %v", total/times, longest)
		if total/times > 2*time.Second || longest > 3300*time.Millisecond {
			t.Errorf("it took %v, at most %v; want two renewals of a second, three at most", total/times, longest)
		}
	})
}

// Each law goes on below its part: one whose own calls are slow stays below, and
// the others have what it leaves.
func TestLawGoesOnBelowThePart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := &modelClient{delay: time.Millisecond}
		users := fleet(t, ctx, c, 5, Config{MaxRate: 500})
		defer end(cancel, users)
		for _, u := range users {
			u.set(200)
		}
		time.Sleep(20 * time.Second)
		users[0].mu.Lock()
		users[0].latency = 100 * time.Millisecond
		users[0].mu.Unlock()
		time.Sleep(20 * time.Second)
		slow, other := users[0].lim.Stats(), users[1].member.Stats()
		if slow.Target > 20 {
			t.Errorf("the slow member goes on at %v/s", slow.Target)
		}
		if other.Part < 115 {
			t.Errorf("another has %v/s of 500, want 120 and more", other.Part)
		}
	})
}

// Without Redis: the lease to its end, then the fallback, then nothing, and back
// by itself. No call waits for Redis at any time.
func TestWithoutRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := &modelClient{delay: time.Millisecond}
		users := fleet(t, ctx, c, 5, Config{MaxRate: 500, FallbackFor: time.Minute})
		defer end(cancel, users)
		users[0].set(1000)
		time.Sleep(20 * time.Second)
		busy := users[0].member
		check := func(when string, state State, lo, hi float64) {
			t.Helper()
			s := busy.Stats()
			if s.State != state || s.Part < lo || s.Part > hi {
				t.Errorf("%s: %v with %v/s, want %v with %v to %v", when, s.State, s.Part, state, lo, hi)
			}
			var sum float64
			for _, u := range users {
				sum += u.member.Stats().Part
			}
			if sum > 500 {
				t.Errorf("%s: %v/s in force of 500", when, sum)
			}
		}
		check("with Redis", Leased, 450, 500)
		c.set(func() { c.hang = true })
		time.Sleep(1500 * time.Millisecond)
		check("at once", Leased, 450, 500)
		time.Sleep(2500 * time.Millisecond)
		check("after the lease", OnFallback, 100, 100)
		if s := busy.Stats(); s.LastError == "" || s.Errors == 0 || s.Expired != 1 {
			t.Errorf("Stats tells nothing of it: %+v", s)
		}
		time.Sleep(time.Minute)
		check("after FallbackFor", Waiting, 0, 0)
		if _, ok := users[0].lim.TryTake(); ok {
			t.Error("a call departs without any part")
		}
		c.set(func() { c.hang = false })
		time.Sleep(3 * time.Second)
		check("back", Leased, 450, 500)
	})
}

// A Redis that is away when a process starts is no error.
func TestJoinWithoutRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := &modelClient{delay: time.Millisecond, err: errors.New("dial tcp: connection refused")}
		users := fleet(t, ctx, c, 1, Config{MaxRate: 500})
		defer end(cancel, users)
		if s := users[0].member.Stats(); s.State != Waiting || s.LastError == "" {
			t.Errorf("joined without Redis: %+v", s)
		}
		c.set(func() { c.err = nil })
		time.Sleep(6 * time.Second)
		if s := users[0].member.Stats(); s.State != Leased || s.Part != 500 {
			t.Errorf("Redis came: %+v", s)
		}
	})
}

func TestStopGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := &modelClient{delay: 100 * time.Millisecond}
		users := fleet(t, ctx, c, 2, Config{MaxRate: 500})
		defer end(cancel, users)
		time.Sleep(10 * time.Second)
		began := time.Now()
		users[0].member.Stop()
		users[0].member.Stop()
		if d := time.Since(began); d != 0 {
			t.Errorf("Stop took %v", d)
		}
		if s := users[0].member.Stats(); s.State != Stopped || s.Part != 0 {
			t.Errorf("stopped: %+v", s)
		}
		time.Sleep(1300 * time.Millisecond)
		if s := users[1].member.Stats(); s.Part != 500 {
			t.Errorf("the other has %v/s one renewal later, want 500", s.Part)
		}
	})
}

func TestLowestPromiseCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := &modelClient{delay: time.Millisecond}
		users := fleet(t, ctx, c, 2, Config{MaxRate: 500})
		defer end(cancel, users)
		time.Sleep(10 * time.Second)
		lower := fleet(t, ctx, c, 1, Config{MaxRate: 300})
		time.Sleep(4 * time.Second)
		var sum float64
		for _, u := range append(users, lower...) {
			s := u.member.Stats()
			sum += s.Part
			if s.Promise != 300 || !s.Disagree || s.Members != 3 {
				t.Errorf("a member says %+v", s)
			}
		}
		if sum > 300 || sum < 295 {
			t.Errorf("%v/s in force, want 300", sum)
		}
		end(func() {}, lower)
		for _, u := range users {
			if s := u.member.Stats(); s.Promise != 500 || s.Disagree {
				t.Errorf("after it has left: %+v", s)
			}
		}
	})
}

// A limit is divided in the same way, and calls in flight above a lowered limit
// are not given to others.
func TestLimitIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := &modelClient{delay: time.Millisecond}
		share := New(c, "database", Config{MaxLimit: 40})
		var lims []*agilelimiter.ConcurrencyLimiter
		var members []*Member
		for range 4 {
			lim := agilelimiter.NewConcurrency(agilelimiter.ConcurrencyConfig{MaxLimit: 1000})
			lim.Start()
			m, err := share.JoinConcurrency(ctx, lim)
			if err != nil {
				t.Fatal(err)
			}
			lims, members = append(lims, lim), append(members, m)
		}
		defer func() {
			cancel()
			for i := range lims {
				members[i].Stop()
				lims[i].Stop()
			}
			time.Sleep(time.Minute)
		}()
		inFlight := func() (n int) {
			for _, lim := range lims {
				n += lim.InFlight()
			}
			return n
		}
		call := func(lim *agilelimiter.ConcurrencyLimiter, d time.Duration) {
			for ctx.Err() == nil {
				if lim.Do(func() error { time.Sleep(d); return nil }) != nil {
					time.Sleep(20 * time.Millisecond)
				}
			}
		}
		for range 60 { // the first wants all, with calls of four seconds
			go call(lims[0], 4*time.Second)
		}
		highest := 0
		watch := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				highest = max(highest, inFlight())
			}
		}
		watch(60 * time.Second)
		if n := lims[0].InFlight(); n < 30 {
			t.Errorf("alone it has %d of 40 in flight", n)
		}
		for _, lim := range lims[1:] {
			for range 60 {
				go call(lim, 50*time.Millisecond)
			}
		}
		watch(30 * time.Second)
		for i, m := range members {
			if s := m.Stats(); s.Part < 9 || s.Part > 11 {
				t.Errorf("member %d has %v of 40, want 10", i, s.Part)
			}
		}
		t.Logf("highest in flight %d of 40", highest)
		if highest > 40 {
			t.Errorf("%d calls in flight of 40", highest)
		}
	})
}
