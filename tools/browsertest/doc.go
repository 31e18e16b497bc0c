// Package browsertest looks at the page of package httpdebug with a headless
// Chromium. It is a module of its own so that the root stays free of
// dependencies.
//
//	./install.sh     # Debian's chromium, needs root
//	go test ./...
//
// The pictures in docs/img are httpdebug.png and httpdebug-dark.png of
//
//	go test -run Dashboard -warm 95s -shots DIR ./...
//
// Without a Chromium the tests are skipped with a message, or fail where
// AGILELIMITER_REQUIRE_TOOLS=1 says that it must be there.
package browsertest
