package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fanjet/fanjet/engine"
)

// errRow says that a row was refused, in a transaction that stores all Changes at once.
var errRow = errors.New("a row was refused")

// Commit stores the Changes in one transaction; see engine.Committer. Within a Change rows
// are inserted, then updated, then deleted. Beside ErrFenced and ErrConflict a Change may be
// dropped alone with ErrInvalid or ErrTooLarge: its text breaks a bound, or the database
// finds a row impossible. A Firing's Done is set once its Change is stored. Text and values that a run produced are cut with a mark instead.
//
// An update of an instance or workflow instance that is final changes nothing but an
// instance's late result, or begins a further attempt of a workflow instance.
func (db *DB) Commit(ctx context.Context, changes []engine.Change) ([]error, error) {
	errs := make([]error, len(changes))
	if err := ctx.Err(); err != nil {
		return errs, fmt.Errorf("commit: %w", err)
	}
	refused := make([]error, len(changes))
	for i := range changes {
		refused[i] = check(&changes[i])
		forget(&changes[i])
	}
	if db.singleRows {
		// Each statement is short, and the driver would start a goroutine a statement to
		// watch a context.
		ctx = context.WithoutCancel(ctx)
	}
	careful := goneBefore(changes)
	err := db.again(ctx, func() error {
		copy(errs, refused)
		err := db.commit(ctx, changes, errs, careful)
		if errors.Is(err, errRow) && !careful {
			careful = true
			copy(errs, refused)
			err = db.commit(ctx, changes, errs, careful)
		}
		return err
	})
	if err != nil {
		return errs, db.wrap(err, "commit %d changes", len(changes))
	}
	for i, err := range errs {
		if err != nil {
			errs[i] = db.wrap(err, "commit")
		}
	}
	return errs, nil
}

// commit is one try. Changes with an error already set are left out. Careful stores one
// Change after the other, each behind its savepoint.
func (db *DB) commit(ctx context.Context, changes []engine.Change, errs []error, careful bool) error {
	tx, err := db.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	w := db.writer(tx)
	if err := w.store(ctx, changes, errs, careful); err != nil {
		return errors.Join(err, ended(tx.Rollback()))
	}
	if err := tx.Commit(); err != nil {
		if db.retryable(err) {
			return errors.Join(err, ended(tx.Rollback()))
		}
		return fmt.Errorf("%w: whether it was stored is not known: %w", engine.ErrUnavailable, err)
	}
	for _, b := range w.books {
		b.tell()
	}
	return nil
}

func (w *writer) store(ctx context.Context, changes []engine.Change, errs []error, careful bool) error {
	if err := w.fence(ctx, changes, errs, !careful); err != nil {
		return err
	}
	switch {
	case careful:
		for i := range changes {
			if errs[i] != nil {
				continue
			}
			if err := w.storeAlone(ctx, &changes[i], &errs[i]); err != nil {
				return err
			}
		}
		return w.moveCursors(ctx, changes, errs)
	default:
		return w.storeAll(ctx, changes, errs)
	}
}

// storeAll stores the Changes together. One whose permit is refused is left out; if it would
// have moved a cursor, which the fence has moved by now, all is tried again with care.
func (w *writer) storeAll(ctx context.Context, changes []engine.Change, errs []error) error {
	b, err := w.read(ctx, changes, errs)
	if err != nil {
		return err
	}
	var all rows
	for i := range changes {
		c := &changes[i]
		if errs[i] != nil {
			continue
		}
		if b != nil {
			if err := b.decide(i, c); err != nil {
				if c.Cursor != 0 || c.ResetCursor {
					return fmt.Errorf("%w: %w", errRow, err)
				}
				errs[i] = err
				continue
			}
		}
		if !w.db.singleRows {
			all.add(c)
			all.made(b, i)
			continue
		}
		var r rows
		r.add(c)
		r.made(b, i)
		if err := r.write(ctx, w); err != nil {
			return w.rowError(err)
		}
	}
	if err := all.write(ctx, w); err != nil {
		return w.rowError(err)
	}
	if err := b.write(ctx, w); err != nil {
		return w.rowError(err)
	}
	w.books = append(w.books, b)
	return nil
}

func (w *writer) rowError(err error) error {
	if err != nil && w.db.refused(err) {
		return fmt.Errorf("%w: %w", errRow, err)
	}
	return err
}

// storeAlone stores one Change, or drops it alone and says why in dropped.
func (w *writer) storeAlone(ctx context.Context, c *engine.Change, dropped *error) error {
	if _, err := w.tx.Tx.ExecContext(ctx, "SAVEPOINT one"); err != nil {
		return err
	}
	b, err := w.storeOne(ctx, c)
	switch {
	case err == nil:
		w.books = append(w.books, b)
	case !w.db.refused(err) && !errors.Is(err, engine.ErrLimit):
		return err
	default:
		*dropped = err
		if _, err := w.tx.Tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT one"); err != nil {
			return err
		}
	}
	_, err = w.tx.Tx.ExecContext(ctx, "RELEASE SAVEPOINT one")
	return err
}

