package redisshare

import (
	"fmt"
	"time"
)

// kind says what a share divides, and so what a unit of an amount is.
type kind int64

const (
	rateKind  kind = 1 // units of 0.001 req/s, the least that a Limiter can have
	limitKind kind = 2 // units of one call in flight
)

// terms are what a member asks for and does not change.
type terms struct {
	kind                      kind
	lease, fallbackFor, drain time.Duration
	promise, floor, cap       int64 // units
	fixed                     int64 // the fallback in units; below 0: an equal part
}

// request is one renewal as the script reads it.
type request struct {
	op    string
	id    string
	nonce int64 // the start of the process in µs: a later one takes over the id
	seq   int64
	gen   int64 // the server's memory that the member speaks to
	terms
	want       int64
	hold, fall int64 // in force now or later without another grant, and of this the fallback
	viewN      int64 // members that may hold something, as another memory told; else 0
	viewF      int64 // the largest fallback of one of them
	was        bool  // that memory gave this member something that is in force
	luck       int64 // 0 to 999: who gets the odd unit
}

// args returns r in the order in which the script reads it.
func (r *request) args() []any {
	was := 0
	if r.was {
		was = 1
	}
	return []any{
		r.op, r.id, r.nonce, r.seq, r.gen, int64(r.kind),
		r.lease.Microseconds(), r.fallbackFor.Microseconds(), r.drain.Microseconds(),
		r.promise, r.floor, r.cap, r.fixed, r.want, r.hold, r.fall, r.viewN, r.viewF, was, r.luck,
	}
}

// reply is what the script answers.
type reply struct {
	status  string
	numbers []int64
}

const (
	statusOK       = "OK"       // gen, part, fallback, n, largest fallback, promise, disagreement, live, sum, silent, recovering
	statusGen      = "GEN"      // gen: another memory; say again what you hold
	statusOld      = "OLD"      // an older request than the last one
	statusFull     = "FULL"     // live, their floors, promise: no room for one more
	statusReplaced = "REPLACED" // a later process has this id
	statusKind     = "KIND"     // the share divides something else
	statusTimes    = "TIMES"    // lease, fallbackFor, drain of the share
)

// parseReply reads what the client returns for the script's answer.
func parseReply(v any) (reply, error) {
	list, ok := v.([]any)
	if !ok || len(list) == 0 {
		return reply{}, refuse("unexpected answer of the script: %v", v)
	}
	status, ok := list[0].(string)
	if !ok {
		return reply{}, refuse("unexpected answer of the script: %v", v)
	}
	r := reply{status: status}
	for _, item := range list[1:] {
		n, ok := item.(int64)
		if !ok {
			return reply{}, refuse("unexpected answer of the script: %v", v)
		}
		r.numbers = append(r.numbers, n)
	}
	want := map[string]int{statusOK: 11, statusGen: 1, statusFull: 3, statusTimes: 3}[status]
	if len(r.numbers) < want && r.status != statusOK || r.status == statusOK && len(r.numbers) != want && len(r.numbers) != 0 {
		return reply{}, refuse("unexpected answer of the script: %v", v)
	}
	return r, nil
}

// margin is the part of every period by which the two sides differ, each in its
// safe direction: it covers clocks that run 2 % too fast or too slow.
const margin = 50

// trusted is how long a member relies on a period, by its own clock.
func trusted(d time.Duration) time.Duration { return d - d/margin }

// elapsed is the time between two readings. The monotonic clock stands still
// while a machine is suspended and the wall clock may be set back, so the larger
// of the two counts: a lease may end early, but not late.
func elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// holder is one member's side of the protocol. It does no input or output and
// reads no clock.
type holder struct {
	terms
	id         string
	nonce      int64
	seq, gen   int64
	registered bool // some memory has granted something
	replaced   bool
	luck       int64

	// Of the last grant.
	part, fall         int64
	since              time.Time // when its request was built
	from, viewN, viewF int64     // the memory that gave it, and what that one told
}

