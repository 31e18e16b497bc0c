package exam

import (
	"fmt"
	"math"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	kratoslimit "github.com/go-kratos/aegis/ratelimit"
	"github.com/go-kratos/aegis/ratelimit/bbr"
	"go.uber.org/ratelimit"
	"golang.org/x/time/rate"
)

// Peers returns the limiters of others, and none.
func Peers() []Arm {
	failsafe := func(n *run, i int) limiter { return newFailsafe(n, i) }
	return []Arm{
		{Name: "none", make: func(*run, int) limiter { return none{} }},
		{Name: "uber", waits: true, make: newUber},
		{Name: "xtime", waits: true, make: newXTime},
		{Name: "cubic", waits: true, make: newCubic},
		{Name: "vegas", make: newVegas},
		{Name: "gradient2", make: newGradient2},
		{Name: "failsafe", bubble: true, make: failsafe},
		{Name: "failsafe-wait", bubble: true, waits: true, frees: true, make: failsafe},
		{Name: "kratos", bubble: true, make: newKratos},
	}
}

// fixedShare is the part of the capacity that whoever sets a rate by hand
// leaves as a margin against chance. He has measured the capacity at the start.
const fixedShare = 0.93

func (n *run) fixedRate() float64 { return fixedShare * n.spec.rightRate() / float64(n.spec.Fleet) }

// none lets everything through.
type none struct{}

func (none) take(int32) bool                    { return true }
func (none) due() int64                         { return 0 }
func (none) done(int32, outcome, time.Duration) {}
func (none) target() float64                    { return 0 }

// uber is go.uber.org/ratelimit at a fixed rate. Its Take sleeps, on a clock
// that only notes for how long.
type uber struct {
	none
	ratelimit.Limiter
	run   *run
	rate  float64
	until int64 // of the slot that Take gave; -1: none
}

func newUber(n *run, _ int) limiter { return fixedUber(n, n.fixedRate()) }

func fixedUber(n *run, rate float64) limiter {
	u := &uber{run: n, rate: rate, until: -1}
	u.Limiter = ratelimit.New(1, ratelimit.Per(time.Duration(1e9/u.rate)), ratelimit.WithClock(u))
	return u
}

func (u *uber) Now() time.Time        { return epoch.Add(time.Duration(u.run.now)) }
func (u *uber) Sleep(d time.Duration) { u.until = u.run.now + ns(d) }
func (u *uber) target() float64       { return u.rate }

func (u *uber) due() int64 {
	if u.until < 0 {
		u.until = u.run.now
		u.Take()
	}
	return u.until
}

func (u *uber) take(int32) bool {
	if u.due() > u.run.now {
		return false
	}
	u.until = -1
	return true
}

// xtime is golang.org/x/time/rate at a fixed rate with the smallest burst.
type xtime struct {
	none
	*rate.Limiter
	run *run
}

func newXTime(n *run, _ int) limiter {
	return &xtime{Limiter: rate.NewLimiter(rate.Limit(n.fixedRate()), 1), run: n}
}

func (x *xtime) now() time.Time  { return epoch.Add(time.Duration(x.run.now)) }
func (x *xtime) take(int32) bool { return x.AllowN(x.now(), 1) }
func (x *xtime) target() float64 { return float64(x.Limit()) }

func (x *xtime) due() int64 {
	missing := 1 - x.TokensAt(x.now())
	return x.run.now + int64(max(0, math.Ceil(missing/float64(x.Limit())*1e9)))
}

// wait is what Wait goes by: it fails at once when the deadline is too near.
func (x *xtime) wait(ahead int) int64 {
	return x.due() - x.run.now + int64(float64(ahead)/float64(x.Limit())*1e9)
}

// cubic is the adaptive retry mode of the AWS SDKs: a token bucket that is off
// until the first refusal, then follows TCP CUBIC: down by 30 % with a refusal,
// and back along a cubic curve that is flat where the last refusal was.
type cubic struct {
	run             *run
	on              bool
	fill, tokens    float64
	last            int64 // of the tokens
	measured        float64
	slice, sent     float64 // half seconds, and calls in the present one
	lastMax, window float64
	lastThrottle    int64
	least, most     float64
}

const (
	cubicScale  = 0.4
	cubicBeta   = 0.7
	cubicSmooth = 0.8
)

