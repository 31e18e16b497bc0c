package redisshare

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// server is a real redis-server of a test's own, on loopback.
type server struct {
	t    testing.TB
	dir  string
	port int
	args []string
	cmd  *exec.Cmd
}

// startServer starts one on a free port, or skips the test where none is
// installed.
func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("AGILELIMITER_REQUIRE_TOOLS") != "" {
			t.Fatal("redis-server is not installed: run install.sh")
		}
		t.Skip("redis-server is not installed: run install.sh")
	}
	s := &server{t: t, dir: t.TempDir(), port: freePort(t), args: args}
	t.Cleanup(s.kill)
	s.start()
	return s
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func (s *server) addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// start starts the process and returns when it answers.
func (s *server) start() {
	s.t.Helper()
	args := append([]string{
		"--port", fmt.Sprint(s.port), "--bind", "127.0.0.1", "--dir", s.dir,
		"--save", "", "--appendonly", "no", "--daemonize", "no", "--repl-diskless-sync-delay", "0",
		"--logfile", filepath.Join(s.dir, "log"),
	}, s.args...)
	s.cmd = exec.Command("redis-server", args...)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	c := redis.NewClient(&redis.Options{Addr: s.addr(), MaxRetries: -1})
	defer c.Close()
	for deadline := time.Now().Add(10 * time.Second); ; {
		err := c.Ping(context.Background()).Err()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("redis-server does not answer: %v", err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// kill ends the process as kill -9 does.
func (s *server) kill() {
	if s.cmd != nil {
		s.cmd.Process.Kill()
		s.cmd.Wait()
		s.cmd = nil
	}
}

func (s *server) client(t testing.TB) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.addr(), MaxRetries: -1, DialTimeout: 300 * time.Millisecond})
	t.Cleanup(func() { c.Close() })
	return c
}
