package recipes

import (
	"time"

	"google.golang.org/grpc"

	"agilelimiter"
	limitergrpc "agilelimiter/contrib/grpc"
)

// NewGRPCClient paces unary calls and the opening of streams.
func NewGRPCClient(target string, lim *agilelimiter.Limiter, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient(target, append(opts,
		grpc.WithChainUnaryInterceptor(limitergrpc.UnaryClientInterceptor(lim)),
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
