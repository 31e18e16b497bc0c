package main

import (
	"strings"
	"testing"
	"time"
)

// The whole program with a second of 50 ms: it prints its lines, reads its own
// /stats for each, and ends by itself.
func TestRun(t *testing.T) {
	var out strings.Builder
	if err := run(&out, []phase{{1, 200}, {2, 2000}}, 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 8 || !strings.HasPrefix(lines[0], "live figures: curl http://127.0.0.1:") ||
		!strings.HasPrefix(lines[5], "     3 ") || !strings.HasPrefix(lines[7], "admitted ") {
		t.Errorf("printed\n%s", out.String())
	}
}
