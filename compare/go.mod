module agilelimiter/compare

go 1.26.0

require (
	github.com/benbjohnson/clock v1.3.0 // indirect
	github.com/failsafe-go/failsafe-go v0.9.8 // indirect
	github.com/go-kratos/aegis v0.2.0 // indirect
	go.uber.org/ratelimit v0.3.1 // indirect
	golang.org/x/time v0.16.0 // indirect
)
