package httpclient

import (
	"io"
	"net/http"

	"agilelimiter"
)

// UntilBody makes a request count as in flight until its response's body has
// ended: read to its end, failed in the middle, or closed, whichever comes first.
// The sample stays the time to the header, and is fed back at the header. Without
// this option both end with the header, and streams of minutes show as nothing in
// flight.
//
// A body that is never closed nor read to its end stays in flight for ever, as it
// keeps its connection for ever; Stats.InFlight shows it. An upgraded connection
// (101) ends with its header: its Body is a connection, and is handed on as it is.
func UntilBody() Option { return func(t *transport) { t.untilBody = true } }

// body releases the call when the body ends.
type body struct {
	io.ReadCloser
	call agilelimiter.Call
}

// holds reports whether resp has a body to wait for.
func holds(resp *http.Response) bool {
	return resp != nil && resp.Body != nil && resp.Body != http.NoBody && resp.StatusCode != http.StatusSwitchingProtocols
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.call.Release()
	}
	return n, err
}

func (b *body) Close() error {
	defer b.call.Release() // closing may panic, and may wait for the rest of the body
	return b.ReadCloser.Close()
}
