package httpclient_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"agilelimiter"
	"agilelimiter/httpclient"
)

func TestRoundTripIsMeasuredToTheHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := fixed(10)
		body := &slowBody{chunks: 30}
		rt := httpclient.Wrap(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			time.Sleep(10 * time.Millisecond)
			resp, _ := ok(req)
			resp.Body = body
			return resp, nil
		}), lim)
		lim.Start()
		defer lim.Stop()
		begin := time.Now()
		resp, err := rt.RoundTrip(newRequest(t, nil))
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took != 10*time.Millisecond {
			t.Errorf("RoundTrip took %v, want 10ms", took)
		}
		if resp.Body != io.ReadCloser(body) {
			t.Error("the response's Body was replaced")
		}
		// The caller reads for 30 s; neither the sample nor the pace cares.
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatal(err)
		}
		begin = time.Now()
		if _, err := rt.RoundTrip(newRequest(t, nil)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took != 10*time.Millisecond {
			t.Errorf("behind an unclosed body RoundTrip took %v, want 10ms", took)
		}
		time.Sleep(250 * time.Millisecond)
		s := lim.Stats()
		if s.Reached != 2 || s.Samples != 1 || s.P99 < 9800*time.Microsecond || s.P99 > 10200*time.Microsecond {
			t.Errorf("Reached %d, Samples %d, P99 %v, want 2, 1 and 10ms", s.Reached, s.Samples, s.P99)
		}
	})
}

// slowBody yields a byte a second.
type slowBody struct{ chunks int }

func (b *slowBody) Read(p []byte) (int, error) {
	if b.chunks == 0 {
		return 0, io.EOF
	}
	b.chunks--
	time.Sleep(time.Second)
	p[0] = 'x'
	return 1, nil
}
func (b *slowBody) Close() error { return nil }

func TestWaitIsNotPartOfTheRoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := fixed(1)
		var seen []time.Duration
		rt := httpclient.Wrap(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			time.Sleep(5 * time.Millisecond)
			return ok(req)
		}), lim, httpclient.WithVerdict(func(_ *http.Response, _ error, d time.Duration) agilelimiter.Outcome {
			seen = append(seen, d)
			return agilelimiter.Reached
		}))
		for range 3 {
			if _, err := rt.RoundTrip(newRequest(t, nil)); err != nil {
				t.Fatal(err)
			}
		}
		if len(seen) != 3 || seen[0] != 5*time.Millisecond || seen[1] != seen[0] || seen[2] != seen[0] {
			t.Errorf("durations %v, want three times 5ms", seen)
		}
		if w := lim.Stats().ThrottleWait; w != 2*995*time.Millisecond {
			t.Errorf("ThrottleWait %v, want 1.99s", w)
		}
	})
}

func TestVirtualClock(t *testing.T) {
	clock := agilelimiter.NewVirtualClock(time.Unix(0, 0))
	lim := agilelimiter.New(agilelimiter.Config{MaxRate: 100, Clock: clock})
	var d time.Duration
	rt := httpclient.Wrap(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
		clock.Advance(70 * time.Millisecond)
		return ok(req)
	}), lim, httpclient.WithVerdict(func(_ *http.Response, _ error, got time.Duration) agilelimiter.Outcome {
		d = got
		return agilelimiter.Reached
	}))
	if _, err := rt.RoundTrip(newRequest(t, nil)); err != nil || d != 70*time.Millisecond {
		t.Errorf("d = %v, err = %v, want 70ms of virtual time", d, err)
	}
}

func TestCancelledBeforeSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := fixed(10)
		called := 0
		rt := httpclient.Wrap(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			called++
			return ok(req)
		}), lim)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		body := &trackedBody{Reader: strings.NewReader("x")}
		resp, err := rt.RoundTrip(newRequest(t, body).WithContext(ctx))
		if resp != nil || !errors.Is(err, context.Canceled) || !errors.Is(err, agilelimiter.ErrWait) {
			t.Errorf("RoundTrip = %v, %v, want an ErrWait that is context.Canceled", resp, err)
		}
		if called != 0 || body.closed.Load() != 1 {
			t.Errorf("transport called %d times, body closed %d times, want 0 and 1", called, body.closed.Load())
		}
		begin := time.Now()
		if _, err := rt.RoundTrip(newRequest(t, nil)); err != nil || time.Since(begin) != 0 {
			t.Errorf("the next request waited %v, err %v, want 0", time.Since(begin), err)
		}
		wantCounts(t, lim, counts{Admitted: 1, Reached: 1})
	})
}

