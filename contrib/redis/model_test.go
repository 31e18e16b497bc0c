package redisshare

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

// model is the script's other self, in Go: the simulation runs on it, and
// TestScriptIsTheModel compares the two on a real server, answer by answer.
type model struct {
	kind               kind
	lease, ffor, drain int64
	run, gen           int64
	clk, last, next    int64

	live, silent           int64
	sum, silentSum, floors int64
	level, slack           float64
	due                    int64

	pool, n, known, oldF int64
	graceEnd, unknownEnd int64
	fNow, fBefore, fTurn int64
	promises             map[int64]int64
	members              map[string]record
	demand               histogram
	begun                bool
}

type record struct {
	nonce, seq, c, u, f, uf, floor, x, promise, joined, state int64
}

const (
	live   = 1
	silent = 2
	left   = 3
)

func (m *model) clone() *model {
	c := *m
	c.promises, c.members, c.demand = maps.Clone(m.promises), maps.Clone(m.members), maps.Clone(m.demand)
	return &c
}

// histogram counts demands by bucket of an eighth of an octave.
type histogram map[int64][2]int64 // bucket -> members, sum of their demands

func bucket(x int64) int64 {
	if x <= 0 {
		return 0
	}
	frac, exp := math.Frexp(float64(x))
	return int64(exp)*8 + int64((frac-0.5)*16)
}

func (h histogram) count(x, n int64) {
	b := bucket(x)
	d := h[b]
	h[b] = [2]int64{d[0] + n, d[1] + n*x}
}

// fill returns the level of max-min fairness: everybody gets the lesser of its
// demand and the level, which together is left. Where that leaves something over,
// level is -1 and slack is what each of the n gets on top.
func (h histogram) fill(left, n int64) (level, slack float64) {
	rest, of := float64(left), float64(n)
	for _, b := range slices.Sorted(maps.Keys(h)) {
		bn, bs := float64(h[b][0]), float64(h[b][1])
		if bn <= 0 {
			continue
		}
		if bs*of >= rest*bn {
			return rest / of, 0
		}
		rest, of = rest-bs, of-bn
	}
	return -1, rest / float64(n)
}

func (m *model) reset(now, run int64, q *request) {
	gen := now
	if m.begun {
		gen = max(gen, m.gen+1)
	} else {
		gen = max(gen, 1)
	}
	gen = max(gen, q.gen+1)
	lease, ffor, drain := q.lease.Microseconds(), q.fallbackFor.Microseconds(), q.drain.Microseconds()
	*m = model{
		begun: true, kind: q.kind, lease: lease, ffor: ffor, drain: drain, run: run, gen: gen, last: now,
		graceEnd:   lease + lease/50 + lease/3 + drain,
		unknownEnd: ffor + ffor/50 + lease/3 + drain,
		promises:   map[int64]int64{}, members: map[string]record{}, demand: histogram{},
	}
}

func (m *model) promise(p, n int64) {
	if m.promises[p] += n; m.promises[p] <= 0 {
		delete(m.promises, p)
	}
}

func (m *model) lowest(p int64) int64 {
	for k := range m.promises {
		p = min(p, k)
	}
	return p
}

// retire takes r out of the sums of its state.
func (m *model) retire(r record) {
	switch r.state {
	case live:
		m.demand.count(r.x, -1)
		m.floors -= r.floor
		m.live--
	case silent:
		m.silentSum -= r.f
		m.silent--
	default:
		return
	}
	m.sum -= r.c
	m.promise(r.promise, -1)
}

func (m *model) sweep() {
	if m.clk < m.next {
		return
	}
	type due struct {
		id string
		u  int64
	}
	var all []due
	for id, r := range m.members {
		if r.u <= m.clk {
			all = append(all, due{id, r.u})
		}
	}
	slices.SortFunc(all, func(a, b due) int { return cmp.Or(cmp.Compare(a.u, b.u), cmp.Compare(a.id, b.id)) })
	if len(all) < 64 {
		m.next = m.clk + m.lease/100
	}
	for _, d := range all[:min(len(all), 64)] {
		r := m.members[d.id]
		keeps := r.state == live && r.f > 0 && r.uf > m.clk
		m.retire(r)
		if !keeps {
			delete(m.members, d.id)
			continue
		}
		m.promise(r.promise, 1)
		m.sum, m.silentSum, m.silent = m.sum+r.f, m.silentSum+r.f, m.silent+1
		r.c, r.u, r.state = r.f, r.uf, silent
		m.members[d.id] = r
	}
}

