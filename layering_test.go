package agilelimiter

import (
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// layers maps each file to its place: a file may use what lies in lower layers
// and in itself. So the two limiters do not know of each other, the laws know
// no actuator, and an actuator knows no latency.
var layers = map[string]int{
	"doc.go": 0, "errno.go": 0,

	"clock.go": 1, "ewma.go": 1, "histogram.go": 1, "outcome.go": 1, "stats.go": 1,
	"config.go": 2, "flight.go": 2,
	"controller.go": 3, "bucket.go": 3, "semaphore.go": 3, "loop.go": 3,
	"law_knee.go": 4, "recorder.go": 4,
	"core.go":    5,
	"do.go":      6,
	"limiter.go": 7, "concurrency.go": 7,
}

// forbidden are the uses that the layers alone would allow: what an actuator
// and the loop must not know, and what a law must not.
var forbidden = map[string][]string{
	"bucket.go":     {"histogram.go", "ewma.go"},
	"semaphore.go":  {"histogram.go", "ewma.go"},
	"loop.go":       {"histogram.go", "ewma.go", "stats.go", "outcome.go"},
	"controller.go": {"clock.go", "flight.go", "outcome.go", "histogram.go"},
	"law_knee.go":   {"clock.go", "flight.go", "outcome.go", "histogram.go", "bucket.go", "semaphore.go", "loop.go"},
}

// imports is everything that the root package may import. unsafe is none of it.
var imports = []string{
	"container/heap", "context", "errors", "fmt", "io", "math", "math/bits",
	"net", "net/url", "sync", "sync/atomic", "syscall", "time",
}

// sources parses the package without its tests, as it is built here.
func sources(t *testing.T) (*token.FileSet, []*ast.File) {
	t.Helper()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		if built, err := build.Default.MatchFile(".", name); err != nil {
			t.Fatal(err)
		} else if !built || strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return fset, files
}

func TestNoFileLooksUp(t *testing.T) {
	fset, files := sources(t)
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: importer.Default()}
	pkg, err := conf.Check("agilelimiter", fset, files, info)
	if err != nil {
		t.Fatal(err)
	}
	present := map[string]bool{}
	for _, f := range files {
		name := fset.Position(f.Package).Filename
		present[name] = true
		if _, ok := layers[name]; !ok {
			t.Errorf("%s has no layer: give it one here", name)
		}
	}
	for name := range layers {
		if !present[name] {
			t.Errorf("%s has a layer and does not exist", name)
		}
	}
	uses := 0
	for ident, object := range info.Uses {
		if object.Pkg() != pkg {
			continue
		}
		user, owner := fset.Position(ident.Pos()).Filename, fset.Position(object.Pos()).Filename
		if user == owner {
			continue
		}
		uses++
		if layers[owner] >= layers[user] || slices.Contains(forbidden[user], owner) {
			t.Errorf("%v uses %s of %s", fset.Position(ident.Pos()), ident.Name, owner)
		}
	}
	if uses < 100 {
		t.Errorf("%d uses across files: the test has lost its point", uses)
	}
}

func TestTheImportsArePinned(t *testing.T) {
	fset, files := sources(t)
	got := map[string]bool{}
	for _, f := range files {
		for _, spec := range f.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			got[path] = true
			if !slices.Contains(imports, path) {
				t.Errorf("%v imports %s", fset.Position(spec.Pos()), path)
			}
		}
	}
	if want := slices.Sorted(maps.Keys(got)); !slices.Equal(want, imports) {
		t.Errorf("the package imports %q, pinned are %q", want, imports)
	}
}
