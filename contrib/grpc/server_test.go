package limitergrpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"agilelimiter"
	limitergrpc "agilelimiter/contrib/grpc"
)

func fixedLimit(n int) *agilelimiter.ConcurrencyLimiter {
	return agilelimiter.NewConcurrency(agilelimiter.ConcurrencyConfig{MaxLimit: n, InitialLimit: n})
}

// under returns the server options that put both interceptors in place.
func under(lim *agilelimiter.ConcurrencyLimiter, opts ...limitergrpc.ServerOption) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(limitergrpc.UnaryServerInterceptor(lim, opts...)),
		grpc.ChainStreamInterceptor(limitergrpc.StreamServerInterceptor(lim, opts...)),
	}
}

func call(ctx context.Context, c testgrpc.TestServiceClient, opts ...grpc.CallOption) error {
	_, err := c.UnaryCall(ctx, &testgrpc.SimpleRequest{}, opts...)
	return err
}

func TestServerMeasuresTheHandler(t *testing.T) {
	clock := agilelimiter.NewVirtualClock(time.Unix(0, 0))
	lim := agilelimiter.NewConcurrency(agilelimiter.ConcurrencyConfig{MaxLimit: 4, Clock: clock})
	lim.Start()
	defer lim.Stop()
	inside := 0
	client := dial(t, &service{unary: func(context.Context) error {
		inside = lim.InFlight()
		clock.Advance(80 * time.Millisecond)
		return nil
	}}, under(lim))
	if err := call(within(t), client); err != nil {
		t.Fatal(err)
	}
	if inside != 1 {
		t.Errorf("in flight in the handler: %d, want 1", inside)
	}
	wantCounts(t, lim.Stats(), counts{Admitted: 1, Reached: 1})
	clock.Advance(lim.Config().Tick - 80*time.Millisecond)
	wantNear(t, "p50", lim.Stats().P50, 80*time.Millisecond)
}

func TestServerRefusal(t *testing.T) {
	for _, tt := range []struct {
		name  string
		opts  []limitergrpc.ServerOption
		code  codes.Code
		delay time.Duration // of RetryInfo, give or take half; 0: none
	}{
		{"default", nil, codes.ResourceExhausted, 250 * time.Millisecond},
		{"code", []limitergrpc.ServerOption{limitergrpc.WithCode(codes.Unavailable)}, codes.Unavailable, 250 * time.Millisecond},
		{"rounded up", []limitergrpc.ServerOption{limitergrpc.WithRetryDelay(time.Nanosecond)}, codes.ResourceExhausted, time.Millisecond},
		{"a minute", []limitergrpc.ServerOption{limitergrpc.WithRetryDelay(time.Minute)}, codes.ResourceExhausted, time.Minute},
		{"no delay", []limitergrpc.ServerOption{limitergrpc.WithRetryDelay(0)}, codes.ResourceExhausted, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lim := fixedLimit(1)
			client := dial(t, &service{}, under(lim, tt.opts...))
			lim.TryTake()
			check := func(err error, trailer metadata.MD) {
				t.Helper()
				s := status.Convert(err)
				if s.Code() != tt.code {
					t.Errorf("code %v, want %v", s.Code(), tt.code)
				}
				delay := time.Duration(0)
				for _, d := range s.Details() {
					delay = d.(*errdetails.RetryInfo).RetryDelay.AsDuration()
				}
				if delay < tt.delay/2 || delay > tt.delay*3/2 {
					t.Errorf("RetryInfo %v, want %v give or take half", delay, tt.delay)
				}
				want := ""
				if tt.delay > 0 {
					want = strconv.FormatInt(delay.Milliseconds(), 10)
				}
				pushback := ""
				for _, v := range trailer.Get("grpc-retry-pushback-ms") {
					pushback += v
				}
				if pushback != want {
					t.Errorf("pushback %q, want %q: what RetryInfo says", pushback, want)
				}
			}
			var trailer metadata.MD
			check(call(within(t), client, grpc.Trailer(&trailer)), trailer)

			stream, err := client.FullDuplexCall(within(t))
			if err != nil {
				t.Fatal(err)
			}
			_, err = stream.Recv()
			check(err, stream.Trailer())

			wantCounts(t, lim.Stats(), counts{Admitted: 1, Shed: 2, InFlight: 1})
		})
	}
}

