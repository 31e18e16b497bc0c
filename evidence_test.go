package agilelimiter

// What a failed call proves, asked of the Do forms.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"syscall"
	"testing"
	"time"
)

func TestDefaultClassify(t *testing.T) {
	inner := NewConcurrency(ConcurrencyConfig{MaxLimit: 1})
	inner.TryTake()
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	read := func(err error) error { return &net.OpError{Op: "read", Net: "tcp", Err: err} }
	get := func(err error) error { return &url.Error{Op: "Get", URL: "http://x/", Err: err} }
	_, cancelledDial := (&net.Dialer{}).DialContext(ended, "tcp", "127.0.0.1:1")
	unparsed := &url.Error{Op: "parse", URL: "http://[", Err: errors.New("missing ']' in host")}
	for _, tt := range []struct {
		err  error
		want Outcome
	}{
		{nil, Reached},
		{errors.New("500 internal server error"), Reached},
		{&fs.PathError{Op: "open", Path: "/x", Err: syscall.ENOENT}, Reached},
		{context.DeadlineExceeded, Reached},
		{os.ErrDeadlineExceeded, Reached},
		{read(os.ErrDeadlineExceeded), Reached},
		{get(context.DeadlineExceeded), Reached},

		{inner.Do(func() error { return nil }), Aborted},
		{inner.DoContext(ended, func(context.Context) error { return nil }), Aborted},
		{ErrQueueFull, Aborted},
		{dial(ErrQueueFull), Aborted},
		{errors.Join(errors.New("attempt 1"), fmt.Errorf("attempt 2: %w", ErrOverloaded)), Aborted},
		{context.Canceled, Aborted},
		{fmt.Errorf("call: %w", context.Canceled), Aborted},
		{get(context.Canceled), Aborted},
		{cancelledDial, Aborted},

		{dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)), Unreachable},
		{dial(os.ErrDeadlineExceeded), Unreachable},
		{get(dial(syscall.EHOSTUNREACH)), Unreachable},
		{&net.DNSError{Err: "no such host", IsNotFound: true}, Unreachable},
		{&net.DNSError{IsTimeout: true}, Unreachable},
		{syscall.ECONNREFUSED, Unreachable},
		{fmt.Errorf("pool: %w", syscall.ENETUNREACH), Unreachable},
		{read(syscall.ECONNREFUSED), Unreachable},

		{read(os.NewSyscallError("read", syscall.ECONNRESET)), Unreachable},
		{&net.OpError{Op: "remote error", Err: errors.New("tls: handshake failure")}, Unreachable},
		{syscall.ECONNRESET, Unreachable},
		{fmt.Errorf("write: %w", syscall.EPIPE), Unreachable},
		{get(io.EOF), Unreachable},
		{get(errors.New("Bad Gateway")), Unreachable}, // a proxy that refused CONNECT

		{unparsed, Aborted},
		{io.EOF, Aborted},
		{io.ErrUnexpectedEOF, Aborted},
		{read(net.ErrClosed), Aborted},
	} {
		if got := DefaultClassify(tt.err); got != tt.want {
			t.Errorf("DefaultClassify(%#v) = %v, want %v", tt.err, got, tt.want)
		}
	}
	if got := New(Config{MaxRate: 1}).Config().Classify(syscall.ECONNREFUSED); got != Unreachable {
		t.Errorf("a filled Config has a Classify that says %v, want DefaultClassify", got)
	}
}

// A port that refuses, and nobody wrote a Classify.
func TestARefusedPortNeverRaisesTheRate(t *testing.T) {
	_, rates := refuse(t, Config{MinRate: 20, MaxRate: 500, InitialRate: 50, SLOTarget: 200 * ms}, 10*time.Second)
	if rates[2] != 20 || rates[len(rates)-1] != 20 {
		t.Errorf("rates %v: want the floor after three cuts and for good", rates)
	}
	_, rates = refuse(t, Config{MinRate: 20, MaxRate: 500, InitialRate: 50}, 10*time.Second)
	for i, rate := range rates {
		if rate != 50 {
			t.Fatalf("tick %d: rate %g, want 50: there is nothing to compare with", i, rate)
		}
	}
}

