package httpclient_test

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"testing/iotest"
	"time"

	"agilelimiter"
	"agilelimiter/httpclient"
)

// answers returns a limiter on a virtual clock and a transport through it whose
// header comes after 5 ms with the given status and body.
func answers(status int, body io.ReadCloser) (*agilelimiter.Limiter, *agilelimiter.VirtualClock, http.RoundTripper) {
	clock := agilelimiter.NewVirtualClock(time.Unix(0, 0))
	lim := agilelimiter.New(agilelimiter.Config{MaxRate: 50, Tick: time.Minute, Clock: clock})
	return lim, clock, httpclient.Wrap(roundTripperFunc(func(*http.Request) (*http.Response, error) {
		clock.Advance(5 * time.Millisecond)
		return &http.Response{StatusCode: status, Header: http.Header{}, Body: body}, nil
	}), lim, httpclient.UntilBody())
}

func TestUntilBodyEnds(t *testing.T) { // FR16
	broken := errors.New("broken")
	for name, tt := range map[string]struct {
		body io.Reader
		end  func(t *testing.T, body io.ReadCloser)
	}{
		"read to its end": {iotest.OneByteReader(&tenBytes{}), func(t *testing.T, body io.ReadCloser) {
			if b, err := io.ReadAll(body); len(b) != 10 || err != nil {
				t.Errorf("read %q, %v", b, err)
			}
		}},
		"closed in the middle": {&tenBytes{}, func(t *testing.T, body io.ReadCloser) {
			body.Read(make([]byte, 3))
			if err := body.Close(); err != nil {
				t.Error(err)
			}
		}},
		"closed and read afterwards": {&tenBytes{}, func(t *testing.T, body io.ReadCloser) {
			body.Close()
			body.Close()
			io.ReadAll(body)
		}},
		"an error in the middle": {io.MultiReader(io.LimitReader(&tenBytes{}, 3), iotest.ErrReader(broken)), func(t *testing.T, body io.ReadCloser) {
			if b, err := io.ReadAll(body); len(b) != 3 || err != broken {
				t.Errorf("read %q, %v", b, err)
			}
		}},
	} {
		lim, clock, rt := answers(200, &trackedBody{Reader: tt.body})
		lim.Start()
		resp, err := rt.RoundTrip(newRequest(t, nil))
		if err != nil {
			t.Fatal(err)
		}
		clock.Advance(20 * time.Second)
		if s := lim.Stats(); s.InFlight != 1 || s.Reached != 1 {
			t.Errorf("%s: %d in flight and %d reached before the end of the body, want 1 and 1", name, s.InFlight, s.Reached)
		}
		tt.end(t, resp.Body)
		wantCounts(t, lim, counts{Admitted: 1, Reached: 1})
		if lim.InFlight() != 0 {
			t.Errorf("%s: %d in flight behind it", name, lim.InFlight())
		}
		clock.Advance(time.Minute)
		if p50 := lim.Stats().P50; p50 < 4900*time.Microsecond || p50 > 5100*time.Microsecond {
			t.Errorf("%s: a sample of %v, want the 5 ms to the header", name, p50)
		}
		lim.Stop()
	}
}

// tenBytes is a body.
type tenBytes struct{ n int }

func (b *tenBytes) Read(p []byte) (int, error) {
	if b.n == 10 {
		return 0, io.EOF
	}
	n := min(len(p), 10-b.n)
	b.n += n
	return n, nil
}

func TestUntilBodyWithoutABody(t *testing.T) {
	for _, tt := range []struct {
		status int
		body   io.ReadCloser
	}{{204, http.NoBody}, {200, nil}} {
		lim, _, rt := answers(tt.status, tt.body)
		resp, err := rt.RoundTrip(newRequest(t, nil))
		if err != nil || resp.Body != tt.body || lim.InFlight() != 0 {
			t.Errorf("%d: %v, body %v, %d in flight", tt.status, err, resp.Body, lim.InFlight())
		}
	}
}

// Who never closes a body has a call in flight that never ends, and can see it.
func TestUntilBodyOfOneThatIsNeverClosed(t *testing.T) {
	lim, clock, rt := answers(200, &trackedBody{Reader: &tenBytes{}})
	for range 3 {
		go rt.RoundTrip(newRequest(t, nil))
	}
	for lim.Stats().Admitted < 3 {
		clock.Advance(time.Millisecond)
		runtime.Gosched()
	}
	if got := lim.InFlight(); got != 3 {
		t.Errorf("%d in flight, want 3", got)
	}
}

// The verdict is asked at the header, once.
func TestUntilBodyKeepsTheVerdict(t *testing.T) {
	lim, _, rt := answers(503, &trackedBody{Reader: &tenBytes{}})
	resp, err := rt.RoundTrip(newRequest(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	wantCounts(t, lim, counts{Admitted: 1, Unreachable: 1})
}

// Over HTTP/1.1 and HTTP/2, with a server that streams.
func TestUntilBodyOfARealStream(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		finish := make(chan struct{})
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "first\n")
			w.(http.Flusher).Flush()
			<-finish
			io.WriteString(w, "last\n")
		}))
		srv.EnableHTTP2 = h2
		srv.StartTLS()
		lim := fixed(1000)
		client := &http.Client{Transport: httpclient.Wrap(srv.Client().Transport, lim, httpclient.UntilBody())}
		resp, err := client.Get(srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		if want := map[bool]int{false: 1, true: 2}[h2]; resp.ProtoMajor != want {
			t.Errorf("HTTP/%d, want %d", resp.ProtoMajor, want)
		}
		lines := bufio.NewReader(resp.Body)
		if line, err := lines.ReadString('\n'); line != "first\n" || err != nil {
			t.Errorf("%q, %v", line, err)
		}
		if lim.InFlight() != 1 {
			t.Errorf("HTTP/%d: %d in flight within the stream, want 1", resp.ProtoMajor, lim.InFlight())
		}
		close(finish)
		if rest, err := io.ReadAll(lines); string(rest) != "last\n" || err != nil {
			t.Errorf("%q, %v", rest, err)
		}
		if lim.InFlight() != 0 {
			t.Errorf("HTTP/%d: %d in flight behind it", resp.ProtoMajor, lim.InFlight())
		}
		resp.Body.Close()
		wantCounts(t, lim, counts{Admitted: 1, Reached: 1})
		srv.Close()
	}
}

// An upgraded connection is handed on as it is: it can be written to.
func TestUntilBodyLeavesAnUpgradeAlone(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		rw.Flush()
		line, _ := rw.ReadString('\n')
		rw.WriteString(line)
		rw.Flush()
	}))
	defer srv.Close()
	lim := fixed(1000)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	resp, err := httpclient.Wrap(srv.Client().Transport, lim, httpclient.UntilBody()).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	conn, ok := resp.Body.(io.ReadWriteCloser)
	if !ok {
		t.Fatalf("the body of a 101 is a %T", resp.Body)
	}
	io.WriteString(conn, "hello\n")
	if line, err := bufio.NewReader(conn).ReadString('\n'); line != "hello\n" || err != nil {
		t.Errorf("%q, %v", line, err)
	}
	if lim.InFlight() != 0 {
		t.Errorf("%d in flight, want the upgrade to have ended with its header", lim.InFlight())
	}
}
