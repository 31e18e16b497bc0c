package httpdebug

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"agilelimiter"
)

// Page is an http.Handler that shows the limiters it watches. It is made by
// New; its zero value is not usable. All methods are safe for concurrent use,
// and limiters may be added while it is being served.
//
// It answers GET and HEAD, and POST where WithControls allows it: the HTML page or JSON (see the package comment), on
// whatever path it is mounted; nothing it sends may be cached. A limiter that
// is watched stays on the page as long as the Page lives.
type Page struct {
	started     time.Time
	authorize   func(*http.Request) error // nil: nothing can be changed
	crossOrigin http.CrossOriginProtection
	seq         atomic.Uint64 // of the last finished point of any limiter

	mu        sync.Mutex // guards recorders
	recorders []*recorder
}

// New returns a Page without limiters. A nil Option panics.
func New(opts ...Option) *Page {
	p := &Page{started: time.Now()}
	for _, o := range opts {
		if o == nil {
			panic("httpdebug: New: nil Option")
		}
		o(p)
	}
	return p
}

// Watch adds a Limiter to the page under name and returns cfg with an OnTick
// that records each step and then calls cfg's own OnTick, if any. The result is
// for one agilelimiter.New. Recording a step costs well under a microsecond and
// never waits for a request. Watch panics if name is empty or taken, and with the
// error of cfg.Validate as New would; the name stays free then.
func (p *Page) Watch(name string, cfg agilelimiter.Config) agilelimiter.Config {
	if err := cfg.Validate(); err != nil {
		panic(err)
	}
	r := newRecorder(identity{name, "rate", "req/s", cfg.Anchor, cfg.Tick, cfg.SLOTarget}, cfg.Clock, &p.seq)
	p.add(r)
	cfg.OnTick = r.onTick(cfg.OnTick)
	return cfg
}

// WatchConcurrency is Watch for a ConcurrencyLimiter; the two share one space of
// names.
func (p *Page) WatchConcurrency(name string, cfg agilelimiter.ConcurrencyConfig) agilelimiter.ConcurrencyConfig {
	if err := cfg.Validate(); err != nil {
		panic(err)
	}
	r := newRecorder(identity{name, "limit", "calls", cfg.Anchor, cfg.Tick, cfg.SLOTarget}, cfg.Clock, &p.seq)
	p.add(r)
	cfg.OnTick = r.onTick(cfg.OnTick)
	return cfg
}

func (p *Page) add(r *recorder) {
	if r.name == "" {
		panic("httpdebug: a limiter needs a name")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, other := range p.recorders {
		if other.name == r.name {
			panic(fmt.Sprintf("httpdebug: a limiter named %q is watched already", r.name))
		}
	}
	p.recorders = append(p.recorders, r)
}

func (p *Page) all() []*recorder {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.recorders[:len(p.recorders):len(p.recorders)]
}

// ServeHTTP answers with the page or with JSON, or makes a change. Another method
// is 405, an unknown format or an after that is no number 400.
func (p *Page) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if req.Method == http.MethodPost && p.authorize != nil {
		p.post(w, req)
		return
	}
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		allow := "GET, HEAD"
		if p.authorize != nil {
			allow += ", POST"
		}
		h.Set("Allow", allow)
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	query := req.URL.Query()
	asJSON := false
	switch query.Get("format") {
	case "json":
		asJSON = true
	case "html":
	case "":
		h.Set("Vary", "Accept")
		asJSON = wantsJSON(req.Header.Values("Accept"))
	default:
		http.Error(w, "format is json or html", http.StatusBadRequest)
		return
	}
	if !asJSON {
		h.Set("Content-Security-Policy", contentPolicy())
		h.Set("Referrer-Policy", "no-referrer")
		send(w, "text/html; charset=utf-8", p.html())
		return
	}
	var after uint64
	if s := query.Get("after"); s != "" {
		var err error
		if after, err = strconv.ParseUint(s, 10, 64); err != nil {
			http.Error(w, "after is the seq of an earlier answer", http.StatusBadRequest)
			return
		}
	}
	body, err := json.Marshal(p.report(after))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	send(w, "application/json", body)
}

func send(w http.ResponseWriter, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.Write(body) // a client that has left is no error of ours
}

// wantsJSON leaves everything to HTML that a browser might send.
func wantsJSON(accept []string) bool {
	all := strings.ToLower(strings.Join(accept, ","))
	return strings.Contains(all, "application/json") && !strings.Contains(all, "text/html")
}

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed page.js
	pageJS string
)

// contentPolicy allows the page its own style and script, by hash, and to fetch
// from where it came; nothing else. Hashes rather than a nonce keep it constant.
var contentPolicy = sync.OnceValue(func() string {
	return "default-src 'none'; script-src '" + hash(pageJS) + "'; style-src '" + hash(pageCSS) +
		"'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
})

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// html is the page. The script draws everything from JSON; the table is for
// those who run none. It is put together by hand because the template packages
// keep the linker from leaving out unused methods in the whole program.
func (p *Page) html() []byte {
	var rows bytes.Buffer
	for _, r := range p.all() {
		s := r.snapshot(0, 0)
		fmt.Fprintf(&rows, "<tr><th scope=\"row\">%s</th><td>%s %s</td><td>%s to %s</td><td>%d</td><td>%d</td><td>%s</td><td>%s</td></tr>\n",
			html.EscapeString(s.name), number(s.stats.Target), s.unit, number(s.stats.Min), number(s.stats.Max),
			s.stats.InFlight, s.stats.Waiting, s.stats.P99, html.EscapeString(reasons[s.stats.Decision]))
	}
	return []byte(strings.NewReplacer("{{style}}", pageCSS, "{{script}}", pageJS, "{{rows}}", rows.String()).Replace(pageHTML))
}