// FR08: the outer limiter's Classify has never heard of ours.
func TestANestedRefusalIsAbortedBeforeClassify(t *testing.T) {
	classify := func(err error) Outcome {
		t.Errorf("Classify was asked about %v", err)
		return Reached
	}
	full := NewConcurrency(ConcurrencyConfig{MaxLimit: 1})
	full.TryTake()
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	for name, refusal := range map[string]error{
		"overloaded": full.Do(func() error { return nil }),
		"queue full": ErrQueueFull,
		"no slot":    full.DoContext(late, func(context.Context) error { return nil }),
	} {
		for _, err := range []error{refusal, fmt.Errorf("call: %w", refusal), errors.Join(errors.New("x"), refusal)} {
			l := fast(classify)
			if got := l.Do(func() error { return err }); got != err {
				t.Errorf("%s: Do returned %v", name, got)
			}
			wantOutcomes(t, l, outcomes{admitted: 1, aborted: 1})
			g := NewConcurrency(ConcurrencyConfig{MaxLimit: 8, Classify: classify})
			g.Do(func() error { return err })
			wantOutcomes(t, g, outcomes{admitted: 1, aborted: 1})
		}
	}
}

// FR07: the call's time is over, whatever the driver calls it.
func TestATimeOutInTheDriversOwnWords(t *testing.T) {
	byDeadline := func(ctx context.Context) (context.Context, func()) { return context.WithTimeout(ctx, time.Second) }
	byCause := func(ctx context.Context) (context.Context, func()) {
		ctx, cancel := context.WithCancelCause(ctx)
		time.AfterFunc(time.Second, func() { cancel(fmt.Errorf("too slow: %w", context.DeadlineExceeded)) })
		return ctx, func() { cancel(nil) }
	}
	byOwnCause := func(ctx context.Context) (context.Context, func()) {
		return context.WithTimeoutCause(ctx, time.Second, errors.New("budget used"))
	}
	driver := errors.New("canceling statement due to user request")
	truncated := outcomes{admitted: 1, reached: 1, truncated: 1}
	for _, tt := range []struct {
		name     string
		with     func(context.Context) (context.Context, func())
		classify func(error) Outcome
		answer   func(context.Context) error
		want     outcomes
	}{
		{"own words", byDeadline, nil, func(context.Context) error { return driver }, truncated},
		{"own words, after a cause", byCause, nil, func(context.Context) error { return driver }, truncated},
		{"own words, with a cause", byOwnCause, nil, func(context.Context) error { return driver }, truncated},
		{"the context's words", byDeadline, nil, func(ctx context.Context) error { return ctx.Err() }, truncated},
		{"the context's words, after a cause", byCause, nil, func(ctx context.Context) error { return ctx.Err() }, truncated},
		{"the cause", byCause, nil, func(ctx context.Context) error { return context.Cause(ctx) }, truncated},
		{"cancelled further down", byDeadline, nil, func(context.Context) error { return context.Canceled }, truncated},
		{"connection closed by the driver", byDeadline, nil, func(context.Context) error { return net.ErrClosed }, truncated},
		{"EOF", byDeadline, nil, func(context.Context) error { return io.EOF }, truncated},
		{"a dial that took too long", byDeadline, nil, func(context.Context) error {
			return &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}
		}, outcomes{admitted: 1, unreachable: 1}},
		{"it answered", byDeadline, nil, func(context.Context) error { return nil }, outcomes{admitted: 1, reached: 1}},
		{"Classify sees the time-out", byCause, func(err error) Outcome {
			if err != context.DeadlineExceeded {
				t.Errorf("Classify got %v, want context.DeadlineExceeded", err)
			}
			return Reached
		}, func(ctx context.Context) error { return ctx.Err() }, truncated},
		{"Classify sees the driver's error", byDeadline, func(err error) Outcome {
			if err != driver {
				t.Errorf("Classify got %v, want the driver's", err)
			}
			return Reached
		}, func(context.Context) error { return driver }, truncated},
		{"Classify has the last word", byDeadline, func(error) Outcome { return Unreachable },
			func(context.Context) error { return driver }, outcomes{admitted: 1, unreachable: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				call := func(ctx context.Context) error { <-ctx.Done(); return tt.answer(ctx) }
				ctx, cancel := tt.with(t.Context())
				defer cancel()
				l := fast(tt.classify)
				l.DoContext(ctx, call)
				wantOutcomes(t, l, tt.want)

				ctx, cancel = tt.with(t.Context())
				defer cancel()
				g := NewConcurrency(ConcurrencyConfig{MaxLimit: 8, Classify: tt.classify})
				g.DoContext(ctx, call)
				wantOutcomes(t, g, tt.want)
			})
		})
	}
}

