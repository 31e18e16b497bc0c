package agilelimiter

import "context"

// Admitter is what Do and DoContext accept: a *Limiter or a
// *ConcurrencyLimiter, or a type that embeds one of them.
type Admitter interface {
	Admit(ctx context.Context) (Call, error)
	// judge says what a finished call proves; truncated: its time-out ended it.
	judge(ctx context.Context, err error) (o Outcome, truncated bool)
}

// Do runs fn under lim and returns what fn returns, for calls with a result; it
// is the generic form of Limiter.Do and ConcurrencyLimiter.Do. One name serves
// both: what differs is how lim admits, not how it is used.
func Do[T any](lim Admitter, fn func() (T, error)) (T, error) {
	return DoContext(context.Background(), lim, func(context.Context) (T, error) { return fn() })
}

// DoContext is Do with a context, which it passes on to fn: the generic form of
// Limiter.DoContext and ConcurrencyLimiter.DoContext.
func DoContext[T any](ctx context.Context, lim Admitter, fn func(context.Context) (T, error)) (v T, err error) {
	call, err := lim.Admit(ctx)
	if err != nil {
		return v, err
	}
	ended := false
	// Deferred, so that a panic or Goexit in fn or Classify ends the call too,
	// without evidence. It is not recovered: the caller's panic goes on.
	defer func() {
		if !ended {
			defer call.Release() // where it is the Clock that panics
			call.End(Aborted, call.Age())
		}
	}()
	v, err = fn(ctx)
	o, truncated := lim.judge(ctx, err)
	call.finish(o, call.Age(), truncated)
	ended = true
	return v, err
}

// discard adapts a function without a result to DoContext.
func discard(fn func(context.Context) error) func(context.Context) (struct{}, error) {
	return func(ctx context.Context) (struct{}, error) { return struct{}{}, fn(ctx) }
}
