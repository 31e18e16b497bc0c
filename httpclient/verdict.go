package httpclient

import (
	"context"
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
// once per request that was sent, not cancelled and not refused by a limiter
// further in, and must leave resp.Body alone: that belongs to the caller.
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
//   - Aborted: a refusal by a limiter of ours further in
//     (agilelimiter.IsRefusal), or context.Canceled. It says nothing about the
//     downstream.
//   - Unreachable: the connection could not be made (no such host, refused, no
//     route, TLS handshake), its time-out included: the call never arrived.
//   - Reached: any other time-out (agilelimiter.IsTimeout). The downstream had
//     the call for at least that long.
//   - Unreachable: every other error: reset, EOF, a proxy that refuses CONNECT,
//     HTTP/2's GOAWAY and REFUSED_STREAM. There is no response, so nobody knows
//     that work was done. A host that resets every call after a millisecond must
//     not look fast.
//   - Unreachable: 429, 502 and 503: somebody refused it without doing the work.
//   - Aborted: a cache answered (IsCacheHit). It cost the origin nothing.
//   - Reached: every other response, 504 and 500 included: it was worked on.
//
// Neither response nor error is Aborted. A deadline that runs out while the
// connection is still being made looks like one that runs out later, and counts
// as Reached; either way it is not a fast answer.
func DefaultVerdict(resp *http.Response, err error, _ time.Duration) agilelimiter.Outcome {
	switch {
	case err != nil:
		return judgeError(err)
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

func judgeError(err error) agilelimiter.Outcome {
	switch {
	case agilelimiter.IsRefusal(err), errors.Is(err, context.Canceled):
		return agilelimiter.Aborted
	case agilelimiter.IsTimeout(err) && !beforeSending(err):
		return agilelimiter.Reached
	}
	return agilelimiter.Unreachable
}

// beforeSending reports whether the time-out err ended the making of a
// connection.
func beforeSending(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		switch op.Op {
		case "dial", "proxyconnect", "socks connect":
			return true
		}
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return true
	}
	// It has no type that is exported.
	return strings.HasSuffix(err.Error(), "net/http: TLS handshake timeout")
}

// IsCacheHit reports whether a cache answered in place of the origin. Of several
// caches in a row one hit is enough: the origin was not asked. It is false for
// nil. It knows these headers, in capitals or not:
//
//   - X-Cache, X-Cache-Status, CF-Cache-Status, X-Proxy-Cache and
//     Akamai-Cache-Status: HIT, TCP_HIT, UPDATING, cache-hit and the like. No
//     hits are REVALIDATED, EXPIRED and a refresh hit, which asked the origin,
//     and STALE and HitStale, which follow a failed attempt to.
//   - X-Vercel-Cache: HIT, PRERENDER, and STALE, which asks the origin later.
//   - X-Cache-Lookup: the same as X-Cache, and "Cache Hit", but only without an
//     X-Cache. Squid writes both, and its look-up may hit where its answer did
//     not.
//   - X-Cache-Hit, Cache-Hit and X-From-Cache: anything but empty, 0, false, no
//     and miss.
//   - Cache-Status (RFC 9211): the parameter hit.
//   - Age: above 0.
func IsCacheHit(resp *http.Response) bool {
	if resp == nil {
		return false
	}
	// One walk instead of a look-up each: it is on the path of every call, and
	// most responses have few headers.
	for name, lines := range resp.Header {
		switch name {
		case "X-Cache", "X-Cache-Status", "Cf-Cache-Status", "X-Proxy-Cache", "Akamai-Cache-Status":
			if slices.ContainsFunc(lines, saysHit) {
				return true
			}
		case "X-Vercel-Cache":
			if slices.ContainsFunc(lines, vercelSaysHit) {
				return true
			}
		case "X-Cache-Lookup":
			if _, better := resp.Header["X-Cache"]; !better && slices.ContainsFunc(lines, saysHit) {
				return true
			}
		case "X-From-Cache", "X-Cache-Hit", "Cache-Hit":
			switch strings.ToLower(first(lines)) {
			case "", "0", "false", "no", "miss":
			default:
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
// "MISS, TCP_MEM_HIT from a23-1-2-3", "Cache Hit".
func saysHit(line string) bool {
	for entry := range strings.SplitSeq(line, ",") {
		word := strings.TrimPrefix(strings.ToLower(strings.TrimSpace(entry)), "cache ")
		if i := strings.IndexAny(word, " \t;:/("); i >= 0 {
			word = word[:i]
		}
		if word == "hit" || word == "cache-hit" || word == "updating" ||
			strings.HasSuffix(word, "_hit") && !strings.Contains(word, "refresh") {
			return true
		}
	}
	return false
}

func vercelSaysHit(line string) bool {
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "hit", "prerender", "stale":
		return true
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
