//go:build unix

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/broker/brokertest"
)

func TestServer_ClusterFlags(t *testing.T) {
	t.Parallel()
	c := serverCmd{DB: "sqlite:x", NATS: "nats://a:4222, nats://b:4222,nats://c", Copies: 3, Ack: 1e9, Lease: 1e9, Beat: 1e9}
	p, err := c.parts()
	require.NoError(t, err)
	require.Equal(t, 3, p.replicas)
	require.Equal(t, c.NATS, p.natsURL)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--nats", "nats://a:4222,http://b"}, "--nats http://b: not an address of NATS; write it as nats://host:4222"},
		{[]string{"--nats", "nats://a,"}, "not an address of NATS"},
		{[]string{"--replicas", "3"}, "--replicas 3 needs a cluster of at least three NATS servers; name them with --nats"},
		{[]string{"--nats", "nats://h", "--replicas", "2"}, "--replicas 2: 1, or 3 on a cluster of NATS"},
	} {
		_, errs, code := command(append([]string{"server"}, c.args...)...)
		require.Equal(t, exitInvalid, code, c.args)
		require.Contains(t, errs, c.want, c.args)
	}
}

// TestServer_NotACluster: three replicas on one NATS server are refused when it starts.
func TestServer_NotACluster(t *testing.T) {
	t.Parallel()
	nats := brokertest.Run(t)
	_, errs, code := command("server", "--db", "sqlite:"+filepath.Join(t.TempDir(), "fanjet.db"), "--nats", nats.URL(), "--replicas", "3")
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "3 replicas are asked of a NATS server that is not in a cluster; connect to a cluster of at least 3 servers with JetStream, or ask for 1 replica")
}

// TestServer_Cluster runs a server on three NATS servers with three replicas. Each in turn is
// killed, the leader of the app's tasks first, and whatever runs meanwhile ends well.
func TestServer_Cluster(t *testing.T) {
	t.Parallel()
	c := brokertest.RunCluster(t)
	server := start(t, "server", "--data", t.TempDir(), "--nats", c.URL(), "--replicas", "3")
	server.until("server is ready")
	count := func(while func()) {
		args, worker := countCommand(t, "testdata", "--server", c.URL())
		p := start(t, append(args, "--worker", worker)...)
		while()
		out, errs, code := p.wait()
		require.Zero(t, code, errs)
		require.Regexp(t, `(?m)^report +succeeded`, out)
	}
	count(func() {})
	first := c.Leader("TASKS-" + broker.SetFor("demo", brokertest.Nodes))
	for i := range brokertest.Nodes {
		node := (first + i) % brokertest.Nodes
		count(func() { c.KillNode(node) })
		c.StartNode(node)
		c.Settle()
	}
	server.signal(os.Interrupt)
	_, errs, code := server.wait()
	require.Zero(t, code, errs)
}
