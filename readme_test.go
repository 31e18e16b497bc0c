package agilelimiter_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"agilelimiter"
	"agilelimiter/httpclient"
	"agilelimiter/httpserver"
)

// What follows holds the README's Go code: TestREADME finds each of its blocks
// here, line by line, so what it shows compiles.

func readmeOutbound() (*agilelimiter.Limiter, *http.Client) {
	lim := agilelimiter.New(agilelimiter.Config{
		MinRate:   20,  // req/s: the floor, and the probe rate during an outage
		MaxRate:   500, // req/s: the ceiling you promise
		SLOTarget: 200 * time.Millisecond,
		Anchor:    agilelimiter.AnchorKnee,
	})
	lim.Start()
	defer lim.Stop()

	client := &http.Client{
		Transport: httpclient.Wrap(http.DefaultTransport, lim),
		Timeout:   2 * time.Second, // bounds the wait for a slot too
	}
	return lim, client
}

func readmeDo(ctx context.Context, lim *agilelimiter.Limiter, db *sql.DB, query string, send func(context.Context) error) error {
	err := lim.DoContext(ctx, func(ctx context.Context) error { return send(ctx) })
	if err != nil {
		return err
	}

	rows, err := agilelimiter.DoContext(ctx, lim, func(ctx context.Context) (*sql.Rows, error) {
		return db.QueryContext(ctx, query)
	})
	if err == nil {
		err = rows.Close()
	}
	return err
}

func readmeInbound(http *http.ServeMux, api http.Handler) {
	lim := agilelimiter.NewConcurrency(agilelimiter.ConcurrencyConfig{
		MaxLimit:  500, // calls in flight: the ceiling you promise
		SLOTarget: 200 * time.Millisecond,
		Anchor:    agilelimiter.AnchorKnee,
	})
	lim.Start()
	defer lim.Stop()

	http.Handle("/", httpserver.Wrap(api, lim, httpserver.WithRetryAfter(time.Second)))
	http.Handle("/stats", httpserver.StatsHandler(lim))
}

func readmeStats(lim *agilelimiter.Limiter) {
	s := lim.Stats()
	fmt.Println(s.Target, s.Decision, s.Samples, s.P99, s.Baseline, s.Fast, s.Window)
}

func TestREADME(t *testing.T) {
	_ = readmeDo
	lim, client := readmeOutbound()
	if client.Transport == nil || lim.Config().MaxRate != 500 {
		t.Errorf("the outbound snippet made %+v", lim.Config())
	}
	readmeStats(lim)
	mux := http.NewServeMux()
	readmeInbound(mux, http.NotFoundHandler())

	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("readme_test.go")
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for line := range strings.Lines(string(source)) {
		have[strings.TrimSpace(line)] = true
	}
	blocks := strings.Split(string(readme), "```go\n")[1:]
	if len(blocks) < 4 {
		t.Fatalf("%d blocks of Go in the README", len(blocks))
	}
	for _, block := range blocks {
		code, _, _ := strings.Cut(block, "```")
		for line := range strings.Lines(code) {
			if line = strings.TrimSpace(line); !have[line] {
				t.Errorf("the README shows a line that is not compiled: %q", line)
			}
		}
	}
}
