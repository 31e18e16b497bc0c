package recipes

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"expvar"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"agilelimiter"
)

func outbound() *agilelimiter.Limiter {
	return agilelimiter.New(agilelimiter.Config{MaxRate: 1e6, InitialRate: 1e6, Classify: DatabaseClassify})
}

func inbound(limit int) *agilelimiter.ConcurrencyLimiter {
	return agilelimiter.NewConcurrency(agilelimiter.ConcurrencyConfig{MinLimit: limit, MaxLimit: limit})
}

// ended is how calls ended: reached, unreachable, aborted, shed.
func ended(s agilelimiter.Stats) [4]uint64 {
	return [4]uint64{s.Reached, s.Unreachable, s.Aborted, s.Shed}
}

func request(t *testing.T, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, nil))
	return rec
}

func TestHTTPClient(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	lim := outbound()
	resp, err := NewClient(lim).Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if got, want := ended(lim.Stats()), [4]uint64{1}; got != want {
		t.Errorf("ended %v, want %v", got, want)
	}
}

// routers all serve /api/things under the limiter and /stats outside of it; a
// query of fail makes the handler fail with 503 in the router's own way.
func routers(lim *agilelimiter.ConcurrencyLimiter) map[string]http.Handler {
	gin.SetMode(gin.ReleaseMode)
	plain := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery == "fail" {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		io.WriteString(w, "things")
	}
	return map[string]http.Handler{
		"net/http": NewServer(http.HandlerFunc(plain), lim),
		"chi":      NewChi(plain, lim),
		"echo": NewEcho(func(c echo.Context) error {
			if c.QueryString() == "fail" {
				return echo.NewHTTPError(http.StatusServiceUnavailable, "down")
			}
			return c.String(http.StatusOK, "things")
		}, lim),
		"gin": NewGin(func(c *gin.Context) {
			if c.Request.URL.RawQuery == "fail" {
				c.AbortWithStatus(http.StatusServiceUnavailable)
				return
			}
			c.String(http.StatusOK, "things")
		}, lim),
	}
}

func TestRouters(t *testing.T) {
	for name := range routers(inbound(1)) {
		t.Run(name, func(t *testing.T) {
			lim := inbound(1)
			h := routers(lim)[name]
			if rec := request(t, h, "/api/things"); rec.Code != 200 || rec.Body.String() != "things" {
				t.Errorf("%d %q", rec.Code, rec.Body)
			}
			if rec := request(t, h, "/api/things?fail"); rec.Code != 503 {
				t.Errorf("status %d, want 503", rec.Code)
			}
			if got, want := ended(lim.Stats()), [4]uint64{1, 1}; got != want {
				t.Errorf("ended %v, want %v: the verdict must see the 503", got, want)
			}
			lim.TryTake()
			if rec := request(t, h, "/api/things"); rec.Code != 429 {
				t.Errorf("status %d at the limit, want 429", rec.Code)
			}
			if rec := request(t, h, "/stats"); rec.Code != 200 || !strings.Contains(rec.Body.String(), `"shed": 1,`) {
				t.Errorf("stats at the limit: %d %s", rec.Code, rec.Body)
			}
		})
	}
}

func TestGinPanicGivesTheSlotBack(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	lim := inbound(1)
	e := gin.New()
	e.Use(gin.CustomRecoveryWithWriter(io.Discard, func(c *gin.Context, _ any) { c.AbortWithStatus(500) }), LimitGin(lim))
	e.GET("/", func(*gin.Context) { panic("boom") })
	if rec := request(t, e, "/"); rec.Code != 500 {
		t.Errorf("status %d, want 500", rec.Code)
	}
	if got, want := ended(lim.Stats()), [4]uint64{0, 0, 1}; got != want || lim.InFlight() != 0 {
		t.Errorf("ended %v, in flight %d, want %v and 0", got, lim.InFlight(), want)
	}
}

func TestHealthAndStreamsHaveRoom(t *testing.T) {
	lim := inbound(1)
	lim.TryTake()
	if rec := request(t, NewServer(http.NotFoundHandler(), lim), "/healthz"); rec.Code != 200 {
		t.Errorf("health check: %d at the limit, want 200", rec.Code)
	}
	things := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.URL.Path) })
	h := SeparateStreams(things, things, lim)
	if rec := request(t, h, "/events"); rec.Code != 200 {
		t.Errorf("stream: %d at the limit of the rest, want 200", rec.Code)
	}
	if rec := request(t, h, "/api"); rec.Code != 429 {
		t.Errorf("request: %d at the limit, want 429", rec.Code)
	}
}

