package browsertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// patience bounds every wait; nothing is expected to take that long.
const patience = 60 * time.Second

// chromium starts the one browser that all tests share, with a fresh profile,
// and returns its context; closing ends it and removes the profile.
var chromium = sync.OnceValues(func() (context.Context, error) {
	var path string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		return nil, errAbsent
	}
	profile, err := os.MkdirTemp("", "browsertest")
	if err != nil {
		return nil, err
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(),
		chromedp.ExecPath(path),
		chromedp.UserDataDir(profile),
		chromedp.WSURLReadTimeout(patience),
		chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun,
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true),
		chromedp.Flag("disable-dev-shm-usage", true),
	)
	ctx, _ := chromedp.NewContext(allocator)
	closing = func() error {
		defer stop()
		// Cancel waits for the process, which writes to its profile until it ends.
		return errors.Join(chromedp.Cancel(ctx), os.RemoveAll(profile))
	}
	return ctx, chromedp.Do(ctx)
})

var (
	closing   = func() error { return nil }
	errAbsent = errors.New("no Chromium on this machine; tools/browsertest/install.sh installs it")
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := closing(); err != nil {
		fmt.Fprintln(os.Stderr, "closing Chromium:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// browser returns a tab that ends with the test.
func browser(t *testing.T) context.Context {
	t.Helper()
	parent, err := chromium()
	if err == errAbsent && os.Getenv("AGILELIMITER_REQUIRE_TOOLS") != "1" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := chromedp.NewContext(parent)
	t.Cleanup(cancel)
	// A tab lives as long as the context of its first action, so that one must
	// be free of do's time-out.
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	return ctx
}

// do runs actions and fails the test if one of them does or takes too long.
func do(t *testing.T, ctx context.Context, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		t.Fatal(err)
	}
}

// eval returns what the JavaScript expression says.
func eval[T any](t *testing.T, ctx context.Context, expression string) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// until waits for the JavaScript expression to become true. It asks from
// outside, because the page's policy forbids to evaluate strings in it.
func until(t *testing.T, ctx context.Context, expression string) {
	t.Helper()
	for end := time.Now().Add(patience); !eval[bool](t, ctx, expression); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", expression)
		}
	}
}

// complaints collects what the browser has to say against the page: errors and
// warnings of the console, exceptions, violated policies, failed loads.
type complaints struct {
	mu    sync.Mutex
	lines []string
}

func listen(t *testing.T, ctx context.Context) *complaints {
	t.Helper()
	c := &complaints{}
	add := func(line string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.lines = append(c.lines, line)
	}
	err := chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			add("exception: " + e.ExceptionDetails.Text)
		case *runtime.EventConsoleAPICalled:
			add("console: " + string(e.Type))
		case *log.EventEntryAdded:
			add(string(e.Entry.Source) + " " + string(e.Entry.Level) + ": " + e.Entry.Text)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *complaints) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.lines, "\n")
}
