package limiterotel_test

import (
	"context"
	"fmt"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"agilelimiter"
	limiterotel "agilelimiter/contrib/otel"
)

// One exporter serves all limiters of a program.
func ExampleExporter() {
	reader := sdkmetric.NewManualReader() // in a program, a periodic or Prometheus reader
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	exporter, err := limiterotel.New(provider.Meter("payments-service"))
	if err != nil {
		panic(err)
	}
	defer exporter.Shutdown()
	lim := agilelimiter.New(agilelimiter.Config{MaxRate: 500, InitialRate: 50})
	if err := exporter.Add("payments", lim); err != nil {
		panic(err)
	}

	var data metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &data); err != nil {
		panic(err)
	}
	for _, m := range data.ScopeMetrics[0].Metrics {
		if g, ok := m.Data.(metricdata.Gauge[float64]); ok && m.Name == "agilelimiter.rate.limit" {
			p := g.DataPoints[0]
			limiter, _ := p.Attributes.Value("limiter")
			fmt.Println(m.Name, limiter.AsString(), p.Value, m.Unit)
		}
	}
	// Output: agilelimiter.rate.limit payments 50 {request}/s
}
