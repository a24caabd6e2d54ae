package importer

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine/schedule"
	"github.com/fanjet/fanjet/workflow"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew; commit only what you understand")

// importFile imports a file by its name.
func importFile(file string, o Options) (*Result, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	switch base := filepath.Base(file); {
	case strings.HasSuffix(base, ".crontab"):
		return Crontab(data, base == "system.crontab", o)
	case strings.HasPrefix(base, "xxl"):
		return XXLJob(data, o)
	case strings.HasPrefix(base, "powerjob"):
		return PowerJob(data, o)
	}
	return nil, errors.New("whose is it?")
}

// requireDocuments holds the output to being documents that mean something.
func requireDocuments(t *testing.T, text []byte, jobs int) {
	t.Helper()
	if jobs == 0 {
		return
	}
	docs, err := workflow.ParseAll("out", text)
	require.NoError(t, err, "%s", text)
	require.Len(t, docs, jobs, "%s", text)
	for _, d := range docs {
		_, err := schedule.Compile(d.Job.Schedule, nil)
		require.NoError(t, err)
	}
}

func TestImport(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.*")
	require.NoError(t, err)
	n := 0
	for _, file := range files {
		if strings.HasSuffix(file, ".golden") {
			continue
		}
		n++
		o := Options{App: "legacy"}
		if strings.Contains(file, "powerjob") {
			o.Zone = "Asia/Shanghai"
		}
		r, err := importFile(file, o)
		require.NoError(t, err, file)
		text, jobs := r.YAML()
		requireDocuments(t, text, jobs)
		if *rewrite {
			require.NoError(t, os.WriteFile(file+".golden", text, 0o644))
		}
		want, err := os.ReadFile(file + ".golden")
		require.NoError(t, err)
		require.Equal(t, string(want), string(text), file)
	}
	require.Equal(t, 6, n)
}

func TestImport_Refused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                 "there are no rows of job_info",
		"[]":                               "there are no rows of job_info",
		"SELECT 1;":                        "there are no rows of job_info",
		"INSERT INTO job_info VALUES (1);": "line 1: the columns of job_info are not known: dump it with its CREATE TABLE",
		"\n\nINSERT INTO job_info (a) VALUES (1,2);": "line 3: a row of job_info has more than its 1 columns",
		"INSERT INTO job_info (a, b) VALUES (1);":    "has 1 of its 2 columns",
		"INSERT INTO job_info (a) VALUES ('x":        "a ' is not closed",
		"INSERT INTO job_info (a) SELECT 1":          "has no VALUES",
		"INSERT INTO job_info (a) VALUES (0xzz)":     "not a hexadecimal value",
		"INSERT INTO job_info (a) VALUES (@x)":       "unexpected '@'",
		"INSERT INTO job_info (a) VALUES (":          "the file ends inside a row",
		"INSERT INTO job_info (a VALUES (1)":         "the list of columns is not closed",
		`[{"a": 1}, 2]`:                              "near byte 13: a row is not a JSON object",
		`{"a": `:                                     "unexpected EOF",
	} {
		_, err := PowerJob([]byte(text), Options{})
		require.ErrorContains(t, err, want, text)
	}
	_, err := XXLJob(make([]byte, MaxInput+1), Options{})
	require.ErrorContains(t, err, "take only the tables xxl_job_info, xxl_job_group into it")
	_, err = Crontab([]byte("# "+strings.Repeat("x", workflow.MaxParams)), false, Options{})
	require.ErrorContains(t, err, "line 1: ")
}

func TestReadDump(t *testing.T) {
	t.Parallel()
	rows, err := readDump([]byte("-- c\nCREATE TABLE IF NOT EXISTS db.`t` (`A` int COMMENT 'a ) , b', key_ text, `key` enum('x','y'), PRIMARY KEY (`A`), KEY `k` (key_));\n"+
		"DELIMITER ;;\nCREATE TRIGGER x BEGIN END ;;\nDELIMITER ;\n# c ; (\n--\n/* ; ( */ REPLACE INTO t VALUES (-1.5e3,'it''s \\'\\\\ \\n\\0\\%\\Z',NULL) , (0x6869,\"q\"\"\",X'41'), (b'1', N'n', _utf8mb4 'u'), (CURRENT_TIMESTAMP(3), uuid(), TRUE)\n"+
		"ON DUPLICATE KEY UPDATE a=VALUES(a); INSERT IGNORE INTO t (key_) VALUES ('last'); insert into other values (';')"), "t")
	require.NoError(t, err)
	require.Equal(t, []row{
		{"a": "-1.5e3", "key_": "it's '\\ \n\x00\\%\x1a"},
		{"a": "hi", "key_": `q"`, "key": "A"},
		{"a": "1", "key_": "n", "key": "u"},
		{"a": "CURRENT_TIMESTAMP", "key_": "uuid", "key": "TRUE"},
		{"key_": "last"},
	}, rows["t"])
}

func TestReadJSON(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`[{"jobName": "a", "x": null}, {"job_name": "b", "n": 1.5}]`,
		`{"jobName": "a"} {"jobName": "b", "n": 1.5}`,
		`{"success": true, "data": {"data": [{"jobName": "a"}, {"jobName": "b", "n": 1.5}]}}`,
		`{"jobInfo": [{"jobName": "a"}, {"jobName": "b", "n": 1.5}], "app_info": []}`,
	} {
		rows, err := readRows([]byte(text), "job_info", "app_info")
		require.NoError(t, err, text)
		require.Equal(t, []row{{"job_name": "a"}, {"job_name": "b", "n": "1.5"}}, rows["job_info"], text)
	}
}

func TestUnique(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 63)
	jobs := make([]Job, 7)
	for i, name := range []string{"a", "a", "a-2", "b", long, long, "a"} {
		jobs[i].Definition.Name = name
	}
	unique(jobs, func(int) string { return "" })
	var names []string
	for _, j := range jobs {
		names = append(names, j.Definition.Name)
	}
	require.Equal(t, []string{"a", "a-2", "a-2-2", "b", long, long[:61] + "-2", "a-3"}, names)
}

func FuzzImport(f *testing.F) {
	files, err := filepath.Glob("testdata/*.*")
	require.NoError(f, err)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(f, err)
		for kind := range byte(4) {
			f.Add(kind, data)
		}
	}
	f.Add(byte(2), []byte("INSERT INTO job_info (a) VALUES ('x\\"))
	f.Fuzz(func(t *testing.T, kind byte, data []byte) {
		o := Options{App: "legacy"}
		var r *Result
		var err error
		switch kind % 4 {
		case 0, 1:
			r, err = Crontab(data, kind%4 == 1, o)
		case 2:
			r, err = PowerJob(data, o)
		case 3:
			r, err = XXLJob(data, o)
		}
		if err != nil {
			return
		}
		text, jobs := r.YAML()
		requireDocuments(t, text, jobs)
	})
}
