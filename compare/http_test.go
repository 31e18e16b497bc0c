package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"agilelimiter/compare/arm"
	"agilelimiter/compare/plant"
)

// runHTTP is run on the wall clock: the plant answers behind a real HTTP
// server on loopback, and what the limiter is told was measured by the client.
func runHTTP(t *testing.T, s Situation, a arm.Arm, seed uint64) Result {
	server := s.server()
	web := httptest.NewServer(handler(server))
	defer web.Close()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 10_000}}
	defer client.CloseIdleConnections()

	send := func(c plant.Call, done func(plant.Outcome, time.Duration)) {
		go func() {
			start := time.Now()
			o, err := get(t.Context(), client, web.URL, c)
			if err != nil {
				o = plant.Refused
			}
			done(o, time.Since(start))
		}()
	}
	return play(s, a, seed, server.Start, server.Now, send)
}

func handler(server *plant.Server) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var c plant.Call
		if _, err := fmt.Sscan(r.URL.Query().Get("call"), &c.Work, &c.Jitter, &c.Hit, &c.Lot); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		end := make(chan plant.Outcome, 1)
		server.Send(c, func(o plant.Outcome, _ time.Duration) { end <- o })
		select {
		case o := <-end:
			switch o {
			case plant.MarkedHit:
				w.Header().Set("X-Cache", "HIT")
			case plant.Refused, plant.Busy:
				w.WriteHeader(http.StatusServiceUnavailable)
			case plant.TimedOut:
				w.WriteHeader(http.StatusGatewayTimeout)
			}
		case <-r.Context().Done():
		}
	})
}

func get(ctx context.Context, client *http.Client, url string, c plant.Call) (plant.Outcome, error) {
	url += fmt.Sprintf("?call=%d+%g+%t+%d", c.Work, c.Jitter, c.Hit, c.Lot)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0, err
	}
	switch {
	case resp.StatusCode == http.StatusGatewayTimeout:
		return plant.TimedOut, nil
	case resp.StatusCode != http.StatusOK:
		return plant.Busy, nil
	case resp.Header.Get("X-Cache") == "HIT":
		return plant.MarkedHit, nil
	}
	return plant.OK, nil
}
