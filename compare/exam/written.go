package exam

// Written are the situations that were thought up by somebody. Unless it says
// otherwise, one is a service of ten workers with exponential service times of
// 20 ms, which is 500 calls a second, an SLO of 200 ms, and an offered load of
// 1.4 times that.
var Written = []Named{
	// Nothing happens.
	{"steady", "nothing happens", "length=40s"},
	{"mild_overload", "offered load only just above the capacity", "load=1.05x length=40s"},
	{"heavy_overload", "four times the capacity is offered", "load=4x length=20s"},
	{"app_limited", "half the capacity is offered: no limit ought to bind", "load=0.5x length=40s"},
	{"noise", "0 to 40 ms of latency more, anew for each call", "jitter=40ms length=40s"},

	// Latency changes, capacity does not: cutting the rate helps nobody.
	{"benign_bump", "latency +40 ms from 10 s to 20 s", "base=0s,40ms@10s,0s@20s length=40s"},
	{"benign_step", "latency +50 ms from 10 s on", "base=0s,50ms@10s length=40s"},
	{"benign_drift", "latency climbs by 80 ms from 10 s to 30 s", "base=0s,0s@10s,80ms~30s length=40s"},
	{"slow_drift", "latency climbs by 80 ms in 100 s", "base=0s,0s@5s,80ms~105s length=110s"},
	{"flapping_latency", "latency +50 ms for 3 s of every 6 s", "base=square(6s,0s,50ms) length=40s"},
	{"latency_fall", "latency -50 ms from 10 s on", "base=50ms,0s@10s length=40s"},
	{"slo_break", "latency +100 ms, half the SLO, from 10 s to 30 s", "base=0s,100ms@10s,0s@30s length=40s"},

	// Capacity changes: not cutting the rate ruins everybody.
	{"cap_drop_mild", "6 of 10 workers left from 10 s on", "staff=1,0.6@10s length=40s"},
	{"cap_drop", "3 of 10 workers left from 10 s on", "staff=1,0.3@10s length=40s"},
	{"cap_drop_severe", "1 of 10 workers left from 10 s on", "staff=1,0.1@10s length=40s"},
	{"cap_drop_slower", "service twice as slow from 10 s on", "slow=1,2@10s length=40s"},
	{"cap_decline", "workers leave one by one from 5 s to 35 s", "staff=1,1@5s,0.2~35s length=40s"},
	{"cap_recovery", "3 of 10 workers until 10 s", "staff=0.3,1@10s start=1.67x min=0.067x max=13.3x length=40s"},
	{"cap_drop_recovery", "3 of 10 workers from 10 s to 25 s", "staff=1,0.3@10s,1@25s length=40s"},
	{"cap_flapping", "4 of 10 workers for 4 s of every 8 s", "staff=square(8s,1,0.4) length=40s"},
	{"cap_diurnal", "a day's capacity in 40 s, between 3 and 10 workers", "staff=wave(40s,0.3,1) length=40s"},
	{"load_diurnal", "a day's load in 40 s, between 0.3 and 1.7 of the capacity", "load=wave(40s,0.3x,1.7x) length=40s"},
	{"drift_and_drop", "latency +50 ms at 8 s, and at 22 s 4 of 10 workers left", "base=0s,50ms@8s staff=1,0.4@22s length=40s"},

	// Other services.
	{"deterministic", "every call costs the same", "service=det(20ms) length=40s"},
	{"lognormal", "heavy tail, sigma 1", "service=lognormal(20ms,1) length=40s"},
	{"lognormal_drop", "heavy tail, and 3 of 10 workers left from 10 s on", "service=lognormal(20ms,1) staff=1,0.3@10s length=40s"},
	{"bimodal", "one call in ten costs ten times as much as the rest", "service=bimodal(20ms,0.1,10) length=40s"},
	{"ps", "processor sharing", "order=ps length=40s"},
	{"ps_drop", "processor sharing, 3 of 10 workers left from 10 s on", "order=ps staff=1,0.3@10s length=40s"},
	{"one_worker", "a single worker, 5 ms a call", "workers=1 service=exp(5ms) length=40s"},
	{"many_workers", "a hundred workers, 200 ms a call, SLO 1 s", "workers=100 service=exp(200ms) slo=1s length=40s"},
	{"short_queue", "the service answers 503 beyond 20 waiting calls", "queue=20 length=40s"},
	{"rate_3", "3 calls a second, SLO 3 s", "workers=1 service=exp(333ms) slo=3s length=120s"},
	{"rate_20000", "20 000 calls a second", "workers=400 length=6s"},

	// Starts.
	{"cold_start", "starts at a tenth of the capacity", "start=0.1x length=40s"},
	{"init_low", "starts at the floor", "start=0.02x length=40s"},
	{"init_high", "starts ten times too high", "start=10x max=10x length=40s"},
	{"start_overload", "3 of 10 workers until 15 s: starts inside an overload", "staff=0.3,1@15s start=3.33x min=0.067x max=13.3x length=40s"},
	{"idle_burst", "little to do, nothing from 10 s to 20 s, then twice the capacity", "load=0.2x,0x@10s,2x@20s length=40s"},

	// Outages from 10 s to 15 s.
	{"outage_refused", "connections refused from 10 s to 15 s", "fault=refuse@10s+5s length=40s"},
	{"outage_503", "503 at once from 10 s to 15 s", "fault=reject@10s+5s length=40s"},
	{"hang_1s", "no answer from 10 s to 15 s, callers time out after 1 s", "fault=hang@10s+5s timeout=1s length=40s"},
	{"hang_10s", "no answer from 10 s to 15 s, callers time out after 10 s", "fault=hang@10s+5s timeout=10s length=40s"},

	// A cache in front of a small origin; only misses count as goodput.
	{"cache_unmarked", "95 % cache hits that look like misses", "workers=2 hits=0.95 length=30s"},
	{"cache_marked", "95 % cache hits, marked", "workers=2 marked=0.95 length=30s"},

	// Ten instances, each with a tenth of the load, on one service.
	{"fleet_steady", "ten instances, nothing happens", "fleet=10 length=40s"},
	{"fleet_drop", "ten instances, 5 of 10 workers left from 10 s on", "fleet=10 staff=1,0.5@10s length=40s"},
	{"fleet_drop_severe", "ten instances, 3 of 10 workers left from 10 s on", "fleet=10 staff=1,0.3@10s length=40s"},
	{"fleet_latency", "ten instances, latency +50 ms from 10 s on", "fleet=10 base=0s,50ms@10s length=40s"},
	{"fleet_init_high", "ten instances, each starts at half of the whole capacity", "fleet=10 start=5x max=10x length=40s"},

	// Callers that wait for their answers.
	{"closed_few", "20 callers, one call after the other", "callers=20(0s) length=40s"},
	{"closed_many", "300 callers who think for 200 ms", "callers=300(200ms) length=40s"},
	{"closed_drop", "300 callers who think for 200 ms, 3 of 10 workers left from 10 s on", "callers=300(200ms) staff=1,0.3@10s length=40s"},
}

// Perturbed moves the number of workers, the service time, the latency that no
// worker causes and the SLO by up to 30 % each, so that a law cannot live on the
// figures it was tuned on. That latency gives way where it would leave less of
// the SLO than it did before.
func (n Named) Perturbed(seed uint64) Spec {
	s := n.Spec()
	r := random(seed, 8, 0)
	for _, c := range []byte(n.Name) { // situations of one seed differ too
		r ^= rng(c)
		r.next()
	}
	factor := func() float64 { return r.between(0.7, 1.3) }
	workers, service, slo, base := factor(), factor(), factor(), factor()
	s.Workers = max(1, int(float64(s.Workers)*workers+0.5))
	s.Service.Mean = short(sec(s.Service.Mean.Seconds() * min(service, slo)))
	s.SLO = short(sec(s.SLO.Seconds() * slo))
	base = min(base, slo)
	s.Jitter = short(sec(s.Jitter.Seconds() * base))
	s.Base.A, s.Base.B = s.Base.A*base, s.Base.B*base
	for i := range s.Base.Points {
		s.Base.Points[i].Value = short(sec(s.Base.Points[i].Value * base)).Seconds()
	}
	return s
}
