package browsertest

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

var (
	shots = flag.String("shots", "", "directory to write screenshots of the dashboard to")
	warm  = flag.Duration("warm", 0, "how long the dashboard runs before the screenshots")
)

// dashboard builds and starts example/dashboard and returns its address.
func dashboard(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "dashboard")
	build := exec.Command("go", "build", "-o", binary, "./example/dashboard")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the dashboard: %v\n%s", err, out)
	}
	command := exec.Command(binary, "-for", (*warm + 3*patience).String())
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := command.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
		if err := command.Wait(); err != nil {
			t.Errorf("the dashboard did not end well: %v", err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// look is one way of looking at the page.
type look struct {
	name, scheme  string
	width, height int64
	phone         bool
}

func (l look) emulate(t *testing.T, ctx context.Context) {
	t.Helper()
	size := emulation.SetDeviceMetricsOverrideParams{Width: l.width, Height: l.height, DeviceScaleFactor: 1}
	if l.phone {
		size.DeviceScaleFactor, size.Mobile = 2, true
	}
	if _, err := chromedp.Call(ctx, emulation.SetDeviceMetricsOverride, size); err != nil {
		t.Fatal(err)
	}
	_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: l.scheme}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestDashboard(t *testing.T) {
	ctx := browser(t)
	address := dashboard(t)
	time.Sleep(*warm)
	heard := listen(t, ctx)
	for _, l := range []look{
		{name: "httpdebug", scheme: "light", width: 1280, height: 900},
		{name: "httpdebug-dark", scheme: "dark", width: 1280, height: 900},
		{name: "httpdebug-phone", scheme: "light", width: 390, height: 844, phone: true},
		{name: "httpdebug-small-phone", scheme: "dark", width: 320, height: 640, phone: true},
	} {
		t.Run(l.name, func(t *testing.T) {
			l.emulate(t, ctx)
			do(t, ctx, chromedp.Navigate(address))
			until(t, ctx, `document.querySelectorAll(".card").length === 2 && document.querySelector("#state").textContent === "live"`)
			chartsMove(t, ctx)
			fits(t, ctx)
			legible(t, ctx, l.scheme)
			distinct(t, ctx)
			keyboard(t, ctx)
			screenshot(t, ctx, l)
		})
	}
	if text := heard.text(); text != "" {
		t.Errorf("the browser complained:\n%s", text)
	}
}

// chartsMove waits until each chart of each card looks different from before.
func chartsMove(t *testing.T, ctx context.Context) {
	t.Helper()
	const shapes = `[...document.querySelectorAll(".plot, .strip")].map((c) => [...c.querySelectorAll("path")].map((p) => p.getAttribute("d")).join())`
	if n := eval[int](t, ctx, "(window.shapesBefore = "+shapes+").length"); n != 8 {
		t.Fatalf("%d charts, want 4 a card", n)
	}
	until(t, ctx, shapes+".every((d, i) => d.length > 20 && d !== window.shapesBefore[i])")
	if n := eval[int](t, ctx, `[...document.querySelectorAll(".plot path, .strip path")].filter((p) => /NaN|Infinity|undefined/.test(p.getAttribute("d"))).length`); n != 0 {
		t.Errorf("%d paths have a coordinate that is no number", n)
	}
}

// fits checks that nothing sticks out of the screen sideways.
func fits(t *testing.T, ctx context.Context) {
	t.Helper()
	over := eval[int](t, ctx, `document.documentElement.scrollWidth - document.documentElement.clientWidth`)
	if over != 0 {
		t.Errorf("the page is %d px wider than the screen", over)
	}
	wide := eval[[]string](t, ctx, `[...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > innerWidth + 0.5).map((e) => e.outerHTML.slice(0, 80))`)
	if len(wide) > 0 {
		t.Errorf("elements stick out of the screen: %q", wide)
	}
}

// contrast is JavaScript for the WCAG contrast ratio of two rgb() colours.
const contrast = `
const lum = (c) => c.match(/[\d.]+/g).slice(0, 3).map((v) => v / 255)
	.map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
	.reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const ratio = (a, b) => (Math.max(lum(a), lum(b)) + 0.05) / (Math.min(lum(a), lum(b)) + 0.05);
const card = getComputedStyle(document.querySelector(".card")).backgroundColor;
`

// legible checks that the scheme is followed and WCAG's contrasts are kept: 4.5
// for text, 3 for lines.
func legible(t *testing.T, ctx context.Context, scheme string) {
	t.Helper()
	dark := eval[bool](t, ctx, `(() => {`+contrast+`return lum(card) < 0.2;})()`)
	if dark != (scheme == "dark") {
		t.Errorf("scheme %s: dark is %v", scheme, dark)
	}
	pale := eval[[]string](t, ctx, `(() => {`+contrast+`
		const text = [...document.querySelectorAll("h2, .kind, .bounds, .legend li, .now .when, td, th")]
			.filter((e) => ratio(getComputedStyle(e).color, card) < 4.5);
		const label = [...document.querySelectorAll(".plot text")].filter((e) => ratio(getComputedStyle(e).fill, card) < 4.5);
		const line = [...document.querySelectorAll("path.s")].filter((e) => ratio(getComputedStyle(e).stroke, card) < 3);
		return [...text, ...label, ...line].map((e) => e.getAttribute("class") || e.tagName);
	})()`)
	if len(pale) > 0 {
		t.Errorf("too little contrast in scheme %s: %q", scheme, pale)
	}
}

// distinct checks that no two lines of one chart differ by colour alone. The
// floor and the ceiling are one kind of line.
func distinct(t *testing.T, ctx context.Context) {
	t.Helper()
	twins := eval[[]string](t, ctx, `[...document.querySelectorAll(".plot")].flatMap((chart) => {
		const seen = new Set();
		return [...chart.querySelectorAll("path.s:not(.bound)")].filter((p) => {
			const s = getComputedStyle(p), k = s.strokeDasharray + " " + s.strokeWidth, twin = seen.has(k);
			seen.add(k);
			return twin;
		}).map((p) => p.getAttribute("class"));
	})`)
	if len(twins) > 0 {
		t.Errorf("lines told apart by colour alone: %q", twins)
	}
}

// keyboard reads an earlier value with the arrow keys and returns with Escape.
func keyboard(t *testing.T, ctx context.Context) {
	t.Helper()
	const now = `document.querySelector(".card .now").textContent`
	do(t, ctx, chromedp.Focus(".card .charts"), chromedp.KeyEvent(kb.ArrowLeft), chromedp.KeyEvent(kb.ArrowLeft))
	until(t, ctx, `!`+now+`.startsWith("now:") && document.querySelector(".card .cursor").getAttribute("visibility") === "visible"`)
	do(t, ctx, chromedp.KeyEvent(kb.Escape))
	until(t, ctx, now+`.startsWith("now:")`)
	eval[bool](t, ctx, `document.activeElement.blur() === undefined`)
}

// screenshot always makes a picture and writes it where -shots says.
func screenshot(t *testing.T, ctx context.Context, l look) {
	t.Helper()
	shot := chromedp.CaptureScreenshot()
	if l.phone {
		shot = chromedp.FullScreenshot(100)
	}
	data, err := chromedp.Run(ctx, shot)
	if err != nil {
		t.Fatal(err)
	}
	picture, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if *shots == "" {
		return
	}
	var out bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	if err := encoder.Encode(&out, paletted(picture)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*shots, l.name+".png"), out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// paletted keeps the 256 most frequent colours, for a third of the bytes.
func paletted(src image.Image) image.Image {
	count := map[color.Color]int{}
	b := src.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			count[src.At(x, y)]++
		}
	}
	colours := slices.SortedFunc(maps.Keys(count), func(a, b color.Color) int { return count[b] - count[a] })
	dst := image.NewPaletted(b, color.Palette(colours[:min(len(colours), 256)]))
	draw.Draw(dst, b, src, b.Min, draw.Src)
	return dst
}
