package logcleanup

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Values of the params that have a choice.
const (
	ActionDelete   = "delete"   // remove the files
	ActionCompress = "compress" // put NAME.gz in the place of NAME

	LinksKeep           = "keep"            // leave every symbolic link alone
	LinksRemoveDangling = "remove_dangling" // clean those that lead nowhere, loops included

	OpenKeep   = "keep"   // leave files alone that a process has open
	OpenDelete = "delete" // clean them too

	OnErrorReport = "report" // list what failed; the share succeeds
	OnErrorFail   = "fail"   // sweep to the end, then the share fails
	OnErrorStop   = "stop"   // the first failure ends the sweep and fails the share

	PerRoot   = "root"   // keep the newest of all that the patterns select
	PerFolder = "folder" // keep the newest of each folder
)

const (
	maxPatterns   = 100
	maxKeepNewest = 10_000
)

// Params are the params of a job or node that runs this processor, as JSON. Unknown fields
// are refused, and so is every value that could mean "everything" by being empty or zero. All
// filters hold at once: a file is cleaned if it is selected by include, not by exclude, and is
// old enough, large enough, not one of the newest kept, and not open. The oldest go first, over
// the whole root. One of older_than, keep_newest and until_free is required.
type Params struct {
	// Root is the folder to clean, absolute, written in full: nothing is expanded. It must be one
	// of the worker's Config.Roots or lie below one.
	Root string `json:"root"`
	// Include are patterns over the path relative to the root; at least one, each naming at
	// least a letter or a digit. * and ? stay within a name, ** stands for any number of
	// folders, [a-z] and [!a-z] are classes, \ makes the next character ordinary. *.log is the
	// root's own files, **/*.log those at any depth.
	Include []string `json:"include"`
	// Exclude are patterns of what is kept. A pattern without a slash fits a name at any depth;
	// one that fits a folder keeps all that lies in it.
	Exclude []string `json:"exclude,omitempty"`
	// OlderThan is the age since the last write, such as 36h, 7d or 2w; from 1s to 36500d.
	// Without it nothing is cleaned that was written within the last minute.
	OlderThan *string `json:"older_than,omitempty"`
	// LargerThan is a size such as 500MB or 1GiB; only larger files are cleaned.
	LargerThan *string `json:"larger_than,omitempty"`
	// KeepNewest is how many of the files that the patterns select are kept whatever else holds:
	// those written last. 1 to 10000.
	KeepNewest *int `json:"keep_newest,omitempty"`
	// KeepNewestPer is PerRoot (default) or PerFolder.
	KeepNewestPer string `json:"keep_newest_per,omitempty"`
	// UntilFree ends the run when so much of the root's filesystem is free: 20GiB, or 1% to 95%.
	UntilFree *string `json:"until_free,omitempty"`
	// Action is ActionDelete (default) or ActionCompress.
	Action string `json:"action,omitempty"`
	// RemoveEmptyDirs removes folders below the root that are empty, of which nobody but this run
	// changed anything for EmptyDirsOlderThan (default: OlderThan, else 24h). A folder that
	// somebody just made stays.
	RemoveEmptyDirs    bool    `json:"remove_empty_dirs,omitempty"`
	EmptyDirsOlderThan *string `json:"empty_dirs_older_than,omitempty"`
	// DryRun changes nothing and reports what a run would do.
	DryRun bool `json:"dry_run,omitempty"`
	// Links is LinksKeep (default) or LinksRemoveDangling, to which the filters apply too, by the
	// age and size of the link. No link is ever followed.
	Links string `json:"links,omitempty"`
	// OpenFiles is OpenKeep (default on Linux, possible only there) or OpenDelete.
	OpenFiles string `json:"open_files,omitempty"`
	// MaxFiles and MaxBytes bound one run of one worker; they can only lower the bounds of its
	// Config.
	MaxFiles *int64  `json:"max_files,omitempty"`
	MaxBytes *string `json:"max_bytes,omitempty"`
	// OnError is OnErrorReport (default), OnErrorFail or OnErrorStop. An entry that vanished,
	// changed or is open is no error: it is counted as kept or vanished.
	OnError string `json:"on_error,omitempty"`
}

// plan is Params understood. Zero means that a filter was not given.
type plan struct {
	root             string
	include, exclude []glob
	olderThan        time.Duration
	youngReason      Reason // what a file younger than olderThan is kept for
	largerThan       int64
	keepNewest       int
	perFolder        bool
	untilFree        goal
	compress         bool
	dirs             bool
	dirsOlderThan    time.Duration
	dryRun           bool
	dangling         bool
	openFiles        string
	maxFiles         int64
	maxBytes         int64
	onError          string
}

// Validate checks params without a look at any disk: what can be refused when a job is saved is
// refused then. What depends on the worker is checked again when the job runs. The error names
// every wrong field and what to write instead, one a line.
func Validate(params json.RawMessage) error {
	_, err := parse(params)
	return err
}

