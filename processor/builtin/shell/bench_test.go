//go:build linux

package shell_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/broker"
	"github.com/fanjet/fanjet/processor"
	"github.com/fanjet/fanjet/processor/builtin/shell"
)

// What a run costs: the folder, the process, and the look for what it left.
func BenchmarkRun(b *testing.B) {
	p, temp := newShell(b, shell.Config{})
	raw, err := json.Marshal(object{"script": ":"})
	require.NoError(b, err)
	for b.Loop() {
		o := new(processor.Local).Run(b.Context(), p, &broker.Chunk{Mode: processor.ModeStandalone, Params: raw}, &broker.Task{})
		require.Nil(b, o.Err)
	}
	requireEmpty(b, temp)
}
