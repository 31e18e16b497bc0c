package exam

import "time"

// event is something that happens at a time. Events of one time happen in the
// order in which they were scheduled, so that every run repeats.
type event struct {
	at, seq int64
	kind    kind
	gen     uint32 // of what arg names; an outdated event is skipped
	arg     int32
}

type kind uint8

const (
	arrive kind = iota // the next call of the open load
	burst              // many calls at one instant
	think              // a closed-loop caller calls: arg is the caller
	retry              // a call is tried again: arg is the call
	served             // a worker is done: arg is the call
	shared             // the first call leaves a processor-sharing stage: arg is the stage
	answer             // a call ends with what it holds: arg is the call
	expire             // the oldest time-out is over
	poll               // the head of a queue of waiting callers asks again: arg is the instance
	fire               // a limiter's timer: arg is the timer
	edge               // the plant changes
	sample             // a bin of the account ends
	begin              // a limiter starts to adapt, joins or leaves: arg is the instance
)

// events is a heap with four children a node: shallower than two, and the
// children share a cache line or two.
type events struct {
	h   []event
	seq int64
}

func (e *events) push(at int64, k kind, arg int32, gen uint32) {
	e.seq++
	x := event{at: at, seq: e.seq, kind: k, gen: gen, arg: arg}
	e.h = append(e.h, x)
	i := len(e.h) - 1
	for i > 0 {
		up := (i - 1) / 4
		if !x.before(&e.h[up]) {
			break
		}
		e.h[i] = e.h[up]
		i = up
	}
	e.h[i] = x
}

func (x *event) before(y *event) bool { return x.at < y.at || x.at == y.at && x.seq < y.seq }

func (e *events) pop() event {
	first, last := e.h[0], len(e.h)-1
	x := e.h[last]
	e.h = e.h[:last]
	i := 0
	for {
		child := 4*i + 1
		if child >= last {
			break
		}
		least := child
		for c := child + 1; c < min(child+4, last); c++ {
			if e.h[c].before(&e.h[least]) {
				least = c
			}
		}
		if !e.h[least].before(&x) {
			break
		}
		e.h[i] = e.h[least]
		i = least
	}
	if last > 0 {
		e.h[i] = x
	}
	return first
}

// ring is a first-in-first-out queue without allocation in the long run.
type ring[T any] struct {
	buf        []T
	head, size int
}

func (r *ring[T]) push(v T) {
	if r.size == len(r.buf) {
		bigger := make([]T, max(16, 2*len(r.buf)))
		for i := range r.size {
			bigger[i] = r.buf[(r.head+i)%len(r.buf)]
		}
		r.buf, r.head = bigger, 0
	}
	r.buf[(r.head+r.size)%len(r.buf)] = v
	r.size++
}

func (r *ring[T]) first() T { return r.buf[r.head] }

func (r *ring[T]) pop() T {
	v := r.buf[r.head]
	r.head = (r.head + 1) % len(r.buf)
	r.size--
	return v
}

func ns(d time.Duration) int64 { return int64(d) }
