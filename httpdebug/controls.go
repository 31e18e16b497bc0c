package httpdebug

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"mime"
	"net/http"
	"time"

	"agilelimiter"
)

// Option changes what a Page does.
type Option func(*Page)

// WithControls lets requests change the limiters that Control and
// ControlConcurrency have named: set their bounds, pause them, switch the shadow
// mode. authorize is asked for every such request; an error refuses it. It may be
// called from many goroutines at the same time, and is the only thing that keeps
// others out: it must check who is there. A nil authorize panics. Without this
// option no request can change anything.
//
// A change is a POST of JSON, see the package comment. A request that a browser
// sends from another site is refused before authorize is asked (see
// http.CrossOriginProtection). Put the page behind TLS or on loopback if what
// authorize checks is a secret.
func WithControls(authorize func(*http.Request) error) Option {
	if authorize == nil {
		panic("httpdebug: WithControls: nil authorize")
	}
	return func(p *Page) { p.authorize = authorize }
}

// Control hands the page a limiter that it watches under name, so that requests
// may change it where WithControls allows that. It panics if name is not watched
// as a Limiter or lim is nil.
func (p *Page) Control(name string, lim *agilelimiter.Limiter) {
	if lim == nil {
		panic("httpdebug: Control: nil Limiter")
	}
	p.control(name, "rate", &handle{lim.SetBounds, lim.Pause, lim.SetShadow})
}

// ControlConcurrency is Control for a ConcurrencyLimiter.
func (p *Page) ControlConcurrency(name string, lim *agilelimiter.ConcurrencyLimiter) {
	if lim == nil {
		panic("httpdebug: ControlConcurrency: nil ConcurrencyLimiter")
	}
	setBounds := func(lo, hi float64) error {
		for _, bound := range []struct {
			name  string
			value float64
		}{{"min", lo}, {"max", hi}} {
			if bound.value != math.Trunc(bound.value) || math.Abs(bound.value) > math.MaxInt32 {
				return fmt.Errorf("%s is %v, want a whole number from 1 to %d", bound.name, bound.value, math.MaxInt32)
			}
		}
		return lim.SetBounds(int(lo), int(hi))
	}
	p.control(name, "limit", &handle{setBounds, lim.Pause, lim.SetShadow})
}

// handle is what a request may do to a limiter.
type handle struct {
	setBounds func(lo, hi float64) error
	pause     func(time.Duration)
	setShadow func(bool)
}

func (p *Page) control(name, kind string, h *handle) {
	r := p.find(name)
	if r == nil || r.kind != kind {
		panic(fmt.Sprintf("httpdebug: no %s named %q is watched", kind, name))
	}
	r.handle.Store(h)
}

func (p *Page) find(name string) *recorder {
	for _, r := range p.all() {
		if r.name == name {
			return r
		}
	}
	return nil
}

// change is the body of a POST. One of the three kinds of change must be there.
type change struct {
	Limiter string   `json:"limiter"`
	Min     *float64 `json:"min"`
	Max     *float64 `json:"max"`
	Pause   *float64 `json:"pause_seconds"`
	Shadow  *bool    `json:"shadow"`
}

// longestPause is for a hand that slips: a limiter that is to stand still for
// longer is better switched off.
const longestPause = 24 * time.Hour

// post makes the change that a request asks for.
func (p *Page) post(w http.ResponseWriter, req *http.Request) {
	if err := p.crossOrigin.Check(req); err != nil {
		http.Error(w, "requests from other sites are refused", http.StatusForbidden)
		return
	}
	if err := p.authorize(req); err != nil {
		http.Error(w, "not allowed: "+err.Error(), http.StatusForbidden)
		return
	}
	// No form of another site can send this type without asking first.
	if kind, _, err := mime.ParseMediaType(req.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		http.Error(w, "the body must be application/json", http.StatusUnsupportedMediaType)
		return
	}
	var c change
	dec := json.NewDecoder(http.MaxBytesReader(w, req.Body, 4096))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		http.Error(w, "the body is no change: "+err.Error(), http.StatusBadRequest)
		return
	}
	r := p.find(c.Limiter)
	if r == nil || r.handle.Load() == nil {
		http.Error(w, fmt.Sprintf("no limiter named %q can be changed", c.Limiter), http.StatusNotFound)
		return
	}
	if err := c.apply(r.handle.Load()); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (c *change) apply(h *handle) error {
	bounds := c.Min != nil || c.Max != nil
	switch {
	case bounds && c.Pause == nil && c.Shadow == nil:
		if c.Min == nil || c.Max == nil {
			return errors.New("min and max must come together")
		}
		return h.setBounds(*c.Min, *c.Max)
	case c.Pause != nil && !bounds && c.Shadow == nil:
		if !(*c.Pause >= 0 && *c.Pause <= longestPause.Seconds()) {
			return fmt.Errorf("pause_seconds is %v, want 0 (end the pause) to %v", *c.Pause, longestPause.Seconds())
		}
		h.pause(time.Duration(*c.Pause * float64(time.Second)))
		return nil
	case c.Shadow != nil && !bounds && c.Pause == nil:
		h.setShadow(*c.Shadow)
		return nil
	}
	return errors.New("one change at a time: min and max, pause_seconds, or shadow")
}