func TestServiceVerdict(t *testing.T) {
	get := httptest.NewRequest(http.MethodGet, "/", nil)
	preflight := httptest.NewRequest(http.MethodOptions, "/", nil)
	for _, c := range []struct {
		r      *http.Request
		status int
		h      http.Header
		want   agilelimiter.Outcome
	}{
		{get, 200, nil, agilelimiter.Reached},
		{get, 503, nil, agilelimiter.Unreachable},
		{preflight, 204, nil, agilelimiter.Aborted},
		{get, 200, http.Header{"X-Cache": {"HIT"}}, agilelimiter.Aborted},
		{get, 200, http.Header{"Content-Type": {"text/event-stream; charset=utf-8"}}, agilelimiter.Aborted},
	} {
		if got := ServiceVerdict(c.r, c.status, c.h, 0); got != c.want {
			t.Errorf("%s %d %v: %v, want %v", c.r.Method, c.status, c.h, got, c.want)
		}
	}
}

func TestDeadlineMakesSlowRequestsEvidence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := inbound(1)
		api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			w.WriteHeader(http.StatusGatewayTimeout)
		})
		h := WithDeadline(NewServer(api, lim), time.Second)
		if rec := request(t, h, "/"); rec.Code != 504 {
			t.Errorf("status %d, want 504", rec.Code)
		}
		if s := lim.Stats(); s.Reached != 1 || s.Truncated != 1 {
			t.Errorf("reached %d, truncated %d, want 1 and 1", s.Reached, s.Truncated)
		}
	})
}

func TestGRPC(t *testing.T) {
	unary, streams, out := inbound(1), inbound(1), outbound()
	srv := NewGRPCServer(unary, streams)
	grpc_health_v1.RegisterHealthServer(srv, health.NewServer())
	l := bufconn.Listen(1 << 16)
	go srv.Serve(l)
	defer srv.Stop()
	conn, err := NewGRPCClient("passthrough:///bufconn", out,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return l.Dial() }))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := grpc_health_v1.NewHealthClient(conn)
	check := func(want codes.Code) {
		t.Helper()
		if _, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); status.Code(err) != want {
			t.Errorf("Check: %v, want %v", err, want)
		}
	}
	check(codes.OK)
	unary.TryTake()
	check(codes.ResourceExhausted)
	if got, want := ended(out.Stats()), [4]uint64{1, 1}; got != want {
		t.Errorf("the client's calls ended %v, want %v", got, want)
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := client.Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	if n := streams.InFlight(); n != 1 {
		t.Errorf("%d streams in flight, want 1", n)
	}
}

// users is a database of one table.
type users map[int64]string

func (u users) Connect(context.Context) (driver.Conn, error) { return conn{u}, nil }
func (u users) Driver() driver.Driver                        { return nil }

type conn struct{ users users }

func (c conn) Prepare(string) (driver.Stmt, error) { return nil, errors.ErrUnsupported }
func (c conn) Close() error                        { return nil }
func (c conn) Begin() (driver.Tx, error)           { return nil, errors.ErrUnsupported }

func (c conn) QueryContext(_ context.Context, _ string, args []driver.NamedValue) (driver.Rows, error) {
	name, found := c.users[args[0].Value.(int64)]
	return &rows{name, found}, nil
}

type rows struct {
	name string
	more bool
}

func (*rows) Columns() []string { return []string{"name"} }
func (*rows) Close() error      { return nil }
func (r *rows) Next(dest []driver.Value) error {
	if !r.more {
		return io.EOF
	}
	dest[0], r.more = r.name, false
	return nil
}

func TestDatabase(t *testing.T) {
	db := sql.OpenDB(users{7: "Ada"})
	defer db.Close()
	lim := outbound()
	if name, err := UserName(t.Context(), db, lim, 7); name != "Ada" || err != nil {
		t.Errorf("UserName = %q, %v", name, err)
	}
	if _, err := UserName(t.Context(), db, lim, 8); !errors.Is(err, sql.ErrNoRows) {
		t.Errorf("err = %v, want ErrNoRows", err)
	}
	if got, want := ended(lim.Stats()), [4]uint64{2}; got != want {
		t.Errorf("ended %v, want %v", got, want)
	}
	// A pool that is exhausted is no latency of the database's.
	db.SetMaxOpenConns(1)
	held, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := UserName(ctx, db, lim, 7); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("err = %v, want DeadlineExceeded", err)
	}
	if s := lim.Stats(); s.Admitted != 2 {
		t.Errorf("admitted %d, want 2", s.Admitted)
	}
}

