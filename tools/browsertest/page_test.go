package browsertest

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"agilelimiter"
	"agilelimiter/httpdebug"
)

// hostile is a name that would run if any of it were taken for markup.
const hostile = `<img src=x onerror="document.title='owned'">"'&amp;</script>`

// watched returns a page with one limiter under name, on a clock of its own,
// after some seconds of calls that take 20 ms.
func watched(name string, seconds int) (*httpdebug.Page, *agilelimiter.VirtualClock) {
	page, clock := httpdebug.New(), agilelimiter.NewVirtualClock(time.Unix(0, 0))
	lim := agilelimiter.New(page.Watch(name, agilelimiter.Config{MaxRate: 100, Clock: clock}))
	lim.Start()
	for range seconds * 20 {
		clock.Advance(50 * time.Millisecond)
		if _, ok := lim.TryTake(); ok {
			lim.Observe(20 * time.Millisecond)
		}
	}
	return page, clock
}

func TestNameIsText(t *testing.T) {
	ctx := browser(t)
	page, _ := watched(hostile, 10)
	server := httptest.NewServer(page)
	defer server.Close()
	heard := listen(t, ctx)
	do(t, ctx, chromedp.Navigate(server.URL))
	until(t, ctx, `document.querySelectorAll(".card").length === 1`)
	if got := eval[string](t, ctx, `document.querySelector("h2").firstChild.data`); got != hostile {
		t.Errorf("the name reads %q", got)
	}
	if n := eval[int](t, ctx, `document.querySelectorAll("img").length`); n != 0 {
		t.Errorf("the name made %d images", n)
	}
	if _, err := chromedp.Call(ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}); err != nil {
		t.Fatal(err)
	}
	do(t, ctx, chromedp.Reload())
	if got := eval[string](t, ctx, `document.querySelector("noscript tbody th").textContent`); got != hostile {
		t.Errorf("without scripts the name reads %q", got)
	}
	if text := heard.text(); text != "" {
		t.Errorf("the browser complained:\n%s", text)
	}
}

// TestBlind looks at a limiter whose calls have stopped: the charts show the
// stretch, a sentence says it.
func TestBlind(t *testing.T) {
	ctx := browser(t)
	page, clock := watched("quiet", 20)
	clock.Advance(15 * time.Second)
	server := httptest.NewServer(page)
	defer server.Close()
	do(t, ctx, chromedp.EmulateViewport(1280, 800), chromedp.Navigate(server.URL))
	until(t, ctx, `document.querySelectorAll(".notes li").length === 1`)
	if got, want := eval[string](t, ctx, `document.querySelector(".notes").textContent`), "No calls for 15 s; the rate stands still."; got != want {
		t.Errorf("note %q, want %q", got, want)
	}
	// 15 s in points of half a second; the first still has the last call.
	if n := eval[int](t, ctx, `document.querySelector(".plot .blind").getAttribute("d").split("M").length - 1`); n != 29 {
		t.Errorf("%d points are marked blind, want 29", n)
	}
	screenshot(t, ctx, look{name: "httpdebug-blind"})
}

// TestRestart follows a server that fails for a while and comes back as another
// process, whose points have numbers of their own.
func TestRestart(t *testing.T) {
	ctx := browser(t)
	var current atomic.Pointer[httpdebug.Page]
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if page := current.Load(); page != nil {
			page.ServeHTTP(w, r)
			return
		}
		http.Error(w, "starting", http.StatusServiceUnavailable)
	}))
	defer server.Close()
	first, _ := watched("first", 60)
	current.Store(first)
	do(t, ctx, chromedp.Navigate(server.URL))
	const name, state = `document.querySelector("h2").firstChild.data`, `document.querySelector("#state").textContent`
	until(t, ctx, `document.querySelectorAll(".card").length === 1 && `+name+` === "first"`)
	current.Store(nil)
	until(t, ctx, state+`.startsWith("No answer since")`)
	second, _ := watched("second", 5) // fewer points than the page has seen already
	current.Store(second)
	until(t, ctx, state+` === "live" && document.querySelectorAll(".card").length === 1 && `+name+` === "second"`)
	if n := eval[int](t, ctx, `document.querySelector("path.target").getAttribute("d").match(/[ML]/g).length`); n != 10 {
		t.Errorf("%d points after the restart, want 10", n)
	}
}

// TestPause stops asking while paused and goes on afterwards.
func TestPause(t *testing.T) {
	ctx := browser(t)
	page, _ := watched("one", 5)
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		page.ServeHTTP(w, r)
	}))
	defer server.Close()
	const state = `document.querySelector("#state").textContent`
	do(t, ctx, chromedp.Navigate(server.URL))
	until(t, ctx, state+` === "live"`)
	do(t, ctx, chromedp.Click("#pause"))
	until(t, ctx, state+`.startsWith("paused at ")`)
	before := asked.Load()
	time.Sleep(2500 * time.Millisecond) // two polls would have been made
	if n := asked.Load() - before; n != 0 {
		t.Errorf("%d requests while paused", n)
	}
	do(t, ctx, chromedp.Click("#pause"))
	until(t, ctx, state+` === "live"`)
	if asked.Load() == before {
		t.Error("no request after the pause")
	}
}
