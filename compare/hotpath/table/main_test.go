package main

import (
	"strings"
	"testing"
)

// Two rounds on a machine that is twice as slow in the second: the ratios
// must not notice.
const twoRounds = `goos: linux
BenchmarkGate/arm=floor/callers=1         	 1000	        10.00 ns/op	       0 B/op	       0 allocs/op
BenchmarkGate/arm=other/callers=1         	 1000	        30.00 ns/op	      16 B/op	       1 allocs/op
BenchmarkGate/arm=agilelimiter/callers=1  	 1000	        12.00 ns/op	       0 B/op	       0 allocs/op
BenchmarkGate/arm=agilelimiter/callers=128-8  	 1000	        45.00 ns/op	       0 B/op	       0 allocs/op
BenchmarkGate/arm=floor/callers=128-8  	 1000	        30.00 ns/op	       0 B/op	       0 allocs/op
PASS
goos: linux
BenchmarkGate/arm=floor/callers=1         	 1000	        20.00 ns/op	       0 B/op	       0 allocs/op
BenchmarkGate/arm=other/callers=1         	 1000	        60.00 ns/op	      16 B/op	       1 allocs/op
BenchmarkGate/arm=agilelimiter/callers=1  	 1000	        24.00 ns/op	       0 B/op	       0 allocs/op
PASS
`

func parsed(t *testing.T, text string) *results {
	t.Helper()
	res := newResults()
	if err := res.read(strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	return res
}

func TestSequentialTable(t *testing.T) {
	s := section{bench: "Gate", goals: []goal{
		{than: floor, times: 1.2}, {than: "other", times: 0.3}, {than: "absent", times: 1}, {plus: 3},
	}}
	var b strings.Builder
	s.print(&b, parsed(t, twoRounds))
	want := `| limiter | ns | × floor | B | allocations |
|---|---:|---:|---:|---:|
| floor | 15 | 1.00 | 0 | 0 |
| other | 45 | 3.00 | 16 | 1 |
| agilelimiter | 18 | 1.20 | 0 | 0 |

Goal: agilelimiter at most 1.2 × floor: met, 1.2.

Goal: agilelimiter at most 0.3 × other: **missed**, 0.4.

Goal: agilelimiter at most 1 × absent: not measured.

Goal: agilelimiter adds at most 3 ns: met, 3.
`
	if got := b.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestAddedTable(t *testing.T) {
	var b strings.Builder
	section{added: true}.print(&b, parsed(t, strings.ReplaceAll(twoRounds, "agilelimiter", measured)))
	// Twenty and forty more than the floor, where the other adds two and four.
	if want := "| other | 45 | 30 | 10.00 | 16 | 1 |\n"; !strings.Contains(b.String(), want) {
		t.Errorf("got\n%s\nwant a line %s", b.String(), want)
	}
}

func TestMemoryTable(t *testing.T) {
	s := section{memory: true, goals: []goal{{arm: "agilelimiter-rate", bytes: 4096}}}
	var b strings.Builder
	s.print(&b, parsed(t, "BenchmarkMemory/arm=agilelimiter-rate \t 36\t 631196 ns/op\t 5000 B/limiter\n"))
	want := `| limiter | bytes |
|---|---:|
| agilelimiter-rate | 5000 |

Goal: agilelimiter-rate at most 4096 bytes: **missed**, 5000.
`
	if got := b.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestTickTable(t *testing.T) {
	s := section{alone: true, goals: []goal{{ns: 10_000}, {arm: "agilelimiter-knee", ns: 10_000}}}
	var b strings.Builder
	s.print(&b, parsed(t, "BenchmarkTick/arm=agilelimiter \t 36\t 2500 ns/op\t 0 B/op\t 0 allocs/op\n"))
	want := `| limiter | ns | B | allocations |
|---|---:|---:|---:|
| agilelimiter | 2500 | 0 | 0 |

Goal: agilelimiter at most 10000 ns: met, 2500.

Goal: agilelimiter-knee at most 10000 ns: not measured.
`
	if got := b.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestContendedTable(t *testing.T) {
	var b strings.Builder
	section{}.printContended(&b, parsed(t, twoRounds))
	if want := "| agilelimiter | – (–) | – (–) | – (–) | – (–) | 45 (1.50) |\n"; !strings.Contains(b.String(), want) {
		t.Errorf("got\n%s\nwant a line %s", b.String(), want)
	}
}

func TestChoose(t *testing.T) {
	all, err := choose("")
	if err != nil || len(all) != len(sections) {
		t.Errorf("choose of nothing: %d sections, %v", len(all), err)
	}
	some, err := choose("Take,Gate")
	if err != nil || len(some) != 2 || some[0].bench != "Take" || some[1].bench != "Gate" {
		t.Errorf("choose(Take,Gate) = %v, %v", some, err)
	}
	if _, err := choose("Gate,Nothing"); err == nil {
		t.Error("an unknown row was accepted")
	}
}
