package brokertest

import (
	"bufio"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/broker/embedded"
)

// The test's own program serves as the broker that is killed: kill -9 cannot be had within
// one process.
const (
	childDir  = "BROKERTEST_CHILD_DIR"
	childPort = "BROKERTEST_CHILD_PORT"
)

// serveIfChild runs a broker until the process is killed, when the test asked for one.
func serveIfChild() {
	dir := os.Getenv(childDir)
	if dir == "" {
		return
	}
	port, err := strconv.Atoi(os.Getenv(childPort))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	s, err := embedded.Start(embedded.Config{Dir: dir, Port: port, Logger: Quiet()})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(s.ClientURL())
	select {}
}

func startChild(t *testing.T, dir string, port int) (at string, kill func()) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childDir+"="+dir, childPort+"="+strconv.Itoa(port))
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var once sync.Once
	kill = func() {
		once.Do(func() {
			require.NoError(t, cmd.Process.Kill())
			// It ends with the signal that killed it: that is its error.
			_ = cmd.Wait()
		})
	}
	t.Cleanup(kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	line = strings.TrimSpace(line)
	require.True(t, strings.HasPrefix(line, "nats://"), line)
	return line, kill
}

// TestNothingAckedIsLostByKill kills the broker's process in the middle of the work, three
// times: what it acked is there, each report is handed out once, and no want is lost.
func TestNothingAckedIsLostByKill(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	dir := t.TempDir()
	at, kill := startChild(t, dir, -1)
	u, err := url.Parse(at)
	require.NoError(t, err)
	port, err := strconv.Atoi(u.Port())
	require.NoError(t, err)
	o := broker.Options{URL: at, Logger: Quiet()}
	b, err := broker.Connect(ctx, broker.Config{Options: o, AckWait: time.Second})
	require.NoError(t, err)
	defer b.Close()
	w, err := broker.Dial(ctx, o)
	require.NoError(t, err)
	defer w.Close()
	require.NoError(t, b.EnsureReports(ctx))
	require.NoError(t, b.EnsureApp(ctx, "shop", "", []string{"any"}))

	reports := make(chan read, 1<<16)
	stop, err := b.Reports(ctx, map[uint8]uint64{3: 0}, func(shard uint8, seq uint64, batch *broker.ReportBatch, raw []byte, err error) {
		reports <- read{shard, seq, batch, raw, err}
	})
	require.NoError(t, err)
	defer stop()
	got, ended := make(chan *broker.Delivery, 1<<16), make(chan int, 1<<16)
	p, err := w.Puller("shop", "", broker.LaneNormal, "any", 500*time.Millisecond, func(d *broker.Delivery) { got <- d }, func(n int) { ended <- n })
	require.NoError(t, err)
	defer p.Close()

	// The engine: stores chunks until each is acked.
	const chunks = 400
	go func() {
		for i := range int64(chunks) {
			for ctx.Err() == nil {
				stored := make(chan error, 1)
				b.PublishChunk("", broker.LaneNormal, "any", chunkOf("shop", i+1, 1, "x"), func(err error) { stored <- err })
				if <-stored == nil {
					break
				}
			}
		}
	}()
	// The worker: stores the report of each chunk, then acks it.
	const slots = 4
	require.NoError(t, p.Want(slots))
	go func() {
		for {
			select {
			case d := <-got:
				for ctx.Err() == nil {
					if _, err := w.PublishReports(ctx, 3, batchOf(d.Chunk.Instance)); err == nil {
						break
					}
				}
				// A lost ack brings the chunk again, and that is reported again.
				_ = d.Ack()
				_ = p.Want(1)
			case n := <-ended:
				_ = p.Want(n)
			case <-ctx.Done():
				return
			}
		}
	}()
	done, kills, last := map[int64]bool{}, 0, uint64(0)
	for len(done) < chunks {
		select {
		case r := <-reports:
			require.NoError(t, r.err)
			require.Greater(t, r.seq, last)
			last = r.seq
			done[r.batch.Reports[0].Chunk] = true
		case <-ctx.Done():
			require.Fail(t, "stopped", "%d of %d chunks done after %d kills", len(done), chunks, kills)
		}
		if kills < 3 && len(done) == (kills+1)*chunks/5 {
			kills++
			kill()
			_, kill = startChild(t, dir, port)
		}
	}
	require.Equal(t, 3, kills)
}
