package agilelimiter

import (
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"
)

// faultFields returns the field that each line of a Validate error names.
func faultFields(t *testing.T, err error) (fields []string) {
	t.Helper()
	if err == nil {
		return nil
	}
	for line := range strings.Lines(err.Error()) {
		rest, ok := strings.CutPrefix(line, "agilelimiter: ")
		name, _, ok2 := strings.Cut(rest, " ")
		if !ok || !ok2 {
			t.Errorf("fault %q does not begin with the package and a field", line)
		}
		fields = append(fields, name)
	}
	return fields
}

func TestDefaults(t *testing.T) {
	got := New(Config{MaxRate: 500}).Config()
	if got.Classify == nil || got.Clock == nil {
		t.Error("Classify or Clock has no default")
	}
	got.Classify, got.Clock = nil, nil
	want := Config{
		MinRate: 1, MaxRate: 500, InitialRate: 62.5, MaxLateness: 20 * ms,
		Tick: 250 * ms, FastHalfLife: time.Second, SlowHalfLife: time.Minute,
		TargetInflation: 1, Deadband: 0.2, Gain: 1, UpStep: 0.05, DownStep: 0.3,
		SlowStartGain: 2, MaxBaselineRise: 0.0005, BackoffTicks: 1, RecoverTicks: 1,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("defaults\n%+v, want\n%+v", got, want)
	}

	slo := New(Config{MaxRate: 500, SLOTarget: time.Second, Anchor: AnchorSLO}).Config()
	if slo.BackoffTicks != 2 || slo.RecoverTicks != 2 {
		t.Errorf("AnchorSLO: BackoffTicks %d, RecoverTicks %d, want 2 and 2", slo.BackoffTicks, slo.RecoverTicks)
	}

	limit := NewConcurrency(ConcurrencyConfig{MaxLimit: 500}).Config()
	if limit.MinLimit != 1 || limit.InitialLimit != 62 || limit.Tick != 250*ms || limit.DownStep != 0.3 {
		t.Errorf("defaults of a limit: %+v", limit)
	}
}

func TestTheInitialValueIsAnEighthButInsideTheBounds(t *testing.T) {
	for _, tt := range []struct{ min, max, wantMin, wantInitial float64 }{
		{0, 500, 1, 62.5},
		{20, 100, 20, 20},
		{0.1, 0.5, 0.1, 0.1},
		{0, 0.5, 0.5, 0.5},
		{0, 0.001, 0.001, 0.001},
		{0, 1e9, 1, 1.25e8},
		{0.001, 4, 0.001, 0.5},
	} {
		c := New(Config{MinRate: tt.min, MaxRate: tt.max}).Config()
		if c.MinRate != tt.wantMin || c.InitialRate != tt.wantInitial {
			t.Errorf("MinRate %g, MaxRate %g: min %g, initial %g, want %g and %g",
				tt.min, tt.max, c.MinRate, c.InitialRate, tt.wantMin, tt.wantInitial)
		}
	}
	for _, tt := range []struct{ min, max, wantInitial int }{
		{0, 1, 1}, {0, 4, 1}, {0, 7, 1}, {0, 8, 1}, {0, 100, 12}, {30, 100, 30}, {0, math.MaxInt32, math.MaxInt32 / 8},
	} {
		l := NewConcurrency(ConcurrencyConfig{MinLimit: tt.min, MaxLimit: tt.max})
		if c := l.Config(); c.InitialLimit != tt.wantInitial || l.Limit() != tt.wantInitial || c.MaxLimit != tt.max {
			t.Errorf("MinLimit %d, MaxLimit %d: %+v, Limit() %d, want %d", tt.min, tt.max, c, l.Limit(), tt.wantInitial)
		}
		if !l.TryTake() {
			t.Errorf("MaxLimit %d: a fresh limiter refuses its first call", tt.max)
		}
	}
}

