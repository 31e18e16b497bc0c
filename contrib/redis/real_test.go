package redisshare

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"agilelimiter"
)

func newRate(t *testing.T, maxRate float64) *agilelimiter.Limiter {
	lim := agilelimiter.New(agilelimiter.Config{MaxRate: maxRate, InitialRate: maxRate})
	lim.Start()
	t.Cleanup(lim.Stop)
	return lim
}

func TestJoinErrors(t *testing.T) {
	s := startServer(t)
	client := s.client(t)
	ctx := t.Context()
	for _, c := range []struct {
		name   string
		client redis.Scripter
		share  string
		cfg    Config
		want   string // parts of the error
	}{
		{"no client", nil, "a", Config{MaxRate: 1}, "client is nil"},
		{"nil client", (*redis.Client)(nil), "a", Config{MaxRate: 1}, "client is nil"},
		{"no name", client, "", Config{MaxRate: 1}, `name is ""`},
		{"brace in name", client, "a{b", Config{MaxRate: 1}, `name is "a{b"`},
		{"no promise", client, "a", Config{}, "MaxRate is 0"},
		{"both", client, "a", Config{MaxRate: 1, MaxLimit: 1}, "MaxLimit is 1"},
		{"below the minimum", client, "a", Config{MaxRate: 5, MinRate: 6}, "MinRate is 6"},
		{"fallback", client, "a", Config{MaxRate: 5, Fallback: FixedFallback(6)}, "Fallback is 6"},
		{"negative fallback", client, "a", Config{MaxRate: 5, Fallback: FixedFallback(-1)}, "Fallback is -1"},
		{"lease", client, "a", Config{MaxRate: 5, Lease: time.Millisecond}, "Lease is 1ms"},
		{"fallback for", client, "a", Config{MaxRate: 5, FallbackFor: time.Second}, "FallbackFor is 1s"},
		{"time-out", client, "a", Config{MaxRate: 5, Timeout: 2 * time.Second}, "Timeout is 2s"},
		{"call time of a rate", client, "a", Config{MaxRate: 5, CallTime: time.Second}, "CallTime is 1s"},
		{"limit", client, "a", Config{MaxLimit: 5}, "needs a share with MaxRate"},
		{"instance", client, "a", Config{MaxRate: 5, Instance: strings.Repeat("x", 129)}, "Instance is"},
	} {
		lim := newRate(t, 100)
		m, err := New(c.client, c.share, c.cfg).Join(ctx, lim)
		if err == nil || m != nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), prefix) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
		if _, ok := lim.TryTake(); ok {
			t.Errorf("%s: the limiter still lets calls through", c.name)
		}
	}
	if _, err := New(client, "a", Config{MaxRate: 1}).Join(ctx, nil); err == nil {
		t.Error("a nil Limiter joined")
	}

	join := func(share string, cfg Config) error {
		_, err := New(client, share, cfg).Join(ctx, newRate(t, 100))
		return err
	}
	expect := func(what string, err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", what, err, want)
		}
	}
	for range 2 {
		if err := join("full", Config{MaxRate: 100, MinRate: 50}); err != nil {
			t.Fatal(err)
		}
	}
	expect("no room", join("full", Config{MaxRate: 100, MinRate: 50}), "2 members have 100 req/s of the 100 req/s promised")
	expect("other lease", join("full", Config{MaxRate: 100, Lease: time.Second}), "Lease 3s")
	_, err := New(client, "full", Config{MaxLimit: 5}).JoinConcurrency(ctx, agilelimiter.NewConcurrency(agilelimiter.ConcurrencyConfig{MaxLimit: 5}))
	expect("other kind", err, "divides the other kind")

	client.RPush(ctx, keysOf("list")[0], "x")
	expect("a list at the key", join("list", Config{MaxRate: 5}), "WRONGTYPE")
	client.Set(ctx, keysOf("text")[0], "hello", 0)
	expect("a text at the key", join("text", Config{MaxRate: 5}), "WRONGTYPE")
	client.Set(ctx, keysOf("members")[1], "hello", 0)
	expect("a text at another key", join("members", Config{MaxRate: 5}), "WRONGTYPE")

	client.Do(ctx, "ACL", "SETUSER", "noscript", "on", ">pw", "~*", "+@all", "-@scripting")
	limited := redis.NewClient(&redis.Options{Addr: s.addr(), Username: "noscript", Password: "pw"})
	defer limited.Close()
	_, err = New(limited, "a", Config{MaxRate: 5}).Join(ctx, newRate(t, 5))
	expect("no scripts", err, "NOPERM")
	wrong := redis.NewClient(&redis.Options{Addr: s.addr(), Username: "noscript", Password: "no"})
	defer wrong.Close()
	_, err = New(wrong, "a", Config{MaxRate: 5}).Join(ctx, newRate(t, 5))
	expect("wrong password", err, "WRONGPASS")
}

