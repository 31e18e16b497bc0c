package limitergrpc

import (
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
)

// ServerOption changes what the server interceptors do.
type ServerOption interface{ applyServer(*server) }

// ClientOption changes what the client interceptors do.
type ClientOption interface{ applyClient(*evidence) }

// Option fits both sides.
type Option interface {
	ServerOption
	ClientOption
}

type serverOption func(*server)

func (o serverOption) applyServer(s *server) { o(s) }

type option func(*evidence)

func (o option) applyServer(s *server)   { o(&s.evidence) }
func (o option) applyClient(e *evidence) { o(e) }

// WithVerdict replaces the default verdict of unary calls by v. A nil v panics.
func WithVerdict(v Verdict) Option {
	if v == nil {
		panic(prefix + "WithVerdict: nil Verdict")
	}
	return option(func(e *evidence) { e.unary = v })
}

// WithStreamVerdict makes whole streams evidence, judged by v: their duration
// from the slot to the end. Without it every stream is Aborted. A nil v panics.
func WithStreamVerdict(v Verdict) Option {
	if v == nil {
		panic(prefix + "WithStreamVerdict: nil Verdict")
	}
	return option(func(e *evidence) { e.stream = v })
}

// WithCode sets the status code of a refusal. Default codes.ResourceExhausted;
// codes.Unavailable is for clients and proxies that know no other reason to try
// again elsewhere. OK and undefined codes panic.
func WithCode(c codes.Code) ServerOption {
	if c == codes.OK || c > codes.Unauthenticated {
		panic(fmt.Sprintf("%sWithCode: %v is no code for a refusal", prefix, c))
	}
	return serverOption(func(s *server) { s.code = c })
}

// WithRetryDelay sets after how long a refused client should try again. Each
// refusal draws its own delay, evenly from [d/2, 3d/2), in whole milliseconds
// rounded up, so that clients who were shed together do not come back together.
// It is sent as RetryInfo and as grpc-retry-pushback-ms. The latter makes
// grpc-go's own retry wait exactly that long in place of its randomised backoff.
// Default the limiter's Tick, after which the limit may have moved. 0 sends
// neither; a d that is negative or above 24 hours panics.
func WithRetryDelay(d time.Duration) ServerOption {
	if d < 0 || d > maxRetryDelay {
		panic(fmt.Sprintf("%sWithRetryDelay: %v must lie in [0, 24h]", prefix, d))
	}
	return serverOption(func(s *server) { s.retryDelay = d })
}

// maxRetryDelay keeps 3/2 of the delay within what RetryInfo and the trailer can
// hold.
const maxRetryDelay = 24 * time.Hour

const prefix = "agilelimiter/contrib/grpc: "
