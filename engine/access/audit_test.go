package access_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/access"
)

func chain(n int) []engine.AuditRecord {
	var out []engine.AuditRecord
	var last engine.AuditRecord
	for i := range n {
		last = access.Chain(engine.AuditRecord{
			At: now + int64(i), ActorKind: engine.ActorUser, Actor: 7, Credential: 3, ActorName: "ada", Action: "jobs.write", App: 2, Target: "job:17",
			Outcome: engine.OutcomeDone, From: "192.0.2.1", Request: "r-1", Before: []byte(`{"n":1}`), After: []byte(`{"n":2}`),
		})(last)
		out = append(out, last)
	}
	return out
}

func each(records []engine.AuditRecord) iter.Seq2[engine.AuditRecord, error] {
	return func(yield func(engine.AuditRecord, error) bool) {
		for _, r := range records {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// The encoding is for ever: what was hashed with it must verify in years. The hashes were
// computed by another program from the description of AuditHash.
func TestAuditHashIsPinned(t *testing.T) {
	t.Parallel()
	all := chain(2)
	require.Equal(t, []string{
		"fa4f08179516489a0be4cdc77af97be36f76b32041e15080abeeeb59adb3d27b",
		"1a20afc41fb9beeb5c8d2315c45ecbc222cd4a99a9dc37c0dd48eeb70317d2b2",
	}, []string{hex.EncodeToString(all[0].Hash[:]), hex.EncodeToString(all[1].Hash[:])})
}

func TestVerifyAudit(t *testing.T) {
	t.Parallel()
	all := chain(6)
	last, err := access.VerifyAudit(each(all), engine.AuditRecord{}, access.AuditPin{Seq: 6, Hash: all[5].Hash})
	require.NoError(t, err)
	require.Equal(t, all[5], last)
	last, err = access.VerifyAudit(each(all[3:]), all[2])
	require.NoError(t, err)
	require.Equal(t, all[5], last)
	last, err = access.VerifyAudit(each(nil), engine.AuditRecord{})
	require.NoError(t, err)
	require.Zero(t, last)

	rewritten := chain(6)
	rewritten[2].ActorName = "eve"
	for i := 2; i < 6; i++ {
		rewritten[i] = access.Chain(rewritten[i])(rewritten[i-1])
	}
	pin := access.AuditPin{Seq: 4, Hash: all[3].Hash}
	for _, c := range []struct {
		name    string
		records []engine.AuditRecord
		seq     int64
	}{
		{"cut at the beginning", all[1:], 1},
		{"one taken out", slices.Delete(slices.Clone(all), 2, 3), 3},
		{"two exchanged", []engine.AuditRecord{all[0], all[2], all[1], all[3]}, 2},
		{"one doubled", slices.Insert(slices.Clone(all), 2, all[1]), 3},
		{"cut at the end", all[:3], 4},
		{"written anew", rewritten, 4},
		{"another chain spliced in", append(slices.Clone(all[:2]), rewritten[3:]...), 3},
	} {
		_, err := access.VerifyAudit(each(c.records), engine.AuditRecord{}, pin)
		var broken *access.BrokenError
		require.ErrorAs(t, err, &broken, c.name)
		require.Equal(t, c.seq, broken.Seq, "%s: %v", c.name, err)
	}
	gone := errors.New("gone")
	_, err = access.VerifyAudit(func(yield func(engine.AuditRecord, error) bool) { _ = yield(all[0], nil) && yield(all[1], gone) }, engine.AuditRecord{})
	require.ErrorIs(t, err, gone)
}

// Whatever is changed in one record is found, at that record or the next.
func TestVerifyAuditFindsAnyChange(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		all := chain(5)
		i := rapid.IntRange(0, 4).Draw(t, "record")
		r := &all[i]
		change := rapid.SampledFrom([]func(){
			func() { r.At++ }, func() { r.Actor++ }, func() { r.Credential++ }, func() { r.App++ }, func() { r.Seq += 1 << 40 },
			func() { r.ActorKind = engine.ActorSystem }, func() { r.ActorName += "x" }, func() { r.Action, r.Target = r.Action+r.Target[:1], r.Target[1:] },
			func() { r.Outcome = engine.OutcomeDenied }, func() { r.From = "" }, func() { r.Request = "r-2" }, func() { r.Before = nil },
			func() { r.Before, r.After = r.After, r.Before }, func() { r.Prev[rapid.IntRange(0, 31).Draw(t, "byte")] ^= 1 }, func() { r.Hash[0] ^= 1 },
		}).Draw(t, "change")
		change()
		_, err := access.VerifyAudit(each(all), engine.AuditRecord{})
		var broken *access.BrokenError
		require.ErrorAs(t, err, &broken)
		require.Contains(t, []int64{int64(i + 1), int64(i + 2)}, broken.Seq)
	})
}

func TestChainCutsWhatIsTooLong(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ü", 1<<17)
	r := access.Chain(engine.AuditRecord{ActorName: long, Action: long, Target: long, From: long + "\x00\xff", Request: long, Before: []byte(long), After: []byte{}})(engine.AuditRecord{})
	require.Equal(t, int64(1), r.Seq)
	require.Nil(t, r.After)
	require.LessOrEqual(t, len(r.ActorName), engine.MaxUserName)
	require.LessOrEqual(t, len(r.Target), engine.MaxKey)
	require.JSONEq(t, `{"cut":262144,"sha256":"`+strings.Split(string(r.Before), `"sha256":"`)[1][:64]+`"}`, string(r.Before))
	require.Equal(t, access.AuditHash(&r), r.Hash)
}

// E17.
func TestMasker(t *testing.T) {
	t.Parallel()
	m := access.NewMasker("", "a", "s3cr3t/+ü", "-----BEGIN-----\nfirst line\r\nx\nsecond\n", "42")
	credential := access.NewCredential(access.KindToken, 9, [32]byte{5}).Text()
	for in, want := range map[string]string{
		"":                       "",
		"a":                      "***",
		"a banana":               "a banana",
		"42":                     "***",
		"it is s3cr3t/+ü!":       "it is ***!",
		"q=s3cr3t%2F%2B%C3%BC&x": "q=***&x",
		base64.StdEncoding.EncodeToString([]byte("s3cr3t/+ü")): "***",
		"log: second":                         "log: ***",
		"first line":                          "***",
		"https://ada:hunter2@db.example/x":    "https://ada:***@db.example/x",
		"dial ada:p@ss@tcp(db:3306)/x failed": "dial ada:***@tcp(db:3306)/x failed",
		"Authorization: Bearer abcdef123456":  "Authorization: ***",
		"token " + credential + ".":           "token ***.",
		"mailto:ada@x.example":                "mailto:ada@x.example",
	} {
		require.Equal(t, want, m.Text(in), in)
	}
	require.JSONEq(t, `{"password":"***","Client-Secret":"***","api_key":"***","password_set":true,"empty_token":"","list":[1,"***",{"dsn":"***"}],"text":"a ***","big":9007199254740993,"***":1}`,
		string(m.JSON([]byte(`{"password":"x","Client-Secret":{"k":1},"api_key":7,"password_set":true,"empty_token":"","list":[1,"a",{"dsn":"u:p@tcp(x)/"}],"text":"a s3cr3t/+ü","big":9007199254740993,"s3cr3t/+ü":1}`))))
	require.Equal(t, `"not JSON ***"`, string(m.JSON([]byte("not JSON s3cr3t/+ü"))))
	require.Equal(t, `"{} {}"`, string(m.JSON([]byte("{} {}"))))
	require.Nil(t, m.JSON(nil))
	require.Equal(t, "x", new(access.Masker).Text("x"))
}

// No value of a secret of some length is left, wherever it stood.
func TestMaskerLeavesNoSecret(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.StringMatching(`[A-Za-z0-9"\\/+ü ]{8,40}`).Draw(t, "secret")
		m := access.NewMasker(value)
		text, err := json.Marshal(map[string]any{"k": rapid.String().Draw(t, "before") + value + rapid.String().Draw(t, "after"), "l": []string{value}})
		require.NoError(t, err)
		var back map[string]any
		require.NoError(t, json.Unmarshal(m.JSON(text), &back))
		require.NotContains(t, back["k"], value)
		require.Equal(t, []any{access.Mask}, back["l"])
	})
}
