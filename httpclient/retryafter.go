package httpclient

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// WithRetryAfter makes a Retry-After of a 429 or 503 pause the limiter, as
// agilelimiter.Limiter.Pause does: nobody departs until the time is over, so that
// of a whole process only the requests in flight still reach a downstream that
// has asked for silence. Both forms of the header count, seconds and an HTTP
// date; a date is measured against the Date of the same response, so that clocks
// that differ do no harm. Longer than max is taken as max. What is no such value,
// lies in the past or is 0 is ignored.
//
// Set max to the longest silence that you accept from a downstream that is wrong,
// or lies: it stops every caller of lim. Requests whose deadline ends within the
// pause fail at once with agilelimiter.ErrWait. It does not send anything again;
// that is for the retries around this transport. It panics if max is not
// positive. Default: Retry-After is not read.
func WithRetryAfter(max time.Duration) Option {
	if max <= 0 {
		panic("agilelimiter/httpclient: WithRetryAfter: max is " + max.String() + ", want more than 0")
	}
	return func(t *transport) { t.maxPause = max }
}

// pauseFor returns how long resp asks for silence, at most max; 0: not at all.
func pauseFor(resp *http.Response, max time.Duration) time.Duration {
	if resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusServiceUnavailable {
		return 0
	}
	value := strings.Trim(resp.Header.Get("Retry-After"), " \t")
	if value == "" {
		return 0
	}
	if strings.Trim(value, "0123456789") == "" {
		// Digits that overflow an int64 are a long time too.
		seconds, err := strconv.ParseInt(value, 10, 64)
		if err != nil || seconds >= int64(max/time.Second)+1 {
			return max
		}
		return min(time.Duration(seconds)*time.Second, max)
	}
	until, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	if !until.After(now) {
		return 0
	}
	return min(until.Sub(now), max)
}
