//go:build unix

package killtest

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/api"
)

// ticket is something that a server has acknowledged.
type ticket struct {
	job string // or flow
	id  int64
	p   load
}

// callers are the clients of the engine: they try until they are answered.
type callers struct {
	w       *world
	wg      sync.WaitGroup
	mu      sync.Mutex
	tickets []ticket
	keys    map[string]int // how often each key was asked for without an answer
	err     error
	retries int
}

const oneJobs = 8 // jobs of the standalone instances, so that they lie in several shards

// flow uses each mode and what comes of it downstream.
const flow = `
kind: Workflow
name: flow
app: kill
params: {key: {type: string, required: true}, n: {type: int, required: true}}
nodes:
  - {id: first, processor: one, params: {key: "${ params.key }", n: "${ params.n }", ms: 50}}
  - {id: left, processor: sum, mode: map_reduce, needs: [first], params: {key: "${ params.key }", n: "${ nodes.first.result.n }", ms: 4}, retry: {max: 3, delay: 50ms}, task_retry: {max: 3, delay: 50ms}}
  - {id: right, job: one-0, needs: [first], params: {key: "${ params.key }", ms: 100}}
  - {id: last, processor: one, needs: [left, right], params: {key: "${ params.key }-${ nodes.left.result.sum }", n: "${ nodes.left.result.n }", ms: 20}}
`

func newCallers(w *world) *callers {
	c := &callers{w: w, keys: map[string]int{}}
	retry := `"retry":{"max":3,"delay":"50ms"},"task_retry":{"max":3,"delay":"50ms"}`
	for i := range oneJobs {
		c.save(fmt.Sprintf("one-%d", i), `{"processor":"one",`+retry+`}`)
	}
	for _, p := range []string{"sum", "fold"} {
		c.save(p, `{"processor":"`+p+`","mode":"map_reduce",`+retry+`}`)
	}
	return c
}

func (c *callers) save(name, spec string) {
	_, _, err := call(c.w, api.CallSaveJob, api.SaveJobRequest{App: app, Name: name, Spec: json.RawMessage(spec)}, func(a api.SaveJobReply) *api.Error { return a.Error })
	require.NoError(c.w.t, err)
}

// call asks until somebody answers; tries is how often nobody did, in which case it may
// have happened all the same.
func call[A any](w *world, name string, q any, failed func(A) *api.Error) (got A, tries int, err error) {
	data, err := json.Marshal(q)
	if err != nil {
		return got, 0, err
	}
	deadline := time.Now().Add(2 * time.Minute)
	for ; ; tries++ {
		var got A
		ctx, cancel := context.WithTimeout(w.t.Context(), 3*time.Second)
		answer, err := w.client.Call(ctx, name, data)
		cancel()
		if err == nil {
			if err = json.Unmarshal(answer, &got); err != nil {
				return got, tries, err
			}
			e := failed(got)
			if e == nil {
				return got, tries, nil
			}
			err = fmt.Errorf("%s: %s: %s", name, e.Code, e.Message)
			if e.Code != "unavailable" {
				return got, tries, err
			}
		}
		if time.Now().After(deadline) || w.t.Context().Err() != nil {
			return got, tries, fmt.Errorf("nobody answers: %w", err)
		}
		wait(50 * time.Millisecond)
	}
}

// trigger asks for an instance in the background; job "flow" is the workflow.
func (c *callers) trigger(job string, p load) {
	c.wg.Go(func() {
		var got api.StartReply
		failed := func(a api.StartReply) *api.Error { return a.Error }
		params, err := json.Marshal(p)
		tries := 0
		switch {
		case err != nil:
		case job == "flow":
			got, tries, err = call(c.w, api.CallStart, api.StartRequest{
				App: app, Document: flow, File: "flow.yaml", Key: p.Key,
				Params: map[string]json.RawMessage{"key": json.RawMessage(strconv.Quote(p.Key)), "n": json.RawMessage(strconv.FormatInt(p.N, 10))},
			}, failed)
		default:
			got, tries, err = call(c.w, api.CallTrigger, api.TriggerRequest{App: app, Job: job, Key: p.Key, Params: params}, failed)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if err != nil {
			c.err = err
			return
		}
		c.retries += tries
		c.keys[p.Key] = tries
		c.tickets = append(c.tickets, ticket{job, got.ID, p})
	})
}

// ones triggers n standalone instances, one of which in seven fails at first.
func (c *callers) ones(prefix string, n int) {
	for i := range n {
		p := load{Key: fmt.Sprintf("%s-%d", prefix, i), MS: int64(5 + i*37%150)}
		if i%7 == 3 {
			p.Fails = 1
		}
		c.trigger(fmt.Sprintf("one-%d", i%oneJobs), p)
	}
}

// acknowledged waits until everything asked for was answered.
func (c *callers) acknowledged() []ticket {
	c.wg.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	require.NoError(c.w.t, c.err)
	return c.tickets
}

// status asks a server; false if none answers now.
func (c *callers) status(q api.StatusRequest) (api.StatusReply, bool) {
	data, err := json.Marshal(q)
	require.NoError(c.w.t, err)
	ctx, cancel := context.WithTimeout(c.w.t.Context(), 3*time.Second)
	defer cancel()
	var got api.StatusReply
	answer, err := c.w.client.Call(ctx, api.CallStatus, data)
	if err != nil || json.Unmarshal(answer, &got) != nil {
		return got, false
	}
	return got, got.Error == nil
}

func terminal(word string) bool {
	s, err := engine.ParseStatus(word)
	return err == nil && s.Terminal()
}

// settled waits until every instance of the app and every workflow among the tickets is
// final.
func (c *callers) settled(tickets []ticket, limit time.Duration) {
	var left []ticket
	for _, k := range tickets {
		if k.job == "flow" {
			left = append(left, k)
		}
	}
	var counts map[string]int64
	c.w.until(limit, func() string {
		for len(left) > 0 {
			got, ok := c.status(api.StatusRequest{Workflow: left[0].id})
			if !ok || !terminal(got.Status) {
				return fmt.Sprintf("workflow %d is not final: answered %v, %+v", left[0].id, ok, got)
			}
			left = left[1:]
		}
		got, ok := c.status(api.StatusRequest{App: app})
		if !ok {
			return "no server says how the instances stand"
		}
		counts = got.Counts
		for status, n := range counts {
			if n > 0 && !terminal(status) {
				return fmt.Sprintf("not every instance becomes final: %v", counts)
			}
		}
		return ""
	})
	c.w.t.Logf("instances at the end: %v", counts)
}

// active is how many instances are not final; -1 if no server says.
func (c *callers) active() int64 {
	got, ok := c.status(api.StatusRequest{App: app})
	if !ok {
		return -1
	}
	var n int64
	for status, k := range got.Counts {
		if !terminal(status) {
			n += k
		}
	}
	return n
}
