package server_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/server"
	"github.com/fanjet/fanjet/workflow"
)

// F14: params that a processor would refuse are refused when they are saved.
func TestParamsAreCheckedAtSave(t *testing.T) {
	t.Parallel()
	w := newWorldWith(t, "", server.Config{Checks: map[string]server.Check{
		"picky": func(params json.RawMessage) error {
			if string(params) != `{"ok":true}` {
				return errors.New("not ok")
			}
			return nil
		},
	}})
	_, err := w.server.SaveJob(w.ctx, "test", "j", "", workflow.Spec{Processor: "picky", Params: []byte(`{}`)})
	require.ErrorIs(t, err, engine.ErrInvalid)
	require.ErrorContains(t, err, `params of processor "picky": not ok`)
	_, err = w.server.SaveJob(w.ctx, "test", "j", "", workflow.Spec{Processor: "picky", Params: []byte(`{"ok":true}`)})
	require.NoError(t, err)

	save := func(params string) error {
		d, err := workflow.Parse("t.yaml", []byte("kind: Workflow\nname: t\napp: test\nparams: {x: 1}\nnodes:\n  - {id: a, processor: picky, params: "+params+"}\n"))
		require.NoError(t, err)
		_, err = w.server.SaveWorkflow(w.ctx, d)
		return err
	}
	err = save("{ok: false}")
	require.ErrorIs(t, err, engine.ErrInvalid)
	require.ErrorContains(t, err, `node "a"`)
	require.NoError(t, save("{ok: true}"))
	require.NoError(t, save(`{ok: "${ params.x }"}`), "its value is known only when it runs")
}
