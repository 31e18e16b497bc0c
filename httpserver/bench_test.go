package httpserver_test

import (
	"io"
	"net/http"
	"testing"

	"agilelimiter"
	"agilelimiter/httpserver"
)

// nullWriter offers what net/http's HTTP/1 writer offers and does nothing.
type nullWriter struct {
	http.ResponseWriter
	http.Hijacker
	header http.Header
}

func (w *nullWriter) Header() http.Header                   { return w.header }
func (w *nullWriter) WriteHeader(int)                       {}
func (w *nullWriter) Write(p []byte) (int, error)           { return len(p), nil }
func (w *nullWriter) Flush()                                {}
func (w *nullWriter) ReadFrom(src io.Reader) (int64, error) { return io.Copy(io.Discard, src) }
func (w *nullWriter) CloseNotify() <-chan bool              { return nil }

// The pair of goals: what Wrap adds to a handler that costs nothing. The third
// is the same with a writer of another middleware, the fourth a refusal.
func BenchmarkServeHTTP(b *testing.B) {
	body := []byte("hello")
	plain := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write(body) })
	req, err := http.NewRequest(http.MethodGet, "http://localhost/", nil)
	if err != nil {
		b.Fatal(err)
	}
	run := func(name string, h http.Handler, w http.ResponseWriter) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(w, req)
			}
		})
	}
	full := agilelimiter.NewConcurrency(agilelimiter.ConcurrencyConfig{MaxLimit: 1})
	full.TryTake()
	w := &nullWriter{header: http.Header{}}
	run("plain", plain, w)
	run("wrapped", httpserver.Wrap(plain, newLimiter(100)), w)
	knee := agilelimiter.NewConcurrency(agilelimiter.ConcurrencyConfig{MaxLimit: 100, Anchor: agilelimiter.AnchorKnee})
	run("wrapped-knee", httpserver.Wrap(plain, knee), w)
	run("wrapped-other-writer", httpserver.Wrap(plain, newLimiter(100)), struct {
		http.ResponseWriter
		http.Flusher
	}{w, w})
	run("shed", httpserver.Wrap(plain, full), w)
}
