// Package redisshare makes one promise of many processes: the MaxRate, or the
// MaxLimit, that they keep together, shared through a Redis.
//
//	lim := agilelimiter.New(agilelimiter.Config{MinRate: 1, MaxRate: 500})
//	lim.Start()
//	share := redisshare.New(client, "payments-api", redisshare.Config{MaxRate: 500})
//	member, err := share.Join(ctx, lim)
//	...
//	defer member.Stop()
//
// Each member leases a part of the promise and sets its limiter's bounds to it.
// Parts are max-min fair by what each member wants; what one does not use others
// get a renewal or two later. The sum of all leases and fallbacks in force is
// never above the promise; docs/fleet.md has the protocol, the proof, and what is
// not covered.
//
// No call waits for Redis: a member renews in the background. Without Redis it
// keeps its part until the lease ends, then its fallback for FallbackFor, then the
// limiter is paused; and it comes back by itself.
//
// The package needs Redis 5 or later (scripts that write after TIME) and was tested
// with 7.0. It is a module of its own, so that its dependencies are not yours
// unless you import it.
package redisshare
