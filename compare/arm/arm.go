// Package arm puts every limiter of the comparison behind one small interface.
// An arm is one file; All lists them.
package arm

import (
	"slices"
	"time"

	"agilelimiter/compare/plant"
)

// Limiter is a limiter at work. Its methods are safe for concurrent use.
type Limiter interface {
	// Acquire asks for leave to send one call and waits for it no longer than
	// Env.Wait. Without leave the call is shed; with it, done must be called
	// once, when the call has ended.
	Acquire() (done Done, ok bool)
	// Target is the rate in calls a second, or the limit in calls, that holds
	// now. It is what the plots show.
	Target() float64
	// Stop ends the limiter's goroutines.
	Stop()
}

// Done tells a limiter how a call ended and how long it took from its sending.
type Done func(o plant.Outcome, rtt time.Duration)

// Env is what an arm may know. Everything but Capacity is what whoever
// configures a limiter knows too.
type Env struct {
	SLO  time.Duration
	Wait time.Duration // the longest that callers wait for admission
	Seed uint64

	MinRate, MaxRate, InitialRate    float64
	MinLimit, MaxLimit, InitialLimit int

	// StartCapacity is what the downstream could do when it was measured,
	// before the run, in calls a second. Fixed rates are set by it.
	StartCapacity float64
	// Capacity is what it can do at this instant. Only the oracle asks.
	Capacity func() float64
}

// Arm is a way to make a Limiter.
type Arm struct {
	Name string
	New  func(Env) Limiter
}

// All returns the arms in the order of the tables, the oracle first.
func All() []Arm {
	arms := []Arm{
		{"oracle", newOracle},
		{"none", newNone},
		{"uber", newUber},
		{"xtime", newXTime},
		{"vegas", newVegas},
		{"gradient2", newGradient2},
		{"failsafe", newFailsafe},
		{"failsafe-wait", newFailsafeWait},
		{"kratos", newKratos},
	}
	return append(arms, ours()...)
}

// ByName returns the arms with these names, in this order.
func ByName(names ...string) (arms []Arm) {
	for _, name := range names {
		i := slices.IndexFunc(All(), func(a Arm) bool { return a.Name == name })
		if i < 0 {
			panic("compare: no arm " + name)
		}
		arms = append(arms, All()[i])
	}
	return arms
}

// FixedShare is the part of the capacity that whoever sets a rate by hand
// leaves as a margin against chance.
const FixedShare = 0.93