// What was given is where the limiter starts, and where its first step starts.
func TestTheInitialValueIsHonouredUnderEveryAnchor(t *testing.T) {
	for _, tt := range []struct {
		anchor Anchor
		slo    time.Duration
	}{
		{AnchorBaseline, 0}, {AnchorBaseline, time.Second}, {AnchorSLO, time.Second}, {AnchorKnee, time.Second},
	} {
		clock := NewVirtualClock(epoch)
		l := New(Config{MinRate: 2, MaxRate: 1000, InitialRate: 77, Anchor: tt.anchor, SLOTarget: tt.slo, Clock: clock})
		c := NewConcurrency(ConcurrencyConfig{MinLimit: 2, MaxLimit: 1000, InitialLimit: 77, Anchor: tt.anchor, SLOTarget: tt.slo, Clock: clock})
		for _, when := range []string{"at first", "after a tick without a call"} {
			if l.Rate() != 77 || l.Config().InitialRate != 77 || c.Limit() != 77 || c.Config().InitialLimit != 77 {
				t.Errorf("%v with SLO %v, %s: rate %g of %g, limit %d of %d, want 77",
					tt.anchor, tt.slo, when, l.Rate(), l.Config().InitialRate, c.Limit(), c.Config().InitialLimit)
			}
			l.Start()
			c.Start()
			clock.Advance(250 * ms)
		}
		l.Stop()
		c.Stop()
	}
	// A rate under AnchorKnee without an SLO too.
	if l := New(Config{MaxRate: 1000, InitialRate: 77, Anchor: AnchorKnee}); l.Rate() != 77 {
		t.Errorf("AnchorKnee without an SLO: rate %g, want 77", l.Rate())
	}
}

func TestFaultsNameTheField(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	ok := Config{MaxRate: 500}
	with := func(f func(*Config)) Config { c := ok; f(&c); return c }
	for _, tt := range []struct {
		name string
		cfg  Config
		want string // fields, in order
	}{
		{"the least config", ok, ""},
		{"nothing", Config{}, "MaxRate"},
		{"a negative ceiling", Config{MaxRate: -1}, "MaxRate"},
		{"no number", Config{MaxRate: nan}, "MaxRate"},
		{"no end", Config{MaxRate: inf}, "MaxRate"},
		{"a ceiling too high", Config{MaxRate: 1.1e9}, "MaxRate"},
		{"a ceiling too low", Config{MaxRate: 1e-12}, "MaxRate"},
		{"a negative floor", with(func(c *Config) { c.MinRate = -1 }), "MinRate"},
		{"a floor too low", with(func(c *Config) { c.MinRate = 1e-9 }), "MinRate"},
		{"a floor over the ceiling", with(func(c *Config) { c.MinRate = 501 }), "MinRate"},
		{"a start over the ceiling", with(func(c *Config) { c.InitialRate = 501 }), "InitialRate"},
		{"a start under the floor", with(func(c *Config) { c.MinRate, c.InitialRate = 20, 10 }), "InitialRate"},
		{"a negative start", with(func(c *Config) { c.InitialRate = -10 }), "InitialRate"},
		{"a negative queue", with(func(c *Config) { c.MaxWaiting = -1 }), "MaxWaiting"},
		{"a negative lateness", with(func(c *Config) { c.MaxLateness = -1 }), "MaxLateness"},
		{"a lateness without end", with(func(c *Config) { c.MaxLateness = time.Minute + 1 }), "MaxLateness"},
		{"a lateness that is never caught up", with(func(c *Config) { c.MaxLateness = 1 }), ""},
		{"a negative SLO", with(func(c *Config) { c.SLOTarget = -1 }), "SLOTarget"},
		{"an SLO too short", with(func(c *Config) { c.SLOTarget = 999 }), "SLOTarget"},
		{"an SLO too long", with(func(c *Config) { c.SLOTarget = time.Hour + 1 }), "SLOTarget"},
		{"an anchor without its SLO", with(func(c *Config) { c.Anchor = AnchorSLO }), "SLOTarget"},
		{"an unknown anchor", with(func(c *Config) { c.Anchor = 3 }), "Anchor"},
		{"a tick too short", with(func(c *Config) { c.Tick = 999 * time.Microsecond }), "Tick"},
		{"a tick too long", with(func(c *Config) { c.Tick = 61 * time.Second }), "Tick"},
		{"a negative tick", with(func(c *Config) { c.Tick = -1 }), "Tick"},
		{"a negative half-life", with(func(c *Config) { c.FastHalfLife = -1 }), "FastHalfLife"},
		{"slow below fast", with(func(c *Config) { c.FastHalfLife, c.SlowHalfLife = time.Minute, time.Second }), "SlowHalfLife"},
		{"a half-life too long", with(func(c *Config) { c.SlowHalfLife = 25 * time.Hour }), "SlowHalfLife"},
		{"no agreement", with(func(c *Config) { c.BackoffTicks, c.RecoverTicks = -1, -2 }), "BackoffTicks RecoverTicks"},
		{"a gain below one", with(func(c *Config) { c.SlowStartGain = 0.5 }), "SlowStartGain"},
		{"a full cut", with(func(c *Config) { c.DownStep = 1 }), "DownStep"},
		{"a full deadband", with(func(c *Config) { c.Deadband = 1 }), "Deadband"},
		{"a ramp over the window", with(func(c *Config) { c.RecoverRamp = 1.5 }), "RecoverRamp"},
		{"everything", Config{
			MinRate: -1, MaxRate: -1, InitialRate: -1, MaxWaiting: -1, SLOTarget: -1, Anchor: 9, Tick: -1,
			FastHalfLife: -1, SlowHalfLife: -2, TargetInflation: -1, Deadband: -1, Gain: -1, UpStep: -1,
			DownStep: -1, SlowStartGain: -1, RecoverRamp: -1, MaxBaselineRise: -1, BackoffTicks: -1, RecoverTicks: -1,
		}, "MaxWaiting FastHalfLife SlowHalfLife TargetInflation Deadband Gain UpStep DownStep SlowStartGain RecoverRamp " +
			"MaxBaselineRise BackoffTicks RecoverTicks MaxRate MinRate InitialRate Anchor SLOTarget Tick"},
		{"an unused knob", Config{MaxRate: 500, Anchor: AnchorKnee, Gain: 1, RecoverRamp: 0.5}, "Gain RecoverRamp"},
		{"a useful one", Config{MaxRate: 500, Anchor: AnchorKnee, SLOTarget: time.Second, Tick: time.Second}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.cfg.Validate()
			if got := strings.Join(faultFields(t, err), " "); got != tt.want {
				t.Errorf("faults %q, want %q:\n%v", got, tt.want, err)
			}
			defer func() {
				r := recover()
				if r == nil && err == nil {
					return
				}
				if p, ok := r.(error); !ok || err == nil || p.Error() != err.Error() {
					t.Errorf("New panics with %v, Validate says %v", r, err)
				}
			}()
			New(tt.cfg)
		})
	}
}