// That no goroutine is left is what synctest.Test itself insists on.
func TestCancelledInTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := fixed(1)
		var called atomic.Int32
		rt := httpclient.Wrap(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			called.Add(1)
			return ok(req)
		}), lim)
		if _, err := rt.RoundTrip(newRequest(t, nil)); err != nil { // takes the slot of now
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var bodies [100]*trackedBody
		for i := range bodies {
			bodies[i] = &trackedBody{Reader: strings.NewReader("x")}
			req := newRequest(t, bodies[i]).WithContext(ctx)
			wg.Go(func() {
				_, err := rt.RoundTrip(req)
				if !errors.Is(err, context.Canceled) || !errors.Is(err, agilelimiter.ErrWait) {
					t.Errorf("err = %v, want an ErrWait that is context.Canceled", err)
				}
				if !strings.HasPrefix(err.Error(), "agilelimiter: ") {
					t.Errorf("%q does not say that it was the limiter's queue", err)
				}
			})
		}
		time.Sleep(50 * time.Millisecond)
		cancel()
		wg.Wait()
		for i, b := range bodies {
			if b.closed.Load() != 1 {
				t.Fatalf("body %d closed %d times, want once", i, b.closed.Load())
			}
		}
		begin := time.Now()
		if _, err := rt.RoundTrip(newRequest(t, nil)); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(begin); waited != 950*time.Millisecond {
			t.Errorf("the next request waited %v, want the rest of its second", waited)
		}
		if called.Load() != 2 {
			t.Errorf("transport called %d times, want 2", called.Load())
		}
		wantCounts(t, lim, counts{Admitted: 2, Shed: 100, Reached: 2})
	})
}

func TestBurstWithDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := fixed(10)
		var called atomic.Int32
		rt := httpclient.Wrap(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			called.Add(1)
			return ok(req)
		}), lim)
		begin := time.Now()
		var wg sync.WaitGroup
		var granted, refused atomic.Int32
		for range 500 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				defer cancel()
				switch _, err := rt.RoundTrip(newRequest(t, nil).WithContext(ctx)); {
				case err == nil:
					granted.Add(1)
				case errors.Is(err, context.DeadlineExceeded) && errors.Is(err, agilelimiter.ErrWait):
					refused.Add(1)
				default:
					t.Errorf("err = %v", err)
				}
				if took := time.Since(begin); took > 200*time.Millisecond {
					t.Errorf("returned after %v, want within the deadline", took)
				}
			})
		}
		wg.Wait()
		// Slots at 0, 100 and perhaps 200 ms; that one races with the deadline.
		if n := granted.Load(); n < 2 || n > 3 || refused.Load() != 500-n || called.Load() != n {
			t.Errorf("granted %d, refused %d, sent %d", n, refused.Load(), called.Load())
		}
		time.Sleep(time.Second - time.Since(begin))
		late := time.Now()
		if _, err := rt.RoundTrip(newRequest(t, nil)); err != nil || time.Since(late) > 100*time.Millisecond {
			t.Errorf("a late request waited %v, err %v, want at most an interval", time.Since(late), err)
		}
	})
}

func TestDeadlineThatCannotBeMet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := fixed(1)
		rt := httpclient.Wrap(roundTripperFunc(ok), lim)
		var wg sync.WaitGroup
		for range 11 { // one departs, ten wait
			wg.Go(func() { rt.RoundTrip(newRequest(t, nil)) })
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		begin := time.Now()
		_, err := rt.RoundTrip(newRequest(t, nil).WithContext(ctx))
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, agilelimiter.ErrWait) || time.Since(begin) != 0 {
			t.Errorf("err = %v after %v, want DeadlineExceeded at once", err, time.Since(begin))
		}
		wg.Wait()
		if took := time.Since(begin); took != 10*time.Second {
			t.Errorf("the queue took %v, want 10s: the refusal costs no slot", took)
		}
		wantCounts(t, lim, counts{Admitted: 11, Shed: 1, Reached: 11})
	})
}

func TestQueueFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := agilelimiter.New(agilelimiter.Config{MinRate: 1, MaxRate: 1, MaxWaiting: 1})
		rt := httpclient.Wrap(roundTripperFunc(ok), lim)
		rt.RoundTrip(newRequest(t, nil))
		var wg sync.WaitGroup
		wg.Go(func() { rt.RoundTrip(newRequest(t, nil)) })
		synctest.Wait()
		body := &trackedBody{Reader: strings.NewReader("x")}
		if _, err := rt.RoundTrip(newRequest(t, body)); !errors.Is(err, agilelimiter.ErrQueueFull) || body.closed.Load() != 1 {
			t.Errorf("err = %v, body closed %d times, want ErrQueueFull and once", err, body.closed.Load())
		}
		wg.Wait()
	})
}

// The caller gives up while the downstream works: no sample, whatever the
// verdict would say.
func TestCancelledInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := agilelimiter.New(agilelimiter.Config{MinRate: 20, MaxRate: 500, InitialRate: 500})
		lim.Start()
		defer lim.Stop()
		rt := httpclient.Wrap(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			select {
			case <-time.After(50 * time.Millisecond):
				return ok(req)
			case <-req.Context().Done():
				return nil, context.Cause(req.Context())
			}
		}), lim, httpclient.WithVerdict(func(*http.Response, error, time.Duration) agilelimiter.Outcome {
			t.Error("the verdict was called for a cancelled request")
			return agilelimiter.Reached
		}))
		for range 100 {
			// The cause is what the transport returns; it need not be context.Canceled.
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(5*time.Millisecond, func() { cancel(errors.New("user left")) })
			if _, err := rt.RoundTrip(newRequest(t, nil).WithContext(ctx)); err == nil || err.Error() != "user left" {
				t.Fatalf("err = %v, want the transport's", err)
			}
		}
		time.Sleep(time.Second)
		wantCounts(t, lim, counts{Admitted: 100, Aborted: 100})
		if s := lim.Stats(); lim.Rate() != 500 || s.Decisions[agilelimiter.Blind] != s.Ticks {
			t.Errorf("rate %v after %v, want 500 and only blind ticks", lim.Rate(), s.Decisions)
		}
	})
}

func TestEndOfAFailedRequest(t *testing.T) {
	type env struct {
		req    *http.Request
		cancel context.CancelCauseFunc
	}
	for _, c := range []struct {
		what string
		fail func(t *testing.T, e env) error
		want counts
	}{
		{"deadline", func(t *testing.T, e env) error {
			<-e.req.Context().Done()
			return e.req.Context().Err()
		}, counts{Admitted: 1, Reached: 1, Truncated: 1}},
		{"deadline, under another name", func(t *testing.T, e env) error {
			<-e.req.Context().Done()
			return errors.New("net/http: request canceled")
		}, counts{Admitted: 1, Reached: 1, Truncated: 1}},
		{"a time-out below", func(t *testing.T, e env) error {
			return &net.OpError{Op: "read", Err: context.DeadlineExceeded}
		}, counts{Admitted: 1, Reached: 1, Truncated: 1}},
		{"a time-out of the dial", func(t *testing.T, e env) error {
			return &net.OpError{Op: "dial", Err: context.DeadlineExceeded}
		}, counts{Admitted: 1, Unreachable: 1}},
		{"reset", func(t *testing.T, e env) error {
			return &net.OpError{Op: "read", Err: syscall.ECONNRESET}
		}, counts{Admitted: 1, Unreachable: 1}},
		{"reset at the deadline", func(t *testing.T, e env) error {
			<-e.req.Context().Done()
			return &net.OpError{Op: "read", Err: syscall.ECONNRESET}
		}, counts{Admitted: 1, Reached: 1, Truncated: 1}},
		{"a cause that is a time-out", func(t *testing.T, e env) error {
			e.cancel(fmt.Errorf("budget: %w", context.DeadlineExceeded))
			return e.req.Context().Err()
		}, counts{Admitted: 1, Reached: 1, Truncated: 1}},
		{"a limiter further in", func(t *testing.T, e env) error {
			return &net.OpError{Op: "dial", Err: agilelimiter.ErrOverloaded}
		}, counts{Admitted: 1, Aborted: 1}},
		{"cancelled by a layer below", func(t *testing.T, e env) error {
			return fmt.Errorf("hedge: %w", context.Canceled)
		}, counts{Admitted: 1, Aborted: 1}},
		{"cancelled", func(t *testing.T, e env) error {
			e.cancel(nil)
			return errors.New("net/http: request canceled")
		}, counts{Admitted: 1, Aborted: 1}},
		{"Request.Cancel", func(t *testing.T, e env) error {
			//lint:ignore SA1019 deprecated, and in use all the same
			<-e.req.Cancel
			return errors.New("net/http: request canceled")
		}, counts{Admitted: 1, Aborted: 1}},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lim := fixed(100)
				ctx, stop := context.WithTimeout(t.Context(), time.Second)
				defer stop()
				ctx, cancel := context.WithCancelCause(ctx)
				defer cancel(nil)
				req := newRequest(t, nil).WithContext(ctx)
				closed := make(chan struct{})
				if c.what == "Request.Cancel" {
					close(closed)
				}
				//lint:ignore SA1019 deprecated, and in use all the same
				req.Cancel = closed
				var failed error
				_, err := httpclient.Wrap(roundTripperFunc(func(got *http.Request) (*http.Response, error) {
					failed = c.fail(t, env{got, cancel})
					return nil, failed
				}), lim).RoundTrip(req)
				if err != failed {
					t.Errorf("err = %v, want %v", err, failed)
				}
				wantCounts(t, lim, c.want)
			})
		})
	}
}

