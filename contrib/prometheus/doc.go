// Package limiterprom exports limiters to Prometheus.
//
//	lim := agilelimiter.New(agilelimiter.Config{MaxRate: 500})
//	prometheus.MustRegister(limiterprom.NewCollector("payments", lim))
//
// The package is called limiterprom, not prometheus, because every file that
// imports it imports the client library of that name too.
//
// # Metrics
//
// Every series carries the label limiter. A rate belongs to a Limiter, a limit to
// a ConcurrencyLimiter; the rest is common to both unless it says otherwise.
//
//	agilelimiter_rate_limit_requests_per_second    the rate in force
//	agilelimiter_rate_floor_requests_per_second    Config.MinRate
//	agilelimiter_rate_ceiling_requests_per_second  Config.MaxRate
//	agilelimiter_concurrency_limit                 the limit in force, before rounding down
//	agilelimiter_concurrency_floor                 ConcurrencyConfig.MinLimit
//	agilelimiter_concurrency_ceiling               ConcurrencyConfig.MaxLimit
//	agilelimiter_in_flight_requests                admitted and not yet ended
//	agilelimiter_peak_in_flight_requests           most at once during the last tick; limit only
//	agilelimiter_waiting_requests                  callers in the queue; rate only
//	agilelimiter_binding                           1: the limiter set the pace in the last tick
//	agilelimiter_shadow                            1: nobody is delayed or refused
//	agilelimiter_paused_seconds                    how much longer a pause lasts
//	agilelimiter_lateness_seconds                  most that its own timer was late; rate only
//	agilelimiter_slo_target_seconds                SLOTarget, if there is one
//	agilelimiter_baseline_latency_seconds          latency without our own queue
//	agilelimiter_fast_latency_seconds              latency now
//	agilelimiter_window_latency_seconds            tolerated latency
//	agilelimiter_p50_latency_seconds               median of the last tick
//	agilelimiter_p99_latency_seconds               99th percentile of the last tick
//	agilelimiter_admitted_total                    calls let through
//	agilelimiter_shed_total                        calls refused, or that gave up waiting
//	agilelimiter_samples_total                     calls that ended with a latency
//	agilelimiter_truncated_total                   those of them that their time-out ended
//	agilelimiter_overflow_total                    those of them that took longer than an hour
//	agilelimiter_unreachable_total                 calls that never arrived
//	agilelimiter_aborted_total                     calls without evidence
//	agilelimiter_wait_seconds_total                time spent waiting for slots; rate only
//	agilelimiter_lateness_lost_seconds_total       time lost to such lateness; rate only
//	agilelimiter_would_wait_total                  shadow: calls that would have waited; rate only
//	agilelimiter_would_wait_seconds_total          shadow: how long they would have; rate only
//	agilelimiter_would_shed_total                  shadow: calls that would have been refused
//	agilelimiter_decisions_total{decision}         controller steps by reason
//
// Counters count since the limiter was made. The gauges of the last tick are a
// look at one tick in many: a scraper that comes every 15 s sees one in sixty.
// Rates and ratios belong to the counters; of the gauges take averages over time
// (avg_over_time of agilelimiter_binding is the share of ticks that were binding).
//
// A latency that is not known yet has no series: 0 would read as a very fast
// dependency. That holds for baseline, fast and window before the first samples,
// and for p50 and p99 after a tick without samples. No series is ever NaN.
//
// # Alerts and dashboard
//
// alerts.yml has alerting rules, alerts_test.yml their unit tests for promtool,
// and dashboard.json is a Grafana dashboard. docs/operations.md says what to do
// when one of them speaks up.
//
// # Versions
//
// This is a module of its own, so that its dependencies are not yours unless you
// import it. It is released by tags of the form contrib/prometheus/vX.Y.Z; until
// then its go.mod points at the root module with a replace line.
package limiterprom