// The commands that docs/fleet.md names are enough, and on these keys only.
func TestACL(t *testing.T) {
	s := startServer(t)
	page, err := os.ReadFile("../../docs/fleet.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rule, ok := strings.Cut(string(page), "ACL SETUSER limiter ")
	rule, _, _ = strings.Cut(rule, "\n")
	if !ok {
		t.Fatal("docs/fleet.md has no ACL SETUSER line")
	}
	args := []any{"ACL", "SETUSER", "limiter"}
	for _, word := range strings.Fields(rule) {
		args = append(args, word)
	}
	if err := s.client(t).Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
	limited := redis.NewClient(&redis.Options{Addr: s.addr(), Username: "limiter", Password: "secret"})
	defer limited.Close()
	m, err := New(limited, "acl", Config{MaxRate: 5, Lease: 300 * time.Millisecond}).Join(t.Context(), newRate(t, 5))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Stop()
	waitFor(t, 5*time.Second, func() bool { return m.Stats().Part == 5 })
	if err := limited.Get(t.Context(), "other").Err(); err == nil || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("another key: %v", err)
	}
}

func waitFor(t *testing.T, limit time.Duration, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v", limit)
		}
	}
}

func TestTwoSharesOnOneClient(t *testing.T) {
	client := startServer(t).client(t)
	cfg := Config{MaxRate: 500, Lease: 300 * time.Millisecond}
	a, errA := New(client, "a", cfg).Join(t.Context(), newRate(t, 1000))
	cfg.MaxRate = 70
	b, errB := New(client, "b", cfg).Join(t.Context(), newRate(t, 1000))
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	defer a.Stop()
	defer b.Stop()
	waitFor(t, 5*time.Second, func() bool { return a.Stats().Part == 500 && b.Stats().Part == 70 })
}

// A later process of the same Instance takes over at once; the earlier one, if it
// is not dead after all, stops.
func TestInstanceTakesOver(t *testing.T) {
	client := startServer(t).client(t)
	cfg := Config{MaxRate: 500, MinRate: 400, Lease: 300 * time.Millisecond, Instance: "pod-0"}
	first, err := New(client, "a", cfg).Join(t.Context(), newRate(t, 1000))
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, 5*time.Second, func() bool { return first.Stats().Part == 500 })
	second, err := New(client, "a", cfg).Join(t.Context(), newRate(t, 1000))
	if err != nil {
		t.Fatal(err)
	}
	defer second.Stop()
	if p := second.Stats().Part; p != 500 {
		t.Errorf("the second has %v/s at once, want 500", p)
	}
	waitFor(t, 5*time.Second, func() bool { return first.Stats().State == Stopped && first.Stats().Part == 0 })
}

// proxy is a TCP proxy that can drop, delay and cut.
type proxy struct {
	l      net.Listener
	target atomic.Value // string
	delay  atomic.Int64 // ns, each way
	drop   atomic.Bool  // swallow what comes
	mu     sync.Mutex
	conns  map[net.Conn]bool
}

