package agilelimiter

// ceiling remembers where bad calls began.
type ceiling struct {
	at   float64 // the number; 0: none
	time float64 // seconds since, in units of the plateau
}

// age lets time pass.
func (c *ceiling) age(elapsed, latency float64) {
	if c.at == 0 {
		return
	}
	c.time += elapsed / max(8, 8*latency)
	if c.time > 4 {
		*c = ceiling{}
	}
}

// bound is the highest number that the ceiling allows: CUBIC's shape, flat
// around the place where it was met.
func (k *knee) bound() float64 {
	if k.c.at == 0 {
		return k.max
	}
	u := k.c.time - 0.5
	return k.c.at * (1 + 0.08*u*u*u)
}

// cutLosses cuts the number to what is really served when too many calls are
// bad.
func (k *knee) cutLosses() (float64, bool) {
	if !k.n.tooBad(&k.m) {
		return 0, false
	}
	// What is served when only the normal share is bad.
	x := k.wasUsed() * (1 - k.m.badShare)
	if !k.rate {
		x = max(x, k.m.delivered*k.m.latency)
	}
	x /= (1 - min(k.n.bad, 0.9)) * (1 - badMargin)
	x = max(min(x, k.target), k.topUse/2)
	k.cold = false
	k.c = ceiling{at: max(x, 0.9*k.c.at)}
	return x, true
}
