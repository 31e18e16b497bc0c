package exam

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// open plays a spec without a limiter.
func open(t *testing.T, text string) *run {
	t.Helper()
	s, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return play(&s, oracleArm(0))
}

func (l *latencies) mean() float64 {
	sum := 0.0
	for i, c := range l.counts {
		v := float64(i)
		if i >= 64 {
			v = (float64(i%64) + 64.5) * math.Pow(2, float64(i/64+5-6))
		}
		sum += v * float64(c)
	}
	return sum / float64(l.n) / 1e9
}

// erlangC is the probability that an arrival at an M/M/c queue has to wait;
// erlangB that one is refused where nobody may wait.
func erlangC(c int, rho float64) float64 {
	b := erlangB(c, rho*float64(c))
	return b / (1 - rho*(1-b))
}

func erlangB(c int, load float64) float64 {
	b := 1.0
	for k := 1; k <= c; k++ {
		b = load * b / (float64(k) + load*b)
	}
	return b
}

// Mean round trips against the closed forms of queueing theory, within 2 %.
func TestQueueingTheory(t *testing.T) {
	// Pollaczek–Khinchine: the wait grows with the squared coefficient of
	// variation of the service time.
	khinchine := func(rho, scv float64) float64 { return 1 + rho/(1-rho)*(1+scv)/2 }
	const biSCV = (0.9*1+0.1*121)/(2*2) - 1
	for _, c := range []struct {
		spec string
		rho  float64
		want float64 // in units of 10 ms
	}{
		{"workers=1 service=exp(10ms)", 0.5, 2},
		{"workers=1 service=exp(10ms)", 0.8, 5},
		{"workers=4 service=exp(10ms)", 0.8, 1 + erlangC(4, 0.8)/4/(1-0.8)},
		{"workers=10 service=exp(10ms)", 0.9, 1 + erlangC(10, 0.9)/10/(1-0.9)},
		{"workers=100 service=exp(10ms)", 0.95, 1 + erlangC(100, 0.95)/100/(1-0.95)},
		{"workers=1 service=det(10ms)", 0.8, khinchine(0.8, 0)},
		{"workers=1 service=lognormal(10ms,0.8)", 0.7, khinchine(0.7, math.Expm1(0.64))},
		{"workers=1 service=bimodal(10ms,0.1,11)", 0.7, khinchine(0.7, biSCV)},
		{"workers=1 service=exp(10ms) order=ps", 0.7, 1 / (1 - 0.7)},
		{"workers=1 service=det(10ms) order=ps", 0.7, 1 / (1 - 0.7)},
		{"workers=1 service=lognormal(10ms,0.8) order=ps", 0.7, 1 / (1 - 0.7)},
		{"workers=4 service=exp(10ms) order=ps", 0.8, 1 + erlangC(4, 0.8)/4/(1-0.8)},
		// Burke: the second stage of a tandem is an M/M/c queue as well.
		{"workers=1 service=exp(10ms) then=4*exp(10ms)", 0.7, 1/(1-0.7) + 1 + erlangC(4, 0.175)/4/(1-0.175)},
		{"workers=4 service=exp(10ms) base=20ms", 0.8, 3 + erlangC(4, 0.8)/4/(1-0.8)},
	} {
		t.Run(fmt.Sprintf("%s at %v", c.spec, c.rho), func(t *testing.T) {
			t.Parallel()
			s, err := Parse(c.spec)
			if err != nil {
				t.Fatal(err)
			}
			const calls = 1_000_000
			length := calls / (c.rho * s.nominal())
			n := open(t, fmt.Sprintf("%s load=%vx length=%vs slo=100s", c.spec, c.rho, math.Round(length)))
			if got := n.rtt.mean() / 0.01; math.Abs(got/c.want-1) > 0.02 {
				t.Errorf("mean round trip %.3f service times of %d calls, theory says %.3f", got, n.rtt.n, c.want)
			}
		})
	}
}

// Where nobody may wait Erlang's formula says how many are refused.
func TestErlangLoss(t *testing.T) {
	for _, order := range []string{"fifo", "ps"} { // which makes no difference where nobody waits
		n := open(t, "workers=10 service=lognormal(20ms,1) queue=0 load=0.9x length=600s order="+order)
		want := erlangB(10, 9)
		if got := float64(n.Refused) / float64(n.Sent); math.Abs(got/want-1) > 0.02 {
			t.Errorf("%s: %.4f refused, Erlang's loss formula says %.4f", order, got, want)
		}
	}
}

