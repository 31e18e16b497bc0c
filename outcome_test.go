package agilelimiter

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"syscall"
	"testing"
)

func TestOutcomeString(t *testing.T) {
	for o, want := range map[Outcome]string{
		Reached: "reached", Unreachable: "unreachable", Aborted: "aborted", 9: "outcome(9)",
	} {
		if got := o.String(); got != want {
			t.Errorf("Outcome(%d).String() = %q, want %q", uint8(o), got, want)
		}
	}
	var zero Outcome
	if zero != Reached {
		t.Error("the zero Outcome is not Reached")
	}
}

func TestIsRefusal(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	wait := NewConcurrency(ConcurrencyConfig{MaxLimit: 1}).DoContext(ended, func(context.Context) error { return nil })
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{errors.New("other"), false},
		{context.Canceled, false},
		{context.DeadlineExceeded, false},
		{ErrOverloaded, true},
		{ErrQueueFull, true},
		{ErrWait, true},
		{wait, true},
		{fmt.Errorf("call: %w", ErrOverloaded), true},
		{errors.Join(errors.New("a"), fmt.Errorf("b: %w", wait)), true},
		{&url.Error{Op: "Get", URL: "/", Err: ErrQueueFull}, true},
	} {
		if got := IsRefusal(tt.err); got != tt.want {
			t.Errorf("IsRefusal(%v) = %t, want %t", tt.err, got, tt.want)
		}
	}
	if !errors.Is(wait, context.Canceled) || errors.Is(wait, context.DeadlineExceeded) {
		t.Errorf("%v does not tell why the wait ended", wait)
	}
}

func TestIsTimeout(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{errors.New("other"), false},
		{context.Canceled, false},
		{syscall.ECONNREFUSED, false},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, false},
		{context.DeadlineExceeded, true},
		{os.ErrDeadlineExceeded, true},
		{syscall.ETIMEDOUT, true},
		{fmt.Errorf("call: %w", context.DeadlineExceeded), true},
		{fmt.Errorf("call: %w", os.ErrDeadlineExceeded), true},
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, true},
		{&net.DNSError{IsTimeout: true}, true},
		{&net.DNSError{}, false},
		{&url.Error{Op: "Get", URL: "/", Err: context.DeadlineExceeded}, true},
		{errors.Join(errors.New("a"), os.ErrDeadlineExceeded), true},
	} {
		if got := IsTimeout(tt.err); got != tt.want {
			t.Errorf("IsTimeout(%#v) = %t, want %t", tt.err, got, tt.want)
		}
	}
}
