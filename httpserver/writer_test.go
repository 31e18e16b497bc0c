package httpserver_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"agilelimiter/httpserver"
)

// What the verdict is told is what the client sees.
func TestStatusSeenByTheVerdict(t *testing.T) {
	plain := func(h func(w http.ResponseWriter)) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { h(w) }
	}
	for _, c := range []struct {
		what string
		want int
		h    http.HandlerFunc
	}{
		{"nothing at all", 200, plain(func(http.ResponseWriter) {})},
		{"Write only", 200, plain(func(w http.ResponseWriter) { w.Write([]byte("x")) })},
		{"WriteString only", 200, plain(func(w http.ResponseWriter) { io.WriteString(w, "x") })},
		{"Flush only", 200, plain(func(w http.ResponseWriter) { w.(http.Flusher).Flush() })},
		{"ResponseController.Flush only", 200, plain(func(w http.ResponseWriter) { http.NewResponseController(w).Flush() })},
		{"an empty Write fixes it", 200, plain(func(w http.ResponseWriter) { w.Write(nil); w.WriteHeader(500) })},
		{"Flush fixes it", 200, plain(func(w http.ResponseWriter) { w.(http.Flusher).Flush(); w.WriteHeader(500) })},
		{"the controller's Flush fixes it", 200, plain(func(w http.ResponseWriter) {
			http.NewResponseController(w).Flush()
			w.WriteHeader(500)
		})},
		{"WriteString fixes it", 200, plain(func(w http.ResponseWriter) { io.WriteString(w, ""); w.WriteHeader(500) })},
		{"204", 204, plain(func(w http.ResponseWriter) { w.WriteHeader(204) })},
		{"304", 304, plain(func(w http.ResponseWriter) { w.WriteHeader(304) })},
		{"404 with a body", 404, plain(func(w http.ResponseWriter) { http.Error(w, "gone", 404) })},
		{"the second WriteHeader is ignored", 201, plain(func(w http.ResponseWriter) { w.WriteHeader(201); w.WriteHeader(500) })},
		{"WriteHeader after Write is ignored", 200, plain(func(w http.ResponseWriter) { w.Write([]byte("x")); w.WriteHeader(500) })},
		{"103 is not final", 503, plain(func(w http.ResponseWriter) { w.WriteHeader(103); w.WriteHeader(503) })},
		{"103, then a body", 200, plain(func(w http.ResponseWriter) { w.WriteHeader(103); w.Write([]byte("x")) })},
		{"an impossible status panics and is not taken", 500, plain(func(w http.ResponseWriter) {
			defer func() {
				recover()
				w.WriteHeader(500)
			}()
			w.WriteHeader(99)
		})},
		{"io.Copy", 200, plain(func(w http.ResponseWriter) { io.Copy(w, onlyReader{strings.NewReader("abc")}); w.WriteHeader(500) })},
		{"io.Copy of nothing sends nothing", 500, plain(func(w http.ResponseWriter) { io.Copy(w, onlyReader{strings.NewReader("")}); w.WriteHeader(500) })},
		{"io.Copy from a WriterTo", 200, plain(func(w http.ResponseWriter) { io.Copy(w, bytes.NewReader([]byte("abc"))) })},
		{"ServeContent", 206, func(w http.ResponseWriter, r *http.Request) {
			r.Header.Set("Range", "bytes=1-2")
			http.ServeContent(w, r, "x.txt", time.Time{}, strings.NewReader("abcdef"))
		}},
		{"redirect", 302, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/else", http.StatusFound) }},
	} {
		for _, protocol := range protocols {
			for _, method := range []string{http.MethodGet, http.MethodHead} {
				if method == http.MethodHead && protocol != "HTTP/1.1" {
					continue // a flushed HEAD ends the stream there, like a client that left
				}
				t.Run(fmt.Sprintf("%s/%s/%s", c.what, protocol, method), func(t *testing.T) {
					lim := newLimiter(5)
					var calls []call
					url, client := serve(t, protocol, httpserver.Wrap(c.h, lim, recording(&calls)))
					client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
					req, _ := http.NewRequestWithContext(t.Context(), method, url, nil)
					resp, err := client.Do(req)
					if err != nil {
						t.Fatal(err)
					}
					// To the end, or a handler that has flushed sees its client leave.
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
					settle(t, lim)
					if resp.StatusCode != c.want || len(calls) != 1 || calls[0].status != c.want {
						t.Errorf("the client saw %d, the verdict %+v, want %d", resp.StatusCode, calls, c.want)
					}
				})
			}
		}
	}
}

