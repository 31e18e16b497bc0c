package limitergrpc_test

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"agilelimiter"
	limitergrpc "agilelimiter/contrib/grpc"
)

// fastRate never makes a test wait.
func fastRate() *agilelimiter.Limiter {
	return agilelimiter.New(agilelimiter.Config{MaxRate: 1e9, InitialRate: 1e9})
}

// through returns the dial options that put both interceptors in place.
func through(lim *agilelimiter.Limiter, opts ...limitergrpc.ClientOption) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(limitergrpc.UnaryClientInterceptor(lim, opts...)),
		grpc.WithChainStreamInterceptor(limitergrpc.StreamClientInterceptor(lim, opts...)),
	}
}

// The second call waits a second for its slot; its sample is the round trip.
func TestClientMeasuresTheRoundTripNotTheWait(t *testing.T) {
	clock := agilelimiter.NewVirtualClock(time.Unix(0, 0))
	lim := agilelimiter.New(agilelimiter.Config{MaxRate: 1, Tick: time.Minute, Clock: clock})
	lim.Start()
	defer lim.Stop()
	client := dial(t, &service{unary: func(context.Context) error {
		clock.Advance(30 * time.Millisecond)
		return nil
	}}, nil, through(lim)...)
	ctx := within(t)
	if err := call(ctx, client); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- call(ctx, client) }()
	eventually(t, "second call waits", func() bool { return lim.Waiting() == 1 })
	clock.Advance(970 * time.Millisecond)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	wantCounts(t, lim.Stats(), counts{Admitted: 2, Reached: 2})
	if got := lim.Stats().ThrottleWait; got != 970*time.Millisecond {
		t.Errorf("throttle wait %v, want 970ms", got)
	}
	clock.Advance(time.Minute)
	wantNear(t, "p50", lim.Stats().P50, 30*time.Millisecond)
	wantNear(t, "p99", lim.Stats().P99, 30*time.Millisecond)
}

func TestClientWaitFails(t *testing.T) {
	neverCalled := func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
		t.Error("sent without a slot")
		return nil
	}
	neverOpened := func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
		t.Error("opened without a slot")
		return nil, nil
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	soon, cancelSoon := context.WithTimeout(t.Context(), time.Minute)
	defer cancelSoon()
	for _, tt := range []struct {
		name  string
		ctx   context.Context
		queue int // callers that wait already
		code  codes.Code
		is    []error
	}{
		{"cancelled", cancelled, 0, codes.Canceled, []error{agilelimiter.ErrWait, context.Canceled}},
		{"deadline cannot be met", soon, 0, codes.DeadlineExceeded, []error{agilelimiter.ErrWait, context.DeadlineExceeded}},
		{"queue full", t.Context(), 1, codes.ResourceExhausted, []error{agilelimiter.ErrQueueFull}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// One call in 1000 s, on a clock that stands.
			lim := agilelimiter.New(agilelimiter.Config{
				MaxRate: 0.001, MaxWaiting: 1, Clock: agilelimiter.NewVirtualClock(time.Unix(0, 0)),
			})
			lim.Take()
			ctx, release := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for range tt.queue {
				wg.Go(func() { lim.TakeContext(ctx) })
			}
			eventually(t, "queue", func() bool { return lim.Waiting() == tt.queue })
			check := func(err error) {
				t.Helper()
				if status.Code(err) != tt.code {
					t.Errorf("code %v, want %v", status.Code(err), tt.code)
				}
				for _, target := range tt.is {
					if !errors.Is(err, target) {
						t.Errorf("%v does not match %v", err, target)
					}
				}
			}
			check(limitergrpc.UnaryClientInterceptor(lim)(tt.ctx, "", nil, nil, nil, neverCalled))
			_, err := limitergrpc.StreamClientInterceptor(lim)(tt.ctx, nil, nil, "", neverOpened)
			check(err)
			release()
			wg.Wait()
			if s := lim.Stats(); s.Admitted != 1 || s.Waiting != 0 {
				t.Errorf("a failed wait cost a slot: %+v", countsOf(s))
			}
		})
	}
}

func TestClientOutcomes(t *testing.T) {
	for _, tt := range []struct {
		code codes.Code
		want counts
	}{
		{codes.OK, counts{Reached: 1}},
		{codes.Unknown, counts{Reached: 1}},
		{codes.InvalidArgument, counts{Reached: 1}},
		{codes.Internal, counts{Reached: 1}},
		{codes.DeadlineExceeded, counts{Reached: 1, Truncated: 1}},
		{codes.Unavailable, counts{Unreachable: 1}},
		{codes.ResourceExhausted, counts{Unreachable: 1}},
		{codes.Canceled, counts{Aborted: 1}},
	} {
		t.Run(tt.code.String(), func(t *testing.T) {
			lim := fastRate()
			client := dial(t, &service{unary: func(context.Context) error { return status.Error(tt.code, "") }}, nil, through(lim)...)
			if err := call(within(t), client); status.Code(err) != tt.code {
				t.Errorf("code %v, want %v", status.Code(err), tt.code)
			}
			tt.want.Admitted = 1
			wantCounts(t, lim.Stats(), tt.want)
		})
	}
}

func TestClientNobodyListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	lim := fastRate()
	conn, err := grpc.NewClient("passthrough:///"+addr, append(through(lim), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := call(within(t), testgrpc.NewTestServiceClient(conn)); status.Code(err) != codes.Unavailable {
		t.Errorf("code %v, want Unavailable", status.Code(err))
	}
	wantCounts(t, lim.Stats(), counts{Admitted: 1, Unreachable: 1})
}

func TestClientCallerGivesUp(t *testing.T) {
	lim := fastRate()
	ctx, leave := context.WithCancel(within(t))
	client := dial(t, &service{unary: func(ctx context.Context) error {
		leave()
		<-ctx.Done()
		return nil
	}}, nil, through(lim, limitergrpc.WithVerdict(func(codes.Code, error, time.Duration) agilelimiter.Outcome {
		t.Error("verdict called for a cancelled call")
		return agilelimiter.Reached
	}))...)
	if err := call(ctx, client); status.Code(err) != codes.Canceled {
		t.Errorf("code %v, want Canceled", status.Code(err))
	}
	wantCounts(t, lim.Stats(), counts{Admitted: 1, Aborted: 1})
}

// An answer that is there before the caller cancels is an answer.
func TestClientCancelAfterTheAnswer(t *testing.T) {
	lim := fastRate()
	ctx, leave := context.WithCancel(t.Context())
	err := limitergrpc.UnaryClientInterceptor(lim)(ctx, "", nil, nil, nil,
		func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
			leave()
			return nil
		})
	if err != nil {
		t.Error(err)
	}
	wantCounts(t, lim.Stats(), counts{Admitted: 1, Reached: 1})
}

func TestClientDeadline(t *testing.T) {
	lim := fastRate()
	over := make(chan struct{})
	defer close(over)
	client := dial(t, &service{unary: func(context.Context) error { <-over; return nil }}, nil, through(lim)...)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := call(ctx, client); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("code %v, want DeadlineExceeded", status.Code(err))
	}
	wantCounts(t, lim.Stats(), counts{Admitted: 1, Reached: 1, Truncated: 1})
}

func TestClientPanicAndGoexit(t *testing.T) {
	badVerdict := func(codes.Code, error, time.Duration) agilelimiter.Outcome { panic("boom") }
	invoke := func(lim *agilelimiter.Limiter, f func(), opts ...limitergrpc.ClientOption) {
		limitergrpc.UnaryClientInterceptor(lim, opts...)(t.Context(), "", nil, nil, nil,
			func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { f(); return nil })
	}
	open := func(lim *agilelimiter.Limiter, f func()) {
		limitergrpc.StreamClientInterceptor(lim)(t.Context(), nil, nil, "",
			func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
				f()
				return nil, nil
			})
	}
	boom := func() { panic("boom") }
	for _, tt := range []struct {
		name   string
		run    func(*agilelimiter.Limiter)
		panics bool
	}{
		{"panic", func(l *agilelimiter.Limiter) { invoke(l, boom) }, true},
		{"goexit", func(l *agilelimiter.Limiter) { invoke(l, runtime.Goexit) }, false},
		{"stream panic", func(l *agilelimiter.Limiter) { open(l, boom) }, true},
		{"stream goexit", func(l *agilelimiter.Limiter) { open(l, runtime.Goexit) }, false},
		{"panicking verdict", func(l *agilelimiter.Limiter) {
			invoke(l, func() {}, limitergrpc.WithVerdict(badVerdict))
		}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lim := fastRate()
			var recovered any
			var wg sync.WaitGroup
			wg.Go(func() {
				defer func() { recovered = recover() }()
				tt.run(lim)
			})
			wg.Wait()
			if (recovered != nil) != tt.panics {
				t.Errorf("recovered %v, want a panic: %v", recovered, tt.panics)
			}
			wantCounts(t, lim.Stats(), counts{Admitted: 1, Aborted: 1})
		})
	}
}

