package brokertest

import (
	"context"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/broker/embedded"
)

// Nodes is how many servers a Cluster has.
const Nodes = 3

// clusterWait bounds an election, and a node's catching up.
const clusterWait = 60 * time.Second

// Cluster is three embedded servers of one test, each with a store and ports of its own,
// for streams with three replicas. Its methods are for the goroutine of the test.
type Cluster struct {
	t     testing.TB
	nodes [Nodes]*Server
}

// RunCluster starts a cluster that lives as long as the test, and returns when it has a
// leader that knows all three.
func RunCluster(t testing.TB) *Cluster {
	t.Helper()
	c := &Cluster{t: t}
	for i := range c.nodes {
		c.nodes[i] = &Server{t: t, c: embedded.Config{Dir: tempDir(t), Port: -1, Name: nodeName(i), Logger: Quiet()}}
	}
	t.Cleanup(c.Kill)
	// A port that is free now may be taken a moment later.
	for tries := 1; ; tries++ {
		err := c.assemble()
		if err == nil {
			break
		}
		require.Less(t, tries, 5, "no cluster: %v", err)
		c.Kill()
	}
	c.Settle()
	return c
}

// tempDir is t.TempDir for a server that may still be writing when it has shut down: a store
// that it opened while it did is not closed.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "brokertest-") //nolint:usetesting // see above
	require.NoError(t, err)
	t.Cleanup(func() {
		require.Eventually(t, func() bool { return os.RemoveAll(dir) == nil }, 20*time.Second, 10*time.Millisecond, "cannot remove %s", dir)
	})
	return dir
}

func nodeName(i int) string { return "node-" + strconv.Itoa(i) }

// assemble gives the nodes new cluster ports and starts them.
func (c *Cluster) assemble() error {
	var held [Nodes]net.Listener // all at once, so that they differ
	var routes []string
	for i := range held {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer func() { _ = l.Close() }() // a second time, unless something failed
		held[i] = l
		routes = append(routes, "nats://"+l.Addr().String())
	}
	for i, s := range c.nodes {
		s.c.Cluster = embedded.Cluster{Name: "test", Port: held[i].Addr().(*net.TCPAddr).Port, Routes: routes}
	}
	for i, s := range c.nodes {
		if err := held[i].Close(); err != nil {
			return err
		}
		if err := s.tryStart(); err != nil {
			return err
		}
	}
	return nil
}

// Settle waits until every node that is up knows a leader and has all that the others have.
func (c *Cluster) Settle() {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		for _, s := range c.nodes {
			if s.s != nil && s.s.Healthy() != nil {
				return false
			}
		}
		return true
	}, clusterWait, 20*time.Millisecond, "the cluster is not in order")
}

// URL is where clients connect: all three, separated by commas.
func (c *Cluster) URL() string {
	urls := make([]string, Nodes)
	for i, s := range c.nodes {
		urls[i] = s.url
	}
	return strings.Join(urls, ",")
}

// NodeURL is where clients of one node connect.
func (c *Cluster) NodeURL(i int) string { return c.nodes[i].url }

// Replicas is what the streams of a cluster have.
func (c *Cluster) Replicas() int { return Nodes }

// KillNode cuts all connections of a node and stops it, without a word to its clients.
func (c *Cluster) KillNode(i int) { c.nodes[i].Kill() }

// StartNode brings a node back that is down, on the same store and ports.
func (c *Cluster) StartNode(i int) {
	c.t.Helper()
	if c.nodes[i].s == nil {
		c.nodes[i].start()
	}
}

// Kill kills all nodes.
func (c *Cluster) Kill() {
	for _, s := range c.nodes {
		s.Kill()
	}
}

// Restart kills all nodes and starts them again.
func (c *Cluster) Restart() {
	c.t.Helper()
	c.Kill()
	for _, s := range c.nodes {
		s.start()
	}
}

// Leader is the node that leads the stream, once one does.
func (c *Cluster) Leader(stream string) int {
	c.t.Helper()
	leader := -1
	c.ask(func(ctx context.Context, js jetstream.JetStream) bool {
		s, err := js.Stream(ctx, stream)
		if err != nil || s.CachedInfo().Cluster == nil {
			return false
		}
		leader = c.named(s.CachedInfo().Cluster.Leader)
		return leader >= 0
	}, "no leader of stream "+stream)
	return leader
}

// ConsumerNode is the node that delivers for the newest consumer of the stream whose name
// begins so, once there is one.
func (c *Cluster) ConsumerNode(stream, prefix string) int {
	c.t.Helper()
	node := -1
	c.ask(func(ctx context.Context, js jetstream.JetStream) bool {
		s, err := js.Stream(ctx, stream)
		if err != nil {
			return false
		}
		var newest time.Time
		for info := range s.ListConsumers(ctx).Info() {
			if strings.HasPrefix(info.Name, prefix) && info.Cluster != nil && info.Created.After(newest) {
				newest, node = info.Created, c.named(info.Cluster.Leader)
			}
		}
		return node >= 0
	}, "no consumer "+prefix+" of stream "+stream)
	return node
}

// named is the node of that name if it is up, else -1.
func (c *Cluster) named(name string) int {
	for i, s := range c.nodes {
		if s.s != nil && nodeName(i) == name {
			return i
		}
	}
	return -1
}

// ask puts a question to the cluster until it is answered.
func (c *Cluster) ask(f func(context.Context, jetstream.JetStream) bool, otherwise string) {
	c.t.Helper()
	nc, err := nats.Connect(c.URL())
	require.NoError(c.t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	require.NoError(c.t, err)
	ctx, cancel := context.WithTimeout(context.Background(), clusterWait)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		try, done := context.WithTimeout(ctx, 2*time.Second)
		ok := f(try, js)
		done()
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			require.FailNow(c.t, otherwise)
		}
	}
}

// Broker connects an engine's end that is closed with the test. URL and Replicas are filled in.
func (c *Cluster) Broker(t testing.TB, o broker.Config) *broker.Broker {
	t.Helper()
	o.URL, o.Replicas = c.URL(), c.Replicas()
	return connect(t, o)
}

// Client connects a worker's end that is closed with the test.
func (c *Cluster) Client(t testing.TB) *broker.Client {
	t.Helper()
	return dial(t, c.URL())
}
