package exam

// Named is a situation with a name.
type Named struct{ Name, About, Text string }

// Spec returns the situation.
func (n Named) Spec() Spec {
	s, err := Parse(n.Text)
	if err != nil {
		panic("exam: " + n.Name + ": " + err.Error())
	}
	return s
}

// Traps are situations in which a limiter of ours was found to fall, each
// reduced to what matters.
var Traps = []Named{
	{"L1", "four of five calls are given up by their callers, nothing queues", "workers=20 service=det(100ms) load=50/s aborted=0.8(90ms) slo=500ms start=0.1x length=120s"},
	{"L2a", "99 % marked hits of 2000/s, nothing short", "load=2000/s marked=0.99 start=0.01x min=0.001x"},
	{"L2b", "99.9 % marked hits of 2000/s, nothing short", "load=2000/s marked=0.999 start=0.002x min=0.0001x length=300s"},
	{"L3", "0.3 s of refusals, then 999 of 1000 calls are marked hits", "load=500/s marked=0.999 fault=refuse@10s+300ms start=0.001x min=0.0001x max=0.01x length=610s"},
	{"L4", "calls given up by their callers, now and then one that is refused", "load=100/s aborted=0.9995(20ms) errors=0.5 start=0.0001x min=0.0001x max=0.001x length=1200s"},
	{"L5a", "ticks of 300 ms", "ticks=300ms"},
	{"L5b", "ticks of 600 ms", "ticks=600ms"},
	{"L6", "used for a minute before Start", "unstarted=60s length=120s"},
	{"L7a", "calls of 2 s, nothing queues, SLO 2.5 times that", "workers=400 service=lognormal(2s,0.2) load=20/s slo=5s start=0.1x length=600s"},
	{"L7b", "calls of 5 s, nothing queues, SLO three times that", "workers=1000 service=lognormal(5s,0.3) load=20/s slo=15s start=0.1x length=1200s"},
	{"L8", "latency 100 ms, then 3 s", "workers=1000 service=det(100ms) base=0s,2.9s@30s load=50/s slo=10s start=0.02x length=120s"},
	{"L9a", "10 workers of 200 ms, deterministic, an hour", "service=det(200ms) slo=2s length=3600s"},
	{"L9b", "30 workers of 2 s, deterministic, an hour", "workers=30 service=det(2s) slo=20s length=3600s"},
	{"L9c", "10 workers of 1 s, deterministic, an hour", "service=det(1s) slo=10s length=3600s"},
	{"L10", "95 % cheap calls; the workers pause for 6 s", "hits=0.95 fault=pause@20s+6s"},
	{"L11a", "nobody may wait in the service", "queue=0 load=2000/s"},
	{"L11b", "ten may wait in the service", "queue=10 load=2000/s"},
	{"L12a", "a quota of 100/s, burst 1", "workers=100 quota=bucket(100/s,1) load=300/s"},
	{"L12b", "a quota of 100/s, burst 100", "workers=100 quota=bucket(100/s,100) load=300/s length=120s"},
	{"L13", "60 % of the answers are errors that have nothing to do with load", "errors=0.6"},
	{"L14a", "5 % streams of a minute", "workers=20 load=500/s streams=0.05(60s) length=300s"},
	{"L14b", "5 % streams of a minute, marked", "workers=20 load=500/s streams=0.05(60s,marked) length=300s"},
	{"L15", "5 % of the calls take 2 s, nothing short", "workers=20 load=300/s streams=0.05(2s) length=300s"},
	{"L16", "200 calls at one instant every 5 s", "workers=500 service=det(500ms) load=0x burst=200/5s slo=2s start=0.2x max=0.5x length=300s"},
	{"L17", "20 calls of five minutes are open", "load=250/s streams=0.00027(300s) length=900s"},
	{"L18a", "AnchorBaseline's zero value, 1.05 times the capacity", "load=1.05x slo=100s min=0.002x length=1200s"},
	{"L18b", "the same, 1.4 times", "load=1.4x slo=100s min=0.002x length=1200s"},
	{"L19", "slow first calls, then fast ones", "slow=30,1@100ms load=1.05x start=15x min=0.6x max=120x length=120s"},
	{"L20", "nothing but refusals at the start", "fault=refuse@0s+5s start=0.05x"},
	{"L21", "a steady overload with an SLO that leaves room", "length=120s"},
}