func TestConcurrencyFaultsNameTheField(t *testing.T) {
	tooMany := math.MaxInt32
	tooMany++ // negative where an int has 32 bits: a fault too
	for _, tt := range []struct {
		name string
		cfg  ConcurrencyConfig
		want string
	}{
		{"the least config", ConcurrencyConfig{MaxLimit: 1}, ""},
		{"nothing", ConcurrencyConfig{}, "MaxLimit"},
		{"a negative ceiling", ConcurrencyConfig{MaxLimit: -1}, "MaxLimit"},
		{"a ceiling too high", ConcurrencyConfig{MaxLimit: tooMany}, "MaxLimit"},
		{"a negative floor", ConcurrencyConfig{MaxLimit: 10, MinLimit: -1}, "MinLimit"},
		{"a floor over the ceiling", ConcurrencyConfig{MaxLimit: 10, MinLimit: 11}, "MinLimit"},
		{"a start over the ceiling", ConcurrencyConfig{MaxLimit: 10, InitialLimit: 11}, "InitialLimit"},
		{"a start under the floor", ConcurrencyConfig{MaxLimit: 10, MinLimit: 5, InitialLimit: 4}, "InitialLimit"},
		{"an anchor without its SLO", ConcurrencyConfig{MaxLimit: 10, Anchor: AnchorSLO}, "SLOTarget"},
		{"no numbers", ConcurrencyConfig{MaxLimit: 10, Gain: math.NaN(), UpStep: math.Inf(-1)}, "Gain UpStep"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.cfg.Validate()
			if got := strings.Join(faultFields(t, err), " "); got != tt.want {
				t.Errorf("faults %q, want %q:\n%v", got, tt.want, err)
			}
			defer func() {
				if r := recover(); (r == nil) != (err == nil) {
					t.Errorf("NewConcurrency panics with %v, Validate says %v", r, err)
				}
			}()
			NewConcurrency(tt.cfg)
		})
	}
}