func parse(raw []byte) (*plan, error) {
	var p Params
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("there are none; root, include and a retention are required")
		}
		return nil, fmt.Errorf("params of %s: %w", Name, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("params of %s: something follows the JSON object", Name)
	}
	r := reader{}
	out := r.plan(&p)
	if len(r.errs) > 0 {
		return nil, errors.Join(r.errs...)
	}
	return out, nil
}

// reader turns Params into a plan and collects what is wrong.
type reader struct{ errs []error }

func (r *reader) wrong(field string, err error) {
	if err != nil {
		r.errs = append(r.errs, fmt.Errorf("params of %s: %s: %w", Name, field, err))
	}
}

func (r *reader) plan(p *Params) *plan {
	out := &plan{
		root:    p.Root,
		include: r.patterns("include", p.Include, true),
		exclude: r.patterns("exclude", p.Exclude, false),
		dirs:    p.RemoveEmptyDirs,
		dryRun:  p.DryRun,
	}
	r.wrong("root", checkPath(p.Root))
	if len(p.Include) == 0 {
		r.wrong("include", errors.New("it is empty; name the files, such as **/*.log"))
	}
	out.olderThan = optional(r, "older_than", p.OlderThan, parseAge)
	out.largerThan = optional(r, "larger_than", p.LargerThan, parseSize)
	out.untilFree = optional(r, "until_free", p.UntilFree, parseGoal)
	out.maxBytes = optional(r, "max_bytes", p.MaxBytes, parseSize)
	if p.OlderThan == nil && p.KeepNewest == nil && p.UntilFree == nil {
		r.wrong("older_than", errors.New("there is no retention: give older_than, keep_newest or until_free"))
	}
	if n := p.KeepNewest; n != nil {
		out.keepNewest = *n
		if *n < 1 || *n > maxKeepNewest {
			r.wrong("keep_newest", fmt.Errorf("%d is not from 1 to %d", *n, maxKeepNewest))
		}
	}
	if n := p.MaxFiles; n != nil {
		out.maxFiles = *n
		if *n < 1 {
			r.wrong("max_files", fmt.Errorf("%d is not positive", *n))
		}
	}
	r.choices(p, out)
	r.empties(p, out)
	out.youngReason = ReasonYoung
	if out.olderThan == 0 {
		out.olderThan, out.youngReason = time.Minute, ReasonJustWritten
	}
	return out
}

func (r *reader) choices(p *Params, out *plan) {
	if p.Action == "truncate" {
		r.wrong("action", errors.New("truncating loses the lines written meanwhile and is not offered; use delete or compress on files that are rotated"))
	} else {
		out.compress = r.choice("action", p.Action, ActionDelete, ActionCompress) == ActionCompress
	}
	out.perFolder = r.choice("keep_newest_per", p.KeepNewestPer, PerRoot, PerFolder) == PerFolder
	if p.KeepNewestPer != "" && p.KeepNewest == nil {
		r.wrong("keep_newest_per", errors.New("it needs keep_newest"))
	}
	out.dangling = r.choice("links", p.Links, LinksKeep, LinksRemoveDangling) == LinksRemoveDangling
	if p.OpenFiles != "" {
		out.openFiles = r.choice("open_files", p.OpenFiles, OpenKeep, OpenDelete)
	}
	out.onError = r.choice("on_error", p.OnError, OnErrorReport, OnErrorFail, OnErrorStop)
}

func (r *reader) empties(p *Params, out *plan) {
	if p.EmptyDirsOlderThan != nil && !p.RemoveEmptyDirs {
		r.wrong("empty_dirs_older_than", errors.New("it needs remove_empty_dirs"))
	}
	out.dirsOlderThan = 24 * time.Hour
	if out.olderThan > 0 {
		out.dirsOlderThan = out.olderThan
	}
	if p.EmptyDirsOlderThan != nil {
		out.dirsOlderThan = optional(r, "empty_dirs_older_than", p.EmptyDirsOlderThan, parseAge)
	}
}

// choice gives the word said, or the first one for none.
func (r *reader) choice(field, said string, words ...string) string {
	switch {
	case said == "":
		return words[0]
	case !slices.Contains(words, said):
		r.wrong(field, fmt.Errorf("%q is none of %s", said, strings.Join(words, ", ")))
	}
	return said
}

func (r *reader) patterns(field string, texts []string, needLiteral bool) []glob {
	if len(texts) > maxPatterns {
		r.wrong(field, fmt.Errorf("there are %d patterns, at most %d are allowed", len(texts), maxPatterns))
		return nil
	}
	var out []glob
	for _, text := range texts {
		g, err := parseGlob(text)
		if err == nil && needLiteral && !g.literal() {
			err = errNoLiteral
		}
		if err != nil {
			r.wrong(field, fmt.Errorf("pattern %q: %w", text, err))
		}
		out = append(out, g)
	}
	return out
}

func optional[T any](r *reader, field string, said *string, read func(string) (T, error)) T {
	var v T
	if said == nil {
		return v
	}
	v, err := read(*said)
	if err != nil {
		r.wrong(field, fmt.Errorf("%q: %w", *said, err))
	}
	return v
}
