package httpserver_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"agilelimiter"
	"agilelimiter/httpclient"
	"agilelimiter/httpserver"
)

// Our client in front of our server: the 429 of one is congestion for the other.
func TestOurClientBeforeOurServer(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			inbound := newLimiter(2)
			release := make(chan struct{})
			addr, client := serve(t, protocol, httpserver.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				<-release
			}), inbound, httpserver.WithRetryAfter(time.Millisecond)))
			clock := agilelimiter.NewVirtualClock(time.Unix(0, 0))
			outbound := agilelimiter.New(agilelimiter.Config{MaxRate: 1000, InitialRate: 1000, SLOTarget: time.Second, Clock: clock})
			outbound.Start()
			defer outbound.Stop()
			client.Transport = httpclient.Wrap(client.Transport, outbound)

			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() { get(t, client, addr) })
				clock.Advance(time.Millisecond)
			}
			for inbound.InFlight() < 2 {
				clock.Advance(time.Millisecond) // the pace of 1000/s, should anybody wait
				time.Sleep(time.Millisecond)
			}
			for range 3 {
				clock.Advance(time.Millisecond)
				if resp, _ := get(t, client, addr); resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "1" {
					t.Errorf("status %d, want a 429", resp.StatusCode)
				}
			}
			close(release)
			wg.Wait()
			settle(t, inbound)
			wantCounts(t, inbound, counts{Admitted: 2, Shed: 3, Reached: 2})
			if s := outbound.Stats(); s.Admitted != 5 || s.Reached != 2 || s.Unreachable != 3 {
				t.Errorf("the client counted %d admitted, %d reached, %d unreachable, want 5, 2 and 3", s.Admitted, s.Reached, s.Unreachable)
			}
			before := outbound.Rate()
			clock.Advance(time.Second)
			if outbound.Rate() >= before {
				t.Errorf("the rate went from %v to %v, want it lower", before, outbound.Rate())
			}
		})
	}
}

// A reverse proxy with both: the client side inside its transport, the server
// side around it.
func TestReverseProxy(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			backendLimit := newLimiter(1)
			backendLimit.TryTake()
			mux := http.NewServeMux()
			mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body) // first all of it: HTTP/1.1 is half duplex by default
				w.Write(body)
			})
			mux.Handle("/busy", httpserver.Wrap(http.NotFoundHandler(), backendLimit))
			backend, backendClient := serve(t, protocol, mux)

			outbound := agilelimiter.New(agilelimiter.Config{MaxRate: 1e6, InitialRate: 1e6})
			inbound := newLimiter(10)
			proxyFor := func(target string) http.Handler {
				u, err := url.Parse(target)
				if err != nil {
					t.Fatal(err)
				}
				p := httputil.NewSingleHostReverseProxy(u)
				p.Transport = httpclient.Wrap(backendClient.Transport, outbound)
				p.ErrorHandler = func(w http.ResponseWriter, r *http.Request, err error) { w.WriteHeader(http.StatusBadGateway) }
				return p
			}
			front := http.NewServeMux()
			front.Handle("/", proxyFor(backend))
			front.Handle("/gone", proxyFor("http://127.0.0.1:1"))
			addr, client := serve(t, protocol, httpserver.Wrap(front, inbound))

			payload := bytes.Repeat([]byte("x"), 1<<20)
			resp, err := client.Post(addr+"/echo", "text/plain", bytes.NewReader(payload))
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || !bytes.Equal(got, payload) {
				t.Errorf("%d bytes, %v, want the echo of %d", len(got), err, len(payload))
			}
			if resp, _ := get(t, client, addr+"/busy"); resp.StatusCode != 429 {
				t.Errorf("status %d, want the backend's 429", resp.StatusCode)
			}
			if resp, _ := get(t, client, addr+"/gone"); resp.StatusCode != 502 {
				t.Errorf("status %d, want 502", resp.StatusCode)
			}
			settle(t, inbound)
			wantCounts(t, inbound, counts{Admitted: 3, Reached: 1, Unreachable: 2})
			if s := outbound.Stats(); s.Reached != 1 || s.Unreachable != 2 {
				t.Errorf("outbound: %d reached, %d unreachable, want 1 and 2", s.Reached, s.Unreachable)
			}
		})
	}
}

