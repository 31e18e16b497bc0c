// Package limitergrpc puts agilelimiter into gRPC: a ConcurrencyLimiter in front
// of a server's handlers, a Limiter in front of a client's calls.
//
//	srv := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(limitergrpc.UnaryServerInterceptor(inbound)),
//		grpc.ChainStreamInterceptor(limitergrpc.StreamServerInterceptor(inbound)),
//	)
//	conn, err := grpc.NewClient(target,
//		grpc.WithChainUnaryInterceptor(limitergrpc.UnaryClientInterceptor(outbound)),
//		grpc.WithChainStreamInterceptor(limitergrpc.StreamClientInterceptor(outbound)),
//	)
//
// The package is called limitergrpc, not grpc, because every file that imports
// it imports google.golang.org/grpc too.
//
// # What is measured
//
// A unary call is measured from its slot to its end: the handler's duration on a
// server, the whole RPC on a client. The client's part includes connecting and
// the retries of grpc-go's own retry policy, which run below every interceptor;
// switch them off (grpc.WithDisableRetry) or retry in an interceptor outside
// this one, so that every attempt takes a slot and is a sample of its own.
//
// A stream holds its slot from the first byte to the last and then counts as
// Aborted: how long it lasted says nothing about load, and neither does the time
// to its header, which many servers send with the first message only.
// WithStreamVerdict is for streams that are work of some length, a download or a
// batch, and makes their whole duration a sample. A limiter that sees nothing but
// Aborted calls is blind and stays at its initial number, which is a fixed limit;
// and AnchorKnee counts calls in flight, so that long streams look like latency
// to it. Give streams that are subscriptions a limiter of their own.
//
// # Order of interceptors
//
// Server: recovery and logging outside (first), authentication outside where a
// refused caller must be known, else inside. Health checks should not be shed;
// the example of UnaryServerInterceptor lets them pass by. A refusal is decided
// after grpc-go has read the request, the earliest that an interceptor can.
//
// Client: retries outside, tracing and authentication inside.
//
// # Versions
//
// This is a module of its own, so that its dependencies are not yours unless you
// import it. It is released by tags of the form contrib/grpc/vX.Y.Z; until then
// its go.mod points at the root module with a replace line.
package limitergrpc
