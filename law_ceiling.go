package agilelimiter

// ceiling remembers where bad calls began.
type ceiling struct {
	at   float64 // the number; 0: none
	unit float64 // seconds: how long the plateau lasts
	time float64 // since, in units
}

// age lets time pass.
func (c *ceiling) age(elapsed float64) {
	if c.at == 0 {
		return
	}
	if c.time += elapsed / c.unit; c.time > 4 {
		*c = ceiling{}
	}
}

// meet sets the ceiling. Each time that it is met again it is kept for longer.
func (c *ceiling) meet(at, latency float64) {
	unit := max(2, 2*latency)
	switch {
	case c.at > 0 && c.time < 0.2: // the same time
		unit = c.unit
	case c.at > 0:
		unit = min(2*c.unit, 8*unit)
	}
	*c = ceiling{at: max(at, 0.9*c.at), unit: unit}
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
	k.c.meet(x, k.m.latency)
	return x, true
}