func TestAFaultSaysValueAndWhatIsAllowed(t *testing.T) {
	err := Config{MaxRate: 500, MinRate: 600, SLOTarget: 2 * time.Hour}.Validate()
	for _, want := range []string{"MinRate", "600", "500", "SLOTarget", "2h0m0s", "1h]"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not contain %q", err, want)
		}
	}
}

// Every float of both configs refuses what is not a number, whatever fields are
// added later.
func TestNoFieldTakesNaNOrInf(t *testing.T) {
	for _, value := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, math.MaxFloat64} {
		for _, base := range []any{Config{MaxRate: 500}, ConcurrencyConfig{MaxLimit: 500}} {
			for _, anchor := range []Anchor{AnchorBaseline, AnchorSLO, AnchorKnee} {
				for field := range reflect.TypeOf(base).Fields() {
					if field.Type.Kind() != reflect.Float64 {
						continue
					}
					c := reflect.New(reflect.TypeOf(base)).Elem()
					c.Set(reflect.ValueOf(base))
					c.FieldByName("Anchor").Set(reflect.ValueOf(anchor))
					c.FieldByName("SLOTarget").SetInt(int64(time.Second))
					c.FieldByIndex(field.Index).SetFloat(value)
					err := c.Interface().(interface{ Validate() error }).Validate()
					if got := faultFields(t, err); len(got) != 1 || got[0] != field.Name {
						t.Errorf("%T, %v: %s = %g gives faults %q, want one", base, anchor, field.Name, value, got)
					}
				}
			}
		}
	}
}

// What New has filled in is itself a valid config and stays as it is.
func TestAFilledInConfigIsValid(t *testing.T) {
	plain := func(c Config) Config {
		c.Classify, c.Clock, c.OnTick = nil, nil, nil
		return c
	}
	for _, c := range []Config{
		{MaxRate: 500},
		{MaxRate: 0.5, MinRate: 0.1},
		{MaxRate: 500, SLOTarget: time.Second, Anchor: AnchorSLO},
		{MaxRate: 500, Anchor: AnchorKnee},
		{MaxRate: 500, SLOTarget: time.Second, Anchor: AnchorKnee, MaxWaiting: 7},
	} {
		once := New(c).Config()
		twice := New(once).Config()
		if !reflect.DeepEqual(plain(once), plain(twice)) {
			t.Errorf("filled in once\n%+v, twice\n%+v", plain(once), plain(twice))
		}
	}
	once := NewConcurrency(ConcurrencyConfig{MaxLimit: 9, Anchor: AnchorKnee}).Config()
	if err := once.Validate(); err != nil {
		t.Error(err)
	}
}

