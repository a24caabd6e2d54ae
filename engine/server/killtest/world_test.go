//go:build unix

package killtest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/broker/brokertest"
	"github.com/fanjet/fanjet/broker/embedded"
	"github.com/fanjet/fanjet/storage/storagetest"
)

// world is what runs: servers, a broker in the server or beside it, or a cluster of three, and
// workers.
type world struct {
	t      *testing.T
	dir    string
	dbURL  string
	db     *storagetest.Server // MariaDB; nil on SQLite
	url    string              // of the broker, or of all nodes, separated by commas
	ledger string
	procs  []*proc
	client *broker.Client
	began  time.Time

	mu   sync.Mutex
	hits []hit
}

// hit is something bad that was done to a process.
type hit struct {
	what     string // kill, freeze, stop
	kind     string
	pid      int
	from, to int64 // ns; from the signal until it runs again
}

// proc is one process that is started again after it was killed.
type proc struct {
	w    *world
	role role
	cmd  *exec.Cmd
	pipe io.Closer
	gone chan struct{}
	err  error // of its end, once gone is closed
	busy bool  // something is being done to it; of the dice
}

type setup struct {
	mariadb bool
	apart   bool // the broker is a process of its own
	cluster bool // three brokers, processes of their own, and three replicas
	servers int
	workers int
	slots   int
	lease   time.Duration   // default 1.5 s
	skew    []time.Duration // of the servers' wall clocks
}

// nodes is how many brokers a cluster has.
const nodes = 3

func newWorld(t *testing.T, s setup) *world {
	w := &world{t: t, dir: t.TempDir(), began: time.Now()}
	if keep := os.Getenv("FANJET_KILL_KEEP"); keep != "" {
		w.dir = filepath.Join(keep, strings.ReplaceAll(t.Name(), "/", "-"))
		require.NoError(t, os.RemoveAll(w.dir))
		require.NoError(t, os.MkdirAll(w.dir, 0o750))
	}
	w.ledger = filepath.Join(w.dir, "ledger")
	w.dbURL = "sqlite:" + filepath.Join(w.dir, "fanjet.db")
	if s.mariadb {
		w.db = storagetest.StartMariaDB(t)
		w.dbURL = w.db.Database(t)
	}
	base := role{
		DB: w.dbURL, AckWait: 2 * time.Second, Lease: cmp.Or(s.lease, 1500*time.Millisecond),
		Beat: 500 * time.Millisecond, Silent: 5 * time.Second, Drain: 10 * time.Second,
	}
	if s.cluster {
		w.addCluster(&base)
	} else {
		w.addBroker(&base, s.apart)
	}
	for i := range s.servers {
		r := base
		r.Kind, r.Name = "server", fmt.Sprintf("server%d", i+1)
		if i < len(s.skew) {
			r.Skew = s.skew[i]
		}
		w.add(r)
	}
	for i := range s.workers {
		r := base
		r.NATS = ""
		r.Kind, r.Name, r.Ledger, r.Slots = "worker", fmt.Sprintf("worker%d", i+1), w.ledger, s.slots
		w.add(r)
	}
	t.Cleanup(w.end)
	for _, p := range w.procs {
		require.NoError(t, p.start())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var err error
	w.client, err = broker.Dial(ctx, broker.Options{URL: w.url, Name: "caller", Logger: brokertest.Quiet()})
	require.NoError(t, err)
	t.Cleanup(w.client.Close)
	return w
}

// addBroker adds the one broker, or has the servers embed it.
func (w *world) addBroker(base *role, apart bool) {
	base.Port = freePorts(w.t, 1)[0]
	w.url = fmt.Sprintf("nats://127.0.0.1:%d", base.Port)
	base.URL, base.NATS = w.url, filepath.Join(w.dir, "nats")
	if apart {
		r := *base
		r.Kind, r.Name = "broker", "broker"
		w.add(r)
		base.NATS = ""
	}
}

// addCluster adds the brokers of a cluster.
func (w *world) addCluster(base *role) {
	ports := freePorts(w.t, 2*nodes)
	var urls, routes []string
	for i := range nodes {
		urls = append(urls, fmt.Sprintf("nats://127.0.0.1:%d", ports[i]))
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", ports[nodes+i]))
	}
	w.url = strings.Join(urls, ",")
	base.URL, base.Replicas = w.url, nodes
	for i := range nodes {
		r := *base
		r.Kind, r.Name, r.Port = "broker", fmt.Sprintf("node%d", i+1), ports[i]
		r.NATS = filepath.Join(w.dir, r.Name)
		r.Cluster = embedded.Cluster{Name: app, Port: ports[nodes+i], Routes: routes}
		w.add(r)
	}
}

// freePorts are ports that differ.
func freePorts(t testing.TB, n int) []int {
	var out []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer func() { require.NoError(t, l.Close()) }()
		out = append(out, l.Addr().(*net.TCPAddr).Port)
	}
	return out
}

