package httpclient_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"agilelimiter"
	"agilelimiter/httpclient"
)

// ErrBreakerOpen stands for the error of the user's circuit breaker.
var ErrBreakerOpen = errors.New("breaker open")

// The snippets of the project's description, as they stand there.
func TestSeedSnippets(t *testing.T) {
	lim := fixed(1)
	{
		client := &http.Client{
			Transport: httpclient.Wrap(http.DefaultTransport, lim),
		}
		_ = client
	}
	{
		client := &http.Client{
			Transport: httpclient.Wrap(http.DefaultTransport, lim,
				httpclient.WithVerdict(myVerdict)),
		}
		_ = client
	}
	for _, c := range []struct {
		resp *http.Response
		err  error
		want agilelimiter.Outcome
	}{
		{nil, ErrBreakerOpen, agilelimiter.Unreachable},
		{&http.Response{StatusCode: http.StatusAccepted}, nil, agilelimiter.Aborted},
		{&http.Response{StatusCode: http.StatusServiceUnavailable}, nil, agilelimiter.Unreachable},
	} {
		if got := myVerdict(c.resp, c.err, 0); got != c.want {
			t.Errorf("%v, %v: %v, want %v", c.resp, c.err, got, c.want)
		}
	}
}

var _ httpclient.Verdict = func(resp *http.Response, err error, d time.Duration) agilelimiter.Outcome {
	return agilelimiter.Reached
}

func myVerdict(resp *http.Response, err error, d time.Duration) agilelimiter.Outcome {
	switch {
	case errors.Is(err, ErrBreakerOpen):
		return agilelimiter.Unreachable // your own error, not a *net.OpError
	case err != nil:
		return httpclient.DefaultVerdict(resp, err, d)
	case resp.StatusCode == http.StatusAccepted:
		return agilelimiter.Aborted // the work has not happened yet
	}
	return httpclient.DefaultVerdict(resp, err, d)
}
