package redisshare

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"agilelimiter"
)

const prefix = "agilelimiter/contrib/redis: "

// Config says what a share promises and how. MaxRate or MaxLimit is required;
// every other zero field means its default. All members of a share should have
// the same: what happens where they differ stands with the field.
type Config struct {
	// MaxRate is what all members together promise the downstream, in requests per
	// second, in [0.001, 1e9]. Where members differ the lowest counts, and Stats
	// tells of it. Members join with Join.
	MaxRate float64
	// MaxLimit is the promise of calls in flight, in [1, 2^31-1], in place of
	// MaxRate. Members join with JoinConcurrency.
	MaxLimit int

	// MinRate is what every member has at least, idle or not, in requests per
	// second; it is counted. Members that would not fit with theirs cannot join.
	// In [0.001, MaxRate]. Default 0.001.
	MinRate float64
	// MinLimit is the same for a MaxLimit, in [1, MaxLimit]. Default 1.
	MinLimit int

	// Lease is how long a part is good for, in [300ms, 5m]. It is renewed every
	// third of that. A member that crashes keeps its part from others for 1.4
	// leases. Must be equal in all members: another one is an error of Join.
	// Default 3 s.
	Lease time.Duration
	// Fallback is what a member has left when its lease has run out because Redis
	// cannot be reached. Default: its equal part of the promise, but not more than
	// it had.
	Fallback Fallback
	// FallbackFor is how long the fallback lasts from the last renewal; then the
	// member stops. A member that crashes keeps its fallback from others this
	// long. In [Lease, 24h]. Must be equal in all members. Default 10 min.
	FallbackFor time.Duration
	// Timeout ends a renewal that hangs, in (0, Lease/3]. Default Lease/6.
	Timeout time.Duration
	// CallTime is for a MaxLimit: calls that take longer than this may still be
	// in flight when a lost member's part goes to others. Must be equal in all
	// members. In [0, 1h]. Default 0.
	CallTime time.Duration

	// Instance names this member for good, say the name of a stateful pod. A
	// process that joins with it takes over at once what an earlier one left when
	// it crashed. Two that run at the same time break the promise until the older
	// one hears of it. At most 128 bytes. Default: a new random name.
	Instance string
}

// Fallback is a choice for Config.Fallback; the zero value is the equal part.
type Fallback struct {
	fixed  bool
	amount float64
}

// FixedFallback is a number of requests per second, or of calls, that a member
// keeps without Redis. It is set aside for every member all the time, as MinRate
// is; FixedFallback(0) stops a member when its lease ends, and sets nothing aside.
func FixedFallback(amount float64) Fallback { return Fallback{true, amount} }

// Share is one promise under one name. It is made by New, holds nothing that
// needs closing, and is safe for concurrent use.
type Share struct {
	client  redis.Scripter
	name    string
	keys    []string
	terms   terms
	timeout time.Duration
	err     error
	id      string
}

// New returns the share of that name on client's Redis. A nil client, a name that
// is empty, longer than 256 bytes or has a brace in it, and every fault of cfg are
// errors of Join, so that New can stand in a literal.
//
// Shares of one name are the same share, whatever process and client they are
// made by. Give different promises different names: a MaxRate and a MaxLimit
// under one name are an error of Join too.
func New(client redis.Scripter, name string, cfg Config) *Share {
	s := &Share{client: client, name: name, keys: keysOf(name), id: cfg.Instance}
	s.terms, s.timeout, s.err = cfg.resolve()
	if isNil(client) {
		s.err = errors.Join(errors.New(prefix+"client is nil"), s.err)
	}
	if name == "" || len(name) > 256 || strings.ContainsAny(name, "{}") {
		s.err = errors.Join(fmt.Errorf("%sname is %q, want 1 to 256 bytes without { and }", prefix, name), s.err)
	}
	return s
}

func isNil(v any) bool {
	if v == nil {
		return true
	}
	r := reflect.ValueOf(v)
	return r.Kind() == reflect.Pointer && r.IsNil()
}

