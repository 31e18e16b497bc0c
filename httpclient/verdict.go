package httpclient

import (
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"agilelimiter"
)

// Verdict says what one finished round trip proves about the downstream. Exactly
// one of resp and err is set, d is the time from the slot to the response
// header or the error. It runs in the caller's goroutine, outside every lock,
// once per request that was sent and not cancelled, and must leave resp.Body
// alone: that belongs to the caller.
//
// To extend DefaultVerdict, judge what you know and leave it the rest:
//
//	func myVerdict(resp *http.Response, err error, d time.Duration) agilelimiter.Outcome {
//		switch {
//		case errors.Is(err, ErrBreakerOpen):
//			return agilelimiter.Unreachable // your own error, not a *net.OpError
//		case err == nil && resp.StatusCode == http.StatusAccepted:
//			return agilelimiter.Aborted // the work has not happened yet
//		}
//		return httpclient.DefaultVerdict(resp, err, d)
//	}
type Verdict func(resp *http.Response, err error, d time.Duration) agilelimiter.Outcome

// DefaultVerdict judges by the first line that fits:
//
//   - Unreachable: the connection could not be made (no such host, refused, no
//     route, TLS handshake, time-out of the dial): the call never arrived.
//   - Aborted: a refusal by a limiter of ours further in
//     (agilelimiter.IsRefusal). It says nothing about the downstream.
//   - Reached: any other error: time-out, reset, unexpected EOF. The downstream
//     had the call.
//   - Unreachable: 429, 502 and 503: somebody refused it without doing the work.
//   - Aborted: a cache answered (IsCacheHit). It cost the origin nothing.
//   - Reached: every other response, 504 and 500 included: it was worked on.
//
// Neither response nor error is Aborted. A deadline that runs out while the
// connection is still being made looks like one that runs out later, and counts
// as Reached; either way it is not a fast answer.
func DefaultVerdict(resp *http.Response, err error, _ time.Duration) agilelimiter.Outcome {
	switch {
	case err != nil && neverArrived(err):
		return agilelimiter.Unreachable
	case err != nil && agilelimiter.IsRefusal(err):
		return agilelimiter.Aborted
	case err != nil:
		return agilelimiter.Reached
	case resp == nil:
		return agilelimiter.Aborted
	}
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable:
		return agilelimiter.Unreachable
	}
	if IsCacheHit(resp) {
		return agilelimiter.Aborted
	}
	return agilelimiter.Reached
}

// neverArrived reports whether err says that there was no connection to send
// the request on.
func neverArrived(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		switch op.Op {
		case "dial", "proxyconnect", "socks connect":
			return true
		case "remote error", "local error":
			return true // crypto/tls: an alert from either side ended the handshake
		}
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return true
	}
	for _, e := range unreachableErrnos {
		if errors.Is(err, e) {
			return true
		}
	}
	// The other failures of a handshake have no type in common, and this one
	// none that is exported; what they share is how they begin.
	text := err.Error()
	return text == "net/http: TLS handshake timeout" || strings.HasPrefix(text, "tls: ")
}

// IsCacheHit reports whether a cache answered in place of the origin, by the
// headers X-Cache, X-Cache-Status and CF-Cache-Status (HIT, TCP_HIT, UPDATING
// and the like; not REVALIDATED, EXPIRED or a refresh hit, which asked the
// origin, nor STALE, which follows a failed attempt to), X-From-Cache, the hit
// parameter of Cache-Status (RFC 9211), and an Age above 0. Of several caches in
// a row one hit is enough: the origin was not asked. It is false for nil.
func IsCacheHit(resp *http.Response) bool {
	if resp == nil {
		return false
	}
	// One walk instead of six look-ups: it is on the path of every call, and most
	// responses have few headers.
	for name, lines := range resp.Header {
		switch name {
		case "X-Cache", "X-Cache-Status", "Cf-Cache-Status":
			if slices.ContainsFunc(lines, saysHit) {
				return true
			}
		case "X-From-Cache":
			if v := first(lines); v != "" && v != "0" && !strings.EqualFold(v, "false") {
				return true
			}
		case "Cache-Status":
			if slices.ContainsFunc(lines, hasHitParameter) {
				return true
			}
		case "Age":
			// Above 0 are digits that are not all zero, however many.
			age := first(lines)
			if strings.Trim(age, "0123456789") == "" && strings.Trim(age, "0") != "" {
				return true
			}
		}
	}
	return false
}

// first returns the first line of a header without the space around it.
func first(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return strings.TrimSpace(lines[0])
}

// saysHit reads the words of one or more caches: "HIT", "Hit from cloudfront",
// "MISS, TCP_MEM_HIT from a23-1-2-3".
func saysHit(line string) bool {
	for entry := range strings.SplitSeq(line, ",") {
		word := strings.ToLower(strings.TrimSpace(entry))
		if i := strings.IndexAny(word, " \t;:/("); i >= 0 {
			word = word[:i]
		}
		if word == "hit" || word == "updating" ||
			strings.HasSuffix(word, "_hit") && !strings.Contains(word, "refresh") {
			return true
		}
	}
	return false
}

// hasHitParameter reads a line of RFC 9211: a list of caches, each with
// parameters behind semicolons. Commas and semicolons inside quotes are text.
func hasHitParameter(line string) bool {
	for {
		// The cache's name, or what is left of a parameter, up to the next
		// semicolon; a comma begins the next cache, which has a name again.
		i := endOfToken(line)
		if i == len(line) {
			return false
		}
		separator := line[i]
		line = line[i+1:]
		if separator != ';' {
			continue
		}
		key, value, has := strings.Cut(line[:endOfToken(line)], "=")
		if strings.TrimSpace(key) == "hit" && (!has || strings.TrimSpace(value) == "?1") {
			return true
		}
	}
}

// endOfToken returns the index of the first comma or semicolon outside quotes,
// or len(s).
func endOfToken(s string) int {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ',' || c == ';'):
			return i
		}
	}
	return len(s)
}
