package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ReadStage reads up to max messages of the run from sequence from on, in order. Fewer
// than max means that there are no more for now. What cannot be decoded ends it with
// ErrUndecodable, naming the sequence; what lies before it is returned too.
func (b *Broker) ReadStage(ctx context.Context, app, set string, instance int64, run int32, from uint64, max int) ([]Staged, error) {
	if err := checkApp(app, set); err != nil {
		return nil, err
	}
	if max <= 0 {
		return nil, nil
	}
	out := make([]Staged, 0, min(max, getBatch))
	err := b.l.getAll(ctx, kindStage.streamOf(app, set), runSubject(kindStage, app, set, instance, run), from, max, func(s stored) error {
		out = append(out, Staged{Seq: s.seq})
		if err := decodeStage(s.data, &out[len(out)-1].StageBatch); err != nil {
			out = out[:len(out)-1]
			return fmt.Errorf("stage message %d of run %d of instance %d: %w", s.seq, run, instance, err)
		}
		return nil
	})
	return out, err
}

// ReadStaged reads the one stage message with that sequence; ErrNotFound if it is gone or
// another app's.
func (b *Broker) ReadStaged(ctx context.Context, set string, app string, seq uint64) (*Staged, error) {
	if err := checkApp(app, set); err != nil {
		return nil, err
	}
	s, err := b.l.getOne(ctx, kindStage.streamOf(app, set), getRequest{Seq: seq})
	if err != nil {
		return nil, err
	}
	root := kindStage.root(app, set) + "."
	if len(s.subject) < len(root) || s.subject[:len(root)] != root {
		return nil, fmt.Errorf("stage message %d is not of app %s: %w", seq, app, ErrNotFound)
	}
	out := &Staged{Seq: s.seq}
	if err := decodeStage(s.data, &out.StageBatch); err != nil {
		return nil, fmt.Errorf("stage message %d of app %s: %w", seq, app, err)
	}
	return out, nil
}

// TaskCounts is how many chunks each instance of the app has in the task stream
// (published and not acked), over all lanes and pools. No stream counts as no chunks.
func (b *Broker) TaskCounts(ctx context.Context, app, set string) (map[int64]int, error) {
	if err := checkApp(app, set); err != nil {
		return nil, err
	}
	st, err := b.l.state(ctx, kindTask.streamOf(app, set), kindTask.root(app, set)+".>")
	if err != nil && !noSuch(err) {
		return nil, err
	}
	out := make(map[int64]int, len(st.Subjects))
	for subject, n := range st.Subjects {
		if id, ok := instanceOf(subject); ok {
			out[id] += int(n)
		}
	}
	return out, nil
}

// RunHolders lists the instances of the app that have messages in the stage or among the
// results, in no order. No stream counts as none.
func (b *Broker) RunHolders(ctx context.Context, app, set string) ([]int64, error) {
	if err := checkApp(app, set); err != nil {
		return nil, err
	}
	seen := map[int64]bool{}
	var out []int64
	for _, k := range []kind{kindStage, kindResult} {
		st, err := b.l.state(ctx, k.streamOf(app, set), k.root(app, set)+".>")
		if err != nil && !noSuch(err) {
			return nil, err
		}
		for subject := range st.Subjects {
			if id, ok := instanceOf(subject[:max(strings.LastIndexByte(subject, '.'), 0)]); ok && !seen[id] {
				seen[id] = true
				out = append(out, id)
			}
		}
	}
	return out, nil
}

