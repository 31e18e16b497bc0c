package agilelimiter

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Anchor selects what measured latency is compared with, and so what the
// controller optimises.
type Anchor uint8

const (
	// AnchorBaseline compares with the lowest latency that keeps being seen:
	// high = baseline × (1 + TargetInflation), capped at 0.8 × SLOTarget. It
	// protects the knee. It also takes a benign rise of latency for congestion.
	AnchorBaseline Anchor = iota
	// AnchorSLO compares with the SLO alone: high = 0.8 × SLOTarget. It ignores
	// benign rises and will not find a knee that lies below the SLO.
	AnchorSLO
	// AnchorKnee steers the number of calls in flight to what the SLO allows
	// and asks, by a short deliberate cut, whose queue it is before it blames
	// itself. Its one knob is SLOTarget (recommended); setting one of the other
	// anchors' knobs is a fault. See docs/control-law.md.
	AnchorKnee
)

// String returns "baseline", "slo" or "knee".
func (a Anchor) String() string {
	switch a {
	case AnchorBaseline:
		return "baseline"
	case AnchorSLO:
		return "slo"
	case AnchorKnee:
		return "knee"
	}
	return fmt.Sprintf("anchor(%d)", uint8(a))
}

// Config configures a Limiter. MaxRate is required; every other zero field
// means its default. New copies it.
//
// The knobs from FastHalfLife to RecoverTicks belong to AnchorBaseline and
// AnchorSLO; most users set none of them.
type Config struct {
	// MinRate is the floor in requests per second, in [0.001, 1e9] and not
	// above MaxRate. It is also the probe rate during an outage, so make sure
	// that the downstream can take it times your number of instances.
	// Default 1, or MaxRate where that is less.
	MinRate float64
	// MaxRate is the ceiling in requests per second that you promise the
	// downstream, in [0.001, 1e9]. It is enforced in the controller and again
	// in the bucket. Required.
	MaxRate float64
	// InitialRate is where a fresh limiter starts, in [MinRate, MaxRate], under
	// every Anchor. It stays there until Start. Default MaxRate/8, raised to
	// MinRate.
	InitialRate float64
	// MaxWaiting bounds the queue: beyond it Do and TakeContext return
	// ErrQueueFull at once, and so do the generic forms and httpclient. Take
	// cannot return an error and is not bound by it, but its callers count.
	// Default 0: no bound. Set it, or give every call's context a deadline. With
	// neither the queue has no end: 3000 callers at 20/s wait for 150 s, and
	// each holds its goroutine and its request until then.
	MaxWaiting int

	// MaxLateness is how much lateness of its own the limiter catches up at
	// once, in (0, 1min]. Timers fire late: Linux rounds a short sleep up to a
	// millisecond, Windows to 15.6 ms, a busy neighbour costs 10 ms, a CPU quota
	// up to 100 ms. More of it keeps the rate on a busy machine, and lets up to
	// MaxRate × MaxLateness calls depart at once after a late timer. Stats has
	// the lateness, and what of it was lost. Default 20 ms.
	MaxLateness time.Duration

	// SLOTarget is the latency that calls should stay below, in [1µs, 1h].
	// Default 0: none.
	//
	// AnchorBaseline: the window ends at 0.8 × SLOTarget at the latest, and when
	// more than max(1, n/100) of a tick's n samples lie above SLOTarget, the
	// limiter cuts by DownStep. AnchorSLO: the same, and the window is
	// 0.8 × SLOTarget outright; it is required. AnchorKnee: a call that took
	// longer has come too late. It is recommended there, because without it the
	// limiter has to guess how much queue the callers will bear.
	SLOTarget time.Duration
	// Anchor selects the control law. Default AnchorBaseline.
	Anchor Anchor

	// Shadow starts the limiter in shadow mode: nobody is delayed or refused, and
	// Stats counts who would be. See Limiter.SetShadow. Default false.
	Shadow bool

	// Classify tells what a non-nil error from fn proves; it runs in the Do
	// forms only, once per failed call, in the caller's goroutine and outside
	// every lock. It is not asked where the answer is known: the caller
	// cancelled, or the error is a limiter's own refusal (IsRefusal); both are
	// Aborted. Where the context's deadline is over and err says only that the
	// call was cancelled or its connection closed, Classify gets
	// context.DeadlineExceeded in its place. A panic in it passes on to the
	// caller, and the call counts as Aborted. Default: DefaultClassify.
	Classify func(error) Outcome
	// OnTick, if set, is called after each step outside every lock, by the
	// goroutine that made the step: for logs, plots and exporters. It is never
	// called twice at the same time: the next tick waits until it returns, and
	// one that does not return stops the controller. A panic in it is not
	// recovered. On the system clock it ends the program, as a panic in any
	// goroutine does. Under a VirtualClock it reaches the caller of Advance; if
	// that recovers it, the next tick comes as always.
	OnTick func(Stats)
	// Clock is the source of time. Deadlines of contexts are wall time all the
	// same; with a VirtualClock use cancellation. Default SystemClock().
	Clock Clock

	// Tick is the controller's period, in [1ms, 1min]. Default 250 ms: several
	// samples a tick at ordinary loads.
	Tick time.Duration
	// FastHalfLife is the half-life of the EWMA of p50 that stands for "now",
	// and of the baseline where it falls. The baseline moves once per 40
	// samples: with fewer a tick it falls that much more slowly. In (0, 24h].
	// Default 1 s.
	FastHalfLife time.Duration
	// SlowHalfLife is the half-life of the baseline where it rises. In
	// [FastHalfLife, 24h]. Default 60 s, or FastHalfLife where that is more.
	SlowHalfLife time.Duration
	// TargetInflation is the tolerated excess over the baseline, as a fraction
	// of it, in (0, 1000]. Default 1: the window is twice the baseline.
	TargetInflation float64
	// Deadband is the part of the window, below its upper edge, in which the
	// limiter holds, in (0, 1). Default 0.2.
	Deadband float64
	// Gain scales the proportional cut, in (0, 100]. Default 1.
	Gain float64
	// UpStep is the growth per healthy tick as a fraction, in (0, 10].
	// Default 0.05.
	UpStep float64
	// DownStep is the deepest cut per tick as a fraction, in (0, 1). Under
	// AnchorBaseline and AnchorSLO a cut is in proportion to the excess over the
	// window, up to DownStep; too many samples over SLOTarget cost the whole
	// DownStep. AnchorKnee has no such knob: there it must be unset.
	// Default 0.3.
	DownStep float64
	// SlowStartGain is the factor per healthy tick before the first backoff, in
	// [1, 100]; 1 turns slow start off, and less than 1 + UpStep acts as that.
	// Default 2.
	SlowStartGain float64
	// RecoverRamp lets that factor return after a backoff while the tick's p50
	// is at or below RecoverRamp × window, in (0, 1]. Default 0: off, because
	// multiplying is also how one overshoots a cliff.
	RecoverRamp float64
	// MaxBaselineRise caps the baseline's growth per tick as a fraction, in
	// (0, 1]. Default 0.0005, 12.7 % a minute at the default Tick: a sustained
	// overload can hardly move the window. The one exception is the start: the
	// first median of 40 samples replaces what fewer have seeded.
	MaxBaselineRise float64
	// BackoffTicks and RecoverTicks are how many ticks in a row must agree
	// before the first step down and up, in [1, 1e6]. Default 1, and 2 under
	// AnchorSLO, where jitter across a fixed line is the main false alarm.
	BackoffTicks, RecoverTicks int
}

