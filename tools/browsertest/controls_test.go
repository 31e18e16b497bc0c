package browsertest

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"agilelimiter"
	"agilelimiter/httpdebug"
)

// The fields and buttons of the page change the limiter, and a refusal is said.
func TestControls(t *testing.T) {
	ctx := browser(t)
	page := httpdebug.New(httpdebug.WithControls(func(*http.Request) error { return nil }))
	clock := agilelimiter.NewVirtualClock(time.Unix(0, 0))
	lim := agilelimiter.New(page.Watch("payments", agilelimiter.Config{MinRate: 10, MaxRate: 100, Clock: clock}))
	page.Control("payments", lim)
	page.Watch("other", agilelimiter.Config{MaxRate: 100, Clock: clock})
	lim.Start()
	defer lim.Stop()
	clock.Advance(time.Second)
	server := httptest.NewServer(page)
	defer server.Close()
	heard := listen(t, ctx)
	do(t, ctx, chromedp.Navigate(server.URL))
	until(t, ctx, `document.querySelectorAll(".card").length === 2`)
	if n := eval[int](t, ctx, `document.querySelectorAll(".controls").length`); n != 1 {
		t.Fatalf("%d cards with controls, want the one that was handed over", n)
	}
	press := func(setup, label, says string) {
		t.Helper()
		eval[bool](t, ctx, `(() => {
			const c = document.querySelector(".controls");
			c.open = true;
			c.querySelector("output").textContent = "";
			const [min, max, pause] = c.querySelectorAll("input");
			`+setup+`;
			[...c.querySelectorAll("button")].find((b) => b.textContent === "`+label+`").click();
			return true;
		})()`)
		until(t, ctx, `document.querySelector(".controls output").textContent.includes("`+says+`")`)
	}
	press(`min.value = 20; max.value = 200`, "Set bounds", "Done.")
	if s := lim.Stats(); s.Min != 20 || s.Max != 200 {
		t.Errorf("bounds %g and %g, want 20 and 200", s.Min, s.Max)
	}
	press(`min.value = 30; max.value = 3`, "Set bounds", "min is 30, want 0.001 to max = 3")
	if s := lim.Stats(); s.Min != 20 || s.Max != 200 {
		t.Errorf("a wrong change made the bounds %g and %g", s.Min, s.Max)
	}
	press(`pause.value = 45`, "Pause calls", "Done.")
	if s := lim.Stats(); s.Paused != 45*time.Second {
		t.Errorf("paused for %v, want 45s", s.Paused)
	}
	press(``, "End the pause", "Done.")
	if s := lim.Stats(); s.Paused != 0 {
		t.Errorf("still paused for %v", s.Paused)
	}
	press(``, "Shadow mode on", "Done.")
	if !lim.Stats().Shadow {
		t.Error("the shadow mode is off")
	}
	press(``, "Shadow mode off", "Done.")
	if lim.Stats().Shadow {
		t.Error("the shadow mode is on")
	}
	if text := heard.text(); text != "" {
		t.Logf("the browser said:\n%s", text) // the 400 of the wrong change is among it
	}
}