func says(status string, n ...int64) reply { return reply{status, n} }

// answer is share.lua with the clock's reading and the run's name given.
func (m *model) answer(now, run int64, q *request) reply {
	if !m.begun || m.run != run || q.gen > m.gen {
		m.reset(now, run, q)
	}
	m.clk += min(max(now-m.last, 0), m.lease/3)
	m.last = now
	if m.kind != q.kind {
		return says(statusKind)
	}
	if m.lease != q.lease.Microseconds() || m.ffor != q.fallbackFor.Microseconds() || m.drain != q.drain.Microseconds() {
		return says(statusTimes, m.lease, m.ffor, m.drain)
	}
	if q.gen != m.gen {
		return says(statusGen, m.gen)
	}
	m.sweep()
	r, known := m.members[q.id]
	if known && r.nonce > q.nonce {
		return says(statusReplaced)
	}
	if known && r.nonce == q.nonce && q.seq <= r.seq {
		return says(statusOld)
	}
	if q.op == opLeave {
		if known && r.nonce == q.nonce && r.state != left {
			m.retire(r)
			r.seq, r.c, r.f, r.floor, r.x, r.state, r.u = q.seq, 0, 0, 0, 0, left, m.clk+m.lease
			m.members[q.id] = r
		}
		return says(statusOK)
	}
	if p := m.lowest(q.promise); !known && !q.was && q.hold == 0 && m.floors+q.floor > p {
		return says(statusFull, m.live, m.floors, p)
	}

	joined := m.clk
	if known {
		m.retire(r)
		if r.state != left && r.nonce == q.nonce {
			joined = r.joined
		}
	} else {
		if q.was {
			joined = -m.lease
			m.pool, m.known = m.pool+q.hold, m.known+1
		}
		m.n, m.oldF = max(m.n, q.viewN), max(m.oldF, q.viewF)
	}
	m.promise(q.promise, 1)
	m.live, m.floors, m.sum = m.live+1, m.floors+q.floor, m.sum+q.hold
	p := m.lowest(q.promise)
	total, unknown := m.total(p)

	x := q.want + q.want/64 + p/(128*m.live) - q.floor
	x = max(min(x, q.cap-q.floor), 0)
	m.demand.count(x, 1)
	if m.due--; m.due <= 0 {
		m.due = m.live / 16
		m.level, m.slack = m.demand.fill(max(total-m.silentSum-m.floors, 0), m.live)
	}
	luck := float64(q.luck) / 1000
	target := q.floor + x + int64(math.Floor(m.slack+luck))
	if m.level >= 0 {
		target = q.floor + min(x, int64(math.Floor(m.level+luck)))
	}
	target = min(target, q.cap)

	a := min(target, q.hold+max(total-m.sum, 0))
	c := max(a, q.hold)
	m.sum += c - q.hold
	var f int64
	if m.clk-joined >= m.lease {
		f = p / (m.live + m.silent)
		if q.fixed >= 0 {
			f = q.fixed
		}
		f = min(f, a)
	}
	if m.clk-m.fTurn > m.ffor+m.ffor/50+m.lease/3 {
		m.fNow, m.fBefore, m.fTurn = 0, m.fNow, m.clk
	}
	m.fNow = max(m.fNow, f)
	m.members[q.id] = record{
		nonce: q.nonce, seq: q.seq, c: c, f: max(f, q.fall), floor: q.floor, x: x,
		promise: q.promise, joined: joined, state: live,
		u:  m.clk + m.lease + m.lease/50 + m.lease/3 + m.drain,
		uf: m.clk + m.ffor + m.ffor/50 + m.lease/3 + m.drain,
	}
	viewF := max(m.fNow, m.fBefore)
	if unknown > 0 {
		viewF = max(viewF, m.oldF)
	}
	var disagree, grace int64
	if len(m.promises) > 1 {
		disagree = 1
	}
	if m.clk < m.graceEnd {
		grace = 1
	}
	return says(statusOK, m.gen, a, f, m.live+m.silent+unknown, viewF, p, disagree, m.live, m.sum, m.silentSum, grace)
}

// total returns what may be counted in all, and how many members of an earlier
// memory have not come back.
func (m *model) total(p int64) (total, unknown int64) {
	if m.clk < m.unknownEnd {
		unknown = max(m.n-m.known, 0)
	}
	switch {
	case m.clk < m.graceEnd:
		return min(p, m.pool), unknown
	case unknown > 0:
		return p - min(unknown*m.oldF, max(p-m.pool, 0)), unknown
	}
	return p, unknown
}