// ConcurrencyConfig configures a ConcurrencyLimiter. MaxLimit is required;
// every other zero field means its default. NewConcurrency copies it. The
// fields that Config has too are described there.
type ConcurrencyConfig struct {
	// MinLimit is the floor in calls in flight, in [1, 2^31-1] and not above
	// MaxLimit. Default 1.
	MinLimit int
	// MaxLimit is the ceiling in calls in flight that you promise the service,
	// in [1, 2^31-1]. It is enforced in the controller and again in the
	// semaphore. Required.
	MaxLimit int
	// InitialLimit is where a fresh limiter starts, in [MinLimit, MaxLimit],
	// under every Anchor. It stays there until Start. Default MaxLimit/8, raised
	// to MinLimit.
	InitialLimit int

	SLOTarget time.Duration // see Config.SLOTarget
	Anchor    Anchor        // see Config.Anchor
	Shadow    bool          // see ConcurrencyLimiter.SetShadow

	Classify func(error) Outcome // see Config.Classify
	OnTick   func(Stats)         // see Config.OnTick
	Clock    Clock               // see Config.Clock

	Tick                       time.Duration // see Config.Tick
	FastHalfLife, SlowHalfLife time.Duration // see Config.FastHalfLife, Config.SlowHalfLife
	TargetInflation            float64       // see Config.TargetInflation
	Deadband                   float64       // see Config.Deadband
	Gain                       float64       // see Config.Gain
	UpStep, DownStep           float64       // see Config.UpStep, Config.DownStep
	SlowStartGain              float64       // see Config.SlowStartGain
	RecoverRamp                float64       // see Config.RecoverRamp
	MaxBaselineRise            float64       // see Config.MaxBaselineRise
	BackoffTicks, RecoverTicks int           // see Config.BackoffTicks, Config.RecoverTicks
}

