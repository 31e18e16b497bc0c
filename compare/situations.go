package main

import (
	"time"

	"agilelimiter/compare/plant"
)

const (
	ms  = time.Millisecond
	sec = time.Second

	hitShare = 0.95 // of the situations with a cache
)

// situations is the wide matrix. Unless it says otherwise, a situation is a
// FIFO server of ten workers with exponential service times of 20 ms, which is
// 500 calls a second, an SLO of 200 ms, and an offered load of 1.4 times that.
var situations = []Situation{
	// Nothing happens.
	{Name: "steady", About: "nothing happens"},
	{Name: "mild_overload", About: "offered load only just above the capacity", Load: plant.Const(1.05)},
	{Name: "heavy_overload", About: "four times the capacity is offered", Load: plant.Const(4), Length: 20 * sec},
	{Name: "app_limited", About: "half the capacity is offered: no limit ought to bind", Load: plant.Const(0.5)},
	{Name: "noise", About: "0 to 40 ms of latency more, anew for each call", Jitter: 40 * ms},

	// Latency changes, capacity does not: cutting the rate helps nobody.
	{Name: "benign_bump", About: "latency +40 ms from 10 s to 20 s",
		Base: plant.Pulse(10*sec, 20*sec, 0, 0.04), Steps: []time.Duration{10 * sec, 20 * sec}},
	{Name: "benign_step", About: "latency +50 ms from 10 s on",
		Base: plant.Step(10*sec, 0, 0.05), Steps: []time.Duration{10 * sec}},
	{Name: "benign_drift", About: "latency climbs by 80 ms from 10 s to 30 s",
		Base: plant.Ramp(10*sec, 30*sec, 0, 0.08)},
	{Name: "slow_drift", About: "latency climbs by 80 ms in 100 s", Length: 110 * sec,
		Base: plant.Ramp(5*sec, 105*sec, 0, 0.08)},
	{Name: "flapping_latency", About: "latency +50 ms for 3 s of every 6 s", Base: plant.Square(6*sec, 0, 0.05)},
	{Name: "latency_fall", About: "latency -50 ms from 10 s on",
		Base: plant.Step(10*sec, 0.05, 0), Steps: []time.Duration{10 * sec}},
	{Name: "slo_break", About: "latency +100 ms, half the SLO, from 10 s to 30 s",
		Base: plant.Pulse(10*sec, 30*sec, 0, 0.1), Steps: []time.Duration{10 * sec, 30 * sec}},

	// Capacity changes: not cutting the rate ruins everybody.
	{Name: "cap_drop_mild", About: "6 of 10 workers left from 10 s on",
		Staff: plant.Step(10*sec, 1, 0.6), Steps: []time.Duration{10 * sec}},
	{Name: "cap_drop", About: "3 of 10 workers left from 10 s on",
		Staff: plant.Step(10*sec, 1, 0.3), Steps: []time.Duration{10 * sec}},
	{Name: "cap_drop_severe", About: "1 of 10 workers left from 10 s on",
		Staff: plant.Step(10*sec, 1, 0.1), Steps: []time.Duration{10 * sec}},
	{Name: "cap_drop_slower", About: "service twice as slow from 10 s on",
		Slow: plant.Step(10*sec, 1, 2), Steps: []time.Duration{10 * sec}},
	{Name: "cap_decline", About: "workers leave one by one from 5 s to 35 s",
		Staff: plant.Ramp(5*sec, 35*sec, 1, 0.2)},
	{Name: "cap_recovery", About: "3 of 10 workers until 10 s",
		Staff: plant.Step(10*sec, 0.3, 1), Steps: []time.Duration{10 * sec}},
	{Name: "cap_drop_recovery", About: "3 of 10 workers from 10 s to 25 s",
		Staff: plant.Pulse(10*sec, 25*sec, 1, 0.3), Steps: []time.Duration{10 * sec, 25 * sec}},
	{Name: "cap_flapping", About: "4 of 10 workers for 4 s of every 8 s",
		Staff: plant.Square(8*sec, 1, 0.4)},
	{Name: "cap_diurnal", About: "a day's capacity in 40 s, between 3 and 10 workers",
		Staff: plant.Wave(40*sec, 0.3, 1)},
	{Name: "load_diurnal", About: "a day's load in 40 s, between 0.3 and 1.7 of the capacity",
		Load: plant.Wave(40*sec, 0.3, 1.7)},
	{Name: "drift_and_drop", About: "latency +50 ms at 8 s, and at 22 s 4 of 10 workers left",
		Base: plant.Step(8*sec, 0, 0.05), Staff: plant.Step(22*sec, 1, 0.4), Steps: []time.Duration{8 * sec, 22 * sec}},

	// Other servers.
	{Name: "deterministic", About: "every call costs the same", Dist: plant.Deterministic},
	{Name: "lognormal", About: "heavy tail, sigma 1", Dist: plant.Lognormal(1)},
	{Name: "lognormal_drop", About: "heavy tail, and 3 of 10 workers left from 10 s on", Dist: plant.Lognormal(1),
		Staff: plant.Step(10*sec, 1, 0.3), Steps: []time.Duration{10 * sec}},
	{Name: "bimodal", About: "one call in ten costs ten times as much as the rest", Dist: plant.Bimodal(0.1, 10)},
	{Name: "ps", About: "processor sharing", Sharing: true},
	{Name: "ps_drop", About: "processor sharing, 3 of 10 workers left from 10 s on", Sharing: true,
		Staff: plant.Step(10*sec, 1, 0.3), Steps: []time.Duration{10 * sec}},
	{Name: "one_worker", About: "a single worker, 5 ms a call", Workers: 1, Service: 5 * ms},
	{Name: "many_workers", About: "a hundred workers, 200 ms a call, SLO 1 s",
		Workers: 100, Service: 200 * ms, SLO: sec},
	{Name: "short_queue", About: "the server answers 503 beyond 20 waiting calls", Queue: 20},
	{Name: "rate_3", About: "3 calls a second, SLO 3 s", Workers: 1, Service: sec / 3, SLO: 3 * sec, Length: 120 * sec},
	{Name: "rate_20000", About: "20 000 calls a second", Workers: 400, Length: 6 * sec},

	// Starts.
	{Name: "cold_start", About: "starts at a tenth of the capacity", Initial: 0.1},
	{Name: "init_low", About: "starts at the floor", Initial: 0.02},
	{Name: "init_high", About: "starts ten times too high", Initial: 10, Max: 10},
	{Name: "start_overload", About: "3 of 10 workers until 15 s: starts inside an overload",
		Staff: plant.Step(15*sec, 0.3, 1), Initial: 1, Steps: []time.Duration{15 * sec}},
	{Name: "idle_burst", About: "little to do, nothing from 10 s to 20 s, then twice the capacity",
		Load: func(t time.Duration) float64 {
			switch {
			case t < 10*sec:
				return 0.2
			case t < 20*sec:
				return 0
			}
			return 2
		}, Steps: []time.Duration{20 * sec}},

	// Outages from 10 s to 15 s.
	{Name: "outage_refused", About: "connections refused from 10 s to 15 s",
		Fault: plant.Refuse, From: 10 * sec, To: 15 * sec, Steps: []time.Duration{15 * sec}},
	{Name: "outage_503", About: "503 at once from 10 s to 15 s",
		Fault: plant.Reject, From: 10 * sec, To: 15 * sec, Steps: []time.Duration{15 * sec}},
	{Name: "hang_1s", About: "no answer from 10 s to 15 s, callers time out after 1 s",
		Fault: plant.Hang, From: 10 * sec, To: 15 * sec, Timeout: sec, Steps: []time.Duration{15 * sec}},
	{Name: "hang_10s", About: "no answer from 10 s to 15 s, callers time out after 10 s",
		Fault: plant.Hang, From: 10 * sec, To: 15 * sec, Timeout: 10 * sec, Steps: []time.Duration{15 * sec}},

	// A cache in front of a small origin; only misses count as goodput.
	{Name: "cache_unmarked", About: "95 % cache hits that look like misses",
		Workers: 2, Hits: hitShare, Length: 30 * sec},
	{Name: "cache_marked", About: "95 % cache hits, marked",
		Workers: 2, Hits: hitShare, Marked: true, Length: 30 * sec},

	// Ten instances, each with a tenth of the load, on one server.
	{Name: "fleet_steady", About: "ten instances, nothing happens", Instances: 10},
	{Name: "fleet_drop", About: "ten instances, 5 of 10 workers left from 10 s on", Instances: 10,
		Staff: plant.Step(10*sec, 1, 0.5), Steps: []time.Duration{10 * sec}},
	{Name: "fleet_drop_severe", About: "ten instances, 3 of 10 workers left from 10 s on", Instances: 10,
		Staff: plant.Step(10*sec, 1, 0.3), Steps: []time.Duration{10 * sec}},
	{Name: "fleet_latency", About: "ten instances, latency +50 ms from 10 s on", Instances: 10,
		Base: plant.Step(10*sec, 0, 0.05), Steps: []time.Duration{10 * sec}},
	{Name: "fleet_init_high", About: "ten instances, each starts at half of the whole capacity", Instances: 10,
		Initial: 5, Max: 10},

	// Callers that wait for their answers.
	{Name: "closed_few", About: "20 callers, one call after the other", Clients: 20},
	{Name: "closed_many", About: "300 callers who think for 200 ms", Clients: 300, Think: 200 * ms},
	{Name: "closed_drop", About: "300 callers who think for 200 ms, 3 of 10 workers left from 10 s on",
		Clients: 300, Think: 200 * ms, Staff: plant.Step(10*sec, 1, 0.3), Steps: []time.Duration{10 * sec}},
}
