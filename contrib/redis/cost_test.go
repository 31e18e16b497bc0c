package redisshare

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"agilelimiter"
)

// load is n simulated members, in shares of size each.
type load struct {
	members []*holder
	wants   []int64
	share   []int
}

func newLoad(n, size int) *load {
	l := &load{}
	for i := range n {
		t := rateTerms(0)
		t.fallbackFor = 10 * time.Minute
		t.floor = 1
		l.members = append(l.members, &holder{terms: t, id: fmt.Sprint("member-", i), nonce: 1, luck: rand.Int64N(1000)})
		l.wants = append(l.wants, rand.Int64N(3*t.promise/int64(size)))
		l.share = append(l.share, i/size)
	}
	return l
}

// renew renews the members from lo to hi in one pipeline.
func (l *load) renew(t testing.TB, c redis.UniversalClient, lo, hi int) (requests int) {
	again := make([]int, 0, hi-lo)
	for i := lo; i < hi; i++ {
		again = append(again, i)
	}
	for range 4 {
		if len(again) == 0 {
			return requests
		}
		pipe := c.Pipeline()
		var cmds []*redis.Cmd
		var sent []request
		now := time.Now()
		for _, i := range again {
			if rand.IntN(20) == 0 {
				l.wants[i] = l.wants[i]/2 + rand.Int64N(l.wants[i]+1000)
			}
			q := l.members[i].renewal(opRenew, now, l.wants[i], 0)
			sent = append(sent, q)
			cmds = append(cmds, shareScript.EvalSha(context.Background(), pipe, keysOf(fmt.Sprint("load", l.share[i])), q.args()...))
		}
		requests += len(cmds)
		pipe.Exec(context.Background())
		var next []int
		for j, cmd := range cmds {
			v, err := cmd.Result()
			if err != nil {
				t.Fatal(err)
			}
			r, err := parseReply(v)
			if err != nil {
				t.Fatal(err)
			}
			if more, _ := l.members[again[j]].take(&sent[j], now, time.Now(), r); more {
				next = append(next, again[j])
			}
		}
		again = next
	}
	return requests
}

var (
	cpuLine    = regexp.MustCompile(`used_cpu_(?:user|sys):([0-9.]+)`)
	scriptLine = regexp.MustCompile(`cmdstat_evalsha:calls=(\d+),usec=(\d+)`)
)

// spent returns the seconds of CPU that the server has used.
func spent(t testing.TB, c *redis.Client) (seconds float64) {
	info, err := c.Info(context.Background(), "cpu").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range cpuLine.FindAllStringSubmatch(info, -1) {
		x, _ := strconv.ParseFloat(m[1], 64)
		seconds += x
	}
	return seconds
}

