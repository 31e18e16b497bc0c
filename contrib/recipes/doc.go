// Package recipes is the tested source of the code in docs/integrations.md: how
// to put a limiter where calls pass. Copy what you need. It is a module of its
// own, so that what it imports is not yours unless you want it.
package recipes
