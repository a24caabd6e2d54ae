package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/api"
	"github.com/fanjet/fanjet/engine/server"
	"github.com/fanjet/fanjet/processor"
	"github.com/fanjet/fanjet/workflow"
)

// asker asks the server through the broker, as the command line does.
type asker struct {
	w *world
	c *broker.Client
}

func (w *world) asker() asker { return asker{w, w.broker.Client(w.t)} }

// ask sends what it is given as it is, and gives the answer as it came.
func (a asker) ask(name, question string) string {
	a.w.t.Helper()
	ctx, cancel := context.WithTimeout(a.w.ctx, 20*time.Second)
	defer cancel()
	answer, err := a.c.Call(ctx, name, []byte(question))
	require.NoError(a.w.t, err)
	return string(answer)
}

func answer[A any](a asker, name, question string) A {
	a.w.t.Helper()
	var out A
	text := a.ask(name, question)
	require.NoError(a.w.t, json.Unmarshal([]byte(text), &out), text)
	return out
}

// A schedule that has no meaning is refused with the name of its field, and nothing is saved.
func TestBrokenSchedulesAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	a := w.asker()
	for schedule, words := range map[string][]string{
		`{"cron":"61 * * * *"}`:                                {"schedule.cron", "column 1"},
		`{"cron":"*/90 * * * *"}`:                              {"schedule.cron"},
		`{"cron":"0 0 30 2 *"}`:                                {"schedule", "never"},
		`{"every":"50ms"}`:                                     {"schedule.every"},
		`{"every":"1s","zone":"Mars/Olympus"}`:                 {"schedule.zone"},
		`{"every":"1s","misfire":"twice"}`:                     {"schedule.misfire"},
		`{"every":"1s","misfire":"all","misfire_max":1000000}`: {"schedule.misfire_max"},
		`{"every":"1s","overlap":"perhaps"}`:                   {"schedule.overlap"},
		`{"every":"1s","jitter":"2h"}`:                         {"schedule.jitter"},
		`{"every":"1s","calendars":["nobody"]}`:                {"schedule.calendars", "nobody"},
		`{"every":"1s","after":[{"job":"self"}]}`:              {"schedule.after", "itself"},
		`{"every":"1s","after":[{"job":"No Name"}]}`:           {"schedule.after"},
		`{"every":"1s","ever":"2s"}`:                           {"schedule", "ever"},
		`{"every":1.5}`:                                        {"schedule"},
		`{"at":"2001-02-03T04:05:06Z"}`:                        {"schedule", "never"},
		`{"cron":"* * * * *","end":"2001-01-01T00:00:00Z"}`:    {"schedule", "never"},
	} {
		got := answer[api.SaveJobReply](a, api.CallSaveJob, `{"app":"test","name":"self","spec":{"processor":"p"},"schedule":`+schedule+`}`)
		require.NotNil(t, got.Error, schedule)
		require.Equal(t, "invalid", got.Error.Code, schedule)
		for _, word := range words {
			require.Contains(t, got.Error.Message, word, schedule)
		}
	}
	got := answer[api.ScheduleReply](a, api.CallSchedule, `{"app":"test","job":"self"}`)
	require.Equal(t, "not_found", got.Error.Code)
}