// A response is a whole measurement, even if the caller has left meanwhile.
func TestResponseAfterCancel(t *testing.T) {
	lim := fixed(100)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := httpclient.Wrap(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
		cancel()
		return ok(req)
	}), lim).RoundTrip(newRequest(t, nil).WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	wantCounts(t, lim, counts{Admitted: 1, Reached: 1})
}

// http.Client.Timeout in flight is a signal, over a real http.Transport too.
func TestClientTimeoutInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := fixed(1000)
		tr, stop := pipeTransport(func(*http.Request) string { return "" })
		defer stop()
		client := &http.Client{Transport: httpclient.Wrap(tr, lim), Timeout: 300 * time.Millisecond}
		for range 20 { // which of its two signals the transport sees first is chance
			begin := time.Now()
			_, err := client.Get("http://downstream.test/")
			if e, ok := errors.AsType[*url.Error](err); !ok || !e.Timeout() || time.Since(begin) != 300*time.Millisecond {
				t.Fatalf("err = %v after %v, want a time-out after 300ms", err, time.Since(begin))
			}
		}
		wantCounts(t, lim, counts{Admitted: 20, Reached: 20, Truncated: 20})

		// And the user's own cancellation stays one, with a Timeout set too.
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, cancel)
		req := newRequest(t, nil).WithContext(ctx)
		if _, err := client.Do(req); !errors.Is(err, context.Canceled) {
			t.Errorf("err = %v, want context.Canceled", err)
		}
		wantCounts(t, lim, counts{Admitted: 21, Reached: 20, Truncated: 20, Aborted: 1})
	})
}

// In the queue it is not: nothing was sent.
func TestClientTimeoutInTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := fixed(1)
		client := &http.Client{Transport: httpclient.Wrap(roundTripperFunc(ok), lim), Timeout: 300 * time.Millisecond}
		resp, err := client.Get("http://downstream.test/")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close() // ends the client's own timer
		begin := time.Now()
		_, err = client.Get("http://downstream.test/")
		if !errors.Is(err, agilelimiter.ErrWait) || !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != 0 {
			t.Errorf("err = %v after %v, want ErrWait and DeadlineExceeded at once", err, time.Since(begin))
		}
		wantCounts(t, lim, counts{Admitted: 1, Shed: 1, Reached: 1})
	})
}

// pipeTransport is a real http.Transport whose server lives in the bubble; an
// empty answer means none.
func pipeTransport(answer func(*http.Request) string) (tr *http.Transport, stop func()) {
	var mu sync.Mutex
	var conns []net.Conn
	tr = &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		mu.Lock()
		conns = append(conns, server)
		mu.Unlock()
		go func() {
			r := bufio.NewReader(server)
			for {
				req, err := http.ReadRequest(r)
				if err != nil {
					return
				}
				if text := answer(req); text != "" {
					io.WriteString(server, text)
				}
			}
		}()
		return client, nil
	}}
	return tr, func() {
		tr.CloseIdleConnections()
		mu.Lock()
		defer mu.Unlock()
		for _, c := range conns {
			c.Close()
		}
	}
}