// Validate reports every fault of c at once, joined by errors.Join, each naming
// the field, the value and what is allowed; nil means that New will not panic,
// unless Clock is an interface that holds a nil pointer.
func (c Config) Validate() error {
	_, err := c.resolve()
	return err
}

// Validate reports every fault of c at once, as Config.Validate does.
func (c ConcurrencyConfig) Validate() error {
	_, err := c.resolve()
	return err
}

// params is what both configs become: one set of numbers without a unit. The
// laws and the loop know only this.
type params struct {
	min, max, initial float64       // req/s or calls in flight
	maxWaiting        int           // of a rate
	maxLateness       time.Duration // of a rate

	slo      time.Duration
	anchor   Anchor
	shadow   bool
	classify func(error) Outcome
	onTick   func(Stats)
	clock    Clock
	tick     time.Duration

	*knobs // constant; all 0 under AnchorKnee
}

// knobs are those of the seed law. They lie apart because AnchorKnee has none.
type knobs struct {
	fastHalfLife, slowHalfLife time.Duration
	inflation, deadband        float64
	gain, upStep, downStep     float64
	slowStartGain, recoverRamp float64
	maxBaselineRise            float64
	backoffTicks, recoverTicks int
}

var noKnobs knobs

// names are the fields that the two configs call differently, and the least
// and the largest value that they may have.
type names struct {
	call              string // of the method whose arguments they are; "" for a config
	min, max, initial string
	least, most       float64
	whole             bool // calls, not req/s
}

var (
	rateNames   = names{"", "MinRate", "MaxRate", "InitialRate", 0.001, 1e9, false}
	limitNames  = names{"", "MinLimit", "MaxLimit", "InitialLimit", 1, math.MaxInt32, true}
	rateBounds  = names{"SetBounds: ", "min", "max", "", 0.001, 1e9, false}
	limitBounds = names{"SetBounds: ", "min", "max", "", 1, math.MaxInt32, true}
)

// show returns x as its field prints: 2147483647, not 2.147483647e+09.
func (n names) show(x float64) any {
	switch {
	case !n.whole:
		return x
	case x >= math.MaxInt64: // as a float it is 2^63, which no int64 holds
		return int64(math.MaxInt64)
	}
	return int64(x)
}