// FR26: who was shed together shall not come back together.
func TestServerPushbackIsSpread(t *testing.T) {
	lim := fixedLimit(1)
	lim.TryTake()
	unary := limitergrpc.UnaryServerInterceptor(lim, limitergrpc.WithRetryDelay(10*time.Second))
	seen := map[time.Duration]bool{}
	mean := 0.0
	const n = 1000
	for range n {
		_, err := unary(t.Context(), nil, nil, nil)
		for _, d := range status.Convert(err).Details() {
			delay := d.(*errdetails.RetryInfo).RetryDelay.AsDuration()
			if delay < 5*time.Second || delay > 15*time.Second {
				t.Errorf("RetryInfo %v, want 5s to 15s", delay)
			}
			seen[delay] = true
			mean += delay.Seconds() / n
		}
	}
	// Five standard deviations of the mean of 1000 draws.
	if len(seen) < 500 || mean < 9.54 || mean > 10.46 {
		t.Errorf("%d different delays with a mean of %.2f s, want hundreds and 10 s", len(seen), mean)
	}
}

// Around the interceptor the refusal still is the limiter's own error.
func TestServerRefusalIsRecognised(t *testing.T) {
	lim := fixedLimit(1)
	lim.TryTake()
	_, err := limitergrpc.UnaryServerInterceptor(lim)(t.Context(), nil, nil, nil)
	if !errors.Is(err, agilelimiter.ErrOverloaded) || !agilelimiter.IsRefusal(err) {
		t.Errorf("%v does not match ErrOverloaded", err)
	}
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("code %v, want ResourceExhausted", status.Code(err))
	}
}

// The policy's own backoff is a minute: only the pushback can bring the second
// attempt within the test's time.
func TestServerPushbackDrivesTheClientsRetry(t *testing.T) {
	lim := fixedLimit(1)
	lim.TryTake()
	var refusals atomic.Int32
	free := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		resp, err := handler(ctx, req)
		if errors.Is(err, agilelimiter.ErrOverloaded) && refusals.Add(1) == 1 {
			lim.Release()
		}
		return resp, err
	}
	server := append([]grpc.ServerOption{grpc.ChainUnaryInterceptor(free)},
		under(lim, limitergrpc.WithRetryDelay(time.Millisecond))...)
	client := dial(t, &service{unary: func(context.Context) error { return nil }}, server,
		grpc.WithDefaultServiceConfig(`{"methodConfig": [{"name": [{}], "retryPolicy": {
			"maxAttempts": 3, "initialBackoff": "60s", "maxBackoff": "60s", "backoffMultiplier": 1,
			"retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]}`))
	if err := call(within(t), client); err != nil {
		t.Fatal(err)
	}
	if n := refusals.Load(); n != 1 {
		t.Errorf("%d refusals, want 1", n)
	}
	wantCounts(t, lim.Stats(), counts{Admitted: 2, Shed: 1, Reached: 1})
}

func TestServerOutcomes(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		want counts
	}{
		{"ok", nil, counts{Reached: 1}},
		{"internal", status.Error(codes.Internal, ""), counts{Reached: 1}},
		{"not found", status.Error(codes.NotFound, ""), counts{Reached: 1}},
		{"no status", errors.New("boom"), counts{Reached: 1}},
		{"deadline", status.Error(codes.DeadlineExceeded, ""), counts{Reached: 1, Truncated: 1}},
		{"context deadline", context.DeadlineExceeded, counts{Reached: 1, Truncated: 1}},
		{"unavailable", status.Error(codes.Unavailable, ""), counts{Unreachable: 1}},
		{"exhausted", status.Error(codes.ResourceExhausted, ""), counts{Unreachable: 1}},
		{"canceled", status.Error(codes.Canceled, ""), counts{Aborted: 1}},
		{"context canceled", context.Canceled, counts{Aborted: 1}},
		{"limiter further in", agilelimiter.ErrQueueFull, counts{Aborted: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lim := fixedLimit(1)
			client := dial(t, &service{unary: func(context.Context) error { return tt.err }}, under(lim))
			if err := call(within(t), client); (err == nil) != (tt.err == nil) {
				t.Errorf("client got %v, handler returned %v", err, tt.err)
			}
			tt.want.Admitted = 1
			wantCounts(t, lim.Stats(), tt.want)
		})
	}
}

func TestServerVerdict(t *testing.T) {
	clock := agilelimiter.NewVirtualClock(time.Unix(0, 0))
	lim := agilelimiter.NewConcurrency(agilelimiter.ConcurrencyConfig{MaxLimit: 8, Clock: clock})
	calls := 0
	client := dial(t, &service{unary: func(context.Context) error {
		clock.Advance(time.Second)
		return status.Error(codes.DataLoss, "lost")
	}}, under(lim, limitergrpc.WithVerdict(func(code codes.Code, err error, d time.Duration) agilelimiter.Outcome {
		calls++
		if code != codes.DataLoss || status.Convert(err).Message() != "lost" || d != time.Second {
			t.Errorf("verdict got %v, %v, %v", code, err, d)
		}
		return agilelimiter.Unreachable
	})))
	call(within(t), client)
	if calls != 1 {
		t.Errorf("verdict called %d times", calls)
	}
	wantCounts(t, lim.Stats(), counts{Admitted: 1, Unreachable: 1})
}