// resolve returns the terms with every default filled in, and every fault.
func (c Config) resolve() (t terms, timeout time.Duration, err error) {
	var faults []error
	check := func(ok bool, field string, value any, allowed string) {
		if !ok {
			faults = append(faults, fmt.Errorf("%s%s is %v, want %s", prefix, field, value, allowed))
		}
	}
	orDefault := func(d, other time.Duration) time.Duration {
		if d == 0 {
			return other
		}
		return d
	}
	within := func(x, lo, hi float64) bool { return x >= lo && x <= hi }

	t.kind = rateKind
	if c.MaxLimit != 0 {
		t.kind = limitKind
	}
	check(c.MaxRate == 0 || c.MaxLimit == 0, "MaxLimit", c.MaxLimit, "0 beside a MaxRate")
	most, least := c.MaxRate, c.MinRate
	if t.kind == rateKind {
		check(within(most, 0.001, 1e9), "MaxRate", most, "0.001 to 1e+09 (or a MaxLimit)")
		if least == 0 {
			least = 0.001
		}
		check(within(least, 0.001, most), "MinRate", least, fmt.Sprintf("0.001 to MaxRate = %v", most))
		check(c.MinLimit == 0, "MinLimit", c.MinLimit, "0 beside a MaxRate")
		check(c.CallTime == 0, "CallTime", c.CallTime, "0 beside a MaxRate")
	} else {
		most, least = float64(c.MaxLimit), float64(c.MinLimit)
		check(within(most, 1, math.MaxInt32), "MaxLimit", c.MaxLimit, "1 to 2147483647")
		if least == 0 {
			least = 1
		}
		check(within(least, 1, most), "MinLimit", c.MinLimit, fmt.Sprintf("1 to MaxLimit = %d", c.MaxLimit))
		check(c.MinRate == 0, "MinRate", c.MinRate, "0 beside a MaxLimit")
		check(c.CallTime >= 0 && c.CallTime <= time.Hour, "CallTime", c.CallTime, "0 to 1h")
	}
	t.lease = orDefault(c.Lease, 3*time.Second)
	check(t.lease >= 300*time.Millisecond && t.lease <= 5*time.Minute, "Lease", t.lease, "300ms to 5m")
	t.fallbackFor = orDefault(c.FallbackFor, max(10*time.Minute, t.lease))
	check(t.fallbackFor >= t.lease && t.fallbackFor <= 24*time.Hour, "FallbackFor", t.fallbackFor, fmt.Sprintf("Lease = %v to 24h", t.lease))
	timeout = orDefault(c.Timeout, t.lease/6)
	check(timeout > 0 && timeout <= t.lease/3, "Timeout", timeout, fmt.Sprintf("above 0, at most Lease/3 = %v", t.lease/3))
	t.drain = c.CallTime
	check(len(c.Instance) <= 128, "Instance", fmt.Sprintf("%.40q…", c.Instance), "at most 128 bytes")

	t.fixed = -1
	if c.Fallback.fixed {
		f := c.Fallback.amount
		check(within(f, 0, most), "Fallback", f, fmt.Sprintf("0 to the promise of %v", most))
		if f > 0 {
			least = max(least, f)
		}
		t.fixed = t.kind.units(f)
	}
	if len(faults) > 0 {
		return t, timeout, errors.Join(faults...)
	}
	t.promise, t.floor, t.cap = t.kind.units(most), t.kind.units(least), t.kind.units(most)
	return t, timeout, nil
}

// Join makes lim a member: from now on its bounds follow the member's part of the
// promise, and it never gets more than the MaxRate of its own Config. Its control
// law goes on between MinRate and the part; a lim with MinRate equal to MaxRate
// has its whole part as a fixed rate. lim must have been started, and must be in
// one share only. While its part is 0 lim is paused.
//
// Join asks Redis at once and waits for the answer, for ctx or the time-out at
// most. A Redis that cannot be reached is no error: the member stops lim and
// begins by itself when Redis is there. An error is what will not mend by itself:
// a fault of Config or name, a command that Redis refuses or does not know, a key
// that holds something else, a share of the other kind or with another Lease,
// and a promise that has no room for one more MinRate. lim is then left stopped,
// not without a limit.
func (s *Share) Join(ctx context.Context, lim *agilelimiter.Limiter) (*Member, error) {
	if lim == nil {
		return nil, errors.Join(errors.New(prefix+"Join: nil Limiter"), s.err)
	}
	return s.join(ctx, &rateHand{lim: lim}, rateKind, "Join of a Limiter needs a share with MaxRate")
}

// JoinConcurrency is Join for a share with MaxLimit. Calls that were in flight
// when a limit was lowered are counted until they end, while Redis can be reached;
// otherwise for Config.CallTime.
func (s *Share) JoinConcurrency(ctx context.Context, lim *agilelimiter.ConcurrencyLimiter) (*Member, error) {
	if lim == nil {
		return nil, errors.Join(errors.New(prefix+"JoinConcurrency: nil ConcurrencyLimiter"), s.err)
	}
	return s.join(ctx, &limitHand{lim: lim}, limitKind, "JoinConcurrency needs a share with MaxLimit")
}

func (s *Share) join(ctx context.Context, hand hand, k kind, mismatch string) (*Member, error) {
	err := s.err
	if err == nil && s.terms.kind != k {
		err = errors.New(prefix + mismatch)
	}
	own := hand.stop()
	if err != nil {
		return nil, err
	}
	t := s.terms
	t.cap = min(t.cap, t.kind.units(own))
	t.floor = min(t.floor, t.cap)
	now := time.Now()
	m := &Member{share: s, hand: hand, holder: holder{terms: t, id: s.id, nonce: now.UnixMicro()}}
	if m.holder.id == "" {
		m.holder.id = rand.Text()
	}
	if err := m.begin(ctx, now); err != nil {
		return nil, fmt.Errorf("%w (share %q)", err, s.name)
	}
	return m, nil
}
