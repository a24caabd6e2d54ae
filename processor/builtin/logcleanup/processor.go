package logcleanup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/fanjet/fanjet/processor"
)

// Name is what the processor is registered by.
const Name = "log-cleanup"

// Bounds of one run where Config gives none.
const (
	DefaultMaxFiles = 100_000
	DefaultMaxBytes = 1 << 40
)

// Config is the worker's own say about what may be cleaned. No job can widen it.
type Config struct {
	// Roots are the folders that may be cleaned, absolute; a job's root is one of them or lies
	// below one. None by default, and then every job is refused.
	Roots []string
	// Excluded are folders that are never cleaned, such as the worker's own data: a root in
	// one is refused, one below a root is kept with all that lies in it.
	Excluded []string
	// MaxFiles is the most files one run removes or compresses; default DefaultMaxFiles.
	MaxFiles int64
	// MaxBytes is the most bytes one run frees; default DefaultMaxBytes.
	MaxBytes int64
	// Now is the clock that ages are measured by; default time.Now.
	Now func() time.Time
}

// Validate tells what is wrong with the configuration. A processor made of a wrong one refuses
// every job with this error.
func (c Config) Validate() error {
	var errs []error
	for _, r := range c.Roots {
		if err := checkPath(r); err != nil {
			errs = append(errs, fmt.Errorf("logcleanup.Config.Roots: %w", err))
		}
	}
	for _, e := range c.Excluded {
		if !filepath.IsAbs(e) {
			errs = append(errs, fmt.Errorf("logcleanup.Config.Excluded: %q is not absolute", e))
		}
	}
	if c.MaxFiles < 0 || c.MaxBytes < 0 {
		errs = append(errs, errors.New("logcleanup.Config: MaxFiles and MaxBytes cannot be negative"))
	}
	return errors.Join(errs...)
}

// New makes the processor; register it by Name. It has a PostProcess, so that the result of a
// broadcast is a Summary; that of a standalone run is the Report. Safe for concurrent use.
func New(c Config) processor.Processor { return newCleaner(c) }

// cleaner is the processor.
type cleaner struct {
	cfg   Config
	wrong error
	sys   system
	batch int
}

func newCleaner(c Config) *cleaner {
	if c.MaxFiles == 0 {
		c.MaxFiles = DefaultMaxFiles
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = DefaultMaxBytes
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &cleaner{cfg: c, wrong: c.Validate(), sys: realSystem(), batch: defaultBatch}
}

// PreProcess refuses wrong params once, before any worker is asked.
func (c *cleaner) PreProcess(_ context.Context, task *processor.Task) error {
	if err := Validate(task.RawParams()); err != nil {
		return processor.Cancel(err)
	}
	return nil
}

// Process cleans this worker's folder and gives a *Report.
func (c *cleaner) Process(ctx context.Context, task *processor.Task) (any, error) {
	rep, err := c.clean(ctx, task.RawParams(), task.Logger())
	if err != nil {
		return nil, err
	}
	return rep, nil
}

// clean is one run. A refusal is final: trying again would not help.
func (c *cleaner) clean(ctx context.Context, params []byte, log *slog.Logger) (*Report, error) {
	begun := time.Now()
	if c.wrong != nil {
		return nil, processor.Cancel(c.wrong)
	}
	p, err := parse(params)
	if err != nil {
		return nil, processor.Cancel(err)
	}
	rec := newRecorder(p, log)
	if err := c.bound(p, rec); err != nil {
		return nil, processor.Cancel(err)
	}
	top, err := c.openRoot(p.root)
	switch {
	case errors.Is(err, errMissing):
		rec.Status = StatusMissing
		rec.note("%v", err)
		log.Info("nothing to clean: the folder does not exist here", "root", p.root)
		return &rec.Report, nil
	case err != nil:
		return nil, processor.Cancel(fmt.Errorf("%s: %w", Name, err))
	}
	defer top.close()
	s := &sweep{
		plan: p, sys: c.sys, rec: rec, now: c.cfg.Now(), batch: c.batch, top: top,
		off: c.off(), touched: map[fileID]touch{},
	}
	err = s.run(ctx)
	rec.DurationMS = time.Since(begun).Milliseconds()
	log.Info(rec.String(), "kept", rec.Kept, "vanished", rec.Vanished, "ms", rec.DurationMS)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: ended early: %w", &rec.Report, err)
	case rec.Errors > 0 && p.onError == OnErrorFail:
		return nil, fmt.Errorf("%s: %s", &rec.Report, rec.firstFailures())
	}
	return &rec.Report, nil
}