// HTTP/2 has no upgrade: its server sends 101 like 103 and waits for the final
// status. Its client refuses to read that, so the server's writer stands alone.
func TestStatus101IsNotFinalInHTTP2(t *testing.T) {
	for _, c := range []struct{ major, want int }{{1, 101}, {2, 200}} {
		var calls []call
		h := httpserver.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(101)
			w.Write([]byte("x"))
		}), newLimiter(5), recording(&calls))
		r := newRequest(http.MethodGet)
		r.ProtoMajor = c.major
		h.ServeHTTP(&nullWriter{header: http.Header{}}, r)
		if len(calls) != 1 || calls[0].status != c.want {
			t.Errorf("HTTP/%d: the verdict was told %+v, want %d", c.major, calls, c.want)
		}
	}
}

type onlyReader struct{ io.Reader }

func TestEarlyHintsReachTheClient(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			url, client := serve(t, protocol, httpserver.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Link", "</style.css>; rel=preload")
				w.WriteHeader(http.StatusEarlyHints)
				w.WriteHeader(http.StatusServiceUnavailable)
			}), newLimiter(5)))
			var early []string
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
				Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
					early = append(early, fmt.Sprintf("%d %s", code, h.Get("Link")))
					return nil
				},
			})
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != 503 || !slices.Equal(early, []string{"103 </style.css>; rel=preload"}) {
				t.Errorf("status %d, early %q", resp.StatusCode, early)
			}
		})
	}
}

// abilities names what w offers.
func abilities(w http.ResponseWriter) (names []string) {
	add := func(name string, ok bool) {
		if ok {
			names = append(names, name)
		}
	}
	_, is := w.(http.Flusher)
	add("Flush", is)
	_, is = w.(interface{ FlushError() error })
	add("FlushError", is)
	_, is = w.(http.Hijacker)
	add("Hijack", is)
	_, is = w.(io.ReaderFrom)
	add("ReadFrom", is)
	_, is = w.(http.Pusher)
	add("Push", is)
	_, is = w.(interface{ CloseNotify() <-chan bool })
	add("CloseNotify", is)
	_, is = w.(io.StringWriter)
	add("WriteString", is)
	return names
}

// seenThrough returns what a handler behind Wrap is given for w.
func seenThrough(w http.ResponseWriter) (seen http.ResponseWriter) {
	httpserver.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { seen = w }), newLimiter(1)).
		ServeHTTP(w, newRequest(http.MethodGet))
	return seen
}

func TestServerWritersKeepTheirAbilities(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			var plain, wrapped []string
			mux := http.NewServeMux()
			mux.HandleFunc("/plain", func(w http.ResponseWriter, r *http.Request) { plain = abilities(w) })
			mux.Handle("/wrapped", httpserver.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				wrapped = abilities(w)
				if n, is := w.(interface{ CloseNotify() <-chan bool }); !is || n.CloseNotify() == nil {
					t.Error("no CloseNotify")
				}
				if p, is := w.(http.Pusher); is {
					if err := p.Push("/style.css", nil); err != http.ErrNotSupported { // by this client
						t.Errorf("Push: %v", err)
					}
				}
				if u := w.(interface{ Unwrap() http.ResponseWriter }).Unwrap(); u == nil || u == w {
					t.Errorf("Unwrap() = %v", u)
				}
			}), newLimiter(5)))
			url, client := serve(t, protocol, mux)
			get(t, client, url+"/plain")
			get(t, client, url+"/wrapped")
			if len(plain) < 5 || !slices.Equal(plain, wrapped) {
				t.Errorf("the server offers %v, Wrap %v", plain, wrapped)
			}
		})
	}
}

// fake is a writer with every ability; the combinations below show some of it.
type fake struct {
	*httptest.ResponseRecorder
	calls []string
}