// resolve returns c with every default filled in, and every fault.
func (c Config) resolve() (params, error) {
	p := params{
		min: c.MinRate, max: c.MaxRate, initial: c.InitialRate,
		maxWaiting: c.MaxWaiting, maxLateness: orDefault(c.MaxLateness, 20*time.Millisecond),
		slo: c.SLOTarget, anchor: c.Anchor, shadow: c.Shadow,
		classify: c.Classify, onTick: c.OnTick, clock: c.Clock, tick: c.Tick,
		knobs: &knobs{
			fastHalfLife: c.FastHalfLife, slowHalfLife: c.SlowHalfLife,
			inflation: c.TargetInflation, deadband: c.Deadband,
			gain: c.Gain, upStep: c.UpStep, downStep: c.DownStep,
			slowStartGain: c.SlowStartGain, recoverRamp: c.RecoverRamp,
			maxBaselineRise: c.MaxBaselineRise,
			backoffTicks:    c.BackoffTicks, recoverTicks: c.RecoverTicks,
		},
	}
	err := p.fill(rateNames)
	var faults faultList
	faults.check(p.maxWaiting >= 0, "MaxWaiting", p.maxWaiting, "0 (no bound) or more")
	faults.check(p.maxLateness > 0 && p.maxLateness <= time.Minute, "MaxLateness", p.maxLateness, "(0, 1m]")
	return p, errors.Join(append(faults, err)...)
}

// config is the inverse of Config.resolve.
func (p params) config() Config {
	return Config{
		MinRate: p.min, MaxRate: p.max, InitialRate: p.initial,
		MaxWaiting: p.maxWaiting, MaxLateness: p.maxLateness,
		SLOTarget: p.slo, Anchor: p.anchor, Shadow: p.shadow,
		Classify: p.classify, OnTick: p.onTick, Clock: p.clock, Tick: p.tick,
		FastHalfLife: p.fastHalfLife, SlowHalfLife: p.slowHalfLife,
		TargetInflation: p.inflation, Deadband: p.deadband,
		Gain: p.gain, UpStep: p.upStep, DownStep: p.downStep,
		SlowStartGain: p.slowStartGain, RecoverRamp: p.recoverRamp,
		MaxBaselineRise: p.maxBaselineRise,
		BackoffTicks:    p.backoffTicks, RecoverTicks: p.recoverTicks,
	}
}

// resolve returns c with every default filled in, and every fault.
func (c ConcurrencyConfig) resolve() (params, error) {
	p := params{
		min: float64(c.MinLimit), max: float64(c.MaxLimit), initial: float64(c.InitialLimit),
		slo: c.SLOTarget, anchor: c.Anchor, shadow: c.Shadow,
		classify: c.Classify, onTick: c.OnTick, clock: c.Clock, tick: c.Tick,
		knobs: &knobs{
			fastHalfLife: c.FastHalfLife, slowHalfLife: c.SlowHalfLife,
			inflation: c.TargetInflation, deadband: c.Deadband,
			gain: c.Gain, upStep: c.UpStep, downStep: c.DownStep,
			slowStartGain: c.SlowStartGain, recoverRamp: c.RecoverRamp,
			maxBaselineRise: c.MaxBaselineRise,
			backoffTicks:    c.BackoffTicks, recoverTicks: c.RecoverTicks,
		},
	}
	return p, p.fill(limitNames)
}

// concurrencyConfig is the inverse of ConcurrencyConfig.resolve.
func (p params) concurrencyConfig() ConcurrencyConfig {
	return ConcurrencyConfig{
		MinLimit: int(p.min), MaxLimit: int(p.max), InitialLimit: int(p.initial),
		SLOTarget: p.slo, Anchor: p.anchor, Shadow: p.shadow,
		Classify: p.classify, OnTick: p.onTick, Clock: p.clock, Tick: p.tick,
		FastHalfLife: p.fastHalfLife, SlowHalfLife: p.slowHalfLife,
		TargetInflation: p.inflation, Deadband: p.deadband,
		Gain: p.gain, UpStep: p.upStep, DownStep: p.downStep,
		SlowStartGain: p.slowStartGain, RecoverRamp: p.recoverRamp,
		MaxBaselineRise: p.maxBaselineRise,
		BackoffTicks:    p.backoffTicks, RecoverTicks: p.recoverTicks,
	}
}