// Fast failures are not health: the measured case of the field is a limiter
// that climbs from 50 to 335 req/s into a port that refuses every call.
func TestRefusedConnectionsNeverRaiseTheRate(t *testing.T) {
	for _, c := range []struct {
		what string
		slo  time.Duration
		want float64
	}{
		{"with an SLO it backs off to MinRate", 200 * time.Millisecond, 20},
		{"without one there is nothing to go by before the first sample", 0, 50},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lim := agilelimiter.New(agilelimiter.Config{MinRate: 20, MaxRate: 500, InitialRate: 50, SLOTarget: c.slo})
				lim.Start()
				defer lim.Stop()
				rt := httpclient.Wrap(roundTripperFunc(func(*http.Request) (*http.Response, error) {
					time.Sleep(50 * time.Microsecond)
					return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
				}), lim)
				last := lim.Rate()
				for begin := time.Now(); time.Since(begin) < 8*time.Second; {
					if _, err := rt.RoundTrip(newRequest(t, nil)); !errors.Is(err, syscall.ECONNREFUSED) {
						t.Fatalf("err = %v, want the transport's", err)
					}
					if r := lim.Rate(); r > last {
						t.Fatalf("the rate rose from %v to %v", last, r)
					} else {
						last = r
					}
				}
				if last != c.want {
					t.Errorf("rate %v, want %v", last, c.want)
				}
			})
		})
	}
}

func TestRetriesAndTheOrderOfWrapping(t *testing.T) {
	retry := func(rt http.RoundTripper) http.RoundTripper {
		return roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			for {
				if resp, err := rt.RoundTrip(req); err != nil || resp.StatusCode != http.StatusServiceUnavailable {
					return resp, err
				}
				time.Sleep(200 * time.Millisecond)
			}
		})
	}
	for _, c := range []struct {
		what string
		wrap func(base http.RoundTripper, lim *agilelimiter.Limiter, o httpclient.Option) http.RoundTripper
		want []time.Duration
	}{
		{"inside retries every attempt is a call", func(base http.RoundTripper, lim *agilelimiter.Limiter, o httpclient.Option) http.RoundTripper {
			return retry(httpclient.Wrap(base, lim, o))
		}, []time.Duration{100 * time.Millisecond, 100 * time.Millisecond, 100 * time.Millisecond}},
		{"outside, the pauses count as latency", func(base http.RoundTripper, lim *agilelimiter.Limiter, o httpclient.Option) http.RoundTripper {
			return httpclient.Wrap(retry(base), lim, o)
		}, []time.Duration{700 * time.Millisecond}},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				attempt := 0
				base := roundTripperFunc(func(req *http.Request) (*http.Response, error) {
					time.Sleep(100 * time.Millisecond)
					resp, _ := ok(req)
					if attempt++; attempt < 3 {
						resp.StatusCode = http.StatusServiceUnavailable
					}
					return resp, nil
				})
				var seen []time.Duration
				rt := c.wrap(base, fixed(100), httpclient.WithVerdict(func(_ *http.Response, _ error, d time.Duration) agilelimiter.Outcome {
					seen = append(seen, d)
					return agilelimiter.Reached
				}))
				if _, err := rt.RoundTrip(newRequest(t, nil)); err != nil {
					t.Fatal(err)
				}
				if fmt.Sprint(seen) != fmt.Sprint(c.want) {
					t.Errorf("durations %v, want %v", seen, c.want)
				}
			})
		})
	}
}

func TestVerdictMayUseTheLimiter(t *testing.T) {
	lim := agilelimiter.New(agilelimiter.Config{MaxRate: 1e9, InitialRate: 1e9})
	lim.Start()
	defer lim.Stop()
	rt := httpclient.Wrap(roundTripperFunc(ok), lim, httpclient.WithVerdict(
		func(*http.Response, error, time.Duration) agilelimiter.Outcome {
			if lim.Rate() <= 0 || lim.Stats().Admitted == 0 || lim.Waiting() != 0 {
				t.Error("wrong figures inside the verdict")
			}
			lim.Observe(time.Millisecond)
			return agilelimiter.Aborted
		}))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				rt.RoundTrip(newRequest(t, nil))
			}
		})
	}
	wg.Wait()
	wantCounts(t, lim, counts{Admitted: 400, Reached: 400, Aborted: 400})
}

func TestUndefinedOutcomeIsReached(t *testing.T) {
	for _, err := range []error{nil, context.DeadlineExceeded} {
		lim := fixed(1000)
		rt := httpclient.Wrap(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			if err != nil {
				return nil, err
			}
			return ok(req)
		}), lim, httpclient.WithVerdict(func(*http.Response, error, time.Duration) agilelimiter.Outcome { return 77 }))
		rt.RoundTrip(newRequest(t, nil))
		want := counts{Admitted: 1, Reached: 1}
		if err != nil {
			want.Truncated = 1
		}
		wantCounts(t, lim, want)
	}
}