// What the calls answer, to the field.
func TestScheduleCalls(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	a := w.asker()
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	t.Cleanup(release)
	w.worker("w", 4, func(p *processor.Worker) {
		p.Register("hold", processor.Func(func(ctx context.Context, _ *processor.Task) (any, error) {
			select {
			case <-hold:
			case <-ctx.Done():
			}
			return nil, nil
		}))
	})
	saved := answer[api.SaveJobReply](a, api.CallSaveJob, `{"app":"test","name":"j","spec":{"processor":"hold"},"schedule":{"every":"100ms"}}`)
	require.Nil(t, saved.Error)
	require.EqualValues(t, 1, saved.Version)
	again := answer[api.SaveJobReply](a, api.CallSaveJob, `{"app":"test","name":"j","spec":{"processor":"hold"},"schedule":{"every":"100ms"}}`)
	require.Equal(t, saved, again, "what is there makes no new version")

	var l api.LedgerReply
	require.Eventually(t, func() bool {
		l = answer[api.LedgerReply](a, api.CallLedger, `{"app":"test","job":"j"}`)
		return len(l.Entries) == 2 && l.Entries[1].Count >= 3
	}, eventually, 20*time.Millisecond)
	fired, skipped := l.Entries[0], l.Entries[1]
	require.NotZero(t, fired.Instance)
	require.Equal(t, api.LedgerEntry{
		From: fired.From, To: fired.From, Count: 1, Instance: fired.Instance, FiredAt: fired.From + fired.LateMS, LateMS: fired.LateMS, Status: fired.Status,
	}, fired)
	require.Contains(t, []string{"waiting", "dispatched", "running"}, fired.Status)
	require.Equal(t, api.LedgerEntry{From: fired.From + 100, To: fired.From + 100*skipped.Count, Count: skipped.Count, Skipped: "overlap"}, skipped)
	require.True(t, answer[api.LedgerReply](a, api.CallLedger, `{"app":"test","job":"j","limit":1}`).More)

	st := answer[api.ScheduleReply](a, api.CallSchedule, `{"app":"test","job":"j"}`)
	require.Nil(t, st.Error)
	require.Equal(t, "job", st.Kind)
	require.Equal(t, saved.ID, st.ID)
	require.True(t, st.Enabled)
	require.JSONEq(t, `{"every":"100ms"}`, string(st.Schedule))
	require.EqualValues(t, 1, st.Open)
	require.NotZero(t, st.NextAt)

	st = answer[api.ScheduleReply](a, api.CallSchedule, `{"app":"test","job":"j","order":"pause"}`)
	require.NotZero(t, st.PausedAt)
	require.Zero(t, st.NextAt, "it fires no more")
	release()
	require.Eventually(t, func() bool {
		st = answer[api.ScheduleReply](a, api.CallSchedule, `{"app":"test","job":"j"}`)
		return st.Open == 0
	}, eventually, 20*time.Millisecond)
	require.EqualValues(t, 1, st.Runs)
	require.EqualValues(t, 1, st.Succeeded)
	require.Equal(t, fired.Instance, st.LastID)
	require.Equal(t, "succeeded", st.LastStatus)
	require.Equal(t, 1, st.Window)
	require.GreaterOrEqual(t, st.LastEnd, st.LastStart)

	v := answer[api.VerifyReply](a, api.CallVerify, `{"app":"test","job":"j"}`)
	require.Nil(t, v.Error)
	require.True(t, v.Clean(), "%+v", v)
	require.EqualValues(t, 1, v.Fired)
	require.GreaterOrEqual(t, v.Skipped, skipped.Count)
	require.Equal(t, v.Expected, v.Fired+v.Skipped)

	st = answer[api.ScheduleReply](a, api.CallSchedule, `{"app":"test","job":"j","order":"resume"}`)
	require.Zero(t, st.PausedAt)
	require.Eventually(t, func() bool {
		return answer[api.ScheduleReply](a, api.CallSchedule, `{"app":"test","job":"j"}`).Runs >= 3
	}, eventually, 20*time.Millisecond)
	// What did not run for overlap is made up for by hand.
	question := fmt.Sprintf(`{"app":"test","job":"j","from":%d,"to":%d`, fired.From, fired.From+200)
	want := api.BackfillReply{Times: []int64{fired.From + 100, fired.From + 200}, Existed: 1}
	require.Equal(t, want, answer[api.BackfillReply](a, api.CallBackfill, question+`,"dry_run":true}`))
	require.Equal(t, want, answer[api.BackfillReply](a, api.CallBackfill, question+`}`))
	require.JSONEq(t, `{"times":[],"existed":3}`, a.ask(api.CallBackfill, question+`}`))
	b := answer[api.BackfillReply](a, api.CallBackfill, question+`,"max":2}`)
	require.Equal(t, "too_large", b.Error.Code)

	st = answer[api.ScheduleReply](a, api.CallSchedule, `{"app":"test","job":"j","order":"disable"}`)
	require.False(t, st.Enabled)
	b = answer[api.BackfillReply](a, api.CallBackfill, fmt.Sprintf(`{"app":"test","job":"j","from":%d,"to":%d}`, fired.From, fired.From+200))
	require.Equal(t, "conflict", b.Error.Code)
	st = answer[api.ScheduleReply](a, api.CallSchedule, `{"app":"test","job":"j","order":"enable"}`)
	require.True(t, st.Enabled)

	for question, code := range map[string]string{
		`{"app":"test","job":"j","order":"explode"}`: "invalid",
		`{"app":"test","job":"j","workflow":"j"}`:    "invalid",
		`{"app":"test"}`:                                "invalid",
		`{"app":"test","job":"nobody"}`:                 "not_found",
		`{"app":"nobody","job":"j"}`:                    "not_found",
		`{"app":"test","workflow":"j","order":"pause"}`: "not_found",
	} {
		got := answer[api.ScheduleReply](a, api.CallSchedule, question)
		require.NotNil(t, got.Error, question)
		require.Equal(t, code, got.Error.Code, question)
	}
}