// fill puts in the defaults, then checks every field. It is the one place where
// either is done.
func (p *params) fill(n names) error {
	var faults faultList
	if p.anchor == AnchorKnee {
		faults = p.kneeFaults()
		p.knobs = &noKnobs
	} else {
		p.defaultKnobs()
		faults = p.knobFaults()
	}
	p.clock = orDefault(p.clock, SystemClock())
	p.tick = orDefault(p.tick, 250*time.Millisecond)
	if p.classify == nil {
		p.classify = DefaultClassify
	}

	check := faults.check
	if p.min == 0 {
		p.min = 1
		if within(p.max, n.least, 1) {
			p.min = p.max
		}
	}
	n.checkBounds(&p.min, &p.max, &faults)
	initial := p.max / 8
	if n.whole { // a small limit over 8 is less than one call
		initial = math.Floor(initial)
	}
	p.initial = orDefault(p.initial, max(initial, p.min))
	check(within(p.initial, p.min, p.max), n.initial, n.show(p.initial),
		fmt.Sprintf("%s = %v to %s = %v", n.min, n.show(p.min), n.max, n.show(p.max)))

	check(p.anchor <= AnchorKnee, "Anchor", p.anchor, "AnchorBaseline, AnchorSLO or AnchorKnee")
	check(p.slo == 0 || p.slo >= time.Microsecond && p.slo <= time.Hour,
		"SLOTarget", p.slo, "0 (none) or [1µs, 1h]")
	check(p.anchor != AnchorSLO || p.slo != 0, "SLOTarget", p.slo, "required by AnchorSLO")
	check(p.tick >= time.Millisecond && p.tick <= time.Minute, "Tick", p.tick, "[1ms, 1m]")
	return errors.Join(faults...)
}

// checkBounds checks a floor and a ceiling. What is wrong it replaces by the
// widest that is allowed, so that other fields are judged by themselves. A NaN
// fails every comparison, and so fails here.
func (n names) checkBounds(lo, hi *float64, faults *faultList) {
	required := " (required)"
	if n.call != "" {
		required = ""
	}
	if !within(*hi, n.least, n.most) {
		faults.check(false, n.call+n.max, n.show(*hi),
			fmt.Sprintf("%v to %v%s", n.show(n.least), n.show(n.most), required))
		*hi = n.most
	}
	if !within(*lo, n.least, *hi) {
		faults.check(false, n.call+n.min, n.show(*lo),
			fmt.Sprintf("%v to %s = %v", n.show(n.least), n.max, n.show(*hi)))
		*lo = n.least
	}
}

func (p *params) defaultKnobs() {
	p.fastHalfLife = orDefault(p.fastHalfLife, time.Second)
	p.slowHalfLife = orDefault(p.slowHalfLife, max(time.Minute, p.fastHalfLife))
	p.inflation = orDefault(p.inflation, 1)
	p.deadband = orDefault(p.deadband, 0.2)
	p.gain = orDefault(p.gain, 1)
	p.upStep = orDefault(p.upStep, 0.05)
	p.downStep = orDefault(p.downStep, 0.3)
	p.slowStartGain = orDefault(p.slowStartGain, 2)
	p.maxBaselineRise = orDefault(p.maxBaselineRise, 0.0005)
	agree := 1
	if p.anchor == AnchorSLO {
		agree = 2
	}
	p.backoffTicks = orDefault(p.backoffTicks, agree)
	p.recoverTicks = orDefault(p.recoverTicks, agree)
}

