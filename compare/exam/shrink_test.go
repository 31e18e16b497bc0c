package exam

import "testing"

// Whatever does not matter goes, and what does is rounded.
func TestShrink(t *testing.T) {
	s, err := Parse("workers=37 service=lognormal(41.3ms,0.8) base=12ms staff=1,0.31@61.3s,1@93s load=1.43x aborted=0.31(90ms) slo=413ms fleet=5(0.3) length=181s seed=77")
	if err != nil {
		t.Fatal(err)
	}
	got := Shrink(s, func(s Spec) bool {
		lo, _ := s.Staff.span()
		return lo < 0.5 && s.Fleet > 1
	})
	if want := "workers=10 service=exp(20ms) staff=0.3 load=1.4x slo=200ms fleet=5 length=60s"; got.String() != want {
		t.Errorf("shrunk to\n%s\nwant\n%s", got, want)
	}
}
