package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fanjet/fanjet/engine/schedule"
	"github.com/fanjet/fanjet/workflow"
)

// documentFiles are the endings of the files that a folder is searched for.
var documentFiles = []string{".yaml", ".yml", ".json", ".jsonl", ".ndjson"}

// documents are the definitions of files, and what is wrong with them.
type documents struct {
	files     []string
	all       []workflow.Document
	problems  workflow.Problems
	calendars map[[2]string]*schedule.Calendar // by app and name; those that are right
}

// readDocuments reads files, the files of folders, and in for -. Documents that name no app are
// of app.
func readDocuments(paths []string, app string, in io.Reader) *documents {
	d := &documents{calendars: map[[2]string]*schedule.Calendar{}}
	for _, path := range paths {
		files, err := filesOf(path)
		if err != nil {
			d.files = append(d.files, path)
			d.problem(path, err)
		}
		for _, file := range files {
			d.files = append(d.files, file)
			data, err := readFileOr(file, in)
			var docs []workflow.Document
			if err == nil {
				docs, err = workflow.ParseAllFor(app, file, data)
			}
			if err != nil {
				d.problem(file, err)
			}
			d.all = append(d.all, docs...)
		}
	}
	return d
}

// problem adds what err says of a file.
func (d *documents) problem(file string, err error) {
	var ps workflow.Problems
	if !errors.As(err, &ps) {
		ps = workflow.Problems{{File: file, Message: err.Error()}}
	}
	d.problems = append(d.problems, ps...)
}

// filesOf are the files of a folder in the order of their names, or the file itself.
func filesOf(path string) ([]string, error) {
	if path == "-" || !isFolder(path) {
		return []string{path}, nil
	}
	var files []string
	err := filepath.WalkDir(path, func(file string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && file != path && strings.HasPrefix(e.Name(), "."):
			return fs.SkipDir
		case !e.IsDir() && slices.Contains(documentFiles, strings.ToLower(filepath.Ext(file))):
			files = append(files, file)
		}
		return nil
	})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("the folder holds no file that ends in %s", strings.Join(documentFiles, ", "))
	}
	return files, err
}

// isFolder is false also for what is not there: who reads it says so.
func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func readFileOr(file string, in io.Reader) ([]byte, error) {
	if file != "-" {
		return readFile(file)
	}
	if in == nil {
		in = os.Stdin
	}
	return readBounded(in)
}

// readFile reads a file of definitions; the error does not name it.
func readFile(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, unreadable(err)
	}
	defer func() { _ = f.Close() }() // it was only read
	return readBounded(f)
}

// readBounded reads one byte more than is taken at most: who parses it says so.
func readBounded(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, workflow.MaxDocument+1))
	return data, unreadable(err)
}

// unreadable says why a file cannot be read.
func unreadable(err error) error {
	var pathErr *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("there is no such file; check the path")
	case errors.As(err, &pathErr):
		return fmt.Errorf("the file cannot be read: %w", pathErr.Err)
	}
	return err
}

// check looks at what the documents mean: graphs, calendars, schedules, and names that are
// used twice over the files.
func (d *documents) check() {
	files := map[[3]string]string{}
	for i := range d.all {
		doc := &d.all[i]
		key := [3]string{doc.Kind, doc.App, doc.Name}
		if other, twice := files[key]; twice {
			d.problems = append(d.problems, doc.Problem("name", "%s %q of app %q is in %s too", doc.Kind, doc.Name, doc.App, other))
		}
		files[key] = doc.File
		if doc.Calendar != nil {
			d.checkCalendar(doc)
		}
	}
	for i := range d.all {
		doc := &d.all[i]
		switch {
		case doc.Job != nil:
			d.checkSchedule(doc, doc.Job.Schedule)
		case doc.Workflow != nil:
			if _, err := workflow.Build(doc.Workflow); err != nil {
				d.problem(doc.File, err)
			}
			d.checkSchedule(doc, doc.Workflow.Schedule)
		}
	}
}

func (d *documents) checkCalendar(doc *workflow.Document) {
	c, err := loadCalendar(doc)
	if err == nil {
		err = c.Check()
	}
	if err != nil {
		d.fields(doc, err)
		return
	}
	d.calendars[[2]string{doc.App, doc.Name}] = c
}

// checkSchedule compiles a schedule. A calendar that is not among the documents may be on the
// server: which days it has makes a schedule neither right nor wrong.
func (d *documents) checkSchedule(doc *workflow.Document, s workflow.Schedule) {
	calendars := map[string]*schedule.Calendar{}
	for _, name := range s.Calendars {
		calendars[name] = d.calendars[[2]string{doc.App, name}]
		if calendars[name] == nil {
			calendars[name] = &schedule.Calendar{}
		}
	}
	if _, err := schedule.Compile(s, calendars); err != nil {
		d.fields(doc, err)
	}
}

// fields adds what is wrong with the fields of a document, each at its place.
func (d *documents) fields(doc *workflow.Document, err error) {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range many.Unwrap() {
			d.fields(doc, one)
		}
		return
	}
	field := ""
	var f *schedule.FieldError
	if errors.As(err, &f) {
		field = f.Field
	}
	d.problems = append(d.problems, doc.Problem(field, "%v", err))
}

// loadCalendar is a calendar with the days of its file.
func loadCalendar(doc *workflow.Document) (*schedule.Calendar, error) {
	written, err := json.Marshal(doc.Calendar.Calendar)
	if err != nil {
		return nil, fmt.Errorf("encode the calendar: %w", err)
	}
	var c schedule.Calendar
	if err := json.Unmarshal(written, &c); err != nil {
		return nil, fmt.Errorf("read the calendar: %w", err)
	}
	if doc.Calendar.File == "" {
		return &c, nil
	}
	imported, err := readCalendarFile(doc)
	if err != nil {
		return nil, &schedule.FieldError{Field: "file", Message: err.Error()}
	}
	c.Weekdays = append(c.Weekdays, imported.Weekdays...)
	c.Off = append(c.Off, imported.Off...)
	c.Repeats = append(c.Repeats, imported.Repeats...)
	c.Work = append(c.Work, imported.Work...)
	return &c, nil
}

func readCalendarFile(doc *workflow.Document) (*schedule.Calendar, error) {
	path := doc.Calendar.File
	if !filepath.IsAbs(path) && doc.File != "-" {
		path = filepath.Join(filepath.Dir(doc.File), path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, unreadable(err))
	}
	defer func() { _ = f.Close() }() // it was only read
	read := schedule.ParseICalendar
	if strings.EqualFold(filepath.Ext(path), ".csv") {
		read = schedule.ParseCSV
	}
	c, err := read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// verdict is what the check of one file came to.
func (d *documents) verdict(file string) verdict {
	v := verdict{File: file, Problems: workflow.Problems{}}
	for _, p := range d.problems {
		if p.File == file {
			v.Problems = append(v.Problems, p)
		}
	}
	slices.SortStableFunc(v.Problems, func(a, b workflow.Problem) int { return a.Line - b.Line })
	for i := range d.all {
		if d.all[i].File == file {
			v.Documents++
			if w := d.all[i].Workflow; w != nil {
				v.Nodes += len(w.Nodes)
			}
		}
	}
	v.OK = len(v.Problems) == 0
	return v
}
