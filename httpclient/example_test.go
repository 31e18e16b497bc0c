package httpclient_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"agilelimiter"
	"agilelimiter/httpclient"
)

func ExampleWrap() {
	downstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "hello")
	}))
	defer downstream.Close()

	lim := agilelimiter.New(agilelimiter.Config{MinRate: 20, MaxRate: 500, SLOTarget: 200 * time.Millisecond})
	lim.Start()
	defer lim.Stop()

	client := &http.Client{Transport: httpclient.Wrap(http.DefaultTransport, lim)}
	resp, err := client.Get(downstream.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()
	fmt.Println(resp.Status, lim.Stats().Reached)
	// Output: 200 OK 1
}

// A verdict judges what only you can know and leaves DefaultVerdict the rest.
func ExampleWithVerdict() {
	errBreakerOpen := errors.New("breaker open")
	verdict := func(resp *http.Response, err error, d time.Duration) agilelimiter.Outcome {
		switch {
		case errors.Is(err, errBreakerOpen):
			return agilelimiter.Unreachable // it never arrived
		case err == nil && resp.StatusCode == http.StatusAccepted:
			return agilelimiter.Aborted // the work has not happened yet
		}
		return httpclient.DefaultVerdict(resp, err, d)
	}

	lim := agilelimiter.New(agilelimiter.Config{MaxRate: 500})
	client := &http.Client{Transport: httpclient.Wrap(nil, lim, httpclient.WithVerdict(verdict))}
	_ = client

	fmt.Println(verdict(nil, errBreakerOpen, 0))
	fmt.Println(verdict(&http.Response{StatusCode: http.StatusAccepted}, nil, 0))
	fmt.Println(verdict(&http.Response{StatusCode: http.StatusOK}, nil, 0))
	// Output:
	// unreachable
	// aborted
	// reached
}
