package httpserver

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// writer watches what a handler sends. It is allocated per request and not
// pooled: a handler may hand it to a goroutine that outlives the request, and
// that goroutine must not write into somebody else's response.
type writer struct {
	http.ResponseWriter
	status   int // 0: none written yet
	hijacked bool
	http2    bool
}

// final returns the status that the client saw, see Verdict.
func (w *writer) final() int {
	switch {
	case w.hijacked && w.status != http.StatusSwitchingProtocols:
		return 0
	case w.status == 0:
		return http.StatusOK
	}
	return w.status
}

// sent notes that a body or a flush has fixed the status.
func (w *writer) sent() {
	if w.status == 0 {
		w.status = http.StatusOK
	}
}

// WriteHeader notes the status after the server has taken it: it panics for an
// impossible one, and the handler may recover and send another.
func (w *writer) WriteHeader(status int) {
	w.ResponseWriter.WriteHeader(status)
	// 101 is final, but not in HTTP/2, which has no upgrade: there the server
	// sends it like any other 1xx and waits for the real one.
	informational := status <= 199 && (status != http.StatusSwitchingProtocols || w.http2)
	if w.status == 0 && !informational {
		w.status = status
	}
}

func (w *writer) Write(p []byte) (int, error) {
	w.sent()
	return w.ResponseWriter.Write(p)
}

// WriteString is offered always: it adds no ability, and the server's own
// writers have it.
func (w *writer) WriteString(s string) (int, error) {
	w.sent()
	return io.WriteString(w.ResponseWriter, s)
}

// Unwrap lets http.ResponseController find what is not offered here.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *writer) flush() {
	w.sent()
	w.ResponseWriter.(http.Flusher).Flush()
}

func (w *writer) flushError() error {
	w.sent()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

func (w *writer) hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := w.ResponseWriter.(http.Hijacker).Hijack()
	w.hijacked = w.hijacked || err == nil
	return conn, rw, err
}

func (w *writer) push(target string, opts *http.PushOptions) error {
	return w.ResponseWriter.(http.Pusher).Push(target, opts)
}

func (w *writer) readFrom(src io.Reader) (int64, error) {
	n, err := w.ResponseWriter.(io.ReaderFrom).ReadFrom(src)
	if n > 0 { // the server sends nothing, not even the status, for an empty src
		w.sent()
	}
	return n, err
}

// closeNotifier is http.CloseNotifier, which is deprecated and still what gin
// asserts without looking. It is kept for net/http's own writers only: with it
// there would be twice the combinations of the others.
type closeNotifier interface{ CloseNotify() <-chan bool }

func (w *writer) closeNotify() <-chan bool {
	return w.ResponseWriter.(closeNotifier).CloseNotify()
}

// http1Writer and http2Writer offer what the two writers of net/http offer. They
// hold the writer by value: one allocation for all.
type http1Writer struct{ writer }

func (w *http1Writer) Flush()                                       { w.flush() }
func (w *http1Writer) FlushError() error                            { return w.flushError() }
func (w *http1Writer) Hijack() (net.Conn, *bufio.ReadWriter, error) { return w.hijack() }
func (w *http1Writer) ReadFrom(src io.Reader) (int64, error)        { return w.readFrom(src) }
func (w *http1Writer) CloseNotify() <-chan bool                     { return w.closeNotify() }

type http2Writer struct{ writer }

func (w *http2Writer) Flush()                                        { w.flush() }
func (w *http2Writer) FlushError() error                             { return w.flushError() }
func (w *http2Writer) Push(target string, o *http.PushOptions) error { return w.push(target, o) }
func (w *http2Writer) CloseNotify() <-chan bool                      { return w.closeNotify() }

// The abilities of the two writers of net/http that the other does not share.
type (
	http1Abilities interface {
		http.Flusher
		http.Hijacker
		io.ReaderFrom
		closeNotifier
	}
	http2Abilities interface {
		http.Flusher
		http.Pusher
		closeNotifier
	}
)

// observe returns what to hand to the handler in place of w, and where to read
// afterwards what it sent.
func observe(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, *writer) {
	http2 := r.ProtoMajor == 2
	_, pusher := w.(http.Pusher)
	if _, ok := w.(http1Abilities); ok && !pusher {
		w := &http1Writer{writer{ResponseWriter: w, http2: http2}}
		return w, &w.writer
	}
	_, hijacker := w.(http.Hijacker)
	_, reader := w.(io.ReaderFrom)
	if _, ok := w.(http2Abilities); ok && !hijacker && !reader {
		w := &http2Writer{writer{ResponseWriter: w, http2: http2}}
		return w, &w.writer
	}
	_, flusher := w.(http.Flusher)
	base := &writer{ResponseWriter: w, http2: http2}
	return compose(base, flusher, hijacker, reader, pusher), base
}
