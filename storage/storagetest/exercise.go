// Package storagetest holds the suite that every dialect of storage must pass, and starts
// the private MariaDB that the suite runs on.
package storagetest

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/workflow"
)

// Raw runs SQL of a test on the database of a store, past all its checks. Texts use ? and
// nothing that only one database knows. A store that offers it proves that the database
// itself refuses impossible rows.
type Raw interface {
	RawExec(ctx context.Context, text string, args ...any) (sql.Result, error)
}

// Exercise runs the suite. open returns a store on an empty database of its own, or on the
// one database of the test, and closes it when the test ends.
func Exercise(t *testing.T, open func(t *testing.T) engine.Store) {
	for _, c := range []struct {
		name string
		run  func(t *testing.T, s engine.Store)
	}{
		{"instance", exerciseInstances},
		{"late result", exerciseLate},
		{"terminal is final", exerciseTerminal},
		{"fence", exerciseFence},
		{"cursor", exerciseCursor},
		{"conflict", exerciseConflicts},
		{"fire", exerciseFire},
		{"unfenced", exerciseUnfenced},
		{"order within a commit", exerciseOrder},
		{"concurrent commits", exerciseConcurrentCommits},
		{"big commit", exerciseBigCommit},
		{"task", exerciseTasks},
		{"map run", exerciseMapRuns},
		{"workflow instance", exerciseWorkflowInstances},
		{"workflow retry", exerciseRetries},
		{"signal", exerciseSignals},
		{"command", exerciseCommands},
		{"dead letter", exerciseDeadLetters},
		{"load shard", exerciseLoadShard},
		{"queue", exerciseQueue},
		{"queue heads", exerciseQueueHeads},
		{"server", exerciseServers},
		{"server take-over", exerciseTakeOver},
		{"shard", exerciseShards},
		{"app", exerciseApps},
		{"worker", exerciseWorkers},
		{"job", exerciseJobs},
		{"workflow", exerciseWorkflows},
		{"container", exerciseContainers},
		{"schedule", exerciseSchedules},
		{"due schedules", exerciseDueSchedules},
		{"pause", exercisePause},
		{"calendar", exerciseCalendars},
		{"firing", exerciseFiring},
		{"firing of a workflow", exerciseFiringWorkflow},
		{"many firings", exerciseFiringMany},
		{"firing races", exerciseFiringRaces},
		{"firing refused", exerciseFiringRefused},
		{"ledger", exerciseLedger},
		{"ended", exerciseEnded},
		{"fixed delay", exerciseFixedDelay},
		{"permit", exercisePermits},
		{"permit races", exercisePermitRaces},
		{"business key", exerciseKeys},
		{"delete history", exerciseDeleteHistory},
		{"user", exerciseUsers},
		{"first user", exerciseFirstUser},
		{"login", exerciseLogins},
		{"role", exerciseRoles},
		{"the last admin", exerciseLastAdmin},
		{"session", exerciseSessions},
		{"session races", exerciseSessionRaces},
		{"code", exerciseCodes},
		{"token", exerciseTokens},
		{"audit", exerciseAudit},
		{"audit of 8 writers", exerciseAuditRaces},
		{"secret", exerciseSecrets},
		{"impossible identities", exerciseImpossibleIdentities},
		{"history", exerciseHistory},
		{"bounds", exerciseBounds},
		{"any text", exerciseAnyText},
		{"impossible rows", exerciseImpossible},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, open(t))
		})
	}
}

// last is the highest id given out; tests share it as they may share a database.
var last atomic.Int64

func init() { last.Store(1 << 40) }

func newID() int64 { return last.Add(1) }

// base is a time in 2026.
const base = 1_790_000_000_000

// owner is a server that owns one shard.
type owner struct {
	t      *testing.T
	s      engine.Store
	server *engine.Server
	shard  engine.Shard
}

// own makes a server and claims the shard for it.
func own(t *testing.T, s engine.Store, shard uint8) *owner {
	t.Helper()
	server, err := s.JoinServer(t.Context(), fmt.Sprintf("server-%d", newID()), uint64(newID()), 600_000)
	require.NoError(t, err)
	claimed, err := s.ClaimShard(t.Context(), shard, server.Number, server.Token)
	require.NoError(t, err)
	return &owner{t: t, s: s, server: server, shard: *claimed}
}

// change is an empty Change of the owner.
func (o *owner) change() engine.Change {
	return engine.Change{Fenced: true, Shard: o.shard.Shard, Owner: o.shard.Owner, Epoch: o.shard.Epoch}
}

// must commits the Changes and wants each of them stored.
func (o *owner) must(changes ...engine.Change) {
	o.t.Helper()
	errs, err := o.s.Commit(o.t.Context(), changes)
	require.NoError(o.t, err)
	require.Len(o.t, errs, len(changes))
	for i, err := range errs {
		require.NoError(o.t, err, "change %d", i)
	}
}

// one commits a Change and returns its own error.
func one(t *testing.T, s engine.Store, c engine.Change) error {
	t.Helper()
	errs, err := s.Commit(t.Context(), []engine.Change{c})
	require.NoError(t, err)
	require.Len(t, errs, 1)
	return errs[0]
}

// instance is a new one of the shard in that status.
func instance(shard uint8, status engine.Status) engine.Instance {
	i := engine.Instance{
		ID: newID(), App: 7, Shard: shard, Job: 70, JobVersion: 3, Status: status, Attempt: 1, Lane: workflow.LaneNormal, Pool: workflow.PoolAny,
		Key: "order-1", Params: []byte(`{"n":1}`), DueAt: base, CreatedAt: base,
	}
	switch {
	case status == engine.StatusWaiting:
		i.Reason = engine.ReasonDue
	case status == engine.StatusRunning:
		i.StartedAt = base + 1
	case status.Terminal():
		i.StartedAt, i.FinishedAt = base+1, base+2
	}
	return i
}

func stored(t *testing.T, s engine.Store, id int64) engine.Instance {
	t.Helper()
	i, err := s.Instance(t.Context(), id)
	require.NoError(t, err)
	return *i
}
