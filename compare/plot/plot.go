// Package plot draws the comparison's pictures: panels over one time axis, as
// SVG for a light and for a dark page.
//
// It is written by hand because a README shows pictures 900 pixels wide on
// either background: that needs two palettes of one drawing, one legend for
// all panels, and labelled decades. The bytes depend on the figure alone, so
// that a picture changes in a commit only when its data do.
package plot

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
)

// A Figure is a stack of panels that share the time axis.
type Figure struct {
	Title  string
	Note   string // one line under the title; may be empty
	Panels []Panel
	Events []Event
}

// A Panel is one quantity over time.
type Panel struct {
	Label string
	// Unit is printed behind the label. "s" is special: the axis is then
	// labelled in ms, s or whatever fits.
	Unit string
	// Log makes the axis logarithmic; values of 0 and less are then gaps.
	Log bool
	// Max cuts the axis off where it is positive, for a panel in which one
	// arm would leave the others no room.
	Max    float64
	Series []Series
	Lines  []Line
}

// A Series is one curve. A name has one colour in the whole figure. X is in
// seconds and ascending; a Y that is NaN or infinite is a gap.
type Series struct {
	Name  string
	Style Style
	X, Y  []float64
}

// A Line is a constant, such as the SLO.
type Line struct {
	Name string
	Y    float64
}

// An Event is a moment worth a vertical line through all panels.
type Event struct {
	X    float64 // seconds
	Name string
}

// Style tells what a series is; how that looks is decided here.
type Style int

const (
	Ours  Style = iota // thick and on top
	Peer               // thin, in the order of appearance
	Truth              // a grey area behind the rest, in steps
	Dash               // another variant of ours: the same colour, dashed
)

// Write writes dir/name-light.svg and dir/name-dark.svg and makes dir if need
// be.
func (f Figure) Write(dir, name string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, t := range []theme{light, dark} {
		svg, err := f.svg(t)
		if err != nil {
			return fmt.Errorf("plot: %s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name+"-"+t.name+".svg"), svg, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// validate reports what no picture can be made of.
func (f Figure) validate() (faults error) {
	if len(f.Panels) == 0 {
		faults = errors.New("no panels")
	}
	points := 0
	for _, p := range f.Panels {
		for _, s := range p.Series {
			if len(s.X) != len(s.Y) {
				faults = errors.Join(faults, fmt.Errorf("%s, %s: %d times and %d values", p.Label, s.Name, len(s.X), len(s.Y)))
			}
			for i, x := range s.X {
				if !finite(x) || i > 0 && x < s.X[i-1] {
					faults = errors.Join(faults, fmt.Errorf("%s, %s: time %v at %d is not ascending", p.Label, s.Name, x, i))
					break
				}
			}
			points += len(s.X)
		}
	}
	if points == 0 {
		faults = errors.Join(faults, errors.New("no points"))
	}
	return faults
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
