//go:build unix

package killtest

import (
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/storage"
)

// shards watches, in the database, who owns them.
type shards struct {
	w  *world
	db *storage.DB
	// taken is what was seen.
	taken []takeOver
}

// takeOver is how the shards of one server went to others.
type takeOver struct {
	what   string
	who    string
	at     time.Time
	took   time.Duration
	shards []uint8
}

// names are the live servers' by number.
func (s *shards) names() map[int16]string {
	live, err := s.db.LiveServers(s.w.t.Context())
	require.NoError(s.w.t, err)
	out := map[int16]string{}
	for _, one := range live {
		out[one.Number] = one.Name
	}
	return out
}

// of are the epochs of the shards that the process of that name holds, and free those that no
// live server does.
func (s *shards) of(name string) (held map[uint8]int64, free int) {
	names := s.names()
	rows, err := s.db.ShardOwners(s.w.t.Context())
	require.NoError(s.w.t, err)
	held = map[uint8]int64{}
	for _, row := range rows {
		switch names[row.Owner] {
		case "":
			free++
		case name:
			held[row.Shard] = row.Epoch
		}
	}
	return held, free
}

// shared waits until each of these owns shards, and none is left over.
func (s *shards) shared(all []*proc) {
	s.w.until(time.Minute, func() string {
		for _, p := range all {
			if held, free := s.of(p.role.Name); free > 0 || len(held) == 0 {
				return fmt.Sprintf("%s owns %d shards, %d are free; servers: %v", p.role.Name, len(held), free, s.names())
			}
		}
		return ""
	})
}

// left waits until the others own what the process held, each under a new epoch.
func (s *shards) left(p *proc, held map[uint8]int64, what string, at time.Time, limit time.Duration) {
	require.NotEmpty(s.w.t, held)
	over := at.Add(limit)
	for {
		names := s.names()
		rows, err := s.db.ShardOwners(s.w.t.Context())
		require.NoError(s.w.t, err)
		left := 0
		for _, row := range rows {
			epoch, was := held[row.Shard]
			who := names[row.Owner]
			if was && (row.Epoch <= epoch || who == "" || who == p.role.Name) {
				left++
			}
		}
		took := time.Since(at)
		if left == 0 {
			var list []uint8
			for shard := range held {
				list = append(list, shard)
			}
			slices.Sort(list)
			s.taken = append(s.taken, takeOver{what, p.role.Name, at, took, list})
			s.w.t.Logf("%6.2fs %s %s: its %d shards are owned by others after %v", time.Since(s.w.began).Seconds(), what, p.role.Name, len(held), took.Round(10*time.Millisecond))
			return
		}
		require.True(s.w.t, time.Now().Before(over), "%s %s: after %v %d of its %d shards have no other owner; servers: %v", what, p.role.Name, limit, left, len(held), names)
		wait(20 * time.Millisecond)
	}
}

// How long the issue lets a take-over last. The machine of a test may be busy: it fails at
// twice as much.
const (
	killedBound = 5 * time.Second
	frozenBound = 10 * time.Second
	slack       = 2
)

// kill kills a server, and brings it back when the others have its shards.
func (s *shards) kill(p *proc) {
	held, _ := s.of(p.role.Name)
	s.w.say("kill", p, 0)
	at := time.Now()
	require.NoError(s.w.t, p.killed("kill", syscall.SIGKILL))
	s.left(p, held, "kill", at, slack*killedBound)
	require.NoError(s.w.t, p.start())
}

// stop ends a server cleanly, and brings it back. Its shards go before it ends.
func (s *shards) stop(p *proc) {
	held, _ := s.of(p.role.Name)
	s.w.say("stop", p, 0)
	at := time.Now()
	ended := make(chan error, 1)
	go func() { ended <- p.term() }()
	s.left(p, held, "stop", at, slack*killedBound)
	require.NoError(s.w.t, <-ended)
	s.w.note(hit{what: "stop", kind: p.role.Kind, pid: p.cmd.Process.Pid, from: at.UnixNano(), to: time.Now().UnixNano()})
	require.NoError(s.w.t, p.start())
}

// freeze stops a server for so long beside everything else; the others take over meanwhile.
// The channel says when it runs again.
func (s *shards) freeze(p *proc, length time.Duration) (thawed chan error) {
	held, _ := s.of(p.role.Name)
	s.w.say("freeze", p, length)
	at := time.Now()
	thawed = make(chan error, 1)
	go func() { thawed <- p.freeze(length) }()
	s.left(p, held, "freeze", at, min(slack*frozenBound, length))
	return thawed
}

// killed kills the process and waits until it is gone.
func (p *proc) killed(what string, sig syscall.Signal) error {
	h := hit{what: what, kind: p.role.Kind, pid: p.cmd.Process.Pid, from: time.Now().UnixNano()}
	if err := p.signal(sig); err != nil {
		return err
	}
	<-p.gone
	h.to = time.Now().UnixNano()
	p.w.note(h)
	return nil
}

// say notes in the test's log what is done when.
func (w *world) say(what string, p *proc, length time.Duration) {
	w.t.Logf("%6.2fs %s %s (%d) %v", time.Since(w.began).Seconds(), what, p.role.Name, p.cmd.Process.Pid, length)
}

// stood is how late, at most, what was due in these shards from then on was fired, until the
// next server was struck: how long their schedules stood still.
func (o *takeOver) stood(fired map[int64][]engine.Fired, next time.Time) time.Duration {
	var late int64
	from, to := o.at.UnixMilli(), next.UnixMilli()
	for id, list := range fired {
		if !slices.Contains(o.shards, engine.ShardOf(id)) {
			continue
		}
		for _, f := range list {
			if f.At >= from && f.At < to {
				late = max(late, f.FiredAt-f.At)
			}
		}
	}
	return time.Duration(late) * time.Millisecond
}
