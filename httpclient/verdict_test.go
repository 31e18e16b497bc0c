package httpclient_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
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

func TestDefaultVerdict(t *testing.T) {
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	read := func(err error) error { return &net.OpError{Op: "read", Net: "tcp", Err: err} }
	respond := func(status int, header ...string) *http.Response {
		h := http.Header{}
		for i := 0; i < len(header); i += 2 {
			h.Add(header[i], header[i+1])
		}
		return &http.Response{StatusCode: status, Header: h, Body: http.NoBody}
	}
	const (
		reached     = agilelimiter.Reached
		unreachable = agilelimiter.Unreachable
		aborted     = agilelimiter.Aborted
	)
	for _, c := range []struct {
		what string
		resp *http.Response
		err  error
		want agilelimiter.Outcome
	}{
		{"dial: refused", nil, dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)), unreachable},
		{"dial: no route", nil, dial(os.NewSyscallError("connect", syscall.EHOSTUNREACH)), unreachable},
		{"dial: time-out", nil, dial(os.ErrDeadlineExceeded), unreachable},
		{"dial: no such host", nil, dial(&net.DNSError{Err: "no such host", IsNotFound: true}), unreachable},
		{"DNS: time-out", nil, &net.DNSError{IsTimeout: true}, unreachable},
		{"TLS: time-out", nil, &timeout{"net/http: TLS handshake timeout"}, unreachable},
		{"TLS: time-out, through url.Error", nil, &url.Error{Op: "Get", URL: "/", Err: &timeout{"net/http: TLS handshake timeout"}}, unreachable},
		{"proxy: time-out", nil, &net.OpError{Op: "proxyconnect", Err: os.ErrDeadlineExceeded}, unreachable},
		{"DNS by itself", nil, &net.DNSError{Err: "server misbehaving", IsTemporary: true}, unreachable},
		{"through url.Error", nil, &url.Error{Op: "Get", URL: "http://x/", Err: dial(syscall.ECONNREFUSED)}, unreachable},
		{"proxy: refused", nil, &net.OpError{Op: "proxyconnect", Err: syscall.ECONNREFUSED}, unreachable},
		{"SOCKS: refused", nil, &net.OpError{Op: "socks connect", Err: errors.New("unknown error")}, unreachable},
		{"refused without a net.OpError", nil, fmt.Errorf("dialer: %w", syscall.ECONNREFUSED), unreachable},
		{"QUIC: refused on a read", nil, read(syscall.ECONNREFUSED), unreachable},
		{"TLS: alert received", nil, &net.OpError{Op: "remote error", Err: errors.New("tls: handshake failure")}, unreachable},
		{"TLS: alert sent", nil, &net.OpError{Op: "local error", Err: errors.New("tls: bad certificate")}, unreachable},
		{"TLS: unknown certificate", nil, &tls.CertificateVerificationError{Err: errors.New("x509: unknown authority")}, unreachable},
		{"TLS: untyped", nil, errors.New("tls: server selected unsupported protocol version 301"), unreachable},

		{"inner limiter: overloaded", nil, fmt.Errorf("inner: %w", agilelimiter.ErrOverloaded), aborted},
		{"inner limiter: queue full", nil, agilelimiter.ErrQueueFull, aborted},
		{"inner limiter: in the dialer", nil, dial(agilelimiter.ErrOverloaded), aborted},
		{"inner limiter: no slot in time", nil, &url.Error{Op: "Get", Err: agilelimiter.ErrWait}, aborted},

		{"deadline", nil, context.DeadlineExceeded, reached},
		{"read time-out", nil, read(os.ErrDeadlineExceeded), reached},
		{"time-out of the response header", nil, &timeout{"net/http: timeout awaiting response headers"}, reached},
		{"cancelled", nil, fmt.Errorf("hedge: %w", context.Canceled), aborted},
		{"cancelled while dialling", nil, dial(context.Canceled), aborted},

		{"reset", nil, read(syscall.ECONNRESET), unreachable},
		{"EOF", nil, io.EOF, unreachable},
		{"unexpected EOF", nil, io.ErrUnexpectedEOF, unreachable},
		{"CONNECT refused", nil, errors.New("Proxy Authentication Required"), unreachable},
		{"GOAWAY", nil, errors.New("http2: Transport received Server's graceful shutdown GOAWAY"), unreachable},
		{"unknown", nil, errors.New("boom"), unreachable},
		{"an error beats a response", respond(200), errors.New("boom"), unreachable},

		{"neither", nil, nil, aborted},
		{"429", respond(429), nil, unreachable},
		{"502", respond(502), nil, unreachable},
		{"503", respond(503), nil, unreachable},
		{"503 out of a cache", respond(503, "X-Cache", "HIT"), nil, unreachable},
		{"hit", respond(200, "X-Cache", "HIT"), nil, aborted},
		{"404 out of a cache", respond(404, "Age", "3"), nil, aborted},
		{"miss", respond(200, "X-Cache", "MISS"), nil, reached},
		{"101", respond(101), nil, reached},
		{"200", respond(200), nil, reached},
		{"202", respond(202), nil, reached},
		{"304", respond(304), nil, reached},
		{"404", respond(404), nil, reached},
		{"500", respond(500), nil, reached},
		{"504", respond(504), nil, reached},
		{"no header map", &http.Response{StatusCode: 200}, nil, reached},
	} {
		if got := httpclient.DefaultVerdict(c.resp, c.err, time.Millisecond); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}

