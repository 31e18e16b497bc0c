package httpserver

import (
	"net/http"
	"time"

	"agilelimiter"
	"agilelimiter/httpclient"
)

// Verdict says what one finished request proves about this service. status is
// the final one as the client saw it: 200 if the handler set none, never a 1xx
// but 101, and 0 if the handler took the connection over (http.Hijacker) without
// having written a 101: what went over it then is not known. h is the response
// header, d the time that the handler took. It runs after the handler, outside
// every lock, once per admitted request whose client is still there.
//
// To extend DefaultVerdict, judge what you know and leave it the rest:
//
//	func myVerdict(r *http.Request, status int, h http.Header, d time.Duration) agilelimiter.Outcome {
//		switch {
//		case r.Method == http.MethodOptions:
//			return agilelimiter.Aborted // CORS preflight
//		case httpserver.IsCacheHitHeader(h):
//			return agilelimiter.Aborted
//		}
//		return httpserver.DefaultVerdict(r, status, h, d)
//	}
type Verdict func(r *http.Request, status int, h http.Header, d time.Duration) agilelimiter.Outcome

// DefaultVerdict judges by the first line that fits:
//
//   - Aborted: 101, or a connection taken over (status 0). Its length says
//     nothing about load.
//   - Unreachable: 429 and 503: this service refused without doing the work.
//   - Unreachable: 502: its own upstream was not there.
//   - Reached: everything else, 504, 500 and 404 included: it took the time that
//     it took.
//
// Cache hits (IsCacheHitHeader), health checks and streams need a line of yours.
func DefaultVerdict(_ *http.Request, status int, _ http.Header, _ time.Duration) agilelimiter.Outcome {
	switch status {
	case 0, http.StatusSwitchingProtocols:
		return agilelimiter.Aborted
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusBadGateway:
		return agilelimiter.Unreachable
	}
	return agilelimiter.Reached
}

// IsCacheHitHeader reports whether the response header says that a cache
// answered: what httpclient.IsCacheHit reads, here from what the handler wrote.
// Marking a hit is one line, before the body:
//
//	w.Header().Set("X-Cache", "HIT")
func IsCacheHitHeader(h http.Header) bool {
	return httpclient.IsCacheHit(&http.Response{Header: h})
}
