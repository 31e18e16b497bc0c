package redisshare

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// testScript is the script with the test's clock: a reading and a run's name at
// the end of the arguments.
var testScript = redis.NewScript("local now, run = tonumber(ARGV[21]), ARGV[22]\n" + shareSource)

// The script and the model give the same answer to every one of many random
// requests: sane ones, stale ones and lies, with members coming and going, and
// memories lost.
func TestScriptIsTheModel(t *testing.T) {
	client := startServer(t).client(t)
	answered := map[string]int{}
	for seed := range uint64(16) {
		r := rand.New(rand.NewPCG(seed, 3))
		keys := keysOf("model")
		client.FlushAll(t.Context())
		m := &model{}
		now, run := int64(1_700_000_000_000_000), int64(1)
		k := rateKind
		promise, n := int64(500_000), 1+r.IntN(60)
		if seed%3 == 0 {
			k, promise = limitKind, 90
		}
		fixed := []int64{-1, 0, 1}[r.IntN(3)]
		type member struct {
			h    holder
			want int64
		}
		var members []*member
		at := func() time.Time { return time.UnixMicro(now) }
		join := func() {
			tm := terms{kind: k, lease: 3 * time.Second, fallbackFor: 20 * time.Second, promise: promise, floor: 1, cap: promise, fixed: fixed}
			if seed%4 == 1 {
				tm.floor = promise / 30
			}
			if r.IntN(20) == 0 {
				tm.promise -= promise / 10
			}
			if r.IntN(5) == 0 {
				tm.cap = promise / 20
			}
			if r.IntN(200) == 0 {
				tm.lease *= 2
			}
			if r.IntN(200) == 0 {
				tm.kind = limitKind
			}
			members = append(members, &member{
				h:    holder{terms: tm, id: string(rune('a' + r.IntN(100))), nonce: now, luck: r.Int64N(1000)},
				want: r.Int64N(promise),
			})
		}
		for range n {
			join()
		}
		for i := range 600 {
			now += r.Int64N(2 * 3 * second / int64(3*n))
			switch r.IntN(400) {
			case 0:
				now += r.Int64N(25 * second)
			case 1:
				now -= r.Int64N(5 * second)
			case 2:
				run++
			case 3:
				client.FlushAll(t.Context())
				m = &model{}
			case 4, 5, 6:
				join()
			}
			who := members[r.IntN(len(members))]
			if r.IntN(10) == 0 {
				who.want = r.Int64N(promise)
			}
			op := opRenew
			if r.IntN(200) == 0 {
				op = opLeave
			}
			var busy int64
			if r.IntN(50) == 0 {
				busy = r.Int64N(promise / 10)
			}
			q := who.h.renewal(op, at(), who.want, busy)
			if r.IntN(50) == 0 {
				q.seq -= r.Int64N(3)
			}
			v, err := testScript.Run(t.Context(), client, keys, append(q.args(), now, run)...).Result()
			if err != nil {
				t.Fatalf("seed %d, request %d: %v", seed, i, err)
			}
			got, err := parseReply(v)
			if err != nil {
				t.Fatal(err)
			}
			want := m.answer(now, run, &q)
			if got.status != want.status || !(len(got.numbers) == 0 && len(want.numbers) == 0 || reflect.DeepEqual(got.numbers, want.numbers)) {
				t.Fatalf("seed %d, request %d %+v:\nscript %v\nmodel  %v", seed, i, q, got, want)
			}
			answered[got.status]++
			if r.IntN(20) > 0 { // else it is lost
				who.h.take(&q, at(), at(), got)
			}
		}
	}
	for _, status := range []string{statusOK, statusGen, statusOld, statusFull, statusReplaced, statusKind, statusTimes} {
		if answered[status] == 0 {
			t.Errorf("no answer was %s: %v", status, answered)
		}
	}
	t.Log(answered)
}
