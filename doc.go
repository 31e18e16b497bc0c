// Package agilelimiter protects a dependency from its callers, or a service
// from its own, by a limit that follows measured latency.
//
// A fixed limit is right until the capacity behind it moves. Here a controller
// takes the latency of every finished call, compares "now" with "as it should
// be" four times a second, and moves one number between a floor and a ceiling
// that you promise. The number drives one of two actuators:
//
//   - Limiter, outbound: a leaky bucket that paces calls to a downstream.
//     Callers wait for their slot.
//   - ConcurrencyLimiter, inbound: a semaphore that caps the calls being
//     served. Callers beyond it are shed at once; nobody waits.
//
// # The evidence rule
//
// A duration is evidence only while it measures the resource being protected.
// A refused connection, a cache hit, an instant 503, a cancelled call and the
// limiter's own throttle wait all have durations, and not one of them is a
// latency of the downstream. Fed in as such, each makes a limiter harmful: a
// port that refuses in 50 µs looks like a downstream with room to spare. Do
// takes the wait out by itself; Outcome, with Config.Classify or the HTTP
// adapters' Verdict, says the rest.
//
// # Control laws
//
// Config.Anchor picks one of three. AnchorBaseline, the zero value, protects
// the knee of the latency curve. AnchorSLO only keeps to an SLOTarget.
// AnchorKnee counts calls in flight, steers them to what the SLOTarget allows
// and finds out whose queue it sees; it is the one to try first.
//
// The subpackages httpclient and httpserver put a limiter around an
// http.RoundTripper and an http.Handler; httpdebug is a page to look at.
package agilelimiter
