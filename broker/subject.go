package broker

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
)

// Lanes: the priority classes, highest first.
const (
	LaneHigh   = "high"
	LaneNormal = "normal"
	LaneBulk   = "bulk"
)

// Lanes lists every lane, highest first. Every pool has a durable for each.
var Lanes = [...]string{LaneHigh, LaneNormal, LaneBulk}

// PoolAny is the pool that holds all workers of an app.
const PoolAny = "any"

// SharedSets is the number of shared stream sets, "s0".."s7".
const SharedSets = 8

// LogBuckets is the number of log subjects of an app.
const LogBuckets = 64

// A set names the streams that hold an app's messages. An app's own set ("" or the app's
// name) is four streams of that app alone, with the subjects of the architecture as they
// stand: task.<app>.…, stage.<app>.…, result.<app>.…, log.<app>.…. A shared set "s0".."s7"
// is four streams for many apps. JetStream refuses two streams whose subjects overlap, and
// task.> of a shared stream would overlap every own task.<app>.>; so in a shared set the
// first token carries the set: task-s0.<app>.…, stage-s0.<app>.…. The two kinds can never
// overlap, no stream's config has to be edited when an app joins a shared set, and an app
// that moves between sets is found in both while it moves. An app that is itself called
// "s0" to "s7" has no own set by that word; its own set is "".
//
// Stream names: TASKS_<app> or TASKS-<set> and so on. Names have no capitals, so that
// neither these nor the durables can be confused with each other.

const reportStream = "REPORTS"

// kind is a kind of stream of a set: the first token of its subjects and its stream's name.
type kind struct{ token, stream string }

var (
	kindTask   = kind{"task", "TASKS"}
	kindStage  = kind{"stage", "STAGE"}
	kindResult = kind{"result", "RESULTS"}
	kindLog    = kind{"log", "LOGS"}
)

// ValidName tells whether s may name an app, pool, worker or job: [a-z0-9][a-z0-9_-]{0,62}.
func ValidName(s string) bool {
	if len(s) == 0 || len(s) > 63 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
		case i > 0 && (c == '_' || c == '-'):
		default:
			return false
		}
	}
	return true
}

// SharedSet tells whether set names one of the shared stream sets.
func SharedSet(set string) bool {
	return len(set) == 2 && set[0] == 's' && set[1] >= '0' && set[1] < '0'+SharedSets
}

// SetFor is the set that a new app of that name gets: its own ("") with replicas 1, and one
// of the shared sets by hash of the name with more, where each stream and each durable is a
// raft group. An app keeps the set it was made with: store it, and never compute it again.
func SetFor(app string, replicas int) string {
	if replicas <= 1 {
		return ""
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(app)) // a hash takes everything
	return "s" + strconv.Itoa(int(mix(h.Sum64())%SharedSets))
}

func validLane(lane string) bool {
	return lane == LaneHigh || lane == LaneNormal || lane == LaneBulk
}

// checkNames says whether all of them can be part of a subject.
func checkNames(op string, names ...string) error {
	for _, n := range names {
		if !ValidName(n) {
			return fmt.Errorf("%s: name %q must match [a-z0-9][a-z0-9_-]{0,62}", op, n)
		}
	}
	return nil
}

func checkShard(op string, shard uint8) error {
	if shard >= Shards {
		return fmt.Errorf("%s: shard %d, there are %d", op, shard, Shards)
	}
	return nil
}

// validTopic tells whether s is one or more plain tokens.
func validTopic(s string) bool {
	for token := range strings.SplitSeq(s, ".") {
		if token == "" || strings.ContainsAny(token, " \t\r\n*>") {
			return false
		}
	}
	return true
}

// checkApp says whether (app, set) can be spelled at all.
func checkApp(app, set string) error {
	if !ValidName(app) {
		return fmt.Errorf("app name %q must match [a-z0-9][a-z0-9_-]{0,62}", app)
	}
	if set != "" && set != app && !SharedSet(set) {
		return fmt.Errorf("stream set %q of app %s is neither its own nor s0..s%d", set, app, SharedSets-1)
	}
	return nil
}

// streamOf is the stream that holds what k of the app; (app, set) has been checked.
func (k kind) streamOf(app, set string) string {
	if SharedSet(set) {
		return k.stream + "-" + set
	}
	return k.stream + "_" + app
}

// root is the head of every subject of k of the app, without a dot at its end.
func (k kind) root(app, set string) string {
	if SharedSet(set) {
		return k.token + "-" + set + "." + app
	}
	return k.token + "." + app
}

