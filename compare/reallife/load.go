package main

import (
	"net/http"
	"sync"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// A call is one request: when it began, how long it took, and the status of
// its answer, 0 for none.
type call struct {
	at, took time.Duration
	status   int
}

// A meter sits under an arm and sees what the arm really sends.
type meter struct {
	begin time.Time
	rt    http.RoundTripper

	mu   sync.Mutex
	sent []call // guarded by mu
}

func newMeter(begin time.Time) *meter {
	return &meter{begin: begin, rt: &http.Transport{MaxIdleConnsPerHost: 512}}
}

func (m *meter) RoundTrip(req *http.Request) (*http.Response, error) {
	at := time.Since(m.begin)
	resp, err := m.rt.RoundTrip(req)
	c := call{at: at, took: time.Since(m.begin) - at}
	if err == nil {
		c.status = resp.StatusCode
	}
	m.mu.Lock()
	m.sent = append(m.sent, c)
	m.mu.Unlock()
	return resp, err
}

// attack offers the load through rt at an even pace that waits for nobody,
// and returns what the callers saw: their waiting for admission included.
func attack(url string, rt http.RoundTripper, s scenario, begin time.Time) (calls []call) {
	client := &http.Client{Transport: rt, Timeout: s.timeout}
	attacker := vegeta.NewAttacker(vegeta.Client(client))
	targets := vegeta.NewStaticTargeter(vegeta.Target{Method: http.MethodGet, URL: url})
	pace := vegeta.ConstantPacer{Freq: s.offered, Per: time.Second}
	for res := range attacker.Attack(targets, pace, s.total(), "") {
		calls = append(calls, call{res.Timestamp.Sub(begin), res.Latency, int(res.Code)})
	}
	return calls
}

func (s scenario) total() time.Duration { return time.Duration(len(s.rates)) * s.phase }
