//go:build unix

package storagetest

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver of the private server
	"github.com/stretchr/testify/require"
)

var shared struct {
	sync.Mutex
	server *Server
}

// MariaDB returns the URL of a fresh database on a private MariaDB server. There is one
// server a test process; it ends with the process, however that ends, and leaves nothing.
// Without a server binary the test is skipped, or fails where the environment has CI.
func MariaDB(t testing.TB) string {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		shared.server = start(t)
	}
	return shared.server.Database(t)
}

// Server is a private MariaDB server.
type Server struct {
	dir   string
	pid   int
	watch io.Closer // closing it ends the server and removes its directory
	gone  chan struct{}
}

// StartMariaDB starts a server for this test alone, which may kill it.
func StartMariaDB(t testing.TB) *Server {
	t.Helper()
	s := start(t)
	t.Cleanup(func() {
		_ = s.watch.Close() // nothing to save; the watchdog sees to the rest
	})
	return s
}

func start(t testing.TB) *Server {
	t.Helper()
	install, daemon := binary("mariadb-install-db", "mysql_install_db"), binary("mariadbd", "mysqld")
	if install == "" || daemon == "" {
		const missing = "no mariadbd on this machine (Debian: apt-get install mariadb-server-core mariadb-client-core)"
		if os.Getenv("CI") != "" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	dir, err := os.MkdirTemp("", "fanjet-mariadb-")
	require.NoError(t, err)
	s := &Server{dir: dir}
	s.run(t, install)
	return s
}

func binary(names ...string) string {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
		for _, dir := range []string{"/usr/sbin", "/usr/local/sbin", "/usr/local/bin", "/opt/homebrew/bin"} {
			if path := filepath.Join(dir, name); exec.Command("test", "-x", path).Run() == nil {
				return path
			}
		}
	}
	return ""
}

// watchdog makes the data directory if it is told how, runs the server, and outlives this
// process by a moment: when the pipe closes, it ends all it has started and removes the
// directory. Told to keep it, it only kills the server.
const watchdog = `dir=$1 install=$2 user=$3; shift 3
(if [ -n "$install" ]; then
	"$install" --no-defaults --datadir="$dir/data" --auth-root-authentication-method=normal --skip-test-db $user >&2 || exit 1
fi
exec "$@" $user) </dev/null & pid=$!
echo "pid $pid" >&2
read word
if [ "$word" = keep ]; then kill -9 $pid; wait $pid; exit; fi 2>/dev/null
trap "" TERM; kill -TERM 0; kill -9 $pid 2>/dev/null; wait $pid 2>/dev/null
rm -rf "$dir"; sleep 1; rm -rf "$dir"`

// Start starts the server again after Kill, and returns when it is ready.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	s.run(t, "")
}

func (s *Server) run(t testing.TB, install string) {
	t.Helper()
	user := ""
	if os.Getuid() == 0 {
		user = "--user=root"
	}
	args := []string{
		"-c", watchdog, "sh", s.dir, install, user, binary("mariadbd", "mysqld"), "--no-defaults", "--datadir=" + filepath.Join(s.dir, "data"),
		"--socket=" + s.socket(), "--pid-file=" + filepath.Join(s.dir, "pid"), "--skip-networking", "--skip-log-bin",
		"--innodb-flush-log-at-trx-commit=1", "--innodb-buffer-pool-size=128M", "--max-connections=300",
		// Not what we need: the store must not lean on the server's defaults.
		"--character-set-server=latin1", "--collation-server=latin1_swedish_ci", "--sql-mode=NO_BACKSLASH_ESCAPES",
	}
	cmd := exec.Command("/bin/sh", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a ^C is for the tests; the pipe tells the watchdog
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	logs, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	s.watch, s.gone = in, make(chan struct{})
	ready := make(chan string, 1)
	go func() {
		defer close(s.gone)
		var all strings.Builder
		lines, up := bufio.NewScanner(logs), false
		for lines.Scan() {
			line := lines.Text()
			if pid, ok := strings.CutPrefix(line, "pid "); ok && s.pid == 0 {
				s.pid, _ = strconv.Atoi(pid)
			}
			if !up {
				all.WriteString(line + "\n")
			}
			if strings.Contains(line, "ready for connections") && !up {
				up = true
				ready <- ""
			}
		}
		_ = cmd.Wait() // killed: its status says nothing
		if !up {
			ready <- all.String()
		}
	}()
	select {
	case why := <-ready:
		require.Empty(t, why, "MariaDB ended while starting")
	case <-time.After(time.Minute):
		_ = in.Close() // the watchdog ends it
		require.Fail(t, "MariaDB was not ready after a minute")
	}
}

func (s *Server) socket() string { return filepath.Join(s.dir, "sock") }

// Kill kills the server as a power cut would; its data stays.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	_, err := io.WriteString(s.watch.(io.Writer), "keep\n")
	require.NoError(t, err)
	<-s.gone
	s.pid = 0
}

// Signal sends a signal to the server, such as SIGSTOP.
func (s *Server) Signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	require.NoError(t, syscall.Kill(s.pid, sig))
}

// Database makes an empty database and returns its URL.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("fanjet_%d", newID())
	s.Exec(t, "CREATE DATABASE "+name)
	return "mysql://root@localhost/" + name + "?socket=" + url.QueryEscape(s.socket())
}

// Exec runs a statement as the server's administrator.
func (s *Server) Exec(t testing.TB, text string) {
	t.Helper()
	db, err := sql.Open("mysql", "root@unix("+s.socket()+")/")
	require.NoError(t, err)
	_, err = db.ExecContext(context.WithoutCancel(t.Context()), text)
	require.NoError(t, err)
	require.NoError(t, db.Close())
}
