package server_test

import (
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// proxy stands between a worker and the broker, and can be cut: what is in flight then is
// held, nothing is closed, and nobody is told.
type proxy struct {
	l   net.Listener
	to  string
	mu  sync.Mutex
	up  *sync.Cond
	cut bool
	end bool
}

func newProxy(t testing.TB, to string) *proxy {
	t.Helper()
	u, err := url.Parse(to)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{l: l, to: u.Host}
	p.up = sync.NewCond(&p.mu)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() {
		p.mu.Lock()
		p.end = true
		p.up.Broadcast()
		p.mu.Unlock()
		_ = l.Close()
		all.Wait()
	})
	return p
}

func (p *proxy) url() string { return "nats://" + p.l.Addr().String() }

func (p *proxy) set(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
	p.up.Broadcast()
}

// pass waits while the line is cut; false at the end of the test.
func (p *proxy) pass() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.cut && !p.end {
		p.up.Wait()
	}
	return !p.end
}

func (p *proxy) serve(c net.Conn) {
	defer c.Close()
	if !p.pass() {
		return
	}
	s, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer s.Close()
	var both sync.WaitGroup
	half := func(to, from net.Conn) {
		defer to.Close()
		buf := make([]byte, 32<<10)
		for {
			n, err := from.Read(buf)
			if n > 0 {
				if !p.pass() {
					return
				}
				if _, err := to.Write(buf[:n]); err != nil {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}
	both.Go(func() { half(s, c) })
	both.Go(func() { half(c, s) })
	both.Go(func() {
		// The end of the test must not wait for a silent connection.
		p.mu.Lock()
		for !p.end {
			p.up.Wait()
		}
		p.mu.Unlock()
		_ = c.Close()
		_ = s.Close()
	})
	both.Wait()
}
