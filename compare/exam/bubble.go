package exam

import "time"

// Bubble runs f inside a testing/synctest bubble. Whoever plays arms that know
// no clock but the system's has to set it; there they find the time of the run.
var Bubble func(f func())

// sleep brings the bubble's clock to the time of the next event.
func (n *run) sleep(to int64) {
	if d := to - n.now; n.arm.bubble && d > 0 {
		time.Sleep(time.Duration(d))
	}
}
