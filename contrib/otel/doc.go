// Package limiterotel exports limiters as OpenTelemetry metrics.
//
//	exporter, err := limiterotel.New(provider.Meter("payments-service"))
//	...
//	defer exporter.Shutdown()
//	err = exporter.Add("payments", lim)
//
// It uses the metric API only; which SDK reads it, how often and where to is the
// program's business. The package is called limiterotel, not otel, because every
// file that imports it imports OpenTelemetry's packages too.
//
// # Instruments
//
// All are observable and carry the attribute limiter. A rate belongs to a Limiter,
// a concurrency limit to a ConcurrencyLimiter; the rest is common to both unless
// it says otherwise.
//
//	agilelimiter.rate.limit           {request}/s  gauge    the rate in force
//	agilelimiter.rate.floor           {request}/s  gauge    Config.MinRate
//	agilelimiter.rate.ceiling         {request}/s  gauge    Config.MaxRate
//	agilelimiter.concurrency.limit    {request}    gauge    the limit in force, before rounding down
//	agilelimiter.concurrency.floor    {request}    gauge    ConcurrencyConfig.MinLimit
//	agilelimiter.concurrency.ceiling  {request}    gauge    ConcurrencyConfig.MaxLimit
//	agilelimiter.concurrency.usage    {request}    up-down  calls admitted and not yet ended
//	agilelimiter.concurrency.peak     {request}    gauge    most at once in the last tick; limit only
//	agilelimiter.waiting              {request}    up-down  callers in the queue; rate only
//	agilelimiter.binding              1            gauge    1: the limiter set the pace in the last tick
//	agilelimiter.latency.slo          s            gauge    SLOTarget, if there is one
//	agilelimiter.latency.baseline     s            gauge    latency without our own queue
//	agilelimiter.latency.fast         s            gauge    latency now
//	agilelimiter.latency.window       s            gauge    tolerated latency
//	agilelimiter.latency.p50          s            gauge    median of the last tick
//	agilelimiter.latency.p99          s            gauge    99th percentile of the last tick
//	agilelimiter.admitted             {request}    counter  calls let through
//	agilelimiter.shed                 {request}    counter  calls refused, or that gave up waiting
//	agilelimiter.samples              {request}    counter  calls that ended with a latency
//	agilelimiter.truncated            {request}    counter  those that their time-out ended
//	agilelimiter.overflow             {request}    counter  those that took longer than an hour
//	agilelimiter.unreachable          {request}    counter  calls that never arrived
//	agilelimiter.aborted              {request}    counter  calls without evidence
//	agilelimiter.wait                 s            counter  time spent waiting for slots; rate only
//	agilelimiter.lateness             s            gauge    most that its own timer was late; rate only
//	agilelimiter.lateness.lost        s            counter  time lost to such lateness; rate only
//	agilelimiter.shadow               1            gauge    1: nobody is delayed or refused
//	agilelimiter.paused               s            gauge    how much longer a pause lasts
//	agilelimiter.would.wait           {request}    counter  shadow: calls that would have waited
//	agilelimiter.would.wait.time      s            counter  shadow: how long they would have; rate only
//	agilelimiter.would.shed           {request}    counter  shadow: calls that would have been refused
//	agilelimiter.decisions            {decision}   counter  controller steps; attribute decision
//
// Counters count since the limiter was made. The gauges of the last tick are a
// look at one tick in many; rates and ratios belong to the counters. A latency
// that is not known is not observed, for 0 would read as a very fast dependency:
// baseline, fast and window before the first samples, p50 and p99 after a tick
// without any.
//
// # Versions
//
// This is a module of its own, so that its dependencies are not yours unless you
// import it. It is released by tags of the form contrib/otel/vX.Y.Z; until then
// its go.mod points at the root module with a replace line.
package limiterotel