func TestPanicsEndTheCall(t *testing.T) {
	cause := errors.New("boom")
	for _, c := range []struct {
		what string
		rt   http.RoundTripper
		v    httpclient.Verdict
	}{
		{"transport", roundTripperFunc(func(*http.Request) (*http.Response, error) { panic(cause) }), httpclient.DefaultVerdict},
		{"verdict", roundTripperFunc(ok), func(*http.Response, error, time.Duration) agilelimiter.Outcome { panic(cause) }},
	} {
		t.Run(c.what, func(t *testing.T) {
			lim := fixed(1e6)
			rt := httpclient.Wrap(c.rt, lim, httpclient.WithVerdict(c.v))
			for range 50 {
				func() {
					defer func() {
						if got := recover(); got != any(cause) {
							t.Errorf("recovered %v, want the panic's own value", got)
						}
					}()
					rt.RoundTrip(newRequest(t, nil))
				}()
			}
			wantCounts(t, lim, counts{Admitted: 50, Aborted: 50})
			if n := lim.InFlight(); n != 0 {
				t.Errorf("InFlight() = %d, want 0", n)
			}
		})
	}
	t.Run("the verdict's panic closes the response", func(t *testing.T) {
		for _, body := range []*trackedBody{{}, nil} {
			rt := httpclient.Wrap(roundTripperFunc(func(*http.Request) (*http.Response, error) {
				if body == nil {
					return &http.Response{StatusCode: 204}, nil
				}
				return &http.Response{StatusCode: 200, Body: body}, nil
			}), fixed(1e6), httpclient.WithVerdict(func(*http.Response, error, time.Duration) agilelimiter.Outcome { panic(cause) }))
			func() {
				defer func() {
					if got := recover(); got != any(cause) {
						t.Errorf("recovered %v, want the panic's own value", got)
					}
				}()
				rt.RoundTrip(newRequest(t, nil))
			}()
			if body != nil && body.closed.Load() != 1 {
				t.Errorf("the body was closed %d times, want once", body.closed.Load())
			}
		}
	})
	t.Run("Goexit", func(t *testing.T) {
		lim := fixed(1e6)
		done := make(chan struct{})
		go func() {
			defer close(done)
			httpclient.Wrap(roundTripperFunc(func(*http.Request) (*http.Response, error) {
				runtime.Goexit()
				return nil, nil
			}), lim).RoundTrip(newRequest(t, nil))
		}()
		<-done
		wantCounts(t, lim, counts{Admitted: 1, Aborted: 1})
	})
}

func TestRequestIsNotTouched(t *testing.T) {
	req := newRequest(t, nil)
	req.Header.Set("X-Test", "1")
	before, header := *req, req.Header.Clone()
	rt := httpclient.Wrap(roundTripperFunc(func(got *http.Request) (*http.Response, error) {
		if got != req {
			t.Error("the transport got another request")
		}
		return ok(got)
	}), fixed(1e6))
	var wg sync.WaitGroup
	for range 10 { // the race detector looks on
		wg.Go(func() { rt.RoundTrip(req) })
	}
	wg.Wait()
	if req.URL != before.URL || req.URL.String() != "http://downstream.test/path?q=1" || req.Context() != before.Context() ||
		fmt.Sprint(req.Header) != fmt.Sprint(header) || req.Body != before.Body || req.Method != before.Method || req.Host != before.Host {
		t.Error("the request was changed")
	}
}

