package main

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestAgainstNginx is the whole program in one second. It asserts nothing
// that depends on how fast this machine is: only that client and server count
// the same answers.
func TestAgainstNginx(t *testing.T) {
	if _, err := find(); errors.Is(err, errNoServer) {
		t.Skip("nginx is not installed here; run.sh installs it from Debian's packages")
	}
	s := scenario{
		rates: []int{200, 60, 200}, phase: 300 * time.Millisecond, queue: 50, offered: 200,
		slo: 100 * time.Millisecond, timeout: time.Second, wait: 50 * time.Millisecond,
	}
	var b strings.Builder
	if err := run(&b, s); err != nil {
		t.Fatal(err)
	}
	for _, a := range arms {
		// Three phases and the server's log.
		if n := strings.Count(b.String(), "\n| "+a.name+" |"); n != 4 {
			t.Errorf("%s: %d rows, want 4", a.name, n)
		}
	}
	if t.Failed() {
		t.Log(b.String())
	}
}

// TestServerCounts drives one port by hand.
func TestServerCounts(t *testing.T) {
	s, err := startServer(2, 1, 0)
	if errors.Is(err, errNoServer) {
		t.Skip("nginx is not installed here; run.sh installs it from Debian's packages")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer s.stop()
	// One request a second and none may wait: the first is served, the next
	// ones are not. The other port has its own count.
	var got []int
	for _, port := range []int{0, 0, 0, 1} {
		resp, err := http.Get(s.url(port))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		got = append(got, resp.StatusCode)
	}
	if got[0] != 200 || got[1] != 503 || got[2] != 503 || got[3] != 200 {
		t.Errorf("statuses %v, want 200 503 503 200", got)
	}
	s.end()
	logged, err := s.logged()
	if err != nil {
		t.Fatal(err)
	}
	if logged[0][200] != 1 || logged[0][503] != 2 || logged[1][200] != 1 {
		t.Errorf("the log counts %v", logged)
	}
}

func TestSummarise(t *testing.T) {
	s := scenario{phase: 2 * time.Second, slo: 100 * time.Millisecond}
	ms := time.Millisecond
	sent := []call{
		{at: 0, took: 10 * ms, status: 200}, {at: 100 * ms, took: 100 * ms, status: 200},
		{at: 200 * ms, took: 101 * ms, status: 200}, {at: 300 * ms, took: ms, status: 503},
		{at: 400 * ms, took: 900 * ms, status: 0}, {at: 2000 * ms, took: ms, status: 200},
	}
	callers := []call{{at: 0, took: 30 * ms, status: 200}, {at: 50 * ms, took: 2000 * ms, status: 0}}
	got := summarise(phaseOf(sent, 0, s.phase), phaseOf(callers, 0, s.phase), s)
	want := summary{
		goodput: 1, sent: 2.5, wasted: 1, p50: 100 * ms, p99: 101 * ms, served: 0.5, callerP99: 30 * ms,
	}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := phaseOf(sent, 1, s.phase); len(got) != 1 {
		t.Errorf("%d calls in the second phase, want 1", len(got))
	}
}

func TestQuantile(t *testing.T) {
	var ds []time.Duration
	for i := range 200 {
		ds = append(ds, time.Duration(200-i))
	}
	for percent, want := range map[int]time.Duration{50: 100, 99: 198} {
		if got := quantile(ds, percent); got != want {
			t.Errorf("p%d of 1…200 = %d, want %d", percent, got, want)
		}
	}
	if got := quantile(nil, 99); got != 0 {
		t.Errorf("p99 of nothing = %v", got)
	}
}
