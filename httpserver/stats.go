package httpserver

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"agilelimiter"
)

// Source is what StatsHandler shows: a *agilelimiter.ConcurrencyLimiter or a
// *agilelimiter.Limiter.
type Source interface{ Stats() agilelimiter.Stats }

// StatsHandler returns a Handler that answers GET and HEAD with a snapshot of
// lim as JSON, and other methods with 405. Mount it outside of Wrap, so that it
// stays readable while the service is saturated. It shows figures only, but who
// may see them is for you to decide. A nil lim panics.
//
// The answer is one object. Durations are in seconds; the last tick's values are
// 0 before the first tick.
//
//	target                 number in force: calls in flight, or requests per second
//	limit                  its whole part, which is enforced; a ConcurrencyLimiter's only
//	rate                   the same as target; a Limiter's only
//	min, max               floor and ceiling of target
//	in_flight              calls admitted and not yet ended
//	waiting                callers in a Limiter's queue
//	shadow                 the limiter only keeps books, nobody is delayed or refused
//	paused_seconds         how much longer a Pause lasts
//	decision               reason of the last step: "hold", "probe", "backoff", ...
//	samples                latencies that the last step saw; 0 means blind
//	p50_seconds            their median
//	p99_seconds            their 99th percentile
//	baseline_seconds       latency without our own queue, as far as it is known
//	fast_seconds           latency now, smoothed
//	window_seconds         tolerated latency: at or above it the limiter backs off
//	peak_in_flight         most calls in flight at once during the last tick
//	binding                the limiter, not its callers, set the pace in the last tick
//	lateness_seconds       most that a Limiter's own timer was late in the last tick
//	admitted               calls let through since New
//	shed                   calls refused or given up while waiting since New
//	reached                finished calls that are evidence, since New
//	unreachable            finished calls that were never worked on, since New
//	aborted                finished calls that prove nothing, since New
//	truncated              those of reached that a time-out ended, since New
//	overflow               those of reached that took longer than an hour, since New
//	throttle_wait_seconds  time that admitted callers spent waiting, together, since New
//	would_wait             calls that would have waited, counted in shadow mode
//	would_wait_seconds     time that they would have waited, together, so far
//	would_shed             calls that would have been refused, counted in shadow mode
//	lateness_lost_seconds  time of the schedule lost to such lateness, since New
//	ticks                  controller steps since New
//	decisions              object: steps since New by decision, every name present
//
// agilelimiter.Stats says more about each.
func StatsHandler(lim Source) http.Handler {
	if isNil(lim) {
		panic("agilelimiter/httpserver: StatsHandler: nil limiter")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
			return
		}
		var body bytes.Buffer
		enc := json.NewEncoder(&body)
		enc.SetIndent("", "  ")
		if err := enc.Encode(newStatsJSON(lim)); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		h := w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Content-Length", strconv.Itoa(body.Len()))
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		if r.Method == http.MethodGet {
			body.WriteTo(w)
		}
	})
}

// isNil sees through an interface that holds a nil limiter.
func isNil(lim Source) bool {
	switch l := lim.(type) {
	case *agilelimiter.ConcurrencyLimiter:
		return l == nil
	case *agilelimiter.Limiter:
		return l == nil
	}
	return lim == nil
}

type statsJSON struct {
	Target       float64           `json:"target"`
	Limit        *int              `json:"limit,omitempty"`
	Rate         *float64          `json:"rate,omitempty"`
	Min          float64           `json:"min"`
	Max          float64           `json:"max"`
	InFlight     int               `json:"in_flight"`
	Waiting      int               `json:"waiting"`
	Shadow       bool              `json:"shadow"`
	Paused       seconds           `json:"paused_seconds"`
	Decision     string            `json:"decision"`
	Samples      int               `json:"samples"`
	P50          seconds           `json:"p50_seconds"`
	P99          seconds           `json:"p99_seconds"`
	Baseline     seconds           `json:"baseline_seconds"`
	Fast         seconds           `json:"fast_seconds"`
	Window       seconds           `json:"window_seconds"`
	PeakInFlight int               `json:"peak_in_flight"`
	Binding      bool              `json:"binding"`
	Lateness     seconds           `json:"lateness_seconds"`
	Admitted     uint64            `json:"admitted"`
	Shed         uint64            `json:"shed"`
	Reached      uint64            `json:"reached"`
	Unreachable  uint64            `json:"unreachable"`
	Aborted      uint64            `json:"aborted"`
	Truncated    uint64            `json:"truncated"`
	Overflow     uint64            `json:"overflow"`
	ThrottleWait seconds           `json:"throttle_wait_seconds"`
	WouldWait    uint64            `json:"would_wait"`
	WouldWaitFor seconds           `json:"would_wait_seconds"`
	WouldShed    uint64            `json:"would_shed"`
	LatenessLost seconds           `json:"lateness_lost_seconds"`
	Ticks        uint64            `json:"ticks"`
	Decisions    map[string]uint64 `json:"decisions"`
}

type seconds time.Duration

func (s seconds) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(s).Seconds()) }

func newStatsJSON(lim Source) statsJSON {
	s := lim.Stats()
	out := statsJSON{
		Target: s.Target, Min: s.Min, Max: s.Max,
		InFlight: s.InFlight, Waiting: s.Waiting, Shadow: s.Shadow, Paused: seconds(s.Paused),
		Decision: s.Decision.String(), Samples: s.Samples,
		P50: seconds(s.P50), P99: seconds(s.P99),
		Baseline: seconds(s.Baseline), Fast: seconds(s.Fast), Window: seconds(s.Window),
		PeakInFlight: s.PeakInFlight, Binding: s.Binding, Lateness: seconds(s.Lateness),
		Admitted: s.Admitted, Shed: s.Shed,
		Reached: s.Reached, Unreachable: s.Unreachable, Aborted: s.Aborted, Truncated: s.Truncated, Overflow: s.Overflow,
		ThrottleWait: seconds(s.ThrottleWait), LatenessLost: seconds(s.LatenessLost),
		WouldWait: s.WouldWait, WouldWaitFor: seconds(s.WouldWaitTime), WouldShed: s.WouldShed,
		Ticks: s.Ticks, Decisions: make(map[string]uint64, len(s.Decisions)),
	}
	for d, n := range s.Decisions {
		out.Decisions[agilelimiter.Decision(d).String()] = n
	}
	// Both out of the one snapshot: read separately they could be a tick apart.
	switch lim.(type) {
	case interface{ Limit() int }:
		limit := int(s.Target)
		out.Limit = &limit
	case interface{ Rate() float64 }:
		out.Rate = &s.Target
	}
	return out
}