func (w *writer) storeOne(ctx context.Context, c *engine.Change) (*book, error) {
	changes := []engine.Change{*c}
	b, err := w.read(ctx, changes, make([]error, 1))
	if err != nil {
		return nil, err
	}
	if b != nil {
		if err := b.decide(0, c); err != nil {
			return nil, err
		}
	}
	var r rows
	r.add(c)
	r.made(b, 0)
	if err := r.write(ctx, w); err != nil {
		return nil, err
	}
	return b, b.write(ctx, w)
}

// goneBefore tells whether a Change writes a row that an earlier one deletes, so that
// writing all rows of a kind together would put them in the wrong order.
func goneBefore(changes []engine.Change) bool {
	tasks, commands := map[engine.TaskKey]bool{}, map[int64]bool{}
	for i := range changes {
		c := &changes[i]
		if len(tasks) > 0 && (slices.ContainsFunc(c.NewTasks, func(t engine.Task) bool { return tasks[t.TaskKey] }) ||
			slices.ContainsFunc(c.Tasks, func(t engine.Task) bool { return tasks[t.TaskKey] })) {
			return true
		}
		if len(commands) > 0 && slices.ContainsFunc(c.NewCommands, func(n engine.Command) bool { return commands[n.ID] }) {
			return true
		}
		for _, k := range c.GoneTasks {
			tasks[k] = true
		}
		for _, id := range c.GoneCommands {
			commands[id] = true
		}
	}
	return false
}

// check refuses a Change that no database should see.
func check(c *engine.Change) error {
	var d door
	d.hold(c.Fenced || len(c.Instances)+len(c.Runs)+len(c.Tasks)+len(c.GoneTasks)+len(c.Workflows)+len(c.Nodes)+len(c.GoneSignals)+len(c.GoneCommands) == 0,
		"an unfenced change may only insert")
	shard := func(s uint8) {
		d.hold(!c.Fenced || s == c.Shard, "a change of shard %d has a row of shard %d", c.Shard, s)
	}
	for _, all := range [][]engine.Instance{c.NewInstances, c.Instances} {
		for i := range all {
			shard(all[i].Shard)
			checkInstance(&d, &all[i])
		}
	}
	for _, all := range [][]engine.MapRun{c.NewRuns, c.Runs} {
		for i := range all {
			d.bytes("state of a map run", all[i].State, maxState)
		}
	}
	for _, all := range [][]engine.Task{c.NewTasks, c.Tasks} {
		for i := range all {
			checkTask(&d, &all[i])
		}
	}
	for _, all := range [][]engine.WorkflowInstance{c.NewWorkflows, c.Workflows} {
		for i := range all {
			shard(all[i].Shard)
			checkWorkflowInstance(&d, &all[i])
		}
	}
	for _, all := range [][]engine.Node{c.NewNodes, c.Nodes} {
		for i := range all {
			checkNode(&d, &all[i])
		}
	}
	for i := range c.NewSignals {
		checkSignal(&d, &c.NewSignals[i])
	}
	for i := range c.NewCommands {
		checkCommand(&d, &c.NewCommands[i])
	}
	checkSchedules(&d, c)
	return d.err()
}

// tables are all kinds of rows that a Change writes.
type tables struct {
	instances   *table[instanceRow]
	attempts    *table[attemptRow]
	tasks       *table[taskRow]
	runs        *table[mapRunRow]
	workflows   *table[workflowInstanceRow]
	nodes       *table[nodeRow]
	signals     *table[signalRow]
	commands    *table[commandRow]
	deadLetters *table[deadLetterRow]
	schedules   *table[scheduleRow]
	ledger      *table[ledgerRow]
	permits     *table[permitRow]
}

func newTables(db *DB) tables {
	return tables{
		instances:   newTable[instanceRow](db, finalGuard, instanceFixed...),
		attempts:    newTable[attemptRow](db, ""),
		tasks:       newTable[taskRow](db, ""),
		runs:        newTable[mapRunRow](db, ""),
		workflows:   newTable[workflowInstanceRow](db, workflowGuard, workflowInstanceFixed...),
		nodes:       newTable[nodeRow](db, "", "node_index"),
		signals:     newTable[signalRow](db, ""),
		commands:    newTable[commandRow](db, ""),
		deadLetters: newTable[deadLetterRow](db, ""),
		schedules:   newTable[scheduleRow](db, "", scheduleFixed...),
		ledger:      newTable[ledgerRow](db, ""),
		permits:     newTable[permitRow](db, ""),
	}
}

