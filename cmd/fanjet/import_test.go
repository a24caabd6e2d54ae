package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is imported can be applied.
func TestImport(t *testing.T) {
	t.Parallel()
	for file, args := range map[string][]string{
		"user.crontab": {"crontab", "--app", "legacy"}, "system.crontab": {"crontab", "--app", "legacy", "--system"},
		"xxl_job.sql": {"xxl-job", "--zone", "Asia/Shanghai"}, "xxl_job.json": {"xxl-job", "--app", "legacy"},
		"powerjob.sql": {"powerjob"}, "powerjob.json": {"powerjob"},
	} {
		out, errs, code := command(append(append([]string{"import"}, args...), "importer/testdata/"+file)...)
		require.Zero(t, code, errs)
		require.Regexp(t, `^\d+ jobs? of \d+ written, \d+ with comments`, errs)
		written := filepath.Join(t.TempDir(), "jobs.yaml")
		require.NoError(t, os.WriteFile(written, []byte(out), 0o644))
		_, errs, code = command("apply", "--dry-run", "-f", written)
		require.Zero(t, code, errs)
	}
}

func TestImport_StandardInput(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	c := importCrontabCmd{App: "a", importFlags: importFlags{File: "-", in: strings.NewReader("@daily backup")}}
	require.NoError(t, c.Run(&console{&out, &errs}))
	require.Contains(t, out.String(), "\nname: backup\napp: a\n")
	require.Equal(t, "1 job of 1 written, 0 with comments (# !) to look at; then fanjet apply -f FILE\n", errs.String())
	c.in = strings.NewReader("# nothing")
	require.ErrorContains(t, c.Run(&console{&out, &errs}), "no job could be translated")
}

func TestImport_Refused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"crontab", "importer/testdata/user.crontab"}, "missing flags: --app"},
		{[]string{"crontab", "--app", "A b", "importer/testdata/user.crontab"}, "--app A b: 1 to 63 of a-z"},
		{[]string{"powerjob", "importer/testdata/user.crontab"}, "there are no rows of job_info"},
		{[]string{"xxl-job", "--zone", "Mars", "importer/testdata/xxl_job.sql"}, "--zone Mars: not an IANA time zone"},
		{[]string{"xxl-job", "none.sql"}, "none.sql: there is no such file; check the path"},
	} {
		out, errs, code := command(append([]string{"import"}, c.args...)...)
		require.Equal(t, exitInvalid, code, c.args)
		require.Empty(t, out)
		require.Contains(t, errs, c.want)
	}
}