func TestServerPanicAndGoexit(t *testing.T) {
	stop := func(context.Context, any) (any, error) { panic("boom") }
	exit := func(context.Context, any) (any, error) { runtime.Goexit(); return nil, nil }
	fine := func(context.Context, any) (any, error) { return nil, nil }
	badVerdict := limitergrpc.WithVerdict(func(codes.Code, error, time.Duration) agilelimiter.Outcome { panic("boom") })
	for _, tt := range []struct {
		name    string
		handler grpc.UnaryHandler
		opts    []limitergrpc.ServerOption
		panics  bool
	}{
		{"panic", stop, nil, true},
		{"goexit", exit, nil, false},
		{"panicking verdict", fine, []limitergrpc.ServerOption{badVerdict}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lim := fixedLimit(1)
			icept := limitergrpc.UnaryServerInterceptor(lim, tt.opts...)
			var recovered any
			var wg sync.WaitGroup
			wg.Go(func() {
				defer func() { recovered = recover() }()
				icept(t.Context(), nil, nil, tt.handler)
			})
			wg.Wait()
			if (recovered != nil) != tt.panics {
				t.Errorf("recovered %v, want a panic: %v", recovered, tt.panics)
			}
			wantCounts(t, lim.Stats(), counts{Admitted: 1, Aborted: 1})
		})
	}
	t.Run("stream", func(t *testing.T) {
		lim := fixedLimit(1)
		recovery := func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
			defer func() {
				if r := recover(); r != nil {
					err = status.Errorf(codes.Internal, "%v", r)
				}
			}()
			return handler(srv, ss)
		}
		client := dial(t, &service{stream: func(grpc.ServerStream) error { panic("boom") }},
			append([]grpc.ServerOption{grpc.ChainStreamInterceptor(recovery)}, under(lim)...))
		stream, err := client.FullDuplexCall(within(t))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); status.Code(err) != codes.Internal {
			t.Errorf("code %v, want Internal", status.Code(err))
		}
		wantCounts(t, lim.Stats(), counts{Admitted: 1, Aborted: 1})
	})
}

func TestServerClientDeparts(t *testing.T) {
	lim := fixedLimit(1)
	entered := make(chan struct{})
	client := dial(t, &service{unary: func(ctx context.Context) error {
		close(entered)
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	}}, under(lim, limitergrpc.WithVerdict(func(codes.Code, error, time.Duration) agilelimiter.Outcome {
		t.Error("verdict called for a cancelled call")
		return agilelimiter.Reached
	})))
	ctx, leave := context.WithCancel(within(t))
	go func() { <-entered; leave() }()
	if err := call(ctx, client); status.Code(err) != codes.Canceled {
		t.Errorf("code %v, want Canceled", status.Code(err))
	}
	eventually(t, "slot free", func() bool { return lim.Stats().Aborted == 1 })
	wantCounts(t, lim.Stats(), counts{Admitted: 1, Aborted: 1})
}

// A handler that finishes for a client that has left proves nothing, however it
// ends.
func TestServerClientDepartsUnnoticed(t *testing.T) {
	lim := fixedLimit(1)
	ctx, leave := context.WithCancel(t.Context())
	limitergrpc.UnaryServerInterceptor(lim)(ctx, nil, nil, func(context.Context, any) (any, error) {
		leave()
		return nil, nil
	})
	wantCounts(t, lim.Stats(), counts{Admitted: 1, Aborted: 1})
}