func startProxy(t *testing.T, target string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{l: l, conns: map[net.Conn]bool{}}
	p.target.Store(target)
	t.Cleanup(func() { l.Close(); p.cut() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(c)
		}
	}()
	return p
}

func (p *proxy) serve(c net.Conn) {
	up, err := net.Dial("tcp", p.target.Load().(string))
	if err != nil {
		c.Close()
		return
	}
	p.mu.Lock()
	p.conns[c], p.conns[up] = true, true
	p.mu.Unlock()
	pipe := func(to, from net.Conn) {
		defer to.Close()
		defer from.Close()
		buf := make([]byte, 4096)
		for {
			n, err := from.Read(buf)
			if err != nil {
				return
			}
			time.Sleep(time.Duration(p.delay.Load()))
			if p.drop.Load() {
				continue
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
	}
	go pipe(up, c)
	pipe(c, up)
	p.mu.Lock()
	delete(p.conns, c)
	delete(p.conns, up)
	p.mu.Unlock()
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

// chaos is a fleet of real members whose way to the server leads through a proxy
// each.
type chaos struct {
	members []*Member
	proxies []*proxy
	stop    chan struct{}
	wg      sync.WaitGroup
	highest float64
}

const chaosPromise, chaosLease = 500.0, 600 * time.Millisecond

// startChaos starts the fleet, with demand that comes and goes, and watches the
// sum of what is in force once a millisecond.
func startChaos(t *testing.T, addr string) *chaos {
	c := &chaos{stop: make(chan struct{})}
	for i := range 8 {
		p := startProxy(t, addr)
		client := redis.NewClient(&redis.Options{
			Addr: p.l.Addr().String(), MaxRetries: i % 3, DialTimeout: 100 * time.Millisecond, ContextTimeoutEnabled: true,
		})
		t.Cleanup(func() { client.Close() })
		lim := newRate(t, chaosPromise)
		cfg := Config{MaxRate: chaosPromise, Lease: chaosLease, FallbackFor: 3 * time.Second}
		m, err := New(client, "chaos", cfg).Join(t.Context(), lim)
		if err != nil {
			t.Fatal(err)
		}
		c.members, c.proxies = append(c.members, m), append(c.proxies, p)
		ctx, cancel := context.WithCancel(context.Background())
		t.Cleanup(cancel)
		go func() {
			for ctx.Err() == nil {
				if rand.IntN(100) == 0 {
					time.Sleep(time.Second)
				}
				call, done := context.WithTimeout(ctx, 50*time.Millisecond)
				lim.DoContext(call, func(context.Context) error { return nil })
				done()
			}
		}()
	}
	c.wg.Go(func() {
		for {
			select {
			case <-c.stop:
				return
			case <-time.After(time.Millisecond):
			}
			sum, parts := c.reading()
			c.highest = max(c.highest, sum)
			if sum > chaosPromise+1e-6 {
				t.Errorf("%v in force of %v:%s", sum, chaosPromise, parts)
				return
			}
		}
	})
	return c
}

// reading adds up the ceilings of the limiters themselves at one instant.
func (c *chaos) reading() (sum float64, parts string) {
	for _, m := range c.members {
		m.mu.Lock()
		defer m.mu.Unlock()
	}
	for _, m := range c.members {
		h := m.hand.(*rateHand)
		part := h.lim.Stats().Max
		if h.stopped {
			part = 0
		}
		sum += part
		parts += fmt.Sprintf(" %.3f", part)
	}
	return sum, parts
}

// end heals the ways, waits until all members are back, and reports.
func (c *chaos) end(t *testing.T) {
	for _, p := range c.proxies {
		p.drop.Store(false)
		p.delay.Store(0)
		p.cut()
	}
	waitFor(t, 20*time.Second, func() bool {
		for _, m := range c.members {
			if m.Stats().State != Leased {
				return false
			}
		}
		sum, _ := c.reading()
		return sum > 0.9*chaosPromise || t.Failed()
	})
	close(c.stop)
	c.wg.Wait()
	var renewals, failed, expired uint64
	for _, m := range c.members {
		s := m.Stats()
		renewals, failed, expired = renewals+s.Renewals, failed+s.Errors, expired+s.Expired
		m.Stop()
	}
	t.Logf("highest sum in force %.3f of %v; %d renewals, %d failed, %d leases ran out",
		c.highest, chaosPromise, renewals, failed, expired)
	if renewals == 0 || failed == 0 {
		t.Error("nothing has happened")
	}
}

// The sum of what is in force never exceeds the promise, while everything happens
// to the real server and on the way to it.
func TestChaos(t *testing.T) {
	length := 8 * time.Second
	if testing.Short() {
		length = 4 * time.Second
	}
	s := startServer(t)
	c := startChaos(t, s.addr())
	direct := s.client(t)
	for end := time.Now().Add(length); time.Now().Before(end) && !t.Failed(); {
		p := c.proxies[rand.IntN(len(c.proxies))]
		switch rand.IntN(6) {
		case 0:
			s.kill()
			time.Sleep(rand.N(3 * chaosLease))
			s.start()
		case 1:
			direct.Do(t.Context(), "CLIENT", "PAUSE", rand.IntN(1000))
		case 2:
			p.cut()
		case 3:
			p.drop.Store(true)
			time.AfterFunc(rand.N(3*chaosLease), func() { p.drop.Store(false); p.cut() })
		case 4:
			p.delay.Store(int64(rand.N(chaosLease / 2)))
			time.AfterFunc(rand.N(2*chaosLease), func() { p.delay.Store(0) })
		case 5:
			direct.FlushAll(t.Context())
		}
		time.Sleep(rand.N(chaosLease))
	}
	c.end(t)
}

// Nor when the server dies and a replica takes over that has not heard the last
// of it, nor when the server is full.
func TestFailover(t *testing.T) {
	master := startServer(t)
	c := startChaos(t, master.addr())
	for range 3 {
		replica := startServer(t, "--replicaof", fmt.Sprintf("127.0.0.1 %d", master.port))
		direct := replica.client(t)
		waitFor(t, 10*time.Second, func() bool {
			info, _ := direct.Info(t.Context(), "replication").Result()
			return strings.Contains(info, "master_link_status:up")
		})
		time.Sleep(chaosLease)
		master.client(t).ConfigSet(t.Context(), "maxmemory", "1")
		time.Sleep(chaosLease / 2)
		master.client(t).ConfigSet(t.Context(), "maxmemory", "0")
		time.Sleep(chaosLease)
		// The replica hears nothing for a while, and then the master dies.
		if err := direct.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(chaosLease)
		master.kill()
		if err := direct.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
			t.Fatal(err)
		}
		for _, p := range c.proxies {
			p.target.Store(replica.addr())
			p.cut()
		}
		master = replica
		time.Sleep(2 * chaosLease)
	}
	c.end(t)
}

// Three nodes of a cluster: the keys of a share lie in one slot, two shares on
// two nodes.
func TestCluster(t *testing.T) {
	var nodes []*server
	var addrs []string
	for i := range 3 {
		s := startServer(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
		if s.port > 55000 {
			t.Skip("the cluster bus has no port")
		}
		err := s.client(t).Do(t.Context(), "CLUSTER", "ADDSLOTSRANGE", i*5461, min(i*5461+5460, 16383)).Err()
		if err != nil {
			t.Fatal(err)
		}
		nodes, addrs = append(nodes, s), append(addrs, s.addr())
	}
	nodes[2].client(t).Do(t.Context(), "CLUSTER", "ADDSLOTSRANGE", 16383, 16383)
	for _, s := range nodes[1:] {
		if err := nodes[0].client(t).ClusterMeet(t.Context(), "127.0.0.1", fmt.Sprint(s.port)).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range nodes {
		waitFor(t, 20*time.Second, func() bool {
			info, _ := s.client(t).ClusterInfo(t.Context()).Result()
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:3")
		})
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	defer client.Close()
	var members []*Member
	slots := map[int64]bool{}
	for i := range 6 {
		name := fmt.Sprint("share ", i)
		for _, key := range keysOf(name) {
			slots[client.ClusterKeySlot(t.Context(), key).Val()] = true
		}
		m, err := New(client, name, Config{MaxRate: 500, Lease: 600 * time.Millisecond}).Join(t.Context(), newRate(t, 500))
		if err != nil {
			t.Fatal(err)
		}
		defer m.Stop()
		members = append(members, m)
	}
	if len(slots) != 6 {
		t.Errorf("six shares lie in %d slots", len(slots))
	}
	for _, m := range members {
		waitFor(t, 10*time.Second, func() bool { return m.Stats().Part == 500 })
	}
}

// A process that is frozen past its lease does not go on with the old part when
// it wakes up. The frozen process is a real one, this test's own binary.
func TestFrozenProcess(t *testing.T) {
	if addr := os.Getenv("REDISSHARE_FROZEN"); addr != "" {
		frozenProcess(addr)
		return
	}
	s := startServer(t)
	client := s.client(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^TestFrozenProcess$")
	cmd.Env = append(os.Environ(), "REDISSHARE_FROZEN="+s.addr())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	var line string
	read := func() {
		t.Helper()
		if _, err := fmt.Fscanln(out, &line); err != nil {
			t.Fatal(err)
		}
	}
	read() // "ready": it has the whole promise
	cmd.Process.Signal(syscall.SIGSTOP)
	time.Sleep(time.Second) // its lease of 300 ms has run out, for the server too
	lim := newRate(t, 100_000)
	m, err := New(client, "frozen", frozenConfig).Join(t.Context(), lim)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Stop()
	waitFor(t, 5*time.Second, func() bool { return m.Stats().Part == 10_000 })
	s.kill() // so that it cannot have a new lease
	cmd.Process.Signal(syscall.SIGCONT)
	read()
	var calls int
	if _, err := fmt.Sscanf(line, "late=%d", &calls); err != nil {
		t.Fatal(line)
	}
	t.Logf("%d calls at 10000/s after a freeze of a second", calls)
	// 1 + rate × (MaxLateness + the time until the process has looked at its
	// clock). A second on the old lease would be 10000.
	if calls > 1+10_000*(20+200)/1000 {
		t.Errorf("%d calls on a lease that had run out", calls)
	}
	go io.Copy(io.Discard, out)
}

var frozenConfig = Config{MaxRate: 10_000, Lease: 300 * time.Millisecond, Fallback: FixedFallback(0)}

// frozenProcess calls as fast as it may, and tells how many calls departed when
// its clock said that the lease was over.
func frozenProcess(addr string) {
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
	lim := agilelimiter.New(agilelimiter.Config{MaxRate: 10_000, MinRate: 10_000})
	lim.Start()
	m, err := New(client, "frozen", frozenConfig).Join(context.Background(), lim)
	if err != nil {
		panic(err)
	}
	for m.Stats().Part < 10_000 {
		time.Sleep(time.Millisecond)
	}
	var late atomic.Int64
	var last atomic.Int64
	last.Store(time.Now().UnixNano())
	var frozen atomic.Bool
	for range 8 {
		go func() {
			for {
				lim.Take()
				now := time.Now().UnixNano()
				if now-last.Swap(now) > int64(500*time.Millisecond) {
					frozen.Store(true)
				}
				if frozen.Load() {
					late.Add(1)
				}
				lim.Observe(time.Microsecond)
			}
		}()
	}
	fmt.Println("ready")
	for !frozen.Load() && m.Stats().Part > 0 {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(time.Second)
	fmt.Printf("late=%d\n", late.Load())
	time.Sleep(time.Minute)
}