// knobFaults checks the knobs of the seed law. Floats are checked in the
// positive form: NaN fails every comparison, and so fails here.
func (p *params) knobFaults() (faults faultList) {
	check := faults.check
	const day = 24 * time.Hour
	check(p.fastHalfLife > 0 && p.fastHalfLife <= day, "FastHalfLife", p.fastHalfLife, "(0, 24h]")
	check(p.slowHalfLife >= p.fastHalfLife && p.slowHalfLife > 0 && p.slowHalfLife <= day,
		"SlowHalfLife", p.slowHalfLife, "[FastHalfLife, 24h]")
	check(p.inflation > 0 && p.inflation <= 1000, "TargetInflation", p.inflation, "(0, 1000]")
	check(p.deadband > 0 && p.deadband < 1, "Deadband", p.deadband, "(0, 1)")
	check(p.gain > 0 && p.gain <= 100, "Gain", p.gain, "(0, 100]")
	check(p.upStep > 0 && p.upStep <= 10, "UpStep", p.upStep, "(0, 10]")
	check(p.downStep > 0 && p.downStep < 1, "DownStep", p.downStep, "(0, 1)")
	check(p.slowStartGain >= 1 && p.slowStartGain <= 100, "SlowStartGain", p.slowStartGain, "[1, 100]")
	check(p.recoverRamp >= 0 && p.recoverRamp <= 1, "RecoverRamp", p.recoverRamp, "0 (off) or (0, 1]")
	check(p.maxBaselineRise > 0 && p.maxBaselineRise <= 1, "MaxBaselineRise", p.maxBaselineRise, "(0, 1]")
	check(p.backoffTicks >= 1 && p.backoffTicks <= 1e6, "BackoffTicks", p.backoffTicks, "[1, 1000000]")
	check(p.recoverTicks >= 1 && p.recoverTicks <= 1e6, "RecoverTicks", p.recoverTicks, "[1, 1000000]")
	return faults
}

// kneeFaults names every knob of the seed law that was set: AnchorKnee would
// ignore it, and nothing is ignored silently.
func (p *params) kneeFaults() (faults faultList) {
	for _, knob := range []struct {
		field string
		value any
		set   bool
	}{
		{"FastHalfLife", p.fastHalfLife, p.fastHalfLife != 0},
		{"SlowHalfLife", p.slowHalfLife, p.slowHalfLife != 0},
		{"TargetInflation", p.inflation, p.inflation != 0},
		{"Deadband", p.deadband, p.deadband != 0},
		{"Gain", p.gain, p.gain != 0},
		{"UpStep", p.upStep, p.upStep != 0},
		{"DownStep", p.downStep, p.downStep != 0},
		{"SlowStartGain", p.slowStartGain, p.slowStartGain != 0},
		{"RecoverRamp", p.recoverRamp, p.recoverRamp != 0},
		{"MaxBaselineRise", p.maxBaselineRise, p.maxBaselineRise != 0},
		{"BackoffTicks", p.backoffTicks, p.backoffTicks != 0},
		{"RecoverTicks", p.recoverTicks, p.recoverTicks != 0},
	} {
		if knob.set {
			faults = append(faults, fault(knob.field, knob.value, "unset: AnchorKnee does not use it"))
		}
	}
	return faults
}

func within(x, lo, hi float64) bool { return x >= lo && x <= hi }

// faultList collects the faults of one config.
type faultList []error

func (l *faultList) check(ok bool, field string, value any, allowed string) {
	if !ok {
		*l = append(*l, fault(field, value, allowed))
	}
}

func fault(field string, value any, allowed string) error {
	return fmt.Errorf("agilelimiter: %s is %v, want %s", field, value, allowed)
}

func orDefault[T comparable](value, fallback T) T {
	var zero T
	if value == zero {
		return fallback
	}
	return value
}
