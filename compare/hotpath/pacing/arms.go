package main

import (
	"context"
	"time"

	"agilelimiter"

	"github.com/failsafe-go/failsafe-go/ratelimiter"
	juju "github.com/juju/ratelimit"
	uber "go.uber.org/ratelimit"
	xrate "golang.org/x/time/rate"
)

// An arm builds a limiter of so many requests per second. take waits for one
// departure and reports whether the caller may go on; stop ends what the
// limiter runs.
type arm struct {
	name  string
	start func(rate int) (take func(context.Context) bool, stop func())
}

var arms = []arm{
	{"uber", func(rate int) (func(context.Context) bool, func()) {
		l := uber.New(rate)
		return func(ctx context.Context) bool { l.Take(); return ctx.Err() == nil }, func() {}
	}},
	{"uber, no slack", func(rate int) (func(context.Context) bool, func()) {
		l := uber.New(rate, uber.WithoutSlack)
		return func(ctx context.Context) bool { l.Take(); return ctx.Err() == nil }, func() {}
	}},
	{"x-time", func(rate int) (func(context.Context) bool, func()) {
		l := xrate.NewLimiter(xrate.Limit(rate), 1)
		return func(ctx context.Context) bool { return l.Wait(ctx) == nil }, func() {}
	}},
	{"juju", func(rate int) (func(context.Context) bool, func()) {
		l := juju.NewBucketWithRate(float64(rate), 1)
		return func(ctx context.Context) bool { l.Wait(1); return ctx.Err() == nil }, func() {}
	}},
	{"failsafe", func(rate int) (func(context.Context) bool, func()) {
		l := ratelimiter.NewSmoothWithMaxRate[any](time.Second / time.Duration(rate))
		return func(ctx context.Context) bool { return l.AcquirePermit(ctx) == nil }, func() {}
	}},
	{"agilelimiter", func(rate int) (func(context.Context) bool, func()) {
		// Its controller runs, with the floor at the ceiling: pacing is what
		// is measured, not the law.
		l := agilelimiter.New(agilelimiter.Config{MinRate: float64(rate), MaxRate: float64(rate)})
		l.Start()
		return func(ctx context.Context) bool {
			_, err := l.TakeContext(ctx)
			return err == nil
		}, l.Stop
	}},
}
