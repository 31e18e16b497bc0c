// Package httpdebug shows limiters on one page of live charts, and as JSON.
//
//	page := httpdebug.New()
//	lim := agilelimiter.New(page.Watch("payments", agilelimiter.Config{MaxRate: 500}))
//	lim.Start()
//	http.Handle("/debug/limiters", page)
//
// For every watched limiter the page draws the rate or limit between floor and
// ceiling, what was admitted and shed, the calls in flight and waiting, the
// latencies that the controller compares, and the reason of every step. It is
// one self-contained document: no external file, and a Content-Security-Policy
// that allows none. Importing the package registers nothing anywhere.
//
// # Do not expose it
//
// The page tells names, loads, latencies and limits to whoever can fetch it, and
// has no authentication of its own. It must not be reachable by the public:
// serve it on a loopback or admin listener, or behind a handler that asks who
// is there. It only reads; no request can change a limiter, unless you allow it:
//
//	page := httpdebug.New(httpdebug.WithControls(onlyAdmins))
//	lim := agilelimiter.New(page.Watch("payments", cfg))
//	page.Control("payments", lim)
//
// Then the page has fields for the bounds, a pause and the shadow mode, and each
// of these bodies, posted as application/json, makes one change:
//
//	{"limiter": "payments", "min": 20, "max": 200}
//	{"limiter": "payments", "pause_seconds": 30}     // 0 ends the pause; at most a day
//	{"limiter": "payments", "shadow": true}
//
// The answer is 204; 403 for a request from another site or one that authorize
// refuses, 400 and a sentence for a change that is wrong, and then nothing is
// changed.
//
// # Memory
//
// Each limiter keeps the last 600 points of at least half a second each: five
// minutes, or 600 ticks where a tick is longer. Shorter ticks are merged, the
// peaks of the calls in flight, of the waiting and of p99 are kept. That is
// 40 KB a limiter, allocated by Watch, and never more.
//
// # JSON
//
// The query format=json, or an Accept header that names application/json and
// not text/html, asks for JSON. Names of fields carry their unit; a latency of 0
// means that there is none (no samples, baseline not known yet, no SLO).
//
//	{
//	  "time": "2026-01-02T15:04:05.678Z",   // wall clock of the answer
//	  "started": "2026-01-02T15:00:00Z",    // when New was called
//	  "seq": 480,                           // for the next request's after
//	  "limiters": [{
//	    "name": "payments",
//	    "kind": "rate",                     // or "limit"
//	    "unit": "req/s",                    // or "calls": of target, min and max
//	    "anchor": "knee",
//	    "tick_seconds": 0.25,
//	    "slo_seconds": 0.2,
//	    "span_seconds": 300,                // how far points reach back
//	    "elapsed_seconds": 245.1,           // since Watch, by the limiter's clock
//	    "age_seconds": 0.1,                 // since the last tick
//	    "controls": false,                  // whether a POST may change it
//	    "stats": {...},                     // agilelimiter.Stats of the last tick
//	    "notes": [{"level": "warn", "text": "At the floor of 20 req/s."}],
//	    "decisions": [{                     // those that have been made
//	      "decision": "backoff", "reason": "Congested: ...", "count": 12,
//	      "last_seconds": 240.3, "target_before": 120, "target_after": 96
//	    }],
//	    "points": {                         // columns of equal length, oldest first
//	      "elapsed_seconds": [...], "target": [...], "in_flight": [...], "waiting": [...],
//	      "admitted_per_second": [...], "shed_per_second": [...], "samples": [...],
//	      "p99_seconds": [...], "fast_seconds": [...], "baseline_seconds": [...],
//	      "window_seconds": [...], "decision": [...]
//	    }
//	  }]
//	}
//
// With after=N only points newer than N are sent, where N is the seq of an
// earlier answer of the same process (the same started).
package httpdebug
