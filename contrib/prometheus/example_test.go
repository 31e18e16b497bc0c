package limiterprom_test

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"agilelimiter"
	limiterprom "agilelimiter/contrib/prometheus"
)

// Any number of limiters fit into one registry, each under a name of its own.
func ExampleNewCollector() {
	payments := agilelimiter.New(agilelimiter.Config{MaxRate: 500, InitialRate: 50})
	api := agilelimiter.NewConcurrency(agilelimiter.ConcurrencyConfig{MaxLimit: 64})
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		limiterprom.NewCollector("payments", payments),
		limiterprom.NewCollector("api", api),
	)
	families, _ := registry.Gather()
	for _, f := range families {
		switch f.GetName() {
		case "agilelimiter_rate_limit_requests_per_second", "agilelimiter_concurrency_limit":
			m := f.GetMetric()[0]
			fmt.Println(f.GetName(), m.GetLabel()[0].GetValue(), m.GetGauge().GetValue())
		}
	}
	// Output:
	// agilelimiter_concurrency_limit api 8
	// agilelimiter_rate_limit_requests_per_second payments 50
}
