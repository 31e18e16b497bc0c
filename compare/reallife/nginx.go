package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"text/template"
	"time"
)

var errNoServer = errors.New("nginx is not installed")

// A server is an nginx process with a directory of its own.
type server struct {
	version string
	dir     string
	ports   []int
	queue   int
	cmd     *exec.Cmd
	exited  chan struct{}
}

// One zone with the port as its key gives every arm a queue of its own. The
// answer is a file, because "return" would answer before limit_req is asked.
var config = template.Must(template.New("nginx.conf").Parse(`daemon off;
worker_processes 1;
{{if .Root}}user root;
{{end}}pid {{.Dir}}/pid;
error_log {{.Dir}}/error.log;
events { worker_connections 4096; }
http {
	log_format arm '$server_port $status';
	access_log {{.Dir}}/access.log arm;
	client_body_temp_path {{.Dir}}/body;
	proxy_temp_path {{.Dir}}/proxy;
	fastcgi_temp_path {{.Dir}}/fastcgi;
	uwsgi_temp_path {{.Dir}}/uwsgi;
	scgi_temp_path {{.Dir}}/scgi;
	keepalive_requests 1000000;
	limit_req_zone $server_port zone=capacity:1m rate={{.Rate}}r/s;
	limit_req_status 503;
	limit_req_log_level info;
	server {
{{range .Ports}}		listen 127.0.0.1:{{.}};
{{end}}		root {{.Dir}}/html;
		location / { limit_req zone=capacity{{if .Queue}} burst={{.Queue}}{{end}}; }
	}
}
`))

// find looks where Debian puts it, too: a user's PATH often lacks sbin.
func find() (string, error) {
	for _, name := range []string{"nginx", "/usr/sbin/nginx"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errNoServer
}

// startServer starts nginx with so many ports and waits until all of them
// answer.
func startServer(ports, rate, queue int) (*server, error) {
	path, err := find()
	if err != nil {
		return nil, err
	}
	version, err := exec.Command(path, "-v").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("nginx -v: %w", err)
	}
	dir, err := os.MkdirTemp("", "reallife")
	if err != nil {
		return nil, err
	}
	s := &server{
		version: strings.TrimPrefix(strings.TrimSpace(string(version)), "nginx version: "),
		dir:     dir, queue: queue, exited: make(chan struct{}),
	}
	if err := s.start(path, ports, rate); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	return s, nil
}

func (s *server) start(path string, ports, rate int) (err error) {
	if s.ports, err = freePorts(ports); err != nil {
		return err
	}
	if err := errors.Join(
		os.Mkdir(filepath.Join(s.dir, "html"), 0o755),
		os.WriteFile(filepath.Join(s.dir, "html", "index.html"), []byte("ok\n"), 0o644),
		s.writeConfig(rate),
	); err != nil {
		return err
	}
	s.cmd = exec.Command(path, "-c", filepath.Join(s.dir, "nginx.conf"))
	var output bytes.Buffer
	s.cmd.Stdout, s.cmd.Stderr = &output, &output
	if err := s.cmd.Start(); err != nil {
		return err
	}
	go func() {
		// The exit status of a server that was told to stop says nothing;
		// one that stops by itself is seen by who waits for exited.
		_ = s.cmd.Wait()
		close(s.exited)
	}()
	if err := s.ready(5 * time.Second); err != nil {
		s.stop()
		return fmt.Errorf("%w\n%s", err, output.Bytes())
	}
	return nil
}

func (s *server) writeConfig(rate int) error {
	f, err := os.Create(filepath.Join(s.dir, "nginx.conf"))
	if err != nil {
		return err
	}
	err = config.Execute(f, map[string]any{
		"Root": os.Geteuid() == 0, "Dir": s.dir, "Rate": rate, "Queue": s.queue, "Ports": s.ports,
	})
	return errors.Join(err, f.Close())
}

func (s *server) ready(patience time.Duration) error {
	deadline := time.Now().Add(patience)
	for _, port := range s.ports {
		for {
			conn, err := net.DialTimeout("tcp", address(port), time.Second)
			if err == nil {
				conn.Close()
				break
			}
			select {
			case <-s.exited:
				return errors.New("nginx did not start")
			case <-time.After(20 * time.Millisecond):
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("nginx does not listen: %w", err)
			}
		}
	}
	return nil
}

// setRate gives the server another capacity, as an operator would: new
// configuration, then the reload signal. Requests already queued keep the
// turn that they were given.
func (s *server) setRate(rate int) error {
	if err := s.writeConfig(rate); err != nil {
		return err
	}
	return s.cmd.Process.Signal(syscall.SIGHUP)
}

// stop ends nginx and removes its directory.
func (s *server) stop() {
	s.end()
	os.RemoveAll(s.dir)
}

// end ends nginx and waits for that; its log is complete then.
func (s *server) end() {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return // it has ended already
	}
	select {
	case <-s.exited:
	case <-time.After(5 * time.Second):
		_ = s.cmd.Process.Kill()
		<-s.exited
	}
}

func address(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }

func (s *server) url(i int) string { return "http://" + address(s.ports[i]) + "/" }

// logged is what nginx itself says it answered, by port index and status.
func (s *server) logged() ([]map[int]int, error) {
	f, err := os.Open(filepath.Join(s.dir, "access.log"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	counts := make([]map[int]int, len(s.ports))
	index := map[int]int{}
	for i, port := range s.ports {
		counts[i], index[port] = map[int]int{}, i
	}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var port, status int
		if _, err := fmt.Sscan(lines.Text(), &port, &status); err != nil {
			return nil, fmt.Errorf("access log line %q: %w", lines.Text(), err)
		}
		if i, ok := index[port]; ok {
			counts[i][status]++
		}
	}
	return counts, lines.Err()
}

// freePorts asks the kernel for n ports and holds them all until it has them,
// so that they differ.
func freePorts(n int) (ports []int, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
