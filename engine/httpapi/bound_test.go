package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLimiter(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	l := newLimiter(3, time.Second, 100)
	for range 3 {
		require.Zero(t, l.take("a", now))
	}
	require.Equal(t, time.Second, l.take("a", now))
	require.Zero(t, l.take("b", now))
	now = now.Add(time.Second)
	require.Zero(t, l.take("a", now))
	require.Positive(t, l.take("a", now))
	// Who comes under many names gets no more than one, once there are too many of them.
	let := 0
	for i := range 10_000 {
		if l.take(fmt.Sprint("name", i), now) == 0 {
			let++
		}
	}
	require.LessOrEqual(t, len(l.full), 101)
	require.Less(t, let, 105)
	now = now.Add(time.Hour)
	require.Zero(t, l.take("later", now)) // all is forgotten when it may be
	require.Len(t, l.full, 1)
}

func TestNetwork(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"192.0.2.7": "192.0.2.7", "::ffff:192.0.2.7": "192.0.2.7", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64", "fe80::1%eth0": "fe80::/64", "@": "@",
	} {
		require.Equal(t, want, network(in))
	}
}

// What passes is JSON, not too deep, and says nothing twice.
func FuzzCheckJSON(f *testing.F) {
	for _, s := range []string{`{}`, `[]`, `1`, `{"a":{"a":[{"b":1},{"b":2}]}}`, `{"a":1,"a":2}`, `{"a":1}}`, `[1,]`, ``, ` `, `"x" "y"`, `{"a":[{}]}`, strings.Repeat("[", 70), `{"a"}`, `nul`, `1e400`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		err := checkJSON(b)
		if err == nil {
			require.True(t, json.Valid(b), "%q", b)
			return
		}
		// What is refused is no JSON, or holds a key twice, or is deep: encoded anew from what was
		// read, which has each key once, it passes unless it is deep.
		var v any
		d := json.NewDecoder(bytes.NewReader(b))
		d.UseNumber()
		if json.Valid(b) && d.Decode(&v) == nil && strings.Count(string(b), "[")+strings.Count(string(b), "{") <= maxDepth {
			again, failed := json.Marshal(v)
			require.NoError(t, failed)
			require.NoError(t, checkJSON(again), "%q: %v", b, err)
			require.Contains(t, err.Error(), "there twice", "%q", b)
		}
	})
}

// TestAnswers: what is remembered is bounded, by caller and in time.
func TestAnswers(t *testing.T) {
	t.Parallel()
	s, now := newAnswers(), time.Unix(1_000_000, 0)
	key := func(user int64, n int) answerKey { return answerKey{user, [32]byte{byte(n), byte(n >> 8)}} }
	for i := range mostOfCaller {
		ans, first, err := s.begin(key(1, i), [32]byte{}, now)
		require.NoError(t, err)
		require.True(t, first)
		s.end(key(1, i), ans, int64(i), nil)
	}
	_, _, err := s.begin(key(1, mostOfCaller), [32]byte{}, now)
	require.ErrorContains(t, err, "idempotency keys within a day")
	ans, first, err := s.begin(key(1, 5), [32]byte{}, now)
	require.NoError(t, err)
	require.False(t, first)
	require.Equal(t, int64(5), ans.id)
	_, first, err = s.begin(key(2, 5), [32]byte{}, now)
	require.NoError(t, err)
	require.True(t, first)
	_, first, err = s.begin(key(1, 5), [32]byte{9}, now.Add(keepAnswers)) // another day, another body
	require.NoError(t, err)
	require.True(t, first)
	require.Len(t, s.m, 1)
	require.Equal(t, map[int64]int{1: 1}, s.counts)
}