// FR07: a hang of ten seconds looks the same in every driver's words.
func TestAHangInTheDriversOwnWords(t *testing.T) {
	for _, anchor := range []Anchor{AnchorBaseline, AnchorKnee} {
		var after [2]float64
		for i, answer := range []func(context.Context) error{
			func(context.Context) error { return context.DeadlineExceeded },
			func(context.Context) error { return errors.New("canceling statement due to user request") },
		} {
			bubble(t, func(t *testing.T) {
				l := New(Config{MinRate: 20, MaxRate: 500, InitialRate: 400, SLOTarget: 200 * ms, Anchor: anchor})
				l.Start()
				defer l.Stop()
				hang := time.Now().Add(5 * time.Second)
				for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(2 * ms) {
					go func() {
						ctx, cancel := context.WithTimeout(t.Context(), time.Second)
						defer cancel()
						l.DoContext(ctx, func(ctx context.Context) error {
							if since := time.Since(hang); since > 0 && since < 10*time.Second {
								<-ctx.Done()
								return answer(ctx)
							}
							time.Sleep(20 * ms)
							return nil
						})
					}()
				}
				time.Sleep(2 * time.Second)
				after[i] = float64(l.Stats().Reached - l.Stats().Truncated)
			})
		}
		if !near(after[1], after[0], 0.02) {
			t.Errorf("%v: %v calls delivered with the driver's words, %v with the context's", anchor, after[1], after[0])
		}
	}
}

// FR03: three of four callers leave after 5 of 50 ms, under a context that Do
// does not know.
func TestCallersWhoLeaveTeachNoBaseline(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := New(Config{MinRate: 20, MaxRate: 500, InitialRate: 500})
		l.Start()
		defer l.Stop()
		leaving := time.Now().Add(10 * time.Second)
		end := leaving.Add(20 * time.Second)
		for i := 0; time.Now().Before(end); i++ {
			patience := time.Minute
			if i%4 != 0 && time.Now().Before(leaving) {
				patience = 5 * ms
			}
			go l.Do(func() error {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				defer time.AfterFunc(patience, cancel).Stop()
				select {
				case <-time.After(50 * ms):
					return nil
				case <-ctx.Done():
					return fmt.Errorf("query: %w", ctx.Err())
				}
			})
			time.Sleep(2 * ms)
		}
		s := l.Stats()
		if s.Target != 500 || s.Waiting > 1 || s.Baseline < 49*ms || s.Aborted < 3000 {
			t.Errorf("%.0f/s with a baseline of %v, %d waiting, %d aborted; want 500/s, 50ms, none and the leavers",
				s.Target, s.Baseline, s.Waiting, s.Aborted)
		}
		time.Sleep(time.Second)
	})
}

// FR06: a host that resets every call after a millisecond, under plain Do.
func TestAResettingHostNeverLooksHealthy(t *testing.T) {
	for _, anchor := range []Anchor{AnchorBaseline, AnchorSLO, AnchorKnee} {
		for _, failure := range []error{
			&net.OpError{Op: "read", Err: syscall.ECONNRESET},
			&url.Error{Op: "Get", URL: "/", Err: io.EOF},
			&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED},
		} {
			bubble(t, func(t *testing.T) {
				l := New(Config{MinRate: 10, MaxRate: 1000, InitialRate: 200, SLOTarget: 200 * ms, Anchor: anchor})
				l.Start()
				defer l.Stop()
				dead := time.Now().Add(5 * time.Second)
				for end := dead.Add(20 * time.Second); time.Now().Before(end); time.Sleep(2500 * time.Microsecond) {
					go func() {
						ctx, cancel := context.WithTimeout(t.Context(), time.Second)
						defer cancel()
						l.DoContext(ctx, func(context.Context) error {
							if time.Now().After(dead) {
								time.Sleep(ms)
								return failure
							}
							time.Sleep(20 * ms)
							return nil
						})
					}()
					if since := time.Since(dead); since > 4*time.Second && l.Rate() != 10 {
						t.Fatalf("%v, %v: rate %.1f %v after the host died, want the floor", anchor, failure, l.Rate(), since)
					}
				}
				time.Sleep(2 * time.Second)
			})
		}
	}
}