func TestWhatTheTransportReturns(t *testing.T) {
	boom := errors.New("boom")
	body := &trackedBody{Reader: strings.NewReader("x")}
	response := &http.Response{StatusCode: http.StatusOK, Body: body}
	for _, c := range []struct {
		what     string
		resp     *http.Response
		err      error
		wantResp *http.Response
		wantErr  string
		closed   int32
		want     agilelimiter.Outcome
	}{
		{"a response", response, nil, response, "", 0, agilelimiter.Reached},
		{"an error", nil, boom, nil, "boom", 0, agilelimiter.Unreachable},
		{"both", response, boom, nil, "boom", 1, agilelimiter.Unreachable},
		{"both, without a body", &http.Response{}, boom, nil, "boom", 0, agilelimiter.Unreachable},
		{"neither", nil, nil, nil,
			"agilelimiter/httpclient: httpclient_test.roundTripperFunc returned neither a response nor an error", 0, agilelimiter.Aborted},
		{"a response without a body", &http.Response{StatusCode: 204}, nil, nil, "", 0, agilelimiter.Reached},
	} {
		t.Run(c.what, func(t *testing.T) {
			lim := fixed(1000)
			body.closed.Store(0)
			resp, err := httpclient.Wrap(roundTripperFunc(func(*http.Request) (*http.Response, error) {
				return c.resp, c.err
			}), lim).RoundTrip(newRequest(t, nil))
			if c.what == "a response without a body" {
				c.wantResp = c.resp
			}
			if resp != c.wantResp || (err == nil) != (c.wantErr == "") || err != nil && err.Error() != c.wantErr {
				t.Errorf("RoundTrip = %v, %v", resp, err)
			}
			if body.closed.Load() != c.closed {
				t.Errorf("body closed %d times, want %d", body.closed.Load(), c.closed)
			}
			want := counts{Admitted: 1}
			switch c.want {
			case agilelimiter.Aborted:
				want.Aborted = 1
			case agilelimiter.Unreachable:
				want.Unreachable = 1
			default:
				want.Reached = 1
			}
			wantCounts(t, lim, want)
		})
	}
}

type closer struct {
	http.RoundTripper
	closed int
}

func (c *closer) CloseIdleConnections() { c.closed++ }

func TestInnerTransportIsInReach(t *testing.T) {
	base := &closer{RoundTripper: roundTripperFunc(ok)}
	rt := httpclient.Wrap(base, fixed(1))
	(&http.Client{Transport: rt}).CloseIdleConnections()
	if base.closed != 1 {
		t.Errorf("CloseIdleConnections reached the transport %d times, want once", base.closed)
	}
	if got := rt.(interface{ Unwrap() http.RoundTripper }).Unwrap(); got != http.RoundTripper(base) {
		t.Errorf("Unwrap() = %v", got)
	}
	(&http.Client{Transport: httpclient.Wrap(roundTripperFunc(ok), fixed(1))}).CloseIdleConnections() // has none
	if got := httpclient.Wrap(nil, fixed(1)).(interface{ Unwrap() http.RoundTripper }).Unwrap(); got != http.DefaultTransport {
		t.Errorf("without a transport Unwrap() = %v, want http.DefaultTransport", got)
	}
}

func TestMisuse(t *testing.T) {
	for _, c := range []struct {
		want string
		do   func()
	}{
		{"agilelimiter/httpclient: Wrap: nil Limiter", func() { httpclient.Wrap(nil, nil) }},
		{"agilelimiter/httpclient: Wrap: nil Option", func() { httpclient.Wrap(nil, fixed(1), nil) }},
		{"agilelimiter/httpclient: WithVerdict: nil Verdict", func() { httpclient.WithVerdict(nil) }},
	} {
		func() {
			defer func() {
				if got := recover(); got != c.want {
					t.Errorf("panic %v, want %q", got, c.want)
				}
			}()
			c.do()
		}()
	}
}

// The body outlives RoundTrip: nothing that the caller needs is cancelled.
func TestLargeBodyAfterReturn(t *testing.T) {
	payload := bytes.Repeat([]byte("0123456789abcdef"), 10<<20/16)
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP2=%v", http2), func(t *testing.T) {
			srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Write(payload)
			}))
			srv.EnableHTTP2 = http2
			srv.StartTLS()
			defer srv.Close()
			client := srv.Client()
			client.Transport = httpclient.Wrap(client.Transport, fixed(1000))
			client.Timeout = time.Minute
			resp, err := client.Get(srv.URL)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			got, err := io.ReadAll(resp.Body)
			if err != nil || !bytes.Equal(got, payload) {
				t.Errorf("%d bytes, err %v, want %d", len(got), err, len(payload))
			}
			if want := map[bool]int{false: 1, true: 2}[http2]; resp.ProtoMajor != want {
				t.Errorf("HTTP/%d, want %d", resp.ProtoMajor, want)
			}
		})
	}
}

// The body of a 101 is an io.ReadWriteCloser and must stay one.
func TestUpgradeBody(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		line, _ := rw.ReadString('\n')
		io.WriteString(conn, "echo "+line)
	}))
	defer srv.Close()
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL, nil)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	resp, err := httpclient.Wrap(srv.Client().Transport, fixed(1000)).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	rwc, is := resp.Body.(io.ReadWriteCloser)
	if resp.StatusCode != 101 || !is {
		t.Fatalf("status %d, body %T, want 101 and an io.ReadWriteCloser", resp.StatusCode, resp.Body)
	}
	io.WriteString(rwc, "hello\n")
	if got, _ := bufio.NewReader(rwc).ReadString('\n'); got != "echo hello\n" {
		t.Errorf("read %q, want the echo", got)
	}
}

