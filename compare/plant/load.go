package plant

import (
	"math/rand/v2"
	"time"
)

// arrivals is the stream that only the arrival times of Open are drawn from.
const arrivals = 0xa7714a15

// Open starts send in a goroutine of its own for every arrival of a Poisson
// process of rate(t) calls a second, from now until the end, and returns then.
// The arrival times depend on the seed and the rate only.
func Open(seed uint64, rate Curve, end time.Duration, send func(index uint64)) {
	start, t := time.Now(), time.Duration(0)
	r := rand.New(rand.NewPCG(seed, arrivals))
	for index := uint64(0); ; index++ {
		for ; rate(t) <= 0 && t < end; t += 10 * time.Millisecond {
		}
		if t < end {
			t += time.Duration(r.ExpFloat64() / rate(t) * float64(time.Second))
		}
		if t >= end {
			time.Sleep(end - time.Since(start))
			return
		}
		time.Sleep(t - time.Since(start))
		go send(index)
	}
}

// Closed runs n callers until the end: each thinks for an exponential time
// with the mean think, calls send, which returns when the call is over, and
// begins again. It returns when the last caller is done.
func Closed(seed uint64, n int, think, end time.Duration, send func(caller int, index uint64)) {
	start, left := time.Now(), make(chan struct{}, n)
	for caller := range n {
		go func() {
			defer func() { left <- struct{}{} }()
			for index := uint64(0); ; index++ {
				r := random(seed^arrivals^uint64(caller)<<32, index)
				time.Sleep(time.Duration(r.ExpFloat64() * float64(think)))
				if time.Since(start) >= end {
					return
				}
				send(caller, index)
			}
		}()
	}
	for range n {
		<-left
	}
}
