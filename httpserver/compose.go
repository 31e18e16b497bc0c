package httpserver

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// The writers of other middleware offer any combination. Each part below is one
// ability of a writer; the field has a name so that the writer's own methods are
// not promoted twice.
type (
	flushing  struct{ w *writer }
	hijacking struct{ w *writer }
	reading   struct{ w *writer }
	pushing   struct{ w *writer }
)

func (p flushing) Flush()                                        { p.w.flush() }
func (p flushing) FlushError() error                             { return p.w.flushError() }
func (p hijacking) Hijack() (net.Conn, *bufio.ReadWriter, error) { return p.w.hijack() }
func (p reading) ReadFrom(src io.Reader) (int64, error)          { return p.w.readFrom(src) }
func (p pushing) Push(target string, o *http.PushOptions) error  { return p.w.push(target, o) }

// compose returns w with exactly the abilities asked for. Go has no way to
// choose a method set at run time but to write each one down.
func compose(w *writer, flusher, hijacker, reader, pusher bool) http.ResponseWriter {
	f, h, r, p := flushing{w}, hijacking{w}, reading{w}, pushing{w}
	switch [4]bool{flusher, hijacker, reader, pusher} {
	case [4]bool{true, false, false, false}:
		return struct {
			*writer
			flushing
		}{w, f}
	case [4]bool{false, true, false, false}:
		return struct {
			*writer
			hijacking
		}{w, h}
	case [4]bool{true, true, false, false}:
		return struct {
			*writer
			flushing
			hijacking
		}{w, f, h}
	case [4]bool{false, false, true, false}:
		return struct {
			*writer
			reading
		}{w, r}
	case [4]bool{true, false, true, false}:
		return struct {
			*writer
			flushing
			reading
		}{w, f, r}
	case [4]bool{false, true, true, false}:
		return struct {
			*writer
			hijacking
			reading
		}{w, h, r}
	case [4]bool{true, true, true, false}:
		return struct {
			*writer
			flushing
			hijacking
			reading
		}{w, f, h, r}
	case [4]bool{false, false, false, true}:
		return struct {
			*writer
			pushing
		}{w, p}
	case [4]bool{true, false, false, true}:
		return struct {
			*writer
			flushing
			pushing
		}{w, f, p}
	case [4]bool{false, true, false, true}:
		return struct {
			*writer
			hijacking
			pushing
		}{w, h, p}
	case [4]bool{true, true, false, true}:
		return struct {
			*writer
			flushing
			hijacking
			pushing
		}{w, f, h, p}
	case [4]bool{false, false, true, true}:
		return struct {
			*writer
			reading
			pushing
		}{w, r, p}
	case [4]bool{true, false, true, true}:
		return struct {
			*writer
			flushing
			reading
			pushing
		}{w, f, r, p}
	case [4]bool{false, true, true, true}:
		return struct {
			*writer
			hijacking
			reading
			pushing
		}{w, h, r, p}
	case [4]bool{true, true, true, true}:
		return struct {
			*writer
			flushing
			hijacking
			reading
			pushing
		}{w, f, h, r, p}
	}
	return w
}