// A refusal further in is no evidence, whatever the verdict would say; a
// cancellation whose cause is a time-out is a time-out.
func TestRefusalsAndCauses(t *testing.T) {
	reached := limitergrpc.WithVerdict(func(codes.Code, error, time.Duration) agilelimiter.Outcome { return agilelimiter.Reached })
	for _, tt := range []struct {
		name  string
		cause error
		err   error
		want  counts
	}{
		{"refused further in", nil, fmt.Errorf("db: %w", agilelimiter.ErrOverloaded), counts{Admitted: 1, Aborted: 1}},
		{"time-out as a cause", context.DeadlineExceeded, status.FromContextError(context.Canceled).Err(), counts{Admitted: 1, Reached: 1, Truncated: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			end := func(cancel context.CancelCauseFunc) error {
				if tt.cause != nil {
					cancel(tt.cause)
				}
				return tt.err
			}
			limit := fixedLimit(1)
			ctx, cancel := context.WithCancelCause(t.Context())
			limitergrpc.UnaryServerInterceptor(limit, reached)(ctx, nil, nil, func(context.Context, any) (any, error) {
				return nil, end(cancel)
			})
			wantCounts(t, limit.Stats(), tt.want)

			rate := fastRate()
			ctx, cancel = context.WithCancelCause(t.Context())
			defer cancel(nil)
			limitergrpc.UnaryClientInterceptor(rate, reached)(ctx, "", nil, nil, nil,
				func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
					return end(cancel)
				})
			wantCounts(t, rate.Stats(), tt.want)
		})
	}
}

func TestServerDeadline(t *testing.T) {
	lim := fixedLimit(1)
	client := dial(t, &service{unary: func(ctx context.Context) error {
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	}}, under(lim))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := call(ctx, client); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("code %v, want DeadlineExceeded", status.Code(err))
	}
	eventually(t, "slot free", func() bool { return lim.InFlight() == 0 })
	wantCounts(t, lim.Stats(), counts{Admitted: 1, Reached: 1, Truncated: 1})
}

// resetContext is the context of a call whose client has reset the stream.
type resetContext struct {
	context.Context
	deadline time.Time
}

func (c resetContext) Deadline() (time.Time, bool) { return c.deadline, true }
func (c resetContext) Err() error                  { return context.Canceled }

// The client's reset for a deadline that has passed races with the server's own
// timer for it, so cancelled at the deadline means the deadline.
func TestServerResetAtTheDeadline(t *testing.T) {
	for _, tt := range []struct {
		name  string
		after time.Duration // the deadline, from the beginning
		want  counts
	}{
		{"at the deadline", time.Millisecond, counts{Admitted: 1, Reached: 1, Truncated: 1}},
		{"long before it", time.Hour, counts{Admitted: 1, Aborted: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lim := fixedLimit(1)
			ctx := resetContext{t.Context(), time.Now().Add(tt.after)}
			limitergrpc.UnaryServerInterceptor(lim)(ctx, nil, nil, func(context.Context, any) (any, error) {
				time.Sleep(2 * time.Millisecond)
				return nil, context.Canceled
			})
			wantCounts(t, lim.Stats(), tt.want)
		})
	}
}

// A handler may wrap what its deadline did to it in any status.
func TestServerDeadlineUnderAnotherName(t *testing.T) {
	lim := fixedLimit(1)
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	limitergrpc.UnaryServerInterceptor(lim)(ctx, nil, nil, func(context.Context, any) (any, error) {
		return nil, status.Error(codes.Internal, "query failed")
	})
	wantCounts(t, lim.Stats(), counts{Admitted: 1, Reached: 1, Truncated: 1})
}

// A deadline that the verdict puts down to something else is no lower bound.
func TestServerVerdictOverADeadline(t *testing.T) {
	for outcome, want := range map[agilelimiter.Outcome]counts{
		agilelimiter.Unreachable: {Admitted: 1, Unreachable: 1},
		agilelimiter.Aborted:     {Admitted: 1, Aborted: 1},
	} {
		lim := fixedLimit(1)
		verdict := limitergrpc.WithVerdict(func(codes.Code, error, time.Duration) agilelimiter.Outcome { return outcome })
		limitergrpc.UnaryServerInterceptor(lim, verdict)(t.Context(), nil, nil, func(context.Context, any) (any, error) {
			return nil, context.DeadlineExceeded
		})
		wantCounts(t, lim.Stats(), want)
	}
}