func scriptTime(t testing.TB, c *redis.Client) time.Duration {
	info, err := c.Info(context.Background(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	m := scriptLine.FindStringSubmatch(info)
	if m == nil {
		t.Fatal(info)
	}
	calls, _ := strconv.ParseFloat(m[1], 64)
	us, _ := strconv.ParseFloat(m[2], 64)
	return time.Duration(us / calls * 1000)
}

// BenchmarkRenewal is one renewal against the real server, by the size of the
// share and the length of the pipeline. server-ns/op is the CPU time of the
// server, script-ns/op what it says that the script takes.
func BenchmarkRenewal(b *testing.B) {
	for _, size := range []int{1, 30, 1000, 10_000} {
		for _, depth := range []int{1, 100} {
			if depth > size && size > 1 {
				continue
			}
			b.Run(fmt.Sprintf("share=%d/pipeline=%d", size, depth), func(b *testing.B) {
				c := startServer(b).client(b)
				shareScript.Load(context.Background(), c)
				n := max(size, depth)
				l := newLoad(n, size)
				for i := 0; i < n; i += depth {
					l.renew(b, c, i, i+depth)
				}
				c.ConfigResetStat(context.Background())
				began, requests, at := spent(b, c), 0, 0
				b.ResetTimer()
				for requests < b.N {
					requests += l.renew(b, c, at, at+depth)
					at = (at + depth) % n
				}
				b.StopTimer()
				b.ReportMetric((spent(b, c)-began)*1e9/float64(requests), "server-ns/op")
				b.ReportMetric(float64(scriptTime(b, c).Nanoseconds()), "script-ns/op")
			})
		}
	}
}

// TestScale plays a fleet for half a minute and prints what the server spends. It
// runs only when told how large: REDISSHARE_SCALE=10000.
func TestScale(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("REDISSHARE_SCALE"))
	if n == 0 {
		t.Skip("set REDISSHARE_SCALE to a number of members")
	}
	for _, depth := range []int{1, 100} {
		c := startServer(t).client(t)
		shareScript.Load(t.Context(), c)
		l := newLoad(n, n)
		const workers, length = 8, 15 * time.Second
		var mu sync.Mutex
		requests, late := 0, 0
		var began float64
		round := func() {
			start := time.Now()
			var wg sync.WaitGroup
			for w := range workers {
				wg.Go(func() {
					lo, hi := n*w/workers, n*(w+1)/workers
					for i := lo; i < hi; i += depth {
						due := start.Add(time.Second * time.Duration(i-lo) / time.Duration(hi-lo))
						time.Sleep(time.Until(due))
						k := l.renew(t, c, i, min(i+depth, hi))
						mu.Lock()
						requests += k
						if time.Since(due) > time.Second/2 {
							late++
						}
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			time.Sleep(time.Until(start.Add(time.Second)))
		}
		for range 8 {
			round()
		}
		c.ConfigResetStat(t.Context())
		began, requests, late = spent(t, c), 0, 0
		from := time.Now()
		for time.Since(from) < length {
			round()
		}
		used, took := spent(t, c)-began, time.Since(from)
		var sum int64
		now := time.Now()
		for _, h := range l.members {
			sum += h.inForce(now)
		}
		memory, _ := c.Info(t.Context(), "memory").Result()
		m := regexp.MustCompile(`used_memory_human:(\S+)`).FindStringSubmatch(memory)
		t.Logf("%d members, pipelines of %d: %.0f requests/s, %.1f %% of a core, script %v, %d late, memory %s, %d of 500000 units in force",
			n, depth, float64(requests)/took.Seconds(), 100*used/took.Seconds(), scriptTime(t, c), late, m[1], sum)
		if sum > 500_000 {
			t.Errorf("%d units in force", sum)
		}
	}
}

// Many shares of one process are renewed in few round trips.
func TestBatch(t *testing.T) {
	s := startServer(t)
	client := s.client(t)
	counted := 0
	var mu sync.Mutex
	client.AddHook(countHook{func() { mu.Lock(); counted++; mu.Unlock() }})
	batch := NewBatch(client, 20*time.Millisecond)
	var members []*Member
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			m, err := New(batch, fmt.Sprint("key", i), Config{MaxRate: 10, Lease: 600 * time.Millisecond}).Join(t.Context(), newRate(t, 10))
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			members = append(members, m)
			mu.Unlock()
		})
	}
	wg.Wait()
	for _, m := range members {
		defer m.Stop()
	}
	for _, m := range members {
		waitFor(t, 10*time.Second, func() bool { return m.Stats().Part == 10 })
	}
	mu.Lock()
	counted = 0
	mu.Unlock()
	total := func() (n uint64) {
		for _, m := range members {
			n += m.Stats().Renewals
		}
		return n
	}
	before := total()
	time.Sleep(time.Second)
	renewals := total() - before
	mu.Lock()
	defer mu.Unlock()
	t.Logf("%d renewals in %d round trips", renewals, counted)
	if renewals < 100 || uint64(counted)*3 > renewals {
		t.Errorf("%d renewals took %d round trips", renewals, counted)
	}
}

type countHook struct{ count func() }

func (h countHook) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h countHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { h.count(); return next(ctx, cmd) }
}
func (h countHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { h.count(); return next(ctx, cmds) }
}

// The hot path of a member's limiter is that of any limiter.
func BenchmarkTakeOfAMember(b *testing.B) {
	for _, joined := range []bool{false, true} {
		b.Run(fmt.Sprintf("joined=%v", joined), func(b *testing.B) {
			lim := agilelimiter.New(agilelimiter.Config{MinRate: 1e9, MaxRate: 1e9, InitialRate: 1e9})
			lim.Start()
			defer lim.Stop()
			if joined {
				m, err := New(startServer(b).client(b), "bench", Config{MaxRate: 1e9}).Join(b.Context(), lim)
				if err != nil {
					b.Fatal(err)
				}
				defer m.Stop()
				for m.Stats().Part < 1e9 {
					time.Sleep(time.Millisecond)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				lim.TryTake()
			}
		})
	}
}