func newCubic(n *run, _ int) limiter {
	right := n.spec.rightRate() / float64(n.spec.Fleet)
	return &cubic{run: n, fill: right * n.spec.Start, tokens: 1, least: right * n.spec.Min, most: right * n.spec.Max}
}

func (c *cubic) refill() {
	c.tokens = min(max(1, c.fill), c.tokens+c.fill*float64(c.run.now-c.last)/1e9)
	c.last = c.run.now
}

func (c *cubic) take(int32) bool {
	if !c.on {
		return true
	}
	c.refill()
	if c.tokens < 1-1e-9 {
		return false
	}
	c.tokens--
	return true
}

func (c *cubic) due() int64 {
	if !c.on {
		return c.run.now
	}
	c.refill()
	return c.run.now + int64(max(0, math.Ceil((1-c.tokens)/c.fill*1e9)))
}

func (c *cubic) done(_ int32, o outcome, _ time.Duration) {
	c.sent++
	if slice := math.Floor(float64(c.run.now) / 5e8); slice > c.slice {
		c.measured = c.sent/(slice-c.slice)*2*cubicSmooth + c.measured*(1-cubicSmooth)
		c.sent, c.slice = 0, slice
	}
	var x float64
	if o == refused || o == busy || o == timedOut {
		at := c.measured
		if c.on {
			at = min(c.measured, c.fill)
		}
		c.lastMax, c.lastThrottle, c.on = at, c.run.now, true
		c.window = math.Cbrt(at * (1 - cubicBeta) / cubicScale)
		x = at * cubicBeta
	} else {
		t := float64(c.run.now-c.lastThrottle)/1e9 - c.window
		x = cubicScale*t*t*t + c.lastMax
	}
	if c.on {
		c.refill()
		c.fill = bounded(min(x, 2*c.measured), c.least, c.most)
	}
}

func (c *cubic) target() float64 { return c.fill }

// failsafe is failsafe-go's adaptive limiter with its defaults, but for the
// bounds, which all arms share. It is told of a call's end in the way that suits
// it best: a permit is dropped whenever the duration is no evidence, as the
// documentation of Permit says.
type failsafe struct {
	adaptivelimiter.AdaptiveLimiter[any]
	permits map[int32]adaptivelimiter.Permit
}

func newFailsafe(n *run, _ int) *failsafe {
	least, most, start := n.limits()
	return &failsafe{
		adaptivelimiter.NewBuilder[any]().WithLimits(uint(least), uint(most), uint(start)).Build(),
		map[int32]adaptivelimiter.Permit{},
	}
}

func (f *failsafe) take(id int32) bool {
	permit, ok := f.TryAcquirePermit()
	if ok {
		f.permits[id] = permit
	}
	return ok
}

// due is at once or never: the one that waits asks again when a call has ended,
// as the first in the queue of its own would be let in.
func (f *failsafe) due() int64 {
	if f.Inflight() < f.Limit() {
		return 0
	}
	return never
}

func (f *failsafe) done(id int32, o outcome, _ time.Duration) {
	permit := f.permits[id]
	delete(f.permits, id)
	if o == answered {
		permit.Record()
	} else {
		permit.Drop()
	}
}

func (f *failsafe) target() float64 { return float64(f.Limit()) }

// kratos is the BBR limiter of go-kratos. Its law works only while the CPU of
// the own machine is busy; the threshold is set to 0, so that it always does.
type kratos struct {
	*bbr.BBR
	ends map[int32]kratoslimit.DoneFunc
}

func newKratos(*run, int) limiter {
	return &kratos{bbr.NewLimiter(bbr.WithCPUThreshold(0)), map[int32]kratoslimit.DoneFunc{}}
}

func (k *kratos) take(id int32) bool {
	end, err := k.Allow()
	if err == nil {
		k.ends[id] = end
	}
	return err == nil
}

func (k *kratos) due() int64 { return never }

func (k *kratos) done(id int32, _ outcome, _ time.Duration) {
	k.ends[id](kratoslimit.DoneInfo{})
	delete(k.ends, id)
}

func (k *kratos) target() float64 { return float64(k.Stat().MaxInFlight) }

// Uber is uber's limiter at a rate of one's own choice, in calls a second.
func Uber(rate float64) Arm {
	return Arm{Name: fmt.Sprintf("uber(%v)", rate), waits: true, make: func(n *run, _ int) limiter { return fixedUber(n, rate) }}
}
