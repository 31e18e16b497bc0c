package limitergrpc

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"agilelimiter"
)

// retryPushback is the trailer by which a server tells clients when to retry.
const retryPushback = "grpc-retry-pushback-ms"

// UnaryServerInterceptor admits calls to handlers under lim and refuses the rest
// at once: with codes.ResourceExhausted (WithCode), RetryInfo and the
// grpc-retry-pushback-ms trailer (WithRetryDelay). The error matches
// agilelimiter.ErrOverloaded in the interceptors around this one.
//
// An admitted call is judged once, by DefaultServerVerdict or WithVerdict;
// ConcurrencyConfig.Classify is not consulted. Not judged, but counted as
// Aborted, are calls whose client has cancelled or left before the handler
// returned, and those in which the handler or the Verdict panicked or called
// runtime.Goexit; the panic goes on. A deadline that ends the call is not a
// cancellation: judged Reached, it is reported by ObserveTruncated.
//
// It panics if lim or an option is nil.
func UnaryServerInterceptor(lim *agilelimiter.ConcurrencyLimiter, opts ...ServerOption) grpc.UnaryServerInterceptor {
	s := newServer(lim, opts)
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
		err = s.serve(ctx, s.unary, func(pushback metadata.MD) {
			// It fails only without a gRPC stream in ctx, where nobody waits for a trailer.
			_ = grpc.SetTrailer(ctx, pushback)
		}, func() error {
			resp, err = handler(ctx, req)
			return err
		})
		return resp, err
	}
}

// StreamServerInterceptor is UnaryServerInterceptor for streams. A stream holds
// its slot until the handler returns, and then counts as Aborted unless
// WithStreamVerdict asks for its duration.
func StreamServerInterceptor(lim *agilelimiter.ConcurrencyLimiter, opts ...ServerOption) grpc.StreamServerInterceptor {
	s := newServer(lim, opts)
	return func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		return s.serve(ss.Context(), s.stream, ss.SetTrailer, func() error { return handler(srv, ss) })
	}
}

// server is what the two server interceptors share.
type server struct {
	evidence
	lim        *agilelimiter.ConcurrencyLimiter
	code       codes.Code
	retryDelay time.Duration
	status     *status.Status // of a refusal, without RetryInfo
}

func newServer(lim *agilelimiter.ConcurrencyLimiter, opts []ServerOption) *server {
	if lim == nil {
		panic(prefix + "nil ConcurrencyLimiter")
	}
	s := &server{
		evidence: evidence{unary: DefaultServerVerdict},
		lim:      lim, code: codes.ResourceExhausted, retryDelay: lim.Config().Tick,
	}
	for _, o := range opts {
		if o == nil {
			panic(prefix + "nil ServerOption")
		}
		o.applyServer(s)
	}
	s.status = status.New(s.code, agilelimiter.ErrOverloaded.Error())
	return s
}

// refuse returns the trailer of one refusal, which may be nil, and its error.
func (s *server) refuse() (metadata.MD, error) {
	if s.retryDelay == 0 {
		return nil, &refusal{s.status, agilelimiter.ErrOverloaded}
	}
	// In whole milliseconds, which is what the trailer can say, so that both
	// places say the same.
	ms := max(1, int64((spread(s.retryDelay)+time.Millisecond-1)/time.Millisecond))
	st, err := s.status.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Duration(ms) * time.Millisecond)})
	if err != nil {
		st = s.status // only for codes.OK, which WithCode refuses
	}
	return metadata.Pairs(retryPushback, strconv.FormatInt(ms, 10)), &refusal{st, agilelimiter.ErrOverloaded}
}

// spread draws a delay evenly from [d/2, 3d/2). d is above 0 and at most
// maxRetryDelay.
func spread(d time.Duration) time.Duration { return d/2 + rand.N(d) }

// serve runs handle if there is room and returns its error, or else refuses.
func (s *server) serve(ctx context.Context, v Verdict, setTrailer func(metadata.MD), handle func() error) error {
	call, ok := s.lim.TryAdmit()
	if !ok {
		pushback, err := s.refuse()
		if pushback != nil {
			setTrailer(pushback)
		}
		return err
	}
	ended := false
	patience := budgetOf(ctx)
	// Deferred, so that a panic or Goexit in the handler or the verdict frees the
	// slot too. It is not recovered.
	defer func() {
		if !ended {
			abort(&call)
		}
	}()
	err := handle()
	d := call.Age()
	found := aborted
	if cancelled, timedOut := departed(ctx, patience); !cancelled {
		found = judge(v, err, timedOut, d)
	}
	found.end(&call, d)
	ended = true
	return err
}

// departed tells whether the client has left or its time has run out. A client
// whose deadline passes resets the stream, and the reset may arrive before the
// server's own timer for that deadline: a cancellation near the end of the time
// is taken for the deadline.
func departed(ctx context.Context, patience budget) (cancelled, timedOut bool) {
	if ctx.Err() == nil {
		return false, false
	}
	cancelled, timedOut = agilelimiter.Interrupted(ctx)
	timedOut = timedOut || patience.nearlyUsed()
	return cancelled && !timedOut, timedOut
}