// timeout is a time-out with a text and no type that anybody knows.
type timeout struct{ text string }

func (e *timeout) Error() string { return e.text }
func (e *timeout) Timeout() bool { return true }

func TestIsCacheHit(t *testing.T) {
	for _, c := range []struct {
		name, value string
		want        bool
	}{
		{"X-Cache", "HIT", true},
		{"X-Cache", "hit", true},
		{"X-Cache", "Hit from cloudfront", true},
		{"X-Cache", "RefreshHit from cloudfront", false},
		{"X-Cache", "TCP_MEM_HIT from a23-1-2-3.deploy", true},
		{"X-Cache", "TCP_REFRESH_HIT from a23-1-2-3.deploy", false},
		{"X-Cache", "HIT, MISS", true},
		{"X-Cache", "MISS, HIT", true},
		{"X-Cache", "MISS", false},
		{"X-Cache", "MISS from hit.example", false},
		{"X-Cache", "hit-for-pass", false},
		{"X-Cache", "", false},
		{"X-Cache-Status", "HIT", true},
		{"X-Cache-Status", "UPDATING", true},
		{"X-Cache-Status", "EXPIRED", false},
		{"X-Cache-Status", "STALE", false},
		{"X-Cache-Status", "REVALIDATED", false},
		{"X-Cache-Status", "BYPASS", false},
		{"CF-Cache-Status", "HIT", true},
		{"CF-Cache-Status", "DYNAMIC", false},
		{"X-From-Cache", "1", true},
		{"X-From-Cache", "true", true},
		{"X-From-Cache", "0", false},
		{"X-From-Cache", "False", false},
		{"X-From-Cache", " ", false},
		{"Cache-Status", "ExampleCache; hit", true},
		{"Cache-Status", "ExampleCache;ttl=30;hit", true},
		{"Cache-Status", "ExampleCache; hit=?1; ttl=30", true},
		{"Cache-Status", "ExampleCache; hit=?0", false},
		{"Cache-Status", "ExampleCache; fwd=miss; stored", false},
		{"Cache-Status", "Origin; fwd=miss, Edge; hit; ttl=545", true},
		{"Cache-Status", `"a; hit, b"; fwd=uri-miss`, false},
		{"Cache-Status", `Edge; detail="\"; hit"; fwd=miss`, false},
		{"Cache-Status", `Edge; detail="\";hit;"; fwd=miss`, false},
		{"Cache-Status", "Origin; fwd=miss, hit", false},
		{"Cache-Status", `"no end; hit`, false},
		{"Cache-Status", "hit", false},
		{"Cache-Status", "Edge; hitter", false},
		{"Age", "1", true},
		{"Age", "099", true},
		{"Age", "99999999999999999999999", true},
		{"Age", "0", false},
		{"Age", "000", false},
		{"Age", "-5", false},
		{"Age", "soon", false},
		{"Age", "", false},
		{"Via", "1.1 hit", false},
		{"X-Cache", "cache-hit", true},
		{"X-Cache", "HitStale from child", false},
		{"X-Vercel-Cache", "HIT", true},
		{"X-Vercel-Cache", "PRERENDER", true},
		{"X-Vercel-Cache", "STALE", true},
		{"X-Vercel-Cache", "MISS", false},
		{"X-Vercel-Cache", "REVALIDATED", false},
		{"X-Vercel-Cache", "BYPASS", false},
		{"X-Proxy-Cache", "HIT", true},
		{"X-Proxy-Cache", "MISS", false},
		{"X-Cache-Lookup", "HIT from squid:3128", true},
		{"X-Cache-Lookup", "Hit From Disktank3", true},
		{"X-Cache-Lookup", "Cache Hit", true},
		{"X-Cache-Lookup", "Cache Refresh Hit", false},
		{"X-Cache-Lookup", "Cache Miss", false},
		{"Akamai-Cache-Status", "Hit from child", true},
		{"Akamai-Cache-Status", "Miss from child, Hit from parent", true},
		{"Akamai-Cache-Status", "RefreshHit from child", false},
		{"Akamai-Cache-Status", "HitStale from child", false},
		{"Akamai-Cache-Status", "Miss from child", false},
		{"X-Cache-Hit", "true", true},
		{"X-Cache-Hit", "MISS", false},
		{"Cache-Hit", "1", true},
		{"Cache-Hit", "no", false},
	} {
		h := http.Header{}
		h.Set(c.name, c.value)
		if got := httpclient.IsCacheHit(&http.Response{Header: h}); got != c.want {
			t.Errorf("%s: %q: %v, want %v", c.name, c.value, got, c.want)
		}
	}
	if httpclient.IsCacheHit(nil) || httpclient.IsCacheHit(&http.Response{}) {
		t.Error("a hit without a response or without a header")
	}
	if httpclient.IsCacheHit(&http.Response{Header: http.Header{"Age": {}, "X-From-Cache": nil}}) {
		t.Error("a hit in headers without a line")
	}
	for range 10 { // the order of a map's keys is chance
		squid := http.Header{"X-Cache": {"MISS from squid"}, "X-Cache-Lookup": {"HIT from squid:3128"}}
		if httpclient.IsCacheHit(&http.Response{Header: squid}) {
			t.Error("a look-up that hit is taken for an answer out of the cache")
		}
	}
	h := http.Header{"X-Cache": {"MISS", "HIT"}, "Cache-Status": {"a; fwd=miss", "b; hit"}}
	if !httpclient.IsCacheHit(&http.Response{Header: h}) {
		t.Error("a hit in the second line is not seen")
	}
}

