// Package agilelimiter protects a dependency from its callers, or a service
// from its own, by a limit that follows measured latency.
//
// A fixed limit is right until the capacity behind it moves. Here a controller
// reads the latency of every finished call. Four times a second it compares the
// latency now with what it should be, and moves one number between a floor and a
// ceiling that you promise. The number drives one of two actuators:
//
//   - Limiter, outbound: a leaky bucket that paces calls to a downstream.
//     Callers wait for their slot.
//   - ConcurrencyLimiter, inbound: a semaphore that caps the calls being
//     served. Callers beyond it are refused at once.
//
// # The evidence rule
//
// A duration is evidence only while it measures the resource being protected.
// A refused connection, a cache hit, an instant 503, a cancelled call and the
// limiter's own throttle wait all have durations. None of them is a latency of
// the downstream, and each does harm if it counts as one: a port that refuses in
// 50 µs looks like a downstream with room to spare. Do leaves the wait out by
// itself. Outcome, Config.Classify and the Verdict of the HTTP adapters say the
// rest.
//
// # Control laws
//
// Config.Anchor picks one of three. AnchorBaseline, the zero value, protects
// the knee of the latency curve. AnchorSLO only keeps to an SLOTarget.
// AnchorKnee counts calls in flight and steers them to what the SLOTarget
// allows. Try AnchorKnee first.
//
// # Start, Stop and the queue
//
// Without Start the number stays where it is. A started limiter has a timer
// until Stop. Give every call of a Limiter a deadline, or set Config.MaxWaiting:
// with neither its queue has no end.
//
// The subpackages httpclient and httpserver put a limiter around an
// http.RoundTripper and an http.Handler. httpdebug shows limiters on a web page.
package agilelimiter
