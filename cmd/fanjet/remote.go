package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/engine/api"
)

// pollEvery is how often another server is asked how the workflow stands.
const pollEvery = 200 * time.Millisecond

// caller reaches a server through the broker.
type caller interface {
	Call(ctx context.Context, name string, payload []byte) ([]byte, error)
}

// remote is a server in another process.
type remote struct{ caller }

// call asks and decodes the answer.
func (r remote) call(ctx context.Context, name string, ask, answer any) error {
	payload, err := json.Marshal(ask)
	if err != nil {
		return fmt.Errorf("encode the call %s: %w", name, err)
	}
	raw, err := r.Call(ctx, name, payload)
	switch {
	case errors.Is(err, broker.ErrNoResponders):
		return fmt.Errorf("no server answers there; start one with fanjet server: %w", err)
	case err != nil:
		return err
	}
	if err := json.Unmarshal(raw, answer); err != nil {
		return fmt.Errorf("read the answer to %s; is the server of another version? %w", name, err)
	}
	return nil
}

// refusal makes an error of the server's no.
func refusal(e *api.Error) error {
	if e == nil {
		return nil
	}
	err := fmt.Errorf("the server refused: %s", e.Message)
	if e.Code == "invalid" || e.Code == "too_large" {
		return &exitError{exitInvalid, err}
	}
	return err
}

func (r remote) save(ctx context.Context, o *order) error {
	var reply api.SaveWorkflowReply
	if err := r.call(ctx, api.CallSaveWorkflow, api.SaveWorkflowRequest{Document: string(o.document), File: o.file}, &reply); err != nil {
		return err
	}
	return refusal(reply.Error)
}

func (r remote) start(ctx context.Context, o *order) (int64, error) {
	var reply api.StartReply
	ask := api.StartRequest{App: o.def().App, Document: string(o.document), File: o.file, Params: o.params}
	if err := r.call(ctx, api.CallStart, ask, &reply); err != nil {
		return 0, err
	}
	return reply.ID, refusal(reply.Error)
}

func (r remote) stop(ctx context.Context, id int64) error {
	var reply api.StopReply
	if err := r.call(ctx, api.CallStop, api.StopRequest{Workflow: id}, &reply); err != nil {
		return err
	}
	return refusal(reply.Error)
}

func (r remote) status(ctx context.Context, id int64) (*api.StatusReply, error) {
	var reply api.StatusReply
	if err := r.call(ctx, api.CallStatus, api.StatusRequest{Workflow: id}, &reply); err != nil {
		return nil, err
	}
	if err := refusal(reply.Error); err != nil {
		return nil, err
	}
	return &reply, nil
}

// watch asks again and again. A server or broker that is away for a while is waited for.
func (r remote) watch(ctx context.Context, id int64, _ *order, b *board) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	away := false
	for {
		reply, err := r.status(ctx, id)
		gone := errors.Is(err, broker.ErrUnavailable) || errors.Is(err, broker.ErrNoResponders)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case gone && !away:
			b.say("the server is away; waiting for it: %v", err)
		case err != nil && !gone:
			return err
		case err == nil && away:
			b.say("the server is back")
		}
		away = gone
		if err == nil {
			for _, n := range reply.Nodes {
				b.update(n)
			}
			if final(reply.Status) {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
