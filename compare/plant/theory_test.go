package plant

import (
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const mean = 10 * time.Millisecond

// sojourn runs n Poisson arrivals at the given utilisation through the server
// and returns the mean round trip in units of the mean service time.
func sojourn(t *testing.T, s *Server, mix Mix, rho float64, n int) float64 {
	t.Helper()
	var (
		mu   sync.Mutex
		sum  time.Duration
		done int
	)
	synctest.Test(t, func(*testing.T) {
		rate := rho * float64(s.Workers(0)) / mix.Mean.Seconds()
		s.Start()
		Open(1, Const(rate), time.Duration(float64(n)/rate*float64(time.Second)), func(i uint64) {
			s.Send(mix.Draw(1, 0, i), func(_ Outcome, rtt time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				sum, done = sum+rtt, done+1
			})
		})
		time.Sleep(time.Minute)
	})
	if math.Abs(float64(done-n)) > 4*math.Sqrt(float64(n)) {
		t.Errorf("%d calls ended, want about %d", done, n)
	}
	return float64(sum) / float64(done) / float64(mix.Mean)
}

func workers(n int) func(time.Duration) int { return func(time.Duration) int { return n } }

// erlangC is the probability that an arrival at an M/M/c queue has to wait.
func erlangC(c int, rho float64) float64 {
	a, term, sum := rho*float64(c), 1.0, 0.0
	for k := range c {
		sum += term
		term *= a / float64(k+1)
	}
	wait := term / (1 - rho)
	return wait / (sum + wait)
}

// TestTheory compares the mean round trip with the closed formulas of queueing
// theory. The tolerance is about three standard errors of these runs.
func TestTheory(t *testing.T) {
	// Pollaczek–Khinchine: the mean wait at an M/G/1 queue grows with the
	// squared coefficient of variation of the service time.
	khinchine := func(rho, scv float64) float64 { return 1 + rho/(1-rho)*(1+scv)/2 }
	logn, bi := Lognormal(0.8), Bimodal(0.1, 11)
	const biSCV = (0.9*1+0.1*121)/(2*2) - 1
	for _, c := range []struct {
		name    string
		workers int
		dist    Dist
		sharing bool
		rho     float64
		want    float64
	}{
		{"M/M/1", 1, Exponential, false, 0.5, 1 / (1 - 0.5)},
		{"M/M/1 busy", 1, Exponential, false, 0.8, 1 / (1 - 0.8)},
		{"M/M/4", 4, Exponential, false, 0.8, 1 + erlangC(4, 0.8)/4/(1-0.8)},
		{"M/M/10", 10, Exponential, false, 0.9, 1 + erlangC(10, 0.9)/10/(1-0.9)},
		{"M/D/1", 1, Deterministic, false, 0.8, khinchine(0.8, 0)},
		{"M/G/1 lognormal", 1, logn, false, 0.7, khinchine(0.7, math.Expm1(0.8*0.8))},
		{"M/G/1 bimodal", 1, bi, false, 0.7, khinchine(0.7, biSCV)},
		{"M/M/1-PS", 1, Exponential, true, 0.7, 1 / (1 - 0.7)},
		{"M/D/1-PS", 1, Deterministic, true, 0.7, 1 / (1 - 0.7)},
		{"M/G/1-PS", 1, logn, true, 0.7, 1 / (1 - 0.7)},
		{"M/M/4-PS", 4, Exponential, true, 0.8, 1 + erlangC(4, 0.8)/4/(1-0.8)},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &Server{Workers: workers(c.workers), Sharing: c.sharing}
			got := sojourn(t, s, Mix{Mean: mean, Dist: c.dist}, c.rho, 200_000)
			t.Logf("mean round trip %.3f service times, theory %.3f", got, c.want)
			if math.Abs(got/c.want-1) > 0.03 {
				t.Errorf("mean round trip %.3f service times, theory says %.3f", got, c.want)
			}
		})
	}
}
