package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/processor/builtin/logcleanup"
)

// What the demo checks is told when it is wrong, by the folder or by the report.
func TestDemoLogs_Check(t *testing.T) {
	t.Parallel()
	l, err := newDemoLogs(time.Now())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.remove()) })
	require.Equal(t, 30, l.made)
	require.Equal(t, 8, l.old())
	wrong, err := l.check()
	require.NoError(t, err)
	require.Len(t, wrong, 8)
	require.Contains(t, wrong, "log web/web.log.6 is old and is still there")

	for _, service := range []string{"api", "web"} {
		for _, age := range []string{"6", "7", "8", "9"} {
			require.NoError(t, os.Remove(filepath.Join(l.root, service, service+".log."+age)))
		}
	}
	r := demoResult{logs: l, workers: 3, clean: logcleanup.Summary{Workers: 3, Files: 8}}
	require.NoError(t, r.checkClean())
	r.clean.Files = 7
	require.ErrorContains(t, r.checkClean(), "the report has 7 files on 3 workers with 0 failures, want 8 on 3 with none")
	r.clean.Files = 8
	require.NoError(t, os.Remove(filepath.Join(l.root, "audit", "audit.log.9")))
	require.ErrorContains(t, r.checkClean(), "log audit/audit.log.9 was to be kept and is gone")
}