// TaskList lists the chunks of one instance in the task stream: at least all that were stored
// before the call and are not acked. Chunks acked meanwhile may still be listed; one that
// cannot be decoded is not. 5 s without a deadline.
func (b *Broker) TaskList(ctx context.Context, app, set string, instance int64) ([]ChunkKey, error) {
	if err := checkApp(app, set); err != nil {
		return nil, err
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, requestWait)
		defer cancel()
	}
	var out []ChunkKey
	err := b.l.getAll(ctx, kindTask.streamOf(app, set), taskInstanceFilter(app, set, instance), 0, 0, func(s stored) error {
		k, err := decodeChunkKey(s.data)
		if err != nil {
			b.l.undecodable("chunk", s.subject, err)
			return nil
		}
		out = append(out, k)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// sliceBytes bounds one purge: the stream takes nothing meanwhile.
const sliceBytes = 64 << 20

// PurgeTasks removes the chunks of an instance, those in flight too; a later ack of one is
// harmless. No stream is nothing to do.
func (b *Broker) PurgeTasks(ctx context.Context, app, set string, instance int64) error {
	if err := checkApp(app, set); err != nil {
		return err
	}
	return b.purge(ctx, kindTask.streamOf(app, set), taskInstanceFilter(app, set, instance))
}

// PurgeRun removes the stage and the results of a map run, in slices of at most 64 MiB.
// Run 0 means all runs of the instance. No stream is nothing to do.
func (b *Broker) PurgeRun(ctx context.Context, app, set string, instance int64, run int32) error {
	if err := checkApp(app, set); err != nil {
		return err
	}
	for _, k := range []kind{kindStage, kindResult} {
		if err := b.purge(ctx, k.streamOf(app, set), runFilter(k, app, set, instance, run)); err != nil {
			return err
		}
	}
	return nil
}

type purgeRequest struct {
	Filter string `json:"filter,omitempty"`
	Seq    uint64 `json:"seq,omitempty"` // up to, not including
}

// purge removes what matches filter. What is stored meanwhile may stay.
func (b *Broker) purge(ctx context.Context, stream, filter string) error {
	op := "purge " + filter
	st, err := b.l.state(ctx, stream, filter)
	if noSuch(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if len(st.Subjects) == 0 {
		return nil
	}
	last := st.LastSeq
	if st.Bytes > sliceBytes {
		// As many sequences as hold a slice on the average; gaps only make slices smaller.
		step := max(1, uint64(float64(st.Messages)*sliceBytes/float64(st.Bytes)))
		done := uint64(1)
		for {
			// Begin at the first message that is there: most of the stream may be others'. A
			// replica that lags behind may still show what is purged.
			first, err := b.first(ctx, stream, filter, done)
			if err != nil {
				return err
			}
			if first == 0 || first+step > last {
				break
			}
			done = first + step
			if err := b.l.api(ctx, op, "STREAM.PURGE."+stream, purgeRequest{filter, done}, nil); err != nil {
				return err
			}
		}
	}
	err = b.l.api(ctx, op, "STREAM.PURGE."+stream, purgeRequest{Filter: filter}, nil)
	if noSuch(err) {
		return nil
	}
	return err
}

// first is the sequence of the first message from from on that matches, 0 if there is none.
func (b *Broker) first(ctx context.Context, stream, filter string, from uint64) (uint64, error) {
	var seq uint64
	_, err := b.l.getSome(ctx, stream, getRequest{Seq: from, NextFor: filter, Batch: 1}, func(s stored) error {
		seq = s.seq
		return nil
	})
	return seq, err
}

// RunCounts is how many stage, result and task messages the instance still has. No stream
// counts as none.
func (b *Broker) RunCounts(ctx context.Context, app, set string, instance int64) (stage, results, tasks uint64, err error) {
	if err := checkApp(app, set); err != nil {
		return 0, 0, 0, err
	}
	for _, q := range []struct {
		to     *uint64
		k      kind
		filter string
	}{
		{&stage, kindStage, runFilter(kindStage, app, set, instance, 0)},
		{&results, kindResult, runFilter(kindResult, app, set, instance, 0)},
		{&tasks, kindTask, taskInstanceFilter(app, set, instance)},
	} {
		n, err := b.l.count(ctx, q.k.streamOf(app, set), q.filter)
		if err != nil && !noSuch(err) {
			return 0, 0, 0, err
		}
		*q.to = n
	}
	return stage, results, tasks, nil
}

// ReadLogs calls each for the log batches of an instance with sequence in from..to (to 0:
// up to the end), in order. Batches that cannot be decoded are counted and left out. An
// error of each ends it and is returned as it is.
func (b *Broker) ReadLogs(ctx context.Context, app, set string, instance int64, from, to uint64, each func(seq uint64, l *LogBatch) error) error {
	if err := checkApp(app, set); err != nil {
		return err
	}
	err := b.l.getAll(ctx, kindLog.streamOf(app, set), logSubject(app, set, instance), from, 0, func(s stored) error {
		if to > 0 && s.seq > to {
			return errEnough
		}
		id, err := decodeLogInstance(s.data)
		if err == nil && id != instance {
			return nil // another instance of the bucket
		}
		var batch *LogBatch
		if err == nil {
			batch, err = DecodeLog(s.data)
		}
		if err != nil {
			b.l.undecodable("log", s.subject, err)
			return nil
		}
		return each(s.seq, batch)
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}