func TestDatabaseClassify(t *testing.T) {
	for err, want := range map[error]agilelimiter.Outcome{
		sql.ErrNoRows:                               agilelimiter.Reached,
		context.DeadlineExceeded:                    agilelimiter.Reached,
		driver.ErrBadConn:                           agilelimiter.Unreachable,
		&net.OpError{Op: "dial", Err: io.EOF}:       agilelimiter.Unreachable,
		&net.OpError{Op: "read", Err: io.EOF}:       agilelimiter.Unreachable,
		io.ErrUnexpectedEOF:                         agilelimiter.Unreachable,
		context.Canceled:                            agilelimiter.Aborted,
		fmt.Errorf("rollback: %w", sql.ErrTxDone):   agilelimiter.Aborted,
		fmt.Errorf("rollback: %w", sql.ErrConnDone): agilelimiter.Aborted,
	} {
		if got := DatabaseClassify(err); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}

func TestConsume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := agilelimiter.New(agilelimiter.Config{MinRate: 10, MaxRate: 10})
		var log []string
		message := func(text string) Message {
			return Message{
				Body: []byte(text),
				Ack:  func() { log = append(log, "ack "+text) },
				Nack: func() { log = append(log, "nack "+text) },
			}
		}
		handle := func(_ context.Context, body []byte) error {
			if string(body) == "bad" {
				return errors.New("downstream says no")
			}
			return nil
		}
		messages := make(chan Message, 8)
		for _, text := range []string{"a", "bad", "c"} {
			messages <- message(text)
		}
		close(messages)
		begin := time.Now()
		if err := Consume(t.Context(), messages, lim, handle); err != nil {
			t.Error(err)
		}
		if got := strings.Join(log, ", "); got != "ack a, nack bad, ack c" || time.Since(begin) != 200*time.Millisecond {
			t.Errorf("%s after %v, want three at 10/s", got, time.Since(begin))
		}

		// Stopped while waiting for a slot: the message goes back.
		log = nil
		messages = make(chan Message, 1)
		messages <- message("d")
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		if err := Consume(ctx, messages, lim, handle); !errors.Is(err, context.Canceled) || len(log) != 1 || log[0] != "nack d" {
			t.Errorf("err = %v, %v, want Canceled and the message back", err, log)
		}
		// And between messages.
		if err := Consume(ctx, make(chan Message), lim, handle); err != context.Canceled {
			t.Errorf("err = %v, want Canceled", err)
		}
	})
}

func TestLogTicks(t *testing.T) {
	var out bytes.Buffer
	onTick := LogTicks(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	})))
	for i, d := range []agilelimiter.Decision{
		agilelimiter.Blind, agilelimiter.SlowStart, agilelimiter.SlowStart, agilelimiter.Backoff, agilelimiter.Probe,
	} {
		onTick(agilelimiter.Stats{Ticks: uint64(i + 1), Decision: d, Target: float64(10 * i), P50: 20 * time.Millisecond})
	}
	const want = `level=INFO msg=limiter decision=blind target=0 in_flight=0 samples=0 p50=20ms p99=0s window=0s shed=0
level=INFO msg=limiter decision=slow_start target=10 in_flight=0 samples=0 p50=20ms p99=0s window=0s shed=0
level=WARN msg=limiter decision=backoff target=30 in_flight=0 samples=0 p50=20ms p99=0s window=0s shed=0
level=INFO msg=limiter decision=probe target=40 in_flight=0 samples=0 p50=20ms p99=0s window=0s shed=0
`
	if out.String() != want {
		t.Errorf("logged\n%s\nwant\n%s", out.String(), want)
	}
}

func TestPublish(t *testing.T) {
	lim := inbound(12)
	lim.TryTake()
	Publish("orders_limiter", lim)
	var got map[string]any
	if err := json.Unmarshal([]byte(expvar.Get("orders_limiter").String()), &got); err != nil {
		t.Fatal(err)
	}
	if got["target"] != 12.0 || got["in_flight"] != 1.0 || got["decision"] != "blind" {
		t.Errorf("published %v", got)
	}
}