// The client of a client that leaves: one cancellation through both layers.
func TestCancellationThroughTheProxy(t *testing.T) {
	inside := make(chan struct{})
	backend, _ := serve(t, "HTTP/1.1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(inside)
		<-r.Context().Done()
	}))
	u, _ := url.Parse(backend)
	outbound := agilelimiter.New(agilelimiter.Config{MaxRate: 1e6, InitialRate: 1e6})
	inbound := newLimiter(10)
	p := httputil.NewSingleHostReverseProxy(u)
	p.Transport = httpclient.Wrap(nil, outbound)
	p.ErrorHandler = func(http.ResponseWriter, *http.Request, error) {}
	addr, client := serve(t, "HTTP/1.1", httpserver.Wrap(p, inbound))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-inside
		cancel()
	}()
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, addr, nil)
	if _, err := client.Do(req); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v, want context.Canceled", err)
	}
	settle(t, inbound)
	wantCounts(t, inbound, counts{Admitted: 1, Aborted: 1})
	if s := outbound.Stats(); s.Aborted != 1 || s.Admitted != 1 {
		t.Errorf("outbound: %d admitted, %d aborted, want 1 and 1", s.Admitted, s.Aborted)
	}
}

// chi's router takes this shape, and echo's adapter turns it into its own.
type (
	chiRouter struct {
		middlewares []func(http.Handler) http.Handler
	}

	echoContext struct {
		w http.ResponseWriter
		r *http.Request
	}
	echoHandlerFunc    func(c *echoContext) error
	echoMiddlewareFunc func(next echoHandlerFunc) echoHandlerFunc
)

func (c *chiRouter) Use(m ...func(http.Handler) http.Handler) {
	c.middlewares = append(c.middlewares, m...)
}

func (c *chiRouter) handler(h http.Handler) http.Handler {
	for i := len(c.middlewares) - 1; i >= 0; i-- {
		h = c.middlewares[i](h)
	}
	return h
}

func echoWrapMiddleware(m func(http.Handler) http.Handler) echoMiddlewareFunc {
	return func(next echoHandlerFunc) echoHandlerFunc {
		return func(c *echoContext) (err error) {
			m(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				err = next(&echoContext{w, r})
			})).ServeHTTP(c.w, c.r)
			return err
		}
	}
}

func TestMiddlewareShapes(t *testing.T) {
	lim := newLimiter(1)
	var chi chiRouter
	chi.Use(httpserver.Middleware(lim))
	echo := echoWrapMiddleware(httpserver.Middleware(lim))(func(c *echoContext) error {
		_, err := io.WriteString(c.w, "echo")
		return err
	})
	for want, h := range map[string]http.Handler{
		"chi": chi.handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "chi") })),
		"echo": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := echo(&echoContext{w, r}); err != nil {
				t.Error(err)
			}
		}),
	} {
		addr, client := serve(t, "HTTP/1.1", h)
		if resp, body := get(t, client, addr); resp.StatusCode != 200 || body != want {
			t.Errorf("%d, %q, want %q", resp.StatusCode, body, want)
		}
		settle(t, lim)
		lim.TryTake()
		if resp, body := get(t, client, addr); resp.StatusCode != 429 || !strings.Contains(body, "Too Many") {
			t.Errorf("%d, %q, want a 429", resp.StatusCode, body)
		}
		lim.Release()
		lim.Record(agilelimiter.Aborted, 0)
	}
	wantCounts(t, lim, counts{Admitted: 4, Shed: 2, Reached: 2, Aborted: 2})
}
