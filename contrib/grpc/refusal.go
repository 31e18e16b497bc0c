package limitergrpc

import (
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"agilelimiter"
)

// refusal is a status that still matches the limiter's own error, so that
// agilelimiter.IsRefusal works in the interceptors around this one.
type refusal struct {
	status *status.Status
	cause  error
}

func (r *refusal) Error() string              { return r.status.Err().Error() }
func (r *refusal) GRPCStatus() *status.Status { return r.status }
func (r *refusal) Unwrap() error              { return r.cause }

// refusedWait turns the error of TakeContext into a status.
func refusedWait(err error) error {
	code := codes.ResourceExhausted
	if !errors.Is(err, agilelimiter.ErrQueueFull) {
		code = status.FromContextError(err).Code()
	}
	return &refusal{status.New(code, err.Error()), err}
}
