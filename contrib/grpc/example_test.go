package limitergrpc_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"agilelimiter"
	limitergrpc "agilelimiter/contrib/grpc"
)

// Health checks pass by the limiter: an orchestrator would restart a service for
// being busy.
func ExampleUnaryServerInterceptor() {
	lim := agilelimiter.NewConcurrency(agilelimiter.ConcurrencyConfig{MaxLimit: 1})
	limited := limitergrpc.UnaryServerInterceptor(lim, limitergrpc.WithRetryDelay(time.Second))
	interceptor := func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if strings.HasPrefix(info.FullMethod, "/grpc.health.v1.Health/") {
			return handler(ctx, req)
		}
		return limited(ctx, req, info, handler)
	}
	_ = grpc.NewServer(grpc.ChainUnaryInterceptor(interceptor))

	lim.TryTake() // somebody is being served
	served := func(context.Context, any) (any, error) { return nil, nil }
	for _, method := range []string{"/shop.Cart/Add", "/grpc.health.v1.Health/Check"} {
		_, err := interceptor(context.Background(), nil, &grpc.UnaryServerInfo{FullMethod: method}, served)
		fmt.Println(method, status.Code(err))
	}
	// Output:
	// /shop.Cart/Add ResourceExhausted
	// /grpc.health.v1.Health/Check OK
}

// A verdict of one's own takes the cases that it knows and leaves the rest.
func ExampleWithVerdict() {
	verdict := func(code codes.Code, err error, d time.Duration) agilelimiter.Outcome {
		if code == codes.FailedPrecondition {
			return agilelimiter.Aborted // answered from a local table, costs nothing
		}
		return limitergrpc.DefaultClientVerdict(code, err, d)
	}
	lim := agilelimiter.New(agilelimiter.Config{MaxRate: 100})
	_ = grpc.WithChainUnaryInterceptor(limitergrpc.UnaryClientInterceptor(lim, limitergrpc.WithVerdict(verdict)))
	fmt.Println(verdict(codes.FailedPrecondition, nil, 0), verdict(codes.Unavailable, nil, 0))
	// Output: aborted unreachable
}
