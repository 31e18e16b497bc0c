package recipes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every block of Go in docs/integrations.md stands in the code of this folder,
// which the compiler and the tests above have seen.
func TestDocumentedCodeIsTested(t *testing.T) {
	page, err := os.ReadFile("../../docs/integrations.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		code.Write(text)
	}
	blocks := strings.Split(string(page), "```go\n")[1:]
	if len(blocks) < 12 {
		t.Errorf("%d blocks of Go found, want all of them", len(blocks))
	}
	for _, b := range blocks {
		b, _, _ = strings.Cut(b, "```")
		if !strings.Contains(code.String(), b) {
			t.Errorf("not in the code of this folder:\n%s", b)
		}
	}
}
