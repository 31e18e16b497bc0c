package main

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestFullest(t *testing.T) {
	ms := func(at ...int) (ds []time.Duration) {
		for _, n := range at {
			ds = append(ds, time.Duration(n)*time.Millisecond)
		}
		return ds
	}
	for _, tt := range []struct {
		at   []time.Duration
		want int
	}{
		{nil, 0},
		{ms(5), 1},
		{ms(0, 10, 20), 1}, // the window is half-open
		{ms(0, 9, 10), 2},
		{ms(0, 1, 2, 50, 51, 52, 53, 61), 4},
	} {
		if got := fullest(tt.at, 10*time.Millisecond); got != tt.want {
			t.Errorf("fullest(%v) = %d, want %d", tt.at, got, tt.want)
		}
	}
}

// TestArmsPace runs every limiter in virtual time, where nothing oversleeps:
// there each must give its nominal rate, or the instrument is wrong. uber
// without slack is held to the same.
func TestArmsPace(t *testing.T) {
	for _, a := range arms {
		t.Run(a.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				at := run(a, 100, 1, 2*time.Second)
				if n := len(at); n < 199 || n > 201 {
					t.Errorf("%d departures in 2 s at 100/s", n)
				}
				if !slices.IsSorted(at) {
					t.Error("departures out of order")
				}
				if n := fullest(at, 10*time.Millisecond); n > 2 {
					t.Errorf("%d departures in 10 ms at 100/s", n)
				}
				if n := afterPause(a, 100, time.Second, 10*time.Millisecond); n < 1 {
					t.Errorf("%d departures after a pause", n)
				}
			})
		})
	}
}

func TestRunStopsAtTheDeadline(t *testing.T) {
	never := arm{"never", func(int) (func(context.Context) bool, func()) {
		return func(ctx context.Context) bool { <-ctx.Done(); return false }, func() {}
	}}
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		if at := run(never, 10, 4, time.Second); len(at) != 0 {
			t.Errorf("%d departures from a limiter that grants none", len(at))
		}
		if took := time.Since(begin); took != time.Second {
			t.Errorf("returned after %v, want 1s", took)
		}
	})
}