// inForce returns what the member may use at now.
func (h *holder) inForce(now time.Time) int64 {
	if !h.registered || h.replaced {
		return 0
	}
	age := elapsed(h.since, now)
	switch {
	case age < trusted(h.lease):
		return h.part
	case age < trusted(h.fallbackFor):
		return h.fall
	}
	return 0
}

// leased says whether a lease is in force at now.
func (h *holder) leased(now time.Time) bool {
	return h.registered && !h.replaced && elapsed(h.since, now) < trusted(h.lease)
}

// changes returns how long after now inForce changes by itself; 0: it does not.
func (h *holder) changes(now time.Time) time.Duration {
	if !h.registered || h.replaced {
		return 0
	}
	age := elapsed(h.since, now)
	for _, end := range []time.Duration{trusted(h.lease), trusted(h.fallbackFor)} {
		if age < end {
			return end - age
		}
	}
	return 0
}

// renewal builds the next request. busy is what is in use beyond any lease: calls
// in flight above a limit that was lowered.
func (h *holder) renewal(op string, now time.Time, want, busy int64) request {
	h.seq++
	r := request{
		op: op, id: h.id, nonce: h.nonce, seq: h.seq, gen: h.gen, terms: h.terms, want: max(want, 0),
		hold: max(h.inForce(now), busy), luck: h.luck,
	}
	if h.registered && elapsed(h.since, now) < trusted(h.fallbackFor) {
		r.fall = h.fall
		if h.from != h.gen {
			// Another memory must hear who else may hold something. With nothing
			// in force this is a new member: the old memory let go of it too.
			r.viewN, r.viewF = h.viewN, h.viewF
			r.was = r.hold > 0 || h.leased(now)
		}
	}
	if op == opLeave {
		r.hold, r.fall = busy, 0
	}
	return r
}

const (
	opRenew = "renew"
	opLeave = "leave"
)

// take takes in the answer to the request q, which was built at sent. again says
// that another request shall follow at once.
func (h *holder) take(q *request, sent, now time.Time, r reply) (again bool, err error) {
	switch r.status {
	case statusGen:
		h.gen = r.numbers[0]
		return true, nil
	case statusOld:
		return true, nil // a retry of the client has overtaken itself: ask anew
	case statusOK:
		if len(r.numbers) == 0 {
			return false, nil // to a leave
		}
		if elapsed(sent, now) >= trusted(h.lease) {
			return true, fmt.Errorf("%sthe answer came %v after the request, after the lease of %v", prefix, elapsed(sent, now), h.lease)
		}
		n := r.numbers
		h.gen, h.part, h.fall, h.from, h.viewN, h.viewF = n[0], n[1], n[2], n[0], n[3], n[4]
		h.since, h.registered = sent, true
		// What was given up is free for others once the server hears of it.
		return h.part < q.hold-q.hold/32, nil
	case statusReplaced:
		h.replaced = true
		return false, refuse("another process has joined as instance %q", h.id)
	case statusFull:
		return false, refuse("MinRate or MinLimit (or a fixed Fallback) of one more member does not fit: %d members have %s of the %s promised",
			r.numbers[0], h.kind.show(r.numbers[1]), h.kind.show(r.numbers[2]))
	case statusKind:
		return false, refuse("the share of this name divides the other kind: a MaxRate is not a MaxLimit")
	case statusTimes:
		us := func(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
		return false, refuse("the members of this share have Lease %v, FallbackFor %v and CallTime %v, not %v, %v and %v",
			us(r.numbers[0]), us(r.numbers[1]), us(r.numbers[2]), h.lease, h.fallbackFor, h.drain)
	}
	return false, refuse("unknown answer %q of the script", r.status)
}

// amount returns n units as a rate or a number of calls.
func (k kind) amount(n int64) float64 {
	if k == rateKind {
		return float64(n) / 1000
	}
	return float64(n)
}

// units returns x in whole units, rounded down, but for the error of 0.3 × 1000.
func (k kind) units(x float64) int64 {
	if k == rateKind {
		return int64(x*1000 + 1e-6)
	}
	return int64(x)
}

func (k kind) show(n int64) string {
	if k == rateKind {
		return fmt.Sprintf("%v req/s", k.amount(n))
	}
	return fmt.Sprintf("%d calls", n)
}
