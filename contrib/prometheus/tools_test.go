package limiterprom_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"agilelimiter"
)

// tool returns the path of an external program, see install.sh.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("AGILELIMITER_REQUIRE_TOOLS") != "" {
			t.Fatalf("%s is not installed: run install.sh", name)
		}
		t.Skipf("%s is not installed: run install.sh", name)
	}
	return path
}

func TestAlertRules(t *testing.T) {
	promtool := tool(t, "promtool")
	for _, args := range [][]string{
		{"check", "rules", "alerts.yml"},
		{"test", "rules", "alerts_test.yml"},
	} {
		if out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// Every alert has unit tests, one of which expects it to fire.
func TestAlertsAreTested(t *testing.T) {
	rules, tests := readFile(t, "alerts.yml"), readFile(t, "alerts_test.yml")
	for _, m := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(rules, -1) {
		if !regexp.MustCompile(`alertname: ` + m[1] + `\n\s+eval_time: \w+\n\s+exp_alerts:\n`).MatchString(tests) {
			t.Errorf("no test expects %s to fire", m[1])
		}
	}
}

// The alerts, the dashboard and the package comment name only what there is, and
// the comment all of it.
func TestNamesExist(t *testing.T) {
	names := exported(t)
	word := regexp.MustCompile(`agilelimiter_[a-z0-9_]+`)
	for _, file := range []string{"alerts.yml", "dashboard.json", "doc.go"} {
		for _, name := range word.FindAllString(readFile(t, file), -1) {
			if !slices.Contains(names, name) {
				t.Errorf("%s names %s, which is not exported", file, name)
			}
		}
	}
	doc := word.FindAllString(readFile(t, "doc.go"), -1)
	for _, name := range names {
		if !slices.Contains(doc, name) {
			t.Errorf("doc.go does not mention %s", name)
		}
	}
}

// The operations page explains every decision and every alert.
func TestOperationsPage(t *testing.T) {
	page := readFile(t, "../../docs/operations.md")
	for d := range agilelimiter.NumDecisions {
		if row := "\n| `" + agilelimiter.Decision(d).String() + "` |"; !strings.Contains(page, row) {
			t.Errorf("no row for the decision %v", agilelimiter.Decision(d))
		}
	}
	for _, m := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(readFile(t, "alerts.yml"), -1) {
		if !strings.Contains(page, "\n| "+m[1]+" |") {
			t.Errorf("no row for the alert %s", m[1])
		}
	}
}

// dashboard is what the tests read of dashboard.json.
type dashboard struct {
	Panels []struct {
		ID         int
		Title      string
		Datasource struct{ UID string }
		GridPos    struct{ X, Y, W, H int }
		Targets    []struct{ RefID, Expr string }
	}
	Templating struct {
		List []struct {
			Name, Definition string
		}
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	if err := json.Unmarshal([]byte(readFile(t, "dashboard.json")), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDashboardLayout(t *testing.T) {
	d := readDashboard(t)
	taken := map[[2]int]string{}
	ids := map[int]string{}
	for _, p := range d.Panels {
		if other, ok := ids[p.ID]; ok {
			t.Errorf("panels %q and %q have id %d", p.Title, other, p.ID)
		}
		ids[p.ID] = p.Title
		if p.Datasource.UID != "${datasource}" {
			t.Errorf("panel %q is tied to data source %q", p.Title, p.Datasource.UID)
		}
		g := p.GridPos
		if g.X+g.W > 24 {
			t.Errorf("panel %q is wider than the page", p.Title)
		}
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				if other, ok := taken[[2]int{x, y}]; ok {
					t.Fatalf("panels %q and %q overlap", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}

// A real Prometheus scrapes the running example with the alerting rules loaded,
// and every query of the dashboard gets an answer from it.
func TestDashboardOnPrometheus(t *testing.T) {
	prometheus := tool(t, "prometheus")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	target := startExample(t, ctx)
	api := startPrometheus(t, ctx, prometheus, target)

	d := readDashboard(t)
	for _, v := range d.Templating.List {
		if v.Definition == "" {
			continue // the data source
		}
		m := regexp.MustCompile(`^label_values\((.+), (\w+)\)$`).FindStringSubmatch(v.Definition)
		if m == nil {
			t.Errorf("variable %s: cannot read %q", v.Name, v.Definition)
			continue
		}
		api.untilAnswered(t, ctx, "variable "+v.Name, "/api/v1/label/"+m[2]+"/values", url.Values{"match[]": {fill(m[1])}})
	}
	queries := 0
	for _, p := range d.Panels {
		for _, q := range p.Targets {
			queries++
			api.untilAnswered(t, ctx, p.Title+" "+q.RefID, "/api/v1/query", url.Values{"query": {fill(q.Expr)}})
		}
	}
	t.Logf("%d queries answered", queries)

	// The rules have been evaluated by now, without an error.
	var rules struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	api.get(t, ctx, "/api/v1/rules", nil, &rules)
	if len(rules.Groups) != 1 || len(rules.Groups[0].Rules) == 0 {
		t.Fatalf("rules not loaded: %+v", rules)
	}
	for _, r := range rules.Groups[0].Rules {
		if r.Health != "ok" {
			t.Errorf("rule %s: %s %s", r.Name, r.Health, r.LastError)
		}
	}
}

// fill puts values in the place of Grafana's variables.
func fill(expr string) string {
	return strings.NewReplacer("$limiter", ".*", "$instance", ".*", "$__rate_interval", "10s").Replace(expr)
}

// startExample runs ./example and returns its host and port.
func startExample(t *testing.T, ctx context.Context) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "example")
	if out, err := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", bin, "./example").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	cmd := exec.CommandContext(ctx, bin, "-for", "2m")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	start(t, cmd)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(strings.TrimSpace(line))
	if err != nil || u.Path != "/metrics" {
		t.Fatalf("the example printed %q: %v", line, err)
	}
	return u.Host
}

// promAPI is the address of a Prometheus.
type promAPI string

func startPrometheus(t *testing.T, ctx context.Context, bin, target string) promAPI {
	t.Helper()
	rules, err := filepath.Abs("alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%q]\nscrape_configs:\n- job_name: example\n  static_configs: [{targets: [%q]}]\n", rules, target)
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	// Prometheus cannot be given a port of the kernel's choice and tell which.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	var log strings.Builder
	cmd := exec.CommandContext(ctx, bin,
		"--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+addr)
	cmd.Stderr = &log
	start(t, cmd)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(log.String())
		}
	})
	return promAPI("http://" + addr)
}

// start runs cmd until the end of the test.
func start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
}

// untilAnswered asks until the answer is not empty.
func (p promAPI) untilAnswered(t *testing.T, ctx context.Context, what, path string, params url.Values) {
	t.Helper()
	for {
		answer, err := p.try(ctx, path, params)
		if err == nil {
			var vector struct{ Result []json.RawMessage }
			var list []json.RawMessage
			if json.Unmarshal(answer, &vector) == nil && len(vector.Result) > 0 ||
				json.Unmarshal(answer, &list) == nil && len(list) > 0 {
				return
			}
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: no answer to %s; last %s, %v", what, params, answer, err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (p promAPI) get(t *testing.T, ctx context.Context, path string, params url.Values, into any) {
	t.Helper()
	answer, err := p.try(ctx, path, params)
	if err == nil {
		err = json.Unmarshal(answer, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// try returns the data of an answer of the API.
func (p promAPI) try(ctx context.Context, path string, params url.Values) (json.RawMessage, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, string(p)+path+"?"+params.Encode(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("%s: %s", resp.Status, body)
	}
	if answer.Status != "success" {
		return nil, fmt.Errorf("%s: %s", resp.Status, answer.Error)
	}
	return answer.Data, nil
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
