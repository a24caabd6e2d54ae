package broker

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

func TestNames(t *testing.T) {
	t.Parallel()
	for _, ok := range []string{"a", "0", "a-b_c", "s0", strings.Repeat("x", 63)} {
		require.True(t, ValidName(ok), ok)
	}
	for _, bad := range []string{"", "-a", "_a", "A", "a.b", "a b", "a*", "ä", ">", strings.Repeat("x", 64)} {
		require.False(t, ValidName(bad), bad)
	}
}

func TestSubjectsAreThoseOfTheArchitecture(t *testing.T) {
	t.Parallel()
	require.Equal(t, "task.shop.high.any.42", taskSubject("shop", "", LaneHigh, "any", 42))
	require.Equal(t, "task.shop.high.any.42", taskSubject("shop", "shop", LaneHigh, "any", 42))
	require.Equal(t, "task-s3.shop.high.any.42", taskSubject("shop", "s3", LaneHigh, "any", 42))
	require.Equal(t, "stage.shop.42.1", runSubject(kindStage, "shop", "", 42, 1))
	require.Equal(t, "result-s0.shop.42.*", runFilter(kindResult, "shop", "s0", 42, 0))
	require.Equal(t, "report.shop.63", reportSubject("shop", 63))
	require.Regexp(t, `^log\.shop\.\d{1,2}$`, logSubject("shop", "", 42))
	require.Equal(t, "TASKS_shop", kindTask.streamOf("shop", ""))
	require.Equal(t, "TASKS-s7", kindTask.streamOf("shop", "s7"))
}

func TestOwnAndSharedSetsNeverMeet(t *testing.T) {
	t.Parallel()
	// An app that is called like a shared set: its own streams are not the shared ones.
	require.NotEqual(t, kindTask.streamOf("s0", ""), kindTask.streamOf("other", "s0"))
	require.NotEqual(t, kindTask.all("s0", ""), kindTask.all("other", "s0"))
	first := func(s string) string { a, _, _ := strings.Cut(s, "."); return a }
	require.NotEqual(t, first(kindTask.all("s0", "")), first(kindTask.all("other", "s0")))
	require.NotEqual(t, durableName("a", "s0", LaneHigh, "b"), durableName("b", "s0", LaneHigh, "a"))
	require.Error(t, checkApp("shop", "s8"))
	require.Error(t, checkApp("shop", "other"))
	require.Error(t, checkApp("Shop", ""))
}

func TestSetFor(t *testing.T) {
	t.Parallel()
	require.Empty(t, SetFor("shop", 0))
	require.Empty(t, SetFor("shop", 1))
	// What is stored with an app must be found by every later version.
	require.Equal(t, "s3", SetFor("shop", 3))
	require.Equal(t, "s6", SetFor("bank", 3))
	apps := map[string]int{}
	for i := range 800 {
		app := "app-" + strconv.Itoa(i)
		set := SetFor(app, 3)
		require.NoError(t, checkApp(app, set))
		require.True(t, SharedSet(set))
		apps[set]++
	}
	require.Len(t, apps, SharedSets)
	for set, n := range apps {
		require.Greater(t, n, 50, "set %s of 800 apps", set)
	}
}

func TestLogBucketsSpread(t *testing.T) {
	t.Parallel()
	seen := map[int]int{}
	for i := range int64(6400) {
		seen[LogBucket(i<<20)]++
	}
	require.Len(t, seen, LogBuckets)
}

func TestAckSubjectsOfBothForms(t *testing.T) {
	t.Parallel()
	want := ackMeta{delivered: 3, stream: 10, consumer: 11, stored: 1234567890, pending: 4}
	for _, s := range []string{
		"$JS.ACK.TASKS_shop.high=any.3.10.11.1234567890.4",
		"$JS.ACK._.HASH.TASKS_shop.high=any.3.10.11.1234567890.4",
		"$JS.ACK.domain.HASH.TASKS_shop.high=any.3.10.11.1234567890.4.random",
	} {
		got, ok := readAckSubject(s)
		require.True(t, ok, s)
		require.Equal(t, want, got, s)
	}
	for _, s := range []string{"", "_INBOX.a", "$JS.ACK.", "$JS.ACK.a.b.c.d.e.f.g", "$JS.ACK.S.C.1.2"} {
		_, ok := readAckSubject(s)
		require.False(t, ok, s)
	}
}

func TestPubAcks(t *testing.T) {
	t.Parallel()
	seq, err := readPubAck(&nats.Msg{Data: []byte(`{"stream":"S","seq":12}`)})
	require.NoError(t, err)
	require.Equal(t, uint64(12), seq)
	seq, err = readPubAck(&nats.Msg{Data: []byte(`{"stream":"S","domain":"d","seq": 13,"duplicate": true}`)})
	require.NoError(t, err)
	require.Equal(t, uint64(13), seq)
	for text, want := range map[string]error{
		`{"error":{"code":503,"err_code":10077,"description":"maximum bytes exceeded"},"stream":"S","seq":0}`: ErrNoRoom,
		`{"error":{"code":503,"err_code":10077,"description":"write failed"},"stream":"S","seq":0}`:           ErrUnavailable,
		`{"error":{"code":400,"err_code":10054,"description":"message size exceeds"},"seq":0}`:                ErrTooLarge,
		`{"stream":"S"}`: ErrUnavailable,
		`nonsense`:       ErrUnavailable,
	} {
		_, err := readPubAck(&nats.Msg{Data: []byte(text)})
		require.ErrorIs(t, err, want, text)
	}
	_, err = readPubAck(&nats.Msg{Header: nats.Header{"Status": {"503"}}})
	require.ErrorIs(t, err, ErrUnavailable)
}

func TestErrorsAreTranslatedOnce(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]error{
		nats.ErrMaxPayload:           ErrTooLarge,
		nats.ErrTimeout:              ErrUnavailable,
		nats.ErrReconnectBufExceeded: ErrUnavailable,
		nats.ErrConnectionClosed:     ErrClosed,
		&apiError{ErrCode: 10059}:    ErrNotFound,
		&apiError{ErrCode: 10047}:    ErrNoRoom,
		&apiError{Code: 503}:         ErrUnavailable,
	} {
		got := border("do", err)
		require.ErrorIs(t, got, want)
		require.ErrorIs(t, got, err)
	}
	other := errors.New("other")
	require.ErrorIs(t, border("do", other), other)
	require.NoError(t, border("do", nil))
}
