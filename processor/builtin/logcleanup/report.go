package logcleanup

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Reason says why something was kept.
type Reason string

// The reasons. The filters' own come first.
const (
	ReasonName        Reason = "name"         // no include fits
	ReasonExcluded    Reason = "excluded"     // an exclude or the worker's Config.Excluded fits; a folder counts once
	ReasonYoung       Reason = "young"        // younger than older_than
	ReasonJustWritten Reason = "just_written" // without older_than: written within the last minute
	ReasonSmall       Reason = "small"        // not larger than larger_than
	ReasonNewest      Reason = "newest"       // one of keep_newest
	ReasonOpen        Reason = "open"         // a process has it open
	ReasonLink        Reason = "link"         // a symbolic link
	ReasonSpecial     Reason = "special"      // a socket, pipe or device
	ReasonMount       Reason = "mount"        // another filesystem, or a folder bound here, is mounted at it
	ReasonChanged     Reason = "changed"      // written to or replaced while the clean-up ran
	ReasonCompressed  Reason = "compressed"   // compress: it is already, or is empty
	ReasonHardLinked  Reason = "hard_linked"  // compress: the file has other names, so that a copy would free nothing
	ReasonExists      Reason = "exists"       // compress: NAME.gz is there with other content
	ReasonInProgress  Reason = "in_progress"  // another run is compressing it, or it is the half-made copy
	ReasonLimit       Reason = "limit"        // max_files or max_bytes is used up
	ReasonEnoughFree  Reason = "enough_free"  // until_free is reached
)

// Bounds of the samples in a report.
const (
	maxKeptSamples = 10  // a reason
	maxErrors      = 200 // listed in the report
	maxLogged      = 1000
	maxPathBytes   = 300
)

// Kept is a sample of what was kept.
type Kept struct {
	Path string `json:"path"`
	Why  Reason `json:"why"`
}

// Failure is one entry that could not be read, removed or compressed.
type Failure struct {
	Path  string `json:"path"`
	Do    string `json:"do"`
	Error string `json:"error"`
}

// Statuses of a Report.
const (
	StatusOK      = "ok"      // nothing failed
	StatusPartial = "partial" // some entries failed, all others were dealt with
	StatusMissing = "missing" // this worker has no such folder, which is no failure
)

// Report is what one worker did: the result of its share. Paths are relative to the root; one
// that is not printable text is quoted as Go does it, a long one is cut with its length.
type Report struct {
	Host   string `json:"host"`
	Root   string `json:"root"`
	Action string `json:"action"`
	DryRun bool   `json:"dry_run,omitempty"`
	Status string `json:"status"`
	// Files were deleted or compressed by this worker (dry run: would be). A file that somebody
	// else removed first counts as vanished, so that workers sharing a disk count it once.
	Files int64 `json:"files"`
	// Bytes are really freed on the disk: the blocks of a sparse file, nothing for a name whose
	// file has other names or is still open, the difference for a compressed one.
	Bytes int64 `json:"bytes"`
	// BytesHeldOpen come free when the processes that have the files open close them.
	BytesHeldOpen int64 `json:"bytes_held_open,omitempty"`
	Links         int64 `json:"links,omitempty"` // dangling links removed
	Dirs          int64 `json:"dirs,omitempty"`  // empty folders removed
	Seen          int64 `json:"seen"`            // entries looked at
	Vanished      int64 `json:"vanished,omitempty"`
	// Kept counts what was kept by its reason, with up to 10 samples each (none for "name").
	Kept        map[Reason]int64 `json:"kept,omitempty"`
	KeptSamples []Kept           `json:"kept_samples,omitempty"`
	// Errors counts the entries that failed; Failures are the first 200, and the task's log has
	// the first 1000.
	Errors   int64     `json:"errors"`
	Failures []Failure `json:"failures,omitempty"`
	Notes    []string  `json:"notes,omitempty"`
	// FreeBefore and FreeAfter are the free bytes of the root's filesystem; 0 if not known.
	FreeBefore int64 `json:"free_before,omitempty"`
	FreeAfter  int64 `json:"free_after,omitempty"`
	// GoalReached tells, with until_free, whether so much is free now.
	GoalReached *bool `json:"goal_reached,omitempty"`
	DurationMS  int64 `json:"duration_ms"`
}

// String is the report in one line.
func (r *Report) String() string {
	did := map[string]string{ActionDelete: "deleted", ActionCompress: "compressed"}[r.Action]
	if r.DryRun {
		did = "would be " + did
	}
	s := fmt.Sprintf("%s on %s: %d files %s, %d bytes freed", r.Root, r.Host, r.Files, did, r.Bytes)
	if r.Links+r.Dirs > 0 {
		s += fmt.Sprintf(", %d links and %d empty folders removed", r.Links, r.Dirs)
	}
	if r.Errors > 0 {
		s += fmt.Sprintf(", %d entries failed", r.Errors)
	}
	return s
}

// recorder fills a Report within its bounds.
type recorder struct {
	Report
	log     *slog.Logger
	samples map[Reason]int
}

func newRecorder(p *plan, log *slog.Logger) *recorder {
	r := &recorder{log: log, samples: map[Reason]int{}}
	r.Root, r.Action, r.DryRun, r.Status = p.root, ActionDelete, p.dryRun, StatusOK
	if p.compress {
		r.Action = ActionCompress
	}
	if host, err := os.Hostname(); err == nil {
		r.Host = host
	}
	r.Kept = map[Reason]int64{}
	return r
}

func (r *recorder) keep(why Reason, path func() string) {
	r.Kept[why]++
	if why == ReasonName || r.samples[why] >= maxKeptSamples {
		return
	}
	r.samples[why]++
	r.KeptSamples = append(r.KeptSamples, Kept{Path: printable(path()), Why: why})
}

// fail notes that doing something to the path failed.
func (r *recorder) fail(path, do string, err error) {
	r.Errors++
	r.Status = StatusPartial
	f := Failure{Path: printable(path), Do: do, Error: reasonOf(err)}
	if len(r.Failures) < maxErrors {
		r.Failures = append(r.Failures, f)
	}
	switch {
	case r.Errors <= maxLogged:
		r.log.Warn("clean-up failed for an entry", "path", f.Path, "do", f.Do, "err", f.Error)
	case r.Errors == maxLogged+1:
		r.log.Warn("further failures are counted only")
	}
}

func (r *recorder) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !slices.Contains(r.Notes, text) {
		r.Notes = append(r.Notes, text)
	}
}

// reasonOf leaves the path out of an error that has it: the failure names it already.
func reasonOf(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return cut(err.Error())
}

// printable makes a file's name fit for JSON and for a terminal: it is hostile input.
func printable(s string) string {
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		s = strconv.Quote(s)
	}
	return cut(s)
}

func cut(s string) string {
	if len(s) <= maxPathBytes {
		return s
	}
	n := maxPathBytes
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return fmt.Sprintf("%s … (cut: %d bytes)", s[:n], len(s))
}

// firstFailures is what an error says of them.
func (r *recorder) firstFailures() string {
	const most = 20
	var b strings.Builder
	for i, f := range r.Failures[:min(len(r.Failures), most)] {
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "%s %s: %s", f.Do, f.Path, f.Error)
	}
	if r.Errors > most {
		fmt.Fprintf(&b, "; and %d more", r.Errors-most)
	}
	return b.String()
}