func (f *fake) note(call string)                              { f.calls = append(f.calls, call) }
func (f *fake) Flush()                                        { f.note("Flush") }
func (f *fake) ReadFrom(r io.Reader) (int64, error)           { f.note("ReadFrom"); return io.Copy(f.Body, r) }
func (f *fake) Push(target string, _ *http.PushOptions) error { f.note("Push " + target); return nil }
func (f *fake) CloseNotify() <-chan bool                      { return nil }
func (f *fake) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	f.note("Hijack")
	return nil, nil, nil
}

type (
	rw = http.ResponseWriter
	fl = http.Flusher
	hj = http.Hijacker
	rf = io.ReaderFrom
	pu = http.Pusher
	cn = interface{ CloseNotify() <-chan bool }
)

func TestOtherWritersKeepTheirAbilities(t *testing.T) {
	f := &fake{ResponseRecorder: httptest.NewRecorder()}
	base := struct{ rw }{f}
	for _, w := range []http.ResponseWriter{
		base,
		struct {
			rw
			fl
		}{base, f},
		struct {
			rw
			hj
		}{base, f},
		struct {
			rw
			fl
			hj
		}{base, f, f},
		struct {
			rw
			rf
		}{base, f},
		struct {
			rw
			fl
			rf
		}{base, f, f},
		struct {
			rw
			hj
			rf
		}{base, f, f},
		struct {
			rw
			fl
			hj
			rf
		}{base, f, f, f},
		struct {
			rw
			pu
		}{base, f},
		struct {
			rw
			fl
			pu
		}{base, f, f},
		struct {
			rw
			hj
			pu
		}{base, f, f},
		struct {
			rw
			fl
			hj
			pu
		}{base, f, f, f},
		struct {
			rw
			rf
			pu
		}{base, f, f},
		struct {
			rw
			fl
			rf
			pu
		}{base, f, f, f},
		struct {
			rw
			hj
			rf
			pu
		}{base, f, f, f},
		struct {
			rw
			fl
			hj
			rf
			pu
		}{base, f, f, f, f},
		// One short of what net/http's own offer.
		struct {
			rw
			cn
			hj
			rf
		}{base, f, f, f},
		struct {
			rw
			cn
			fl
			rf
		}{base, f, f, f},
		struct {
			rw
			cn
			fl
			hj
		}{base, f, f, f},
		struct {
			rw
			cn
			fl
		}{base, f, f},
		struct {
			rw
			cn
			pu
		}{base, f, f},
	} {
		// Added is only what no ability depends on, and CloseNotify is kept
		// for net/http's own writers alone.
		want := slices.DeleteFunc(abilities(seenThrough(w)), func(name string) bool {
			return name == "FlushError" || name == "WriteString"
		})
		got := slices.DeleteFunc(abilities(w), func(name string) bool { return name == "CloseNotify" })
		if !slices.Equal(got, want) {
			t.Errorf("of %v Wrap offers %v", got, want)
		}
		// And each does what it should.
		f.calls = nil
		var wantCalls []string
		seen := seenThrough(w)
		if s, is := seen.(http.Flusher); is {
			s.Flush()
			if err := http.NewResponseController(seen).Flush(); err != nil {
				t.Error(err)
			}
			wantCalls = append(wantCalls, "Flush", "Flush")
		}
		if s, is := seen.(http.Hijacker); is {
			s.Hijack()
			wantCalls = append(wantCalls, "Hijack")
		}
		if s, is := seen.(io.ReaderFrom); is {
			if n, err := s.ReadFrom(strings.NewReader("abc")); n != 3 || err != nil {
				t.Errorf("ReadFrom = %d, %v", n, err)
			}
			wantCalls = append(wantCalls, "ReadFrom")
		}
		if s, is := seen.(http.Pusher); is {
			s.Push("/x", nil)
			wantCalls = append(wantCalls, "Push /x")
		}
		if !slices.Equal(f.calls, wantCalls) {
			t.Errorf("of %v Wrap forwards %v, want %v", abilities(w), f.calls, wantCalls)
		}
	}
}

func TestHijackThatFailsChangesNothing(t *testing.T) {
	var calls []call
	h := httpserver.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, _, err := http.NewResponseController(w).Hijack(); err == nil {
			t.Error("hijacked")
		}
		http.Error(w, "no upgrade", http.StatusNotImplemented)
	}), newLimiter(1), recording(&calls))
	for _, w := range []http.ResponseWriter{httptest.NewRecorder(), hijackFails{httptest.NewRecorder()}} {
		h.ServeHTTP(w, newRequest(http.MethodGet))
	}
	if len(calls) != 2 || calls[0].status != 501 || calls[1].status != 501 {
		t.Errorf("the verdict was told %+v, want two 501", calls)
	}
}