func TestSuccessAllocatesNothing(t *testing.T) {
	resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/plain"}}, Body: http.NoBody}
	rt := httpclient.Wrap(roundTripperFunc(func(*http.Request) (*http.Response, error) { return resp, nil }), fixed(1e9))
	req := newRequest(t, nil)
	if n := testing.AllocsPerRun(1000, func() { rt.RoundTrip(req) }); n != 0 {
		t.Errorf("%v allocations per call, want 0", n)
	}
}

// A Clock that panics when the header is there ends the call and closes the body.
func TestAPanickingClockEndsTheCall(t *testing.T) {
	for _, opts := range [][]httpclient.Option{nil, {httpclient.UntilBody()}} {
		clock := &fragileClock{VirtualClock: agilelimiter.NewVirtualClock(time.Unix(0, 0))}
		lim := agilelimiter.New(agilelimiter.Config{MaxRate: 1, Clock: clock})
		body := &trackedBody{Reader: &tenBytes{}}
		rt := httpclient.Wrap(roundTripperFunc(func(*http.Request) (*http.Response, error) {
			clock.broken = true
			return &http.Response{StatusCode: 200, Header: http.Header{}, Body: body}, nil
		}), lim, opts...)
		func() {
			defer func() {
				if recover() != "broken" {
					t.Error("the panic did not pass on")
				}
			}()
			rt.RoundTrip(newRequest(t, nil))
		}()
		clock.broken = false
		wantCounts(t, lim, counts{Admitted: 1, Aborted: 1})
		if lim.InFlight() != 0 || body.closed.Load() == 0 {
			t.Errorf("%d in flight and the body closed %d times, want 0 and at least 1", lim.InFlight(), body.closed.Load())
		}
	}
}

// fragileClock panics while it is broken.
type fragileClock struct {
	*agilelimiter.VirtualClock
	broken bool
}

func (c *fragileClock) Now() time.Time {
	if c.broken {
		panic("broken")
	}
	return c.VirtualClock.Now()
}

// FR06: a server of 200/s, 400/s are wanted, and for ten seconds every call is
// reset after a millisecond. The rate goes to its floor and comes back. One reset
// in a hundred, in ordinary times, moves nothing.
func TestAResettingHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := agilelimiter.New(agilelimiter.Config{MinRate: 10, MaxRate: 1000, InitialRate: 100, MaxWaiting: 50,
			SLOTarget: 200 * time.Millisecond, Anchor: agilelimiter.AnchorKnee})
		lim.Start()
		defer lim.Stop()
		workers := make(chan struct{}, 4)
		var dead atomic.Bool
		var sent, answered atomic.Int64
		rt := httpclient.Wrap(roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			n := sent.Add(1)
			if dead.Load() || n%100 == 0 {
				time.Sleep(time.Millisecond)
				return nil, &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
			}
			workers <- struct{}{}
			time.Sleep(20 * time.Millisecond)
			<-workers
			answered.Add(1)
			return ok(req)
		}), lim)
		var callers sync.WaitGroup
		offer := func(d time.Duration) (sentNow, answeredNow int64) {
			sentBefore, answeredBefore := sent.Load(), answered.Load()
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(2500 * time.Microsecond) {
				callers.Go(func() { rt.RoundTrip(newRequest(t, nil)) })
			}
			return sent.Load() - sentBefore, answered.Load() - answeredBefore
		}
		offer(10 * time.Second)
		if _, n := offer(10 * time.Second); n < 1800 {
			t.Errorf("%d calls answered in ten seconds with a reset now and then, want 90 %% of 2000", n)
		}
		dead.Store(true)
		offer(2 * time.Second)
		if lim.Rate() != 10 {
			t.Errorf("rate %.1f two seconds after the host died, want the floor", lim.Rate())
		}
		if n, _ := offer(8 * time.Second); n > 100 {
			t.Errorf("%d calls into the dead host in eight seconds, want 10/s", n)
		}
		dead.Store(false)
		offer(5 * time.Second)
		if _, n := offer(5 * time.Second); n < 900 {
			t.Errorf("%d calls answered in the five seconds that begin five after its return, want 90 %% of 1000", n)
		}
		callers.Wait()
	})
}
