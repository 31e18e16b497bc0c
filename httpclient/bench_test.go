package httpclient_test

import (
	"net/http"
	"testing"

	"agilelimiter"
	"agilelimiter/httpclient"
)

// The pair of goals: what Wrap adds to a transport that costs nothing. The rate
// is so high that no call waits.
func BenchmarkRoundTrip(b *testing.B) {
	resp := &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Header: http.Header{
		"Content-Type": {"text/plain"}, "Content-Length": {"0"}, "Date": {"Thu, 01 Jan 1970 00:00:00 GMT"},
	}}
	plain := roundTripperFunc(func(*http.Request) (*http.Response, error) { return resp, nil })
	req, err := http.NewRequest(http.MethodGet, "http://localhost/", nil)
	if err != nil {
		b.Fatal(err)
	}
	run := func(name string, rt http.RoundTripper) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := rt.RoundTrip(req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	run("plain", plain)
	run("wrapped", httpclient.Wrap(plain, fixed(1e9)))
	knee := agilelimiter.New(agilelimiter.Config{MinRate: 1e9, MaxRate: 1e9, Anchor: agilelimiter.AnchorKnee})
	run("wrapped-knee", httpclient.Wrap(plain, knee))
}