type hijackFails struct{ http.ResponseWriter }

func (hijackFails) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return nil, nil, http.ErrNotSupported
}

// hijackable lets its connection be taken over, without one.
type hijackable struct{ http.ResponseWriter }

func (hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, nil }

func TestUpgrade(t *testing.T) {
	const header = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"
	for _, c := range []struct {
		what     string
		announce func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error)
		status   int
	}{
		{"101 by hand", func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) {
			conn, rw, err := w.(http.Hijacker).Hijack()
			if err == nil {
				io.WriteString(conn, header)
			}
			return conn, rw, err
		}, 0},
		{"101 by WriteHeader", func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) {
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", "echo")
			w.WriteHeader(http.StatusSwitchingProtocols)
			return http.NewResponseController(w).Hijack()
		}, 101},
		{"CONNECT style: a status first", func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) {
			w.WriteHeader(http.StatusOK)
			return w.(http.Hijacker).Hijack()
		}, 0},
	} {
		t.Run(c.what, func(t *testing.T) {
			lim := newLimiter(5)
			var calls []call
			url, _ := serve(t, "HTTP/1.1", httpserver.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				conn, rw, err := c.announce(w)
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				line, _ := rw.ReadString('\n')
				io.WriteString(conn, "echo "+line)
			}), lim, recording(&calls)))
			conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			io.WriteString(conn, "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			in := bufio.NewReader(conn)
			resp, err := http.ReadResponse(in, nil)
			if err != nil || resp.StatusCode != 101 && resp.StatusCode != 200 {
				t.Fatalf("%v, %v, want a 101 or 200", resp, err)
			}
			if n := lim.InFlight(); n != 1 {
				t.Errorf("InFlight() = %d on an open connection, want 1", n)
			}
			io.WriteString(conn, "hello\n")
			if got, err := in.ReadString('\n'); got != "echo hello\n" {
				t.Errorf("%q, %v, want the echo", got, err)
			}
			settle(t, lim)
			if len(calls) != 1 || calls[0].status != c.status {
				t.Errorf("the verdict was told %+v, want status %d", calls, c.status)
			}
			wantCounts(t, lim, counts{Admitted: 1, Aborted: 1})
		})
	}
}

// 100 MB out of a file, through ReadFrom and so through sendfile where there is
// one.
func TestLargeFile(t *testing.T) {
	const size = 100 << 20
	path := filepath.Join(t.TempDir(), "large")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(size); err != nil { // a hole: no disk is used
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("end"), size-3); err != nil {
		t.Fatal(err)
	}
	f.Close()
	for _, c := range []struct {
		what string
		h    http.HandlerFunc
	}{
		{"io.Copy", func(w http.ResponseWriter, r *http.Request) {
			f, err := os.Open(path)
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Close()
			w.Header().Set("Content-Length", fmt.Sprint(size))
			if n, err := io.Copy(w, f); n != size || err != nil {
				t.Errorf("io.Copy = %d, %v", n, err)
			}
		}},
		{"ServeFile", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, path) }},
	} {
		t.Run(c.what, func(t *testing.T) {
			lim := newLimiter(1)
			var calls []call
			url, client := serve(t, "HTTP/1.1", httpserver.Wrap(c.h, lim, recording(&calls)))
			resp, err := client.Get(url)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			tail := &lastBytes{}
			if n, err := io.Copy(tail, resp.Body); n != size || err != nil || string(tail.last) != "end" {
				t.Errorf("%d bytes ending in %q, %v", n, tail.last, err)
			}
			settle(t, lim)
			if len(calls) != 1 || calls[0].status != 200 {
				t.Errorf("the verdict was told %+v, want a 200", calls)
			}
		})
	}
}

// lastBytes keeps the last three bytes written.
type lastBytes struct{ last []byte }

func (l *lastBytes) Write(p []byte) (int, error) {
	l.last = append(l.last, p[max(0, len(p)-3):]...)
	l.last = slices.Clone(l.last[max(0, len(l.last)-3):])
	return len(p), nil
}
