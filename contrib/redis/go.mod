module agilelimiter/contrib/redis

go 1.26.0

require (
	agilelimiter v0.0.0
	github.com/redis/go-redis/v9 v9.24.0
)

replace agilelimiter => ../..