// statements are the texts that the committer prepares on SQLite.
func (t *tables) statements() []string {
	return []string{
		fenceText, lateText, endedText, rearmText, growText,
		t.instances.insertText, t.instances.updateText, t.attempts.insertText,
		t.tasks.insertText, t.tasks.updateText, t.tasks.deleteText,
		t.runs.insertText, t.runs.updateText,
		t.workflows.insertText, t.workflows.updateText, t.nodes.insertText, t.nodes.updateText,
		t.signals.insertText, t.signals.deleteText,
		t.commands.insertText, t.commands.deleteText, t.deadLetters.insertText,
		t.schedules.updateText, t.ledger.deleteText, t.permits.insertText, t.permits.deleteText,
	}
}

// rows are what one or several Changes write.
type rows struct {
	newInstances, instances []instanceRow
	newAttempts             []attemptRow
	newRuns, runs           []mapRunRow
	newTasks, tasks, gone   []taskRow
	newWorkflows, workflows []workflowInstanceRow
	newNodes, nodes         []nodeRow
	newSignals, goneSignals []signalRow
	newCommands, answered   []commandRow
	deadLetters             []deadLetterRow
}

func (r *rows) add(c *engine.Change) {
	r.newInstances = appendRows(r.newInstances, c.NewInstances, newInstanceRow)
	r.instances = appendRows(r.instances, c.Instances, newInstanceRow)
	r.newAttempts = appendRows(r.newAttempts, c.NewAttempts, newAttemptRow)
	r.newRuns = appendRows(r.newRuns, c.NewRuns, newMapRunRow)
	r.runs = appendRows(r.runs, c.Runs, newMapRunRow)
	r.newTasks = appendRows(r.newTasks, c.NewTasks, newTaskRow)
	r.tasks = appendRows(r.tasks, c.Tasks, newTaskRow)
	r.gone = appendRows(r.gone, c.GoneTasks, func(k *engine.TaskKey) taskRow { return newTaskKey(*k) })
	r.newWorkflows = appendRows(r.newWorkflows, c.NewWorkflows, newWorkflowInstanceRow)
	r.workflows = appendRows(r.workflows, c.Workflows, newWorkflowInstanceRow)
	r.newNodes = appendRows(r.newNodes, c.NewNodes, newNodeRow)
	r.nodes = appendRows(r.nodes, c.Nodes, newNodeRow)
	r.newSignals = appendRows(r.newSignals, c.NewSignals, newSignalRow)
	r.goneSignals = appendRows(r.goneSignals, c.GoneSignals, func(id *int64) signalRow { return signalRow{ID: *id} })
	r.newCommands = appendRows(r.newCommands, c.NewCommands, newCommandRow)
	r.answered = appendRows(r.answered, c.GoneCommands, func(id *int64) commandRow { return commandRow{ID: *id} })
	r.deadLetters = appendRows(r.deadLetters, c.DeadLetters, newDeadLetterRow)
}

func appendRows[N, R any](rows []R, nouns []N, row func(*N) R) []R {
	rows = slices.Grow(rows, len(nouns))
	for i := range nouns {
		rows = append(rows, row(&nouns[i]))
	}
	return rows
}

func (r *rows) write(ctx context.Context, w *writer) error {
	t := &w.db.tables
	for _, step := range []func() error{
		func() error { return t.instances.insert(ctx, w, r.newInstances) },
		func() error { return t.attempts.insert(ctx, w, r.newAttempts) },
		func() error { return t.runs.insert(ctx, w, r.newRuns) },
		func() error { return t.tasks.insert(ctx, w, r.newTasks) },
		func() error { return t.workflows.insert(ctx, w, r.newWorkflows) },
		func() error { return t.nodes.insert(ctx, w, r.newNodes) },
		func() error { return t.signals.insert(ctx, w, r.newSignals) },
		func() error { return t.commands.insert(ctx, w, r.newCommands) },
		func() error { return t.deadLetters.insert(ctx, w, r.deadLetters) },
		func() error { return t.instances.update(ctx, w, r.instances) },
		func() error { return r.writeLate(ctx, w) },
		func() error { return t.runs.update(ctx, w, r.runs) },
		func() error { return t.tasks.update(ctx, w, r.tasks) },
		func() error { return t.workflows.update(ctx, w, r.workflows) },
		func() error { return t.nodes.update(ctx, w, r.nodes) },
		func() error { return t.tasks.remove(ctx, w, r.gone) },
		func() error { return t.signals.remove(ctx, w, r.goneSignals) },
		func() error { return t.commands.remove(ctx, w, r.answered) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// writeLate stores the late results of instances that were final before.
func (r *rows) writeLate(ctx context.Context, w *writer) error {
	for i := range r.instances {
		if r.instances[i].Late == nil {
			continue
		}
		if _, err := w.exec(ctx, lateText, r.instances[i].Late, r.instances[i].ID); err != nil {
			return fmt.Errorf("write late result: %w", err)
		}
	}
	return nil
}