func TestServerStreamHoldsItsSlot(t *testing.T) {
	for _, tt := range []struct {
		name string
		opts []limitergrpc.ServerOption
		want counts
	}{
		{"no evidence", nil, counts{Admitted: 1, Aborted: 1}},
		{"measured", []limitergrpc.ServerOption{limitergrpc.WithStreamVerdict(limitergrpc.DefaultServerVerdict)}, counts{Admitted: 1, Reached: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clock := agilelimiter.NewVirtualClock(time.Unix(0, 0))
			lim := agilelimiter.NewConcurrency(agilelimiter.ConcurrencyConfig{MaxLimit: 1, Tick: time.Minute, Clock: clock})
			lim.Start()
			defer lim.Stop()
			client := dial(t, &service{stream: func(s grpc.ServerStream) error {
				for {
					if err := s.RecvMsg(&testgrpc.StreamingOutputCallRequest{}); err != nil {
						return nil // the client has nothing more to say
					}
					clock.Advance(time.Second)
					if err := s.SendMsg(&testgrpc.StreamingOutputCallResponse{}); err != nil {
						return err
					}
				}
			}}, under(lim, tt.opts...))
			stream, err := client.FullDuplexCall(within(t))
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if err := stream.Send(&testgrpc.StreamingOutputCallRequest{}); err != nil {
					t.Fatal(err)
				}
				if _, err := stream.Recv(); err != nil {
					t.Fatal(err)
				}
				wantCounts(t, lim.Stats(), counts{Admitted: 1, InFlight: 1})
			}
			stream.CloseSend()
			if _, err := stream.Recv(); err != io.EOF {
				t.Errorf("stream ended with %v", err)
			}
			wantCounts(t, lim.Stats(), tt.want)
			clock.Advance(lim.Config().Tick)
			if tt.want.Reached == 1 {
				wantNear(t, "p50", lim.Stats().P50, 3*time.Second)
			}
		})
	}
}

// A real server on loopback, more callers than slots, and clients that leave.
func TestServerOverLoopback(t *testing.T) {
	const limit, callers, calls = 3, 12, 20
	lim := fixedLimit(limit)
	var inside, peak atomic.Int64
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	work := func() {
		n := inside.Add(1)
		defer inside.Add(-1)
		for old := peak.Load(); n > old && !peak.CompareAndSwap(old, n); old = peak.Load() {
		}
		time.Sleep(time.Millisecond)
	}
	conn := serve(t, l, &service{
		unary:  func(context.Context) error { work(); return nil },
		stream: func(grpc.ServerStream) error { work(); return nil },
	}, under(lim))
	client := testgrpc.NewTestServiceClient(conn)
	ctx := within(t)
	var admitted, refused, left atomic.Int64
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for range calls {
				ctx, leave := context.WithCancel(ctx)
				var err error
				switch i % 3 {
				case 0:
					err = call(ctx, client)
				case 1:
					var s testgrpc.TestService_FullDuplexCallClient
					if s, err = client.FullDuplexCall(ctx); err == nil {
						if _, err = s.Recv(); err == io.EOF {
							err = nil
						}
					}
				case 2:
					time.AfterFunc(500*time.Microsecond, leave)
					err = call(ctx, client)
				}
				leave()
				switch status.Code(err) {
				case codes.OK:
					admitted.Add(1)
				case codes.ResourceExhausted:
					refused.Add(1)
				case codes.Canceled:
					left.Add(1)
				default:
					t.Errorf("unexpected: %v", err)
				}
			}
		})
	}
	wg.Wait()
	eventually(t, "all slots free", func() bool { return lim.InFlight() == 0 })
	s := lim.Stats()
	if peak.Load() > limit {
		t.Errorf("%d handlers at once under a limit of %d", peak.Load(), limit)
	}
	if s.Shed == 0 || refused.Load() == 0 {
		t.Errorf("nothing was shed: %d by the limiter, %d seen", s.Shed, refused.Load())
	}
	if got := s.Reached + s.Unreachable + s.Aborted; got != s.Admitted {
		t.Errorf("%d outcomes of %d admitted calls", got, s.Admitted)
	}
	// A client that left may have been admitted, refused, or never have arrived.
	if s.Admitted < uint64(admitted.Load()) || s.Admitted > uint64(admitted.Load()+left.Load()) {
		t.Errorf("admitted %d; clients saw %d answers and left %d times", s.Admitted, admitted.Load(), left.Load())
	}
}

func TestServerBadArguments(t *testing.T) {
	lim := fixedLimit(1)
	mustPanic(t, "nil limiter", func() { limitergrpc.UnaryServerInterceptor(nil) })
	mustPanic(t, "nil limiter, stream", func() { limitergrpc.StreamServerInterceptor(nil) })
	mustPanic(t, "nil option", func() { limitergrpc.UnaryServerInterceptor(lim, nil) })
	mustPanic(t, "OK", func() { limitergrpc.WithCode(codes.OK) })
	mustPanic(t, "undefined code", func() { limitergrpc.WithCode(17) })
	mustPanic(t, "negative delay", func() { limitergrpc.WithRetryDelay(-1) })
	mustPanic(t, "delay of more than a day", func() { limitergrpc.WithRetryDelay(24*time.Hour + 1) })
	mustPanic(t, "nil verdict", func() { limitergrpc.WithVerdict(nil) })
	mustPanic(t, "nil stream verdict", func() { limitergrpc.WithStreamVerdict(nil) })
}
