package limitergrpc_test

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/test/bufconn"

	"agilelimiter"
)

// service is a gRPC service whose methods a test fills in.
type service struct {
	testgrpc.UnimplementedTestServiceServer
	unary  func(context.Context) error
	stream func(grpc.ServerStream) error
}

func (s *service) UnaryCall(ctx context.Context, _ *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	if err := s.unary(ctx); err != nil {
		return nil, err
	}
	return &testgrpc.SimpleResponse{}, nil
}

func (s *service) FullDuplexCall(stream testgrpc.TestService_FullDuplexCallServer) error {
	return s.stream(stream)
}

// dial serves s on an in-memory connection and returns a client of it.
func dial(t *testing.T, s *service, server []grpc.ServerOption, client ...grpc.DialOption) testgrpc.TestServiceClient {
	t.Helper()
	l := bufconn.Listen(1 << 16)
	conn := serve(t, l, s, server, append(client, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return l.DialContext(ctx)
	}))...)
	return testgrpc.NewTestServiceClient(conn)
}

func serve(t *testing.T, l net.Listener, s *service, server []grpc.ServerOption, client ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	srv := grpc.NewServer(server...)
	testgrpc.RegisterTestServiceServer(srv, s)
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	target := "passthrough:///" + l.Addr().String()
	conn, err := grpc.NewClient(target, append(client, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		srv.Stop()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return conn
}

// within bounds a test that would otherwise hang when it fails.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits for what other goroutines are about to do.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// counts are the counters of Stats that a test of evidence looks at.
type counts struct {
	Admitted, Shed, Reached, Truncated, Unreachable, Aborted uint64
	InFlight                                                 int
}

func countsOf(s agilelimiter.Stats) counts {
	return counts{s.Admitted, s.Shed, s.Reached, s.Truncated, s.Unreachable, s.Aborted, s.InFlight}
}

func wantCounts(t *testing.T, s agilelimiter.Stats, want counts) {
	t.Helper()
	if got := countsOf(s); got != want {
		t.Errorf("stats\n got %+v\nwant %+v", got, want)
	}
}

// wantNear allows the 2 % by which the histogram may be off.
func wantNear(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if diff := (got - want).Abs(); diff > want/50 {
		t.Errorf("%s = %v, want %v within 2 %%", what, got, want)
	}
}

func mustPanic(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s: no panic", what)
		}
	}()
	f()
}
