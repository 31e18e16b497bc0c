package recipes

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"agilelimiter"
	limitergrpc "agilelimiter/contrib/grpc"
)

// NewGRPCClient paces unary calls and the opening of streams. A unary call without
// a deadline gets one before it waits for its slot.
func NewGRPCClient(target string, lim *agilelimiter.Limiter, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	patience := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if _, has := ctx.Deadline(); !has {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
		}
		return invoker(ctx, method, req, reply, cc, opts...)
	}
	return grpc.NewClient(target, append(opts,
		grpc.WithChainUnaryInterceptor(patience, limitergrpc.UnaryClientInterceptor(lim)),
		grpc.WithChainStreamInterceptor(limitergrpc.StreamClientInterceptor(lim)),
	)...)
}

// NewGRPCServer sheds unary calls under one limiter and streams under another:
// how long a stream lives says nothing about load.
func NewGRPCServer(unary, streams *agilelimiter.ConcurrencyLimiter, opts ...grpc.ServerOption) *grpc.Server {
	return grpc.NewServer(append(opts,
		grpc.ChainUnaryInterceptor(limitergrpc.UnaryServerInterceptor(unary, limitergrpc.WithRetryDelay(time.Second))),
		grpc.ChainStreamInterceptor(limitergrpc.StreamServerInterceptor(streams)),
	)...)
}