// Each field arrives in the filled-in config, in both directions, so none is
// forgotten on the way through the shared parameters.
func TestNoFieldIsLostOnTheWay(t *testing.T) {
	values := map[string]any{
		"MinRate": 7.0, "MaxRate": 700.0, "InitialRate": 70.0, "MaxWaiting": 13, "MaxLateness": 123 * ms,
		"MinLimit": 7, "MaxLimit": 700, "InitialLimit": 70,
		"SLOTarget": 321 * ms, "Anchor": AnchorSLO, "Shadow": true, "Tick": 100 * ms,
		"FastHalfLife": 2 * time.Second, "SlowHalfLife": 3 * time.Minute,
		"TargetInflation": 1.5, "Deadband": 0.25, "Gain": 0.75, "UpStep": 0.125, "DownStep": 0.375,
		"SlowStartGain": 3.0, "RecoverRamp": 0.625, "MaxBaselineRise": 0.25,
		"BackoffTicks": 4, "RecoverTicks": 5,
		"Clock": Clock(NewVirtualClock(time.Unix(9, 0))),
	}
	fill := func(c reflect.Value) {
		for field := range c.Type().Fields() {
			v, ok := values[field.Name]
			if !ok && field.Type.Kind() != reflect.Func {
				t.Errorf("%v.%s has no value in this test", c.Type(), field.Name)
				continue
			}
			if ok {
				c.FieldByIndex(field.Index).Set(reflect.ValueOf(v))
			}
		}
	}
	compare := func(got reflect.Value) {
		for field := range got.Type().Fields() {
			if v, ok := values[field.Name]; ok && got.FieldByIndex(field.Index).Interface() != v {
				t.Errorf("%v.%s is %v, want %v", got.Type(), field.Name, got.FieldByIndex(field.Index), v)
			}
		}
	}
	var ticked, classified int
	onTick := func(Stats) { ticked++ }
	classify := func(error) Outcome { classified++; return Unreachable }

	cfg := Config{OnTick: onTick, Classify: classify}
	fill(reflect.ValueOf(&cfg).Elem())
	lim := New(cfg)
	compare(reflect.ValueOf(lim.Config()))
	lim.Config().OnTick(Stats{})
	lim.Config().Classify(nil)

	limits := ConcurrencyConfig{OnTick: onTick, Classify: classify}
	fill(reflect.ValueOf(&limits).Elem())
	sem := NewConcurrency(limits)
	compare(reflect.ValueOf(sem.Config()))
	sem.Config().OnTick(Stats{})
	sem.Config().Classify(nil)
	if ticked != 2 || classified != 2 {
		t.Errorf("OnTick ran %d times, Classify %d times, want 2 and 2", ticked, classified)
	}
}

func TestNewCopiesTheConfig(t *testing.T) {
	cfg := Config{MaxRate: 500, SLOTarget: time.Second}
	lim := New(cfg)
	cfg.MaxRate, cfg.SLOTarget = 1, time.Millisecond
	if got := lim.Config(); got.MaxRate != 500 || got.SLOTarget != time.Second {
		t.Errorf("changing the literal afterwards changed the limiter: %+v", got)
	}
	got := lim.Config()
	got.MaxRate = 1
	if lim.Config().MaxRate != 500 {
		t.Error("changing what Config returned changed the limiter")
	}
}

// Ten thousand configs, valid and not: New panics exactly when Validate says
// so, and a limiter that exists keeps its bounds.
func TestRandomConfigs(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	valid := 0
	for i := range 10_000 {
		cfg := randomConfig(rng)
		if rng.IntN(2) == 0 { // break one field
			v := reflect.ValueOf(&cfg).Elem()
			f := v.Field(rng.IntN(v.NumField()))
			switch f.Kind() {
			case reflect.Float64:
				f.SetFloat([]float64{math.NaN(), math.Inf(1), -1, 0, 1e300, 1e-300, 0.5}[rng.IntN(7)])
			case reflect.Int, reflect.Int64:
				f.SetInt([]int64{0, -1, 1, math.MaxInt64, math.MinInt64, 1e9}[rng.IntN(6)])
			}
		}
		err := cfg.Validate()
		var lim *Limiter
		func() {
			defer func() {
				if r := recover(); (r == nil) != (err == nil) {
					t.Fatalf("config %d: New panics with %v, Validate says %v\n%+v", i, r, err, cfg)
				}
			}()
			lim = New(cfg)
		}()
		if err != nil {
			continue
		}
		valid++
		c := lim.Config()
		if !(c.MinRate >= 0.001 && c.MinRate <= c.InitialRate && c.InitialRate <= c.MaxRate && c.MaxRate <= 1e9) ||
			lim.Rate() != c.InitialRate {
			t.Fatalf("config %d: rate %g of %+v", i, lim.Rate(), c)
		}
	}
	if valid < 4000 || valid > 9500 {
		t.Errorf("%d of 10 000 configs are valid: the test has lost its point", valid)
	}
}

func TestAnchorString(t *testing.T) {
	for a, want := range map[Anchor]string{
		AnchorBaseline: "baseline", AnchorSLO: "slo", AnchorKnee: "knee", 7: "anchor(7)",
	} {
		if got := a.String(); got != want {
			t.Errorf("Anchor(%d).String() = %q, want %q", uint8(a), got, want)
		}
	}
}