// all is the subject filter of the whole stream.
func (k kind) all(app, set string) string {
	if SharedSet(set) {
		return k.token + "-" + set + ".>"
	}
	return k.token + "." + app + ".>"
}

func taskSubject(app, set, lane, pool string, instance int64) string {
	b := make([]byte, 0, 96)
	b = append(b, kindTask.token...)
	if SharedSet(set) {
		b = append(append(b, '-'), set...)
	}
	b = append(append(b, '.'), app...)
	b = append(append(b, '.'), lane...)
	b = append(append(b, '.'), pool...)
	b = append(b, '.')
	return string(strconv.AppendInt(b, instance, 10))
}

// taskLaneFilter is what the durable of one lane and pool delivers.
func taskLaneFilter(app, set, lane, pool string) string {
	return kindTask.root(app, set) + "." + lane + "." + pool + ".*"
}

// taskInstanceFilter matches the chunks of one instance over all lanes and pools.
func taskInstanceFilter(app, set string, instance int64) string {
	return kindTask.root(app, set) + ".*.*." + strconv.FormatInt(instance, 10)
}

// instanceOf reads the instance out of a task subject.
func instanceOf(subject string) (int64, bool) {
	i := strings.LastIndexByte(subject, '.')
	if i < 0 {
		return 0, false
	}
	n, err := strconv.ParseInt(subject[i+1:], 10, 64)
	return n, err == nil
}

// durableName is the durable of one lane and pool. In a shared set it starts with the app.
// '=' is in no name, so that no two pairs meet in one durable.
func durableName(app, set, lane, pool string) string {
	if SharedSet(set) {
		return app + "=" + lane + "=" + pool
	}
	return lane + "=" + pool
}

func runSubject(k kind, app, set string, instance int64, run int32) string {
	return k.root(app, set) + "." + strconv.FormatInt(instance, 10) + "." + strconv.FormatInt(int64(run), 10)
}

// runFilter is one run, or with run 0 all runs of the instance.
func runFilter(k kind, app, set string, instance int64, run int32) string {
	if run == 0 {
		return k.root(app, set) + "." + strconv.FormatInt(instance, 10) + ".*"
	}
	return runSubject(k, app, set, instance, run)
}

func reportSubject(app string, shard uint8) string {
	return "report." + app + "." + strconv.Itoa(int(shard))
}

// allReports is every subject of the reports stream.
const allReports = "report.>"

// reportFilter matches the reports of a shard over all apps.
func reportFilter(shard uint8) string { return "report.*." + strconv.Itoa(int(shard)) }

// shardOf reads the shard out of a report, ask or nudge subject.
func shardOf(subject string) (uint8, bool) {
	n, ok := instanceOf(subject)
	if !ok || n < 0 || n >= Shards {
		return 0, false
	}
	return uint8(n), true
}

// LogBucket is the log subject of an instance. Ids share their low bits when a server
// hands them out in pages, so that they are mixed first.
func LogBucket(instance int64) int { return int(mix(uint64(instance)) % LogBuckets) }

// mix spreads x over its low bits.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	return x ^ x>>33
}

func logSubject(app, set string, instance int64) string {
	return kindLog.root(app, set) + "." + strconv.Itoa(LogBucket(instance))
}

func beatSubject(app, worker string) string   { return "beat." + app + "." + worker }
func workerSubject(app, worker string) string { return "worker." + app + "." + worker }
func controlSubject(app string) string        { return "ctl." + app }
func registerSubject(app string) string       { return "register." + app }
func askSubject(shard uint8) string           { return "ask." + strconv.Itoa(int(shard)) }
func nudgeSubject(shard uint8) string         { return "nudge." + strconv.Itoa(int(shard)) }
func eventSubject(app, topic string) string   { return "event." + app + "." + topic }
func interestSubject(app string) string       { return interestHead + app }

const (
	beatAll     = "beat.*.*"
	registerAll = "register.*"
	nudgeAll    = "nudge.*"
	// eventLive is the topic of what live views show.
	eventLive = "live"
	// interest.<app> says that a server wants to hear of the app's events.
	interestHead = "interest."
	interestAll  = interestHead + "*"
	// nudgeServers is for all servers; it names no shard.
	nudgeServers = "nudge.servers"
	// serverQueue is the queue group of the servers, where one of them answers.
	serverQueue = "servers"
)
