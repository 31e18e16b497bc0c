package limitergrpc

import (
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"agilelimiter"
)

// WithPushback makes a server's wish for silence pause the limiter, as
// agilelimiter.Limiter.Pause does: nobody departs until the time is over, so that
// of a whole process only the calls in flight still reach a server that sheds
// load. Such a wish is a RetryInfo among the details of a status, or the trailer
// grpc-retry-pushback-ms; of both the longer one counts. They are read where the
// status is ResourceExhausted or Unavailable: with another code, Aborted say,
// RetryInfo is about the one call. Longer than max is taken as max. What is no
// number, 0 or negative is ignored.
//
// Set max to the longest silence that you accept from a server that is wrong, or
// lies: it stops every caller of lim. Calls whose deadline ends within the pause
// fail at once. It does not send anything again. It panics if max is not
// positive. Default: neither is read.
func WithPushback(max time.Duration) ClientOption {
	if max <= 0 {
		panic(prefix + "WithPushback: max is " + max.String() + ", want more than 0")
	}
	return clientOption(func(e *evidence) { e.maxPause = max })
}

type clientOption func(*evidence)

func (o clientOption) applyClient(e *evidence) { o(e) }

// pauseFor returns the silence that a failed call asks for, most at the most; 0: none.
func pauseFor(err error, trailer metadata.MD, most time.Duration) time.Duration {
	st, ok := status.FromError(err)
	if !ok || st.Code() != codes.ResourceExhausted && st.Code() != codes.Unavailable || agilelimiter.IsRefusal(err) {
		return 0
	}
	var pause time.Duration
	for _, detail := range st.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			pause = info.GetRetryDelay().AsDuration() // saturates
		}
	}
	if values := trailer.Get(retryPushback); len(values) > 0 {
		if ms, err := strconv.ParseInt(values[0], 10, 64); err == nil && ms > 0 {
			pause = max(pause, time.Duration(min(ms, most.Milliseconds()+1))*time.Millisecond)
		}
	}
	return min(max(pause, 0), most)
}
