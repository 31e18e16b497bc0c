// Package hotpath measures what one call through a limiter costs, beside the
// least it could cost and beside other Go limiters, all in one process and in
// one run.
//
// The package holds benchmarks and tests only. Every row is a list of arms:
// an arm builds one limiter and hands out workers that perform an operation n
// times. The first arm of a row is its floor, a few lines of code with the
// same effect and no law behind them; every other arm is read as a multiple
// of it, because nanoseconds differ from machine to machine and multiples
// hardly do.
//
//	go test -run '^$' -bench . -cpu 1      the raw figures
//	go run ./table                         the Markdown tables of docs/comparison.md
//	go run ./quantiles                     the error of p50 and p99
//	go run ./pacing                        achieved over nominal rate in real time
//	go test -run TestPanics -v             who still has all slots after a thousand panics
//
// github.com/platinummonkey/go-concurrency-limits is missing here: the module
// proxy that this project builds with does not serve it.
package hotpath