// The throughput of a closed loop follows the universal scalability law, and so
// its peak lies where the law says.
func TestUSL(t *testing.T) {
	law := USL{0.02, 0.001}
	for _, callers := range []int{1, 8, 31, 60} {
		s := fmt.Sprintf("workers=100 service=det(20ms) usl=0.02,0.001 callers=%d(0s) length=100s slo=1s", callers)
		n := open(t, s)
		got := float64(n.rtt.n) / 100
		want := float64(callers) / 0.02 / law.factor(callers)
		if math.Abs(got/want-1) > 0.02 {
			t.Errorf("%d at once: %.1f/s, the law says %.1f/s", callers, got, want)
		}
	}
	s, err := Parse("workers=100 service=det(20ms) usl=0.02,0.001")
	if err != nil {
		t.Fatal(err)
	}
	if _, k := s.best(s.Workers); k != 31 { // sqrt((1-σ)/κ) = 31.3
		t.Errorf("the peak is at %d calls at once, the law says 31", k)
	}
}

// A quota grants its rate, in a token bucket and in a fixed window, and one for
// each instance grants as many times as much.
func TestQuotaGrants(t *testing.T) {
	for text, want := range map[string]float64{
		"quota=bucket(100/s,20)":              100*60 + 20,
		"quota=window(100/s,1s)":              100 * 60,
		"quota=bucket(100/s,20,each) fleet=2": 2 * (100*60 + 20),
	} {
		n := open(t, text+" workers=1000 load=500/s length=60s")
		if got := float64(n.Sent - n.Refused); math.Abs(got-want) > 0.001*want {
			t.Errorf("%s: granted %v, want %v", text, got, want)
		}
	}
}

// A service that stands still serves what its running part can do; one that
// pauses serves nothing meanwhile, and answers late what it has accepted.
func TestStandsStill(t *testing.T) {
	n := open(t, "workers=1 service=det(3ms) throttle=60ms/100ms callers=4(0s) length=60s slo=1s")
	if got, want := float64(n.rtt.n)/60, 0.4/0.003; math.Abs(got/want-1) > 0.01 {
		t.Errorf("throttled: %.1f/s, want %.1f/s", got, want)
	}
	n = open(t, "workers=4 service=det(10ms) fault=pause@20s+10s callers=4(0s) length=60s slo=1s")
	if got, want := float64(n.rtt.n), 50*400.0; math.Abs(got/want-1) > 0.001 {
		t.Errorf("paused for 10 of 60 s: %v answers, want %v", got, want)
	}
	if n.Late != 4 || n.rtt.quantile(1) < 9900*time.Millisecond {
		t.Errorf("%d late answers, the longest after %v; want the 4 that were in it, after 10 s", n.Late, n.rtt.quantile(1))
	}
}

// The mix is what the words say, and calls that cost no worker cost none.
func TestMix(t *testing.T) {
	n := open(t, "workers=10 load=0.5x marked=0.6 aborted=0.2(90ms) errors=0.25 length=200s")
	total := float64(n.Sent)
	if got := total / 200; math.Abs(got/1250-1) > 0.02 { // half of 500/s working calls over 0.2
		t.Errorf("%.0f/s sent, want half of 500/s working calls, which are a fifth: 1250/s", got)
	}
	good := 0
	for _, g := range n.good {
		good += int(g)
	}
	if got := float64(good) / total; math.Abs(got/(0.2*0.75)-1) > 0.03 {
		t.Errorf("%.4f of the calls are good answers, want 0.2 less a quarter", got)
	}
}

// A caller who tries again adds to the load; the one whose call is given up
// keeps a worker busy all the same.
func TestRetriesAndTimeouts(t *testing.T) {
	n := open(t, "workers=1000 load=100/s errors=0.5 retries=3(10ms) length=100s")
	want := 10_000 * (1 + 0.5 + 0.25 + 0.125)
	if got := float64(n.Sent); math.Abs(got/want-1) > 0.03 {
		t.Errorf("%v sent, want %v", got, want)
	}
	n = open(t, "workers=1 service=det(100ms) load=2x timeout=150ms length=100s slo=1s")
	if served := n.rtt.n + n.Lost; math.Abs(float64(served)-2000) > 150 {
		t.Errorf("%d ended, want about 2000: each ends by its answer or its time-out", served)
	}
	if n.rtt.quantile(1) > 151*time.Millisecond {
		t.Errorf("an answer after %v, the time-out is 150 ms", n.rtt.quantile(1))
	}
}