func TestClientStreamEnds(t *testing.T) {
	measured := limitergrpc.WithStreamVerdict(limitergrpc.DefaultClientVerdict)
	drain := func(s testgrpc.TestService_FullDuplexCallClient) error {
		for {
			if _, err := s.Recv(); err != nil {
				return err
			}
		}
	}
	for _, tt := range []struct {
		name string
		opts []limitergrpc.ClientOption
		end  func(s testgrpc.TestService_FullDuplexCallClient, cancel func(), conn *grpc.ClientConn)
		want counts
	}{
		{"read to the end", nil, func(s testgrpc.TestService_FullDuplexCallClient, _ func(), _ *grpc.ClientConn) {
			s.CloseSend()
			if err := drain(s); err != io.EOF {
				t.Errorf("ended with %v", err)
			}
		}, counts{Aborted: 1}},
		{"measured", []limitergrpc.ClientOption{measured}, func(s testgrpc.TestService_FullDuplexCallClient, _ func(), _ *grpc.ClientConn) {
			s.CloseSend()
			drain(s)
		}, counts{Reached: 1}},
		{"cancelled", []limitergrpc.ClientOption{measured}, func(_ testgrpc.TestService_FullDuplexCallClient, cancel func(), _ *grpc.ClientConn) {
			cancel()
		}, counts{Aborted: 1}},
		{"connection closed", []limitergrpc.ClientOption{measured}, func(_ testgrpc.TestService_FullDuplexCallClient, _ func(), conn *grpc.ClientConn) {
			conn.Close()
		}, counts{Aborted: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clock := agilelimiter.NewVirtualClock(time.Unix(0, 0))
			lim := agilelimiter.New(agilelimiter.Config{MaxRate: 1000, Tick: time.Minute, Clock: clock})
			lim.Start()
			defer lim.Stop()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			conn := serve(t, l, &service{stream: func(s grpc.ServerStream) error {
				s.SendHeader(nil)
				s.RecvMsg(&testgrpc.StreamingOutputCallRequest{}) // until the client has closed its side or left
				return nil
			}}, nil, through(lim, tt.opts...)...)
			ctx, cancel := context.WithCancel(within(t))
			defer cancel()
			stream, err := testgrpc.NewTestServiceClient(conn).FullDuplexCall(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := stream.Header(); err != nil {
				t.Fatal(err)
			}
			wantCounts(t, lim.Stats(), counts{Admitted: 1, InFlight: 1})
			clock.Advance(2 * time.Second)
			tt.end(stream, cancel, conn)
			eventually(t, "stream ended", func() bool { return lim.InFlight() == 0 })
			tt.want.Admitted = 1
			wantCounts(t, lim.Stats(), tt.want)
			if tt.want.Reached == 1 {
				clock.Advance(lim.Config().Tick)
				wantNear(t, "p50", lim.Stats().P50, 2*time.Second)
			}
		})
	}
}

// A stream that could not be opened is reported by the streamer's error, and by
// grpc-go too if it had come to know of the stream; it ends once.
func TestClientStreamNotOpened(t *testing.T) {
	unavailable := status.Error(codes.Unavailable, "")
	for _, tt := range []struct {
		name  string
		known bool
	}{{"known to grpc-go", true}, {"not known", false}} {
		t.Run(tt.name, func(t *testing.T) {
			lim := fastRate()
			_, err := limitergrpc.StreamClientInterceptor(lim, limitergrpc.WithStreamVerdict(limitergrpc.DefaultClientVerdict))(
				t.Context(), nil, nil, "",
				func(_ context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
					if tt.known {
						for _, o := range opts {
							o.(grpc.OnFinishCallOption).OnFinish(unavailable)
						}
					}
					return nil, unavailable
				})
			if err != unavailable {
				t.Errorf("got %v", err)
			}
			wantCounts(t, lim.Stats(), counts{Admitted: 1, Unreachable: 1})
		})
	}
}

// Two calls side by side with one slice of options that has room to grow.
func TestClientStreamLeavesTheOptionsAlone(t *testing.T) {
	opts := make([]grpc.CallOption, 1, 4)
	opts[0] = grpc.WaitForReady(true)
	limitergrpc.StreamClientInterceptor(fastRate())(t.Context(), nil, nil, "",
		func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
			return nil, nil
		}, opts...)
	if opts[:2][1] != nil {
		t.Error("the caller's slice was written to")
	}
}

func TestClientBadArguments(t *testing.T) {
	mustPanic(t, "nil limiter", func() { limitergrpc.UnaryClientInterceptor(nil) })
	mustPanic(t, "nil limiter, stream", func() { limitergrpc.StreamClientInterceptor(nil) })
	mustPanic(t, "nil option", func() { limitergrpc.UnaryClientInterceptor(fastRate(), nil) })
}