func (w *world) add(r role) { w.procs = append(w.procs, &proc{w: w, role: r}) }

// of are the processes of a kind.
func (w *world) of(kind string) []*proc {
	var out []*proc
	for _, p := range w.procs {
		if p.role.Kind == kind {
			out = append(out, p)
		}
	}
	return out
}

// end leaves no process behind, and shows the logs if the test failed.
func (w *world) end() {
	for _, p := range w.procs {
		if p.cmd != nil {
			sig := syscall.SIGKILL
			if w.t.Failed() && os.Getenv("FANJET_KILL_KEEP") != "" {
				sig = syscall.SIGQUIT // its goroutines go to its log, which is kept
			}
			_ = p.cmd.Process.Signal(syscall.SIGCONT) // it may be frozen, or have ended
			_ = p.cmd.Process.Signal(sig)
			<-p.gone
		}
	}
	if w.t.Failed() {
		for _, p := range w.procs {
			w.t.Logf("the end of the log of %s:\n%s", p.role.Name, tail(p.logFile(), 6000))
		}
	}
}

func tail(path string, n int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-n):])
}

func (p *proc) logFile() string { return filepath.Join(p.w.dir, p.role.Name+".log") }

func (p *proc) start() error {
	said, err := json.Marshal(p.role)
	if err != nil {
		return err
	}
	logs, err := os.OpenFile(p.logFile(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = logs.Close() }() // the child has its own
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), roleEnv+"="+string(said))
	cmd.Stdout, cmd.Stderr = logs, logs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a ^C is for the test; the pipe tells the rest
	if p.pipe, err = cmd.StdinPipe(); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	gone := make(chan struct{})
	p.cmd, p.gone = cmd, gone
	go func() {
		p.err = cmd.Wait()
		close(gone)
	}()
	return nil
}

// signal fails if the process has ended by itself.
func (p *proc) signal(sig syscall.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("%s has ended by itself: %w: %s", p.role.Name, err, tail(p.logFile(), 3000))
	}
	return nil
}

// note keeps a hit, to explain what was repeated.
func (w *world) note(h hit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hits = append(w.hits, h)
}

// kill kills the process and starts it again after a pause.
func (p *proc) kill(pause time.Duration) error {
	h := hit{what: "kill", kind: p.role.Kind, pid: p.cmd.Process.Pid, from: time.Now().UnixNano()}
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.gone
	wait(pause)
	err := p.start()
	h.to = time.Now().UnixNano()
	p.w.note(h)
	return err
}

// freeze stops the process for a while, as a paused machine does.
func (p *proc) freeze(d time.Duration) error {
	h := hit{what: "freeze", kind: p.role.Kind, pid: p.cmd.Process.Pid, from: time.Now().UnixNano()}
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	wait(d)
	err := p.signal(syscall.SIGCONT)
	h.to = time.Now().UnixNano()
	p.w.note(h)
	return err
}

// term ends the process as an orchestrator does; it must end cleanly.
func (p *proc) term() error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.gone:
		if p.err != nil {
			return fmt.Errorf("%s did not end cleanly: %w: %s", p.role.Name, p.err, tail(p.logFile(), 4000))
		}
		return nil
	case <-time.After(30 * time.Second):
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // its goroutines go to its log
		<-p.gone
		return fmt.Errorf("SIGTERM does not end %s: %s", p.role.Name, tail(p.logFile(), 20000))
	}
}

// until asks every 100 ms what is still wrong, until nothing is.
func (w *world) until(limit time.Duration, wrong func() string) {
	w.t.Helper()
	over := time.Now().Add(limit)
	for {
		why := wrong()
		if why == "" {
			return
		}
		require.True(w.t, time.Now().Before(over), "for %v: %s", limit, why)
		wait(100 * time.Millisecond)
	}
}

// wait is how long an outage lasts.
func wait(d time.Duration) { <-time.After(d) }

// termAll ends everything: workers, servers, broker.
func (w *world) termAll() {
	for _, kind := range []string{"worker", "server", "broker"} {
		all := w.of(kind)
		ended := make(chan error, len(all))
		for _, p := range all {
			go func() { ended <- p.term() }()
		}
		for range all {
			require.NoError(w.t, <-ended)
		}
	}
}
