package limitergrpc

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"agilelimiter"
)

// UnaryClientInterceptor takes a slot of lim for every call and reports to lim
// what came of it.
//
// Waiting for the slot honours the call's context. A wait that fails ends the
// call before it is sent, with a status: DeadlineExceeded where the deadline has
// passed or cannot be met by the queue, Canceled where the caller gave up,
// ResourceExhausted where the queue is full. The error also matches
// agilelimiter.ErrWait and the context's error, or agilelimiter.ErrQueueFull.
//
// A call that was sent is judged once, by DefaultClientVerdict or WithVerdict;
// Config.Classify is not consulted. Not judged, but counted as Aborted, are calls
// that failed after their caller had cancelled them, and those in which the
// invoker or the Verdict panicked or called runtime.Goexit; the panic goes on. A
// deadline that ends the call is not a cancellation: judged Reached, it is
// reported by ObserveTruncated.
//
// It panics if lim or an option is nil.
func UnaryClientInterceptor(lim *agilelimiter.Limiter, opts ...ClientOption) grpc.UnaryClientInterceptor {
	e := newClient(lim, opts)
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		c, err := e.begin(ctx, lim, e.unary)
		if err != nil {
			return err
		}
		defer c.abandon()
		err = invoker(ctx, method, req, reply, cc, c.withTrailer(opts)...)
		c.finish(err)
		return err
	}
}

// StreamClientInterceptor is UnaryClientInterceptor for streams: one slot each.
// A stream is in flight from its slot to its end and then counts as Aborted
// unless WithStreamVerdict asks for its duration. Its end is known from
// grpc.OnFinish, so the connection must be a *grpc.ClientConn, and the caller
// must end the stream in one of the ways that grpc.ClientConn.NewStream lists.
// A Verdict then runs in the goroutine that ended it, which may be one of
// grpc-go's own.
func StreamClientInterceptor(lim *agilelimiter.Limiter, opts ...ClientOption) grpc.StreamClientInterceptor {
	e := newClient(lim, opts)
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		c, err := e.begin(ctx, lim, e.stream)
		if err != nil {
			return nil, err
		}
		returned := false
		defer func() {
			if !returned {
				c.abandon()
			}
		}()
		// Clip: the slice is the caller's, and may be used for calls side by side.
		stream, err := streamer(ctx, desc, cc, method, append(c.withTrailer(slices.Clip(opts)), grpc.OnFinish(c.finish))...)
		returned = true
		if err != nil {
			c.finish(err) // it may have failed before grpc-go came to know of it
		}
		return stream, err
	}
}

func newClient(lim *agilelimiter.Limiter, opts []ClientOption) evidence {
	if lim == nil {
		panic(prefix + "nil Limiter")
	}
	e := evidence{unary: DefaultClientVerdict}
	for _, o := range opts {
		if o == nil {
			panic(prefix + "nil ClientOption")
		}
		o.applyClient(&e)
	}
	return e
}

// call is a call that has a slot. Its end is reported once, whoever comes first.
type call struct {
	ctx      context.Context
	lim      *agilelimiter.Limiter
	verdict  Verdict
	start    time.Duration
	maxPause time.Duration // 0: pushback is not read
	trailer  metadata.MD   // filled in by grpc-go before the call ends
	once     sync.Once
}

// begin waits for a slot.
func (e *evidence) begin(ctx context.Context, lim *agilelimiter.Limiter, v Verdict) (*call, error) {
	start, err := lim.Begin(ctx)
	if err != nil {
		return nil, refusedWait(err)
	}
	return &call{ctx: ctx, lim: lim, verdict: v, start: start, maxPause: e.maxPause}, nil
}

// withTrailer adds to the options of a call what its end needs.
func (c *call) withTrailer(opts []grpc.CallOption) []grpc.CallOption {
	if c.maxPause == 0 {
		return opts
	}
	return append(slices.Clip(opts), grpc.Trailer(&c.trailer))
}

// finish ends the call with the error that the caller sees.
func (c *call) finish(err error) {
	c.once.Do(func() {
		d := c.lim.Elapsed() - c.start
		if c.maxPause > 0 && err != nil {
			if pause := pauseFor(err, c.trailer, c.maxPause); pause > 0 {
				c.lim.Pause(pause)
			}
		}
		found := aborted
		defer func() { found.report(c.lim, d) }() // a panicking verdict is no evidence either
		if cancelled, timedOut := agilelimiter.Interrupted(c.ctx); err == nil || !cancelled {
			found = judge(c.verdict, err, timedOut, d)
		}
	})
}

// abandon ends the call without evidence, if nothing else has.
func (c *call) abandon() {
	c.once.Do(func() { aborted.report(c.lim, c.lim.Elapsed()-c.start) })
}
