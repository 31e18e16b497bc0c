package main

import (
	"context"
	"net/http"

	"agilelimiter"
	"agilelimiter/httpclient"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"golang.org/x/time/rate"
)

// An arm is what stands between the callers and the transport.
type arm struct {
	name string
	wrap func(rt http.RoundTripper, s scenario) (wrapped http.RoundTripper, stop func())
}

var arms = []arm{
	{"no limit", func(rt http.RoundTripper, _ scenario) (http.RoundTripper, func()) {
		return rt, func() {}
	}},
	{"x/time/rate at 90 % of the first capacity", func(rt http.RoundTripper, s scenario) (http.RoundTripper, func()) {
		l := rate.NewLimiter(rate.Limit(0.9*float64(s.rates[0])), 1)
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			ctx, cancel := context.WithTimeout(req.Context(), s.wait)
			defer cancel()
			if err := l.Wait(ctx); err != nil {
				return nil, err
			}
			return rt.RoundTrip(req)
		}), func() {}
	}},
	{"failsafehttp, adaptive", func(rt http.RoundTripper, s scenario) (http.RoundTripper, func()) {
		l := adaptivelimiter.NewBuilder[*http.Response]().WithMaxWaitTime(s.wait).Build()
		return failsafehttp.NewRoundTripper(rt, l), func() {}
	}},
	{"agilelimiter, default law", ours(agilelimiter.AnchorBaseline)},
	{"agilelimiter, AnchorSLO", ours(agilelimiter.AnchorSLO)},
	{"agilelimiter, AnchorKnee", ours(agilelimiter.AnchorKnee)},
}

// ours knows the SLO and a ceiling five times too high, and nothing else of
// the server. What the callers' patience is to the other arms, a bounded
// queue is to ours.
func ours(anchor agilelimiter.Anchor) func(http.RoundTripper, scenario) (http.RoundTripper, func()) {
	return func(rt http.RoundTripper, s scenario) (http.RoundTripper, func()) {
		l := agilelimiter.New(agilelimiter.Config{
			MinRate: 5, MaxRate: 5 * float64(s.rates[0]), SLOTarget: s.slo, Anchor: anchor,
			MaxWaiting: int(float64(s.rates[0]) * s.wait.Seconds()),
		})
		l.Start()
		return httpclient.Wrap(rt, l), l.Stop
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