func FuzzIsCacheHit(f *testing.F) {
	f.Add("Edge; hit", "HIT", "7")
	f.Add(`"a\`, ",;,", "+1")
	f.Fuzz(func(t *testing.T, status, cache, age string) {
		h := http.Header{"Cache-Status": {status}, "X-Cache": {cache}, "Age": {age}}
		got := httpclient.IsCacheHit(&http.Response{Header: h})
		if got && !strings.Contains(strings.ToLower(status+cache), "hit") &&
			!strings.Contains(strings.ToLower(cache), "updating") && strings.Trim(age, "0 \t") == "" {
			t.Errorf("a hit out of %q", h)
		}
	})
}

// The errors of a real transport, so that the table above is not wishful.
func TestDefaultVerdictOnRealErrors(t *testing.T) {
	judge := func(t *testing.T, tr *http.Transport, url string) (agilelimiter.Outcome, error) {
		t.Helper()
		defer tr.CloseIdleConnections()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := tr.RoundTrip(req)
		if err == nil {
			resp.Body.Close()
		}
		return httpclient.DefaultVerdict(resp, err, 0), err
	}
	want := func(t *testing.T, tr *http.Transport, url string, want agilelimiter.Outcome) {
		t.Helper()
		got, err := judge(t, tr, url)
		if err == nil || got != want {
			t.Errorf("%v for %v, want %v", got, err, want)
		}
	}
	t.Run("refused", func(t *testing.T) {
		want(t, &http.Transport{}, "http://"+closedPort(t)+"/", agilelimiter.Unreachable)
	})
	t.Run("proxy refused", func(t *testing.T) {
		proxy := &url.URL{Scheme: "http", Host: closedPort(t)}
		want(t, &http.Transport{Proxy: http.ProxyURL(proxy)}, "http://downstream.test/", agilelimiter.Unreachable)
	})
	t.Run("no such host", func(t *testing.T) {
		r := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("no name server")
		}}
		tr := &http.Transport{DialContext: (&net.Dialer{Resolver: r}).DialContext}
		want(t, tr, "http://downstream.test/", agilelimiter.Unreachable)
	})
	t.Run("plain text on a TLS port", func(t *testing.T) {
		srv := httptest.NewServer(http.NotFoundHandler())
		defer srv.Close()
		want(t, &http.Transport{}, strings.Replace(srv.URL, "http:", "https:", 1), agilelimiter.Unreachable)
	})
	quiet := func(t *testing.T, cfg *tls.Config) *httptest.Server {
		srv := httptest.NewUnstartedServer(http.NotFoundHandler())
		srv.TLS = cfg
		srv.Config.ErrorLog = discardLog
		srv.StartTLS()
		t.Cleanup(srv.Close)
		return srv
	}
	t.Run("certificate not trusted", func(t *testing.T) {
		want(t, &http.Transport{}, quiet(t, nil).URL, agilelimiter.Unreachable)
	})
	t.Run("no TLS version in common", func(t *testing.T) {
		srv := quiet(t, &tls.Config{MinVersion: tls.VersionTLS13})
		tr := &http.Transport{TLSClientConfig: &tls.Config{MaxVersion: tls.VersionTLS12, InsecureSkipVerify: true}}
		want(t, tr, srv.URL, agilelimiter.Unreachable)
	})
	t.Run("TLS handshake time-out", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			client, server := net.Pipe()
			defer server.Close()
			go io.Copy(io.Discard, server)
			tr := &http.Transport{
				DialContext:         func(context.Context, string, string) (net.Conn, error) { return client, nil },
				TLSHandshakeTimeout: time.Second,
			}
			want(t, tr, "https://downstream.test/", agilelimiter.Unreachable)
		})
	})
	t.Run("closed without an answer", func(t *testing.T) {
		srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			panic(http.ErrAbortHandler)
		}))
		defer srv.Close()
		want(t, &http.Transport{}, srv.URL, agilelimiter.Unreachable)
	})
	for _, status := range []int{502, 503, 429, 407} { // FR04
		t.Run(fmt.Sprintf("proxy answers CONNECT with %d", status), func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(status)
			}))
			defer srv.Close()
			proxy, err := url.Parse(srv.URL)
			if err != nil {
				t.Fatal(err)
			}
			want(t, &http.Transport{Proxy: http.ProxyURL(proxy)}, "https://downstream.test/", agilelimiter.Unreachable)
		})
	}
	for name, serve := range map[string]func(*net.TCPConn){ // FR05
		"TLS: closed at once": func(c *net.TCPConn) {},
		"TLS: reset after the client hello": func(c *net.TCPConn) {
			c.Read(make([]byte, 1))
			c.SetLinger(0)
		},
		"TLS: plain HTTP": func(c *net.TCPConn) {
			http.ReadRequest(bufio.NewReader(c))
			io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			want(t, &http.Transport{}, "https://"+listen(t, serve)+"/", agilelimiter.Unreachable)
		})
	}
	t.Run("accept and close", func(t *testing.T) { // FR06
		want(t, &http.Transport{}, "http://"+listen(t, func(*net.TCPConn) {})+"/", agilelimiter.Unreachable)
	})
	t.Run("reset before the response", func(t *testing.T) { // FR06
		addr := listen(t, func(c *net.TCPConn) {
			http.ReadRequest(bufio.NewReader(c))
			c.SetLinger(0)
		})
		want(t, &http.Transport{}, "http://"+addr+"/", agilelimiter.Unreachable)
	})
	t.Run("time-out of the response header", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			tr, stop := pipeTransport(func(*http.Request) string { return "" })
			defer stop()
			tr.ResponseHeaderTimeout = time.Second
			want(t, tr, "http://downstream.test/", agilelimiter.Reached)
		})
	})
	t.Run("a retry of a stale connection is invisible", func(t *testing.T) {
		first := true
		addr := listen(t, func(c *net.TCPConn) {
			r := bufio.NewReader(c)
			http.ReadRequest(r)
			io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
			if first { // the next request on this connection is reset
				first = false
				http.ReadRequest(r)
				c.SetLinger(0)
			}
		})
		lim := fixed(1e6)
		tr := &http.Transport{}
		defer tr.CloseIdleConnections()
		rt := httpclient.Wrap(tr, lim)
		for range 2 {
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/", nil)
			resp, err := rt.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
		wantCounts(t, lim, counts{Admitted: 2, Reached: 2})
	})
}

// listen serves one connection after the other and closes each afterwards.
func listen(t *testing.T, serve func(*net.TCPConn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serve(c.(*net.TCPConn))
			c.Close()
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return l.Addr().String()
}

// FR25 and the end of it: http.Transport repeats what an HTTP/2 server refuses,
// all for one slot, and in the end there is no response.
func TestRefusedStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var streams atomic.Int32
		tr := &http.Transport{Protocols: new(http.Protocols)}
		tr.Protocols.SetUnencryptedHTTP2(true)
		tr.DialContext = func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			go refuseStreams(server, &streams)
			return client, nil
		}
		lim := fixed(1000)
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://downstream.test/", nil)
		begin := time.Now()
		if _, err := httpclient.Wrap(tr, lim).RoundTrip(req); err == nil {
			t.Fatal("a response")
		}
		if streams.Load() < 3 || time.Since(begin) < time.Second {
			t.Errorf("%d streams in %v: net/http no longer repeats, and the package comment says it does",
				streams.Load(), time.Since(begin))
		}
		wantCounts(t, lim, counts{Admitted: 1, Unreachable: 1})
		tr.CloseIdleConnections()
	})
}

// refuseStreams is an HTTP/2 server that refuses every stream.
func refuseStreams(c net.Conn, streams *atomic.Int32) {
	defer c.Close()
	const headers, rstStream, settings, ack, refusedStream = 1, 3, 4, 1, 7
	send := make(chan []byte, 100) // a pipe has no room: reading must not wait for writing
	defer close(send)
	go func() {
		for frame := range send {
			c.Write(frame)
		}
	}()
	send <- []byte{0, 0, 0, settings, 0, 0, 0, 0, 0}
	if _, err := io.ReadFull(c, make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))); err != nil {
		return
	}
	for {
		var head [9]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return
		}
		length := int64(head[0])<<16 | int64(head[1])<<8 | int64(head[2])
		if _, err := io.CopyN(io.Discard, c, length); err != nil {
			return
		}
		switch {
		case head[3] == settings && head[4]&ack == 0:
			send <- []byte{0, 0, 0, settings, ack, 0, 0, 0, 0}
		case head[3] == headers:
			streams.Add(1)
			frame := []byte{0, 0, 4, rstStream, 0, 5: 0, 12: refusedStream}
			copy(frame[5:9], head[5:9]) // of this stream
			send <- frame
		}
	}
}

// closedPort returns a loopback address at which nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