// bound puts the worker's bounds in the plan, and what its system can do.
func (c *cleaner) bound(p *plan, rec *recorder) error {
	lower := func(field string, v *int64, most int64) {
		if *v > most {
			rec.note("%s is lowered from %d to the worker's bound of %d", field, *v, most)
		}
		if *v == 0 || *v > most {
			*v = most
		}
	}
	lower("max_files", &p.maxFiles, c.cfg.MaxFiles)
	lower("max_bytes", &p.maxBytes, c.cfg.MaxBytes)
	switch {
	case p.openFiles == "" && knowsOpenFiles:
		p.openFiles = OpenKeep
	case p.openFiles == "":
		p.openFiles = OpenDelete
	case p.openFiles == OpenKeep && !knowsOpenFiles:
		return errors.New("open_files is keep, and this worker's system does not tell which files are open; say delete")
	}
	return nil
}

// off are the excluded folders by identity, so that no other name leads into them.
func (c *cleaner) off() map[fileID]bool {
	out := map[fileID]bool{}
	for _, e := range c.cfg.Excluded {
		if info, err := os.Stat(e); err == nil {
			out[footprintOf(info).id] = true
		}
	}
	return out
}

// maxWorkers bounds the workers that a Summary lists.
const maxWorkers = 500

// Summary is the result of a broadcast: the sums over all workers, and each by itself.
type Summary struct {
	Workers int64 `json:"workers"`
	Failed  int64 `json:"failed,omitempty"`  // shares that failed or were lost
	Partial int64 `json:"partial,omitempty"` // workers on which entries failed
	Missing int64 `json:"missing,omitempty"` // workers without the folder
	Files   int64 `json:"files"`
	Bytes   int64 `json:"bytes"`
	Links   int64 `json:"links,omitempty"`
	Dirs    int64 `json:"dirs,omitempty"`
	Errors  int64 `json:"errors"`
	// Each has the first 500 workers, by share. What they kept and why is in their own results.
	Each []WorkerSummary `json:"each"`
	Note string          `json:"note,omitempty"`
}

// WorkerSummary is one line of a Summary.
type WorkerSummary struct {
	Worker string `json:"worker"`
	Host   string `json:"host,omitempty"`
	Status string `json:"status"` // that of the Report, or "failed"
	Files  int64  `json:"files"`
	Bytes  int64  `json:"bytes"`
	Errors int64  `json:"errors,omitempty"`
	Error  string `json:"error,omitempty"`
	MS     int64  `json:"ms"`
}

// StatusFailed is that of a share without a Report.
const StatusFailed = "failed"

// PostProcess sums the reports up.
func (c *cleaner) PostProcess(_ context.Context, _ *processor.Task, shares *processor.Shares) (any, error) {
	sum := &Summary{Each: []WorkerSummary{}}
	for share := range shares.All() {
		var rep Report
		line := WorkerSummary{Worker: share.Worker}
		switch err := share.Decode(&rep); {
		case !share.OK:
			line.Status, line.Error = StatusFailed, cut(share.Error)
			sum.Failed++
		case err != nil:
			return nil, err
		default:
			line.Host, line.Status, line.Files, line.Bytes, line.Errors, line.MS = rep.Host, rep.Status, rep.Files, rep.Bytes, rep.Errors, rep.DurationMS
		}
		sum.add(&rep, line)
	}
	if left := sum.Workers - int64(len(sum.Each)); left > 0 {
		sum.Note = fmt.Sprintf("%d more workers are counted but not listed", left)
	}
	if sum.Workers > 0 && sum.Missing == sum.Workers {
		sum.Note = "no worker has the folder; is the root right?"
	}
	return sum, nil
}

func (sum *Summary) add(rep *Report, line WorkerSummary) {
	sum.Workers++
	sum.Files += rep.Files
	sum.Bytes += rep.Bytes
	sum.Links += rep.Links
	sum.Dirs += rep.Dirs
	sum.Errors += rep.Errors
	switch line.Status {
	case StatusPartial:
		sum.Partial++
	case StatusMissing:
		sum.Missing++
	}
	if len(sum.Each) < maxWorkers {
		sum.Each = append(sum.Each, line)
	}
}