func TestCancelKeyCall(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	a := w.asker()
	w.job("expire", workflow.Spec{Processor: "nobody"})
	tr := answer[api.StartReply](a, api.CallTrigger, `{"app":"test","job":"expire","key":"order-1","delay_ms":3600000,"count":3}`)
	require.Nil(t, tr.Error)
	require.Equal(t, api.CancelKeyReply{Count: 3}, answer[api.CancelKeyReply](a, api.CallCancelKey, `{"app":"test","job":"expire","key":"order-1"}`))
	in, err := w.server.WaitInstance(w.ctx, tr.ID)
	require.NoError(t, err)
	require.Equal(t, engine.StatusCanceled, in.Status)
	require.Equal(t, "invalid", answer[api.CancelKeyReply](a, api.CallCancelKey, `{"app":"test","job":"expire"}`).Error.Code)
	require.Equal(t, "not_found", answer[api.CancelKeyReply](a, api.CallCancelKey, `{"app":"test","job":"x","key":"k"}`).Error.Code)
}

// Scheduled times that have passed are fired by hand: each once, as a call would, and no fire
// of now is let in or kept out for it.
func TestBackfill(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		w := newWorld(t, url)
		begun, hold := make(chan struct{}, 100), make(chan struct{})
		release := sync.OnceFunc(func() { close(hold) })
		t.Cleanup(release)
		var mu sync.Mutex
		var seen []int64
		w.worker("w", 8, func(p *processor.Worker) {
			p.Register("note", processor.Func(func(ctx context.Context, task *processor.Task) (any, error) {
				if task.Key() == engine.KeyBackfill {
					mu.Lock()
					seen = append(seen, task.ScheduledAt().UnixMilli())
					mu.Unlock()
					return nil, nil
				}
				begun <- struct{}{}
				select {
				case <-hold:
				case <-ctx.Done():
				}
				return nil, nil
			}))
		})
		d := w.scheduled("j", workflow.Spec{Processor: "note"}, workflow.Schedule{Cron: "* * * * * ?"})
		<-begun // one of now is under way, for as long as this test wants
		now := w.standing(d).AnchorAt / 1000 * 1000
		b := server.Backfill{App: "test", Job: "j", From: now - 60_000, To: now - 50_000}
		var want []int64
		for at := b.From; at <= b.To; at += 1000 {
			want = append(want, at)
		}
		dry := b
		dry.DryRun = true
		times, existed, err := w.server.Backfill(w.ctx, dry)
		require.NoError(t, err)
		require.Equal(t, want, times)
		require.Zero(t, existed)
		fired, _ := w.ledger(d)
		require.Len(t, fired, 1, "a dry run makes nothing")

		capped := b
		capped.Max = 10
		_, _, err = w.server.Backfill(w.ctx, capped)
		require.ErrorIs(t, err, engine.ErrTooLarge)
		future := b
		future.To = time.Now().Add(time.Hour).UnixMilli()
		_, _, err = w.server.Backfill(w.ctx, future)
		require.ErrorIs(t, err, engine.ErrInvalid)

		times, _, err = w.server.Backfill(w.ctx, b)
		require.NoError(t, err)
		require.Equal(t, want, times)
		times, existed, err = w.server.Backfill(w.ctx, b)
		require.NoError(t, err)
		require.Empty(t, times)
		require.EqualValues(t, len(want), existed)
		require.Eventually(t, func() bool { return w.standing(d).Runs == int64(len(want)) }, eventually, 20*time.Millisecond)
		mu.Lock()
		slices.Sort(seen)
		require.Equal(t, want, seen, "each once")
		mu.Unlock()

		// Their ends are no ends of the one that is under way: what overlaps it is skipped still.
		require.EqualValues(t, 1, w.standing(d).Open)
		handled := w.standing(d).HandledAt
		require.Eventually(t, func() bool { return w.standing(d).HandledAt > handled }, eventually, 20*time.Millisecond)
		require.Empty(t, begun)
		require.NoError(t, w.server.PauseSchedule(w.ctx, d))
		release()
		require.Eventually(t, func() bool { return w.standing(d).Open == 0 }, eventually, 20*time.Millisecond)
		v, err := w.server.Verify(w.ctx, d, 0, 0)
		require.NoError(t, err)
		require.True(t, v.Clean(), "%+v", v)
		require.EqualValues(t, len(want)+1, v.Fired)
	})
}
