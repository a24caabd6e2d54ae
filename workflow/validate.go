package workflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// fieldProblem is one wrong field of a Spec, named as in documents.
type fieldProblem struct{ field, message string }

// Bounds of a Spec.
const (
	// MaxRetries bounds Retry.Max.
	MaxRetries = 100
	maxText    = 255
	maxList    = 1000
)

// WithDefaults is the Spec with every default of its fields filled in.
func (s Spec) WithDefaults() Spec {
	setDefault(&s.Mode, Standalone)
	setDefault(&s.Lane, LaneNormal)
	setDefault(&s.Pool, PoolAny)
	setDefault(&s.Routing, RoutingLane)
	setDefault(&s.Emit, EmitStream)
	if s.Mode == Broadcast {
		setDefault(&s.Rule, "all")
	}
	s.Retry = s.Retry.WithDefaults()
	s.TaskRetry = s.TaskRetry.WithDefaults()
	return s
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// WithDefaults is the policy with its defaults filled in; one that never retries stays zero.
func (r Retry) WithDefaults() Retry {
	if r.Max == 0 {
		return r
	}
	setDefault(&r.Delay, Duration(time.Second))
	setDefault(&r.Backoff, 2)
	setDefault(&r.MaxDelay, Duration(5*time.Minute))
	if r.Jitter == nil {
		j := 0.1
		r.Jitter = &j
	}
	return r
}

// Validate reports everything wrong with the Spec as one joined error, nil when it may run.
// Zero fields are their defaults and are right, apart from Processor.
func (s Spec) Validate() error {
	var errs []error
	for _, p := range s.problems(true) {
		errs = append(errs, errors.New(p.message))
	}
	return errors.Join(errs...)
}

// problems checks every field; the processor only when it is inline.
func (s Spec) problems(inline bool) []fieldProblem {
	var ps []fieldProblem
	fail := func(field, format string, args ...any) {
		ps = append(ps, fieldProblem{field, fmt.Sprintf(field+" "+format, args...)})
	}
	if inline {
		s.text(fail, "processor", s.Processor, true)
	}
	s.text(fail, "pool", s.Pool, false)
	s.text(fail, "routing_key", s.RoutingKey, false)
	word(fail, "mode", s.Mode, Standalone, Broadcast, Map, MapReduce)
	word(fail, "lane", s.Lane, LaneHigh, LaneNormal, LaneBulk)
	word(fail, "routing", s.Routing, RoutingLane, RoutingRandom, RoutingRoundRobin, RoutingHash, RoutingLeast, RoutingDesignated)
	word(fail, "emit", s.Emit, EmitStream, EmitAtomic)
	if len(s.Params) > MaxParams {
		fail("params", "has %d bytes, the limit is %d", len(s.Params), MaxParams)
	} else if s.Params != nil && !json.Valid(s.Params) {
		fail("params", "is not valid JSON")
	}
	s.placement(fail)
	for _, d := range []struct {
		field string
		value Duration
	}{{"timeout", s.Timeout}, {"task_timeout", s.TaskTimeout}, {"dispatch_timeout", s.DispatchTimeout}} {
		if d.value < 0 {
			fail(d.field, "must not be negative")
		}
	}
	s.Retry.check(fail, "retry")
	s.TaskRetry.check(fail, "task_retry")
	if s.MaxFailed.Count < 0 || !within(s.MaxFailed.Percent, 0, 100) {
		fail("max_failed", "must be a count of 0 or more, or a percent of 0 to 100")
	} else if s.MaxFailed.Count > 0 && s.MaxFailed.Percent > 0 {
		fail("max_failed", "is either a count or a percent, not both")
	}
	s.broadcast(fail)
	return ps
}

type failure func(field, format string, args ...any)

func word[T ~string](fail failure, field string, value T, allowed ...T) {
	if value == "" || slices.Contains(allowed, value) {
		return
	}
	names := make([]string, len(allowed))
	for i, a := range allowed {
		names[i] = string(a)
	}
	fail(field, "must be one of %s, not %q%s", strings.Join(names, ", "), clip(string(value)), closest(string(value), names))
}

func (s Spec) text(fail failure, field, value string, required bool) {
	switch {
	case value == "" && required:
		fail(field, "is missing")
	case len(value) > maxText:
		fail(field, "has %d bytes, the limit is %d", len(value), maxText)
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }):
		fail(field, "must not hold control characters")
	}
}

func (s Spec) placement(fail failure) {
	switch {
	case s.Routing == RoutingDesignated && len(s.Designated) == 0:
		fail("designated", "must name at least one worker when routing is designated")
	case s.Routing != RoutingDesignated && len(s.Designated) > 0:
		fail("designated", "needs routing: designated")
	case len(s.Designated) > maxList:
		fail("designated", "names %d workers, the limit is %d", len(s.Designated), maxList)
	}
	if len(s.Labels) > 64 {
		fail("labels", "has %d entries, the limit is 64", len(s.Labels))
	}
	for k, v := range s.Labels {
		if k == "" || len(k) > maxText || len(v) > maxText {
			fail("labels", "must have keys of 1 to 255 bytes and values of at most 255")
			break
		}
	}
	if s.MaxWorkers < 0 {
		fail("max_workers", "must not be negative")
	}
	if s.MaxRunning < 0 {
		fail("max_running", "must not be negative")
	}
	if s.Concurrency < 0 {
		fail("concurrency", "must not be negative")
	}
	if !within(s.MinCPU, 0, math.MaxFloat64) {
		fail("min_cpu", "must not be negative")
	}
	if !within(s.Rate, 0, math.MaxFloat64) {
		fail("rate", "must not be negative")
	}
	for _, n := range []struct {
		field string
		value int64
	}{{"min_memory", s.MinMemory}, {"min_disk", s.MinDisk}, {"stage_bytes", s.StageBytes}} {
		if n.value < 0 {
			fail(n.field, "must not be negative")
		}
	}
}

// within is false for NaN too.
func within(f, low, high float64) bool { return f >= low && f <= high }

func (r Retry) check(fail failure, field string) {
	switch {
	case r.Max < 0 || r.Max > MaxRetries:
		fail(field, "max must be 0 to %d, it is %d", MaxRetries, r.Max)
	case r.Delay < 0 || r.MaxDelay < 0:
		fail(field, "delays must not be negative")
	case r.Backoff != 0 && !within(r.Backoff, 1, 1000):
		fail(field, "backoff must be 1 to 1000, it is %v", r.Backoff)
	case r.Jitter != nil && !within(*r.Jitter, 0, 1):
		fail(field, "jitter must be 0 to 1, it is %v", *r.Jitter)
	}
}

func (s Spec) broadcast(fail failure) {
	if s.Rule != "" {
		percent, ok := strings.CutSuffix(s.Rule, "%")
		n, err := strconv.Atoi(percent)
		if s.Rule != "all" && s.Rule != "any" && (!ok || err != nil || n < 1 || n > 100) {
			fail("rule", "must be all, any or a percentage such as 80%%, not %q", clip(s.Rule))
		}
		if s.Mode != Broadcast {
			fail("rule", "needs mode: broadcast")
		}
	}
	if len(s.Waves) == 0 {
		return
	}
	if s.Mode != Broadcast {
		fail("waves", "needs mode: broadcast")
	}
	last := 0
	for _, w := range s.Waves {
		if w <= last || w > 100 {
			fail("waves", "must be growing percentages that end with 100, such as 10, 50, 100")
			return
		}
		last = w
	}
	if last != 100 {
		fail("waves", "must end with 100")
	}
}
