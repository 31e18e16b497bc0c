package limitergrpc_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"agilelimiter"
	limitergrpc "agilelimiter/contrib/grpc"
)

// refusal is a status with RetryInfo.
func refusal(t *testing.T, code codes.Code, delay *durationpb.Duration) error {
	t.Helper()
	st, err := status.New(code, "later").WithDetails(&errdetails.RetryInfo{RetryDelay: delay})
	if err != nil {
		t.Fatal(err)
	}
	return st.Err()
}

func TestPushbackPauses(t *testing.T) {
	const most = time.Minute
	seconds := func(s int64) *durationpb.Duration { return &durationpb.Duration{Seconds: s} }
	for _, tt := range []struct {
		name    string
		err     error
		trailer string
		want    time.Duration
	}{
		{"RetryInfo", refusal(t, codes.ResourceExhausted, seconds(30)), "", 30 * time.Second},
		{"RetryInfo with Unavailable", refusal(t, codes.Unavailable, seconds(30)), "", 30 * time.Second},
		{"RetryInfo about a transaction", refusal(t, codes.Aborted, seconds(30)), "", 0},
		{"RetryInfo, far too long", refusal(t, codes.ResourceExhausted, seconds(1<<62)), "", most},
		{"RetryInfo, negative", refusal(t, codes.ResourceExhausted, seconds(-30)), "", 0},
		{"RetryInfo without a delay", refusal(t, codes.ResourceExhausted, nil), "", 0},
		{"no details", status.Error(codes.ResourceExhausted, "later"), "", 0},
		{"pushback", status.Error(codes.ResourceExhausted, "later"), "30000", 30 * time.Second},
		{"pushback with another code", status.Error(codes.NotFound, "where?"), "30000", 0},
		{"pushback, far too long", status.Error(codes.ResourceExhausted, "later"), "9223372036854775807", most},
		{"pushback, one above", status.Error(codes.ResourceExhausted, "later"), "60001", most},
		{"pushback: do not retry", status.Error(codes.ResourceExhausted, "never"), "-1", 0},
		{"pushback: garbage", status.Error(codes.ResourceExhausted, "later"), "soon", 0},
		{"the longer one is RetryInfo", refusal(t, codes.ResourceExhausted, seconds(30)), "20000", 30 * time.Second},
		{"the longer one is pushback", refusal(t, codes.ResourceExhausted, seconds(20)), "30000", 30 * time.Second},
	} {
		for _, kind := range []string{"unary", "stream"} {
			lim := agilelimiter.New(agilelimiter.Config{MinRate: 10, MaxRate: 10, Clock: agilelimiter.NewVirtualClock(time.Unix(0, 0))})
			trailer := metadata.MD{}
			if tt.trailer != "" {
				trailer.Set("grpc-retry-pushback-ms", tt.trailer)
			}
			client := dial(t, &service{
				unary:  func(ctx context.Context) error { grpc.SetTrailer(ctx, trailer); return tt.err },
				stream: func(s grpc.ServerStream) error { s.SetTrailer(trailer); return tt.err },
			}, nil, through(lim, limitergrpc.WithPushback(most))...)
			ctx := within(t)
			var err error
			if kind == "unary" {
				err = call(ctx, client)
			} else {
				stream, serr := client.FullDuplexCall(ctx)
				if serr != nil {
					t.Fatal(serr)
				}
				_, err = stream.Recv()
				eventually(t, "the stream ends", func() bool { return lim.InFlight() == 0 })
			}
			if status.Code(err) != status.Code(tt.err) {
				t.Errorf("%s, %s: %v, want %v", tt.name, kind, err, tt.err)
			}
			if got := lim.Stats().Paused; got != tt.want {
				t.Errorf("%s, %s: paused for %v, want %v", tt.name, kind, got, tt.want)
			}
		}
	}
}

// The caller's own trailer arrives as ever, and without the option nothing is
// read.
func TestPushbackLeavesTheCallersOptionsAlone(t *testing.T) {
	for _, opts := range [][]limitergrpc.ClientOption{nil, {limitergrpc.WithPushback(time.Minute)}} {
		lim := agilelimiter.New(agilelimiter.Config{MinRate: 10, MaxRate: 10, Clock: agilelimiter.NewVirtualClock(time.Unix(0, 0))})
		client := dial(t, &service{unary: func(ctx context.Context) error {
			grpc.SetTrailer(ctx, metadata.Pairs("grpc-retry-pushback-ms", "30000"))
			return status.Error(codes.ResourceExhausted, "later")
		}}, nil, through(lim, opts...)...)
		var trailer metadata.MD
		call(within(t), client, grpc.Trailer(&trailer))
		if got := trailer.Get("grpc-retry-pushback-ms"); len(got) != 1 || got[0] != "30000" {
			t.Errorf("the caller's trailer has %q", got)
		}
		if got, want := lim.Stats().Paused, time.Duration(len(opts))*30*time.Second; got != want {
			t.Errorf("paused for %v, want %v", got, want)
		}
	}
}

func TestWithPushbackPanics(t *testing.T) {
	for _, max := range []time.Duration{0, -time.Second} {
		func() {
			defer func() {
				want := fmt.Sprintf("agilelimiter/contrib/grpc: WithPushback: max is %v, want more than 0", max)
				if got := recover(); got != want {
					t.Errorf("panic %v, want %q", got, want)
				}
			}()
			limitergrpc.WithPushback(max)
		}()
	}
}
