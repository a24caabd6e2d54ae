package access_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fanjet/fanjet/engine"
	"github.com/fanjet/fanjet/engine/access"
)

const now = 1_790_000_000_000

// cheap costs next to nothing, for tests.
var cheap = access.HashParams{Memory: 8, Passes: 1, Threads: 1}

func TestPasswordHash(t *testing.T) {
	t.Parallel()
	// From the tests of the reference implementation of Argon2 (version 19, id).
	const reference = "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc"
	ok, err := access.VerifyPassword("password", reference)
	require.NoError(t, err)
	require.True(t, ok)
	ok, err = access.VerifyPassword("passwore", reference)
	require.NoError(t, err)
	require.False(t, ok)

	text := access.HashPassword("correct horse", [16]byte{1, 2}, access.DefaultHash)
	require.True(t, strings.HasPrefix(text, "$argon2id$v=19$m=19456,t=2,p=1$"), text)
	require.NotEqual(t, text, access.HashPassword("correct horse", [16]byte{3}, access.DefaultHash))
	ok, err = access.VerifyPassword("correct horse", text)
	require.NoError(t, err)
	require.True(t, ok)
	require.False(t, access.NeedsRehash(text, access.DefaultHash))
	require.True(t, access.NeedsRehash(text, cheap))
	require.True(t, access.NeedsRehash(reference, access.DefaultHash))

	ok, err = access.VerifyPassword("", "")
	require.NoError(t, err, "no password lets nobody in")
	require.False(t, ok)
	require.False(t, access.NoPassword(strings.Repeat("x", 5000)))
	for _, bad := range []string{
		"x", "$argon2id$v=19$m=4294967295,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc",
		"$argon2id$v=19$m=65536,t=0,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc",
		"$argon2id$v=19$m=65536,t=2,p=0$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc",
		"$argon2i$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc",
		"$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$", "$argon2id$v=19$m=065536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc",
	} {
		_, err := access.VerifyPassword("password", bad)
		require.ErrorIs(t, err, engine.ErrInvalid, bad)
		require.NotContains(t, err.Error(), "c29t")
	}
}

func TestPasswordRules(t *testing.T) {
	t.Parallel()
	var rules access.PasswordRules
	for _, good := range []string{"seven green tractors", "Пароль из четырёх слов", "正確的馬電池釘書針一二三", "x9$Lq!vT2#wz", "passwordless bicycles"} {
		require.NoError(t, rules.CheckPassword(good, "ada"), good)
	}
	for bad, what := range map[string]string{
		"": "too short", "short": "too short", "elevenchars": "too short", "password1234": "guessed", "Password123!": "guessed", "P@ssw0rdP@ssw0rd": "guessed",
		"aaaaaaaaaaaa": "guessed", "123456789012": "guessed", "abcdefghijkl": "guessed", "abababababab": "guessed", "adminadminadmin": "guessed", "fanjetfanjet1": "guessed",
		"i am ada lovelace": "name", "line\nbreak of words": "control", "bad \xff bytes here": "UTF-8", strings.Repeat("word ", 300): "at most",
	} {
		err := rules.CheckPassword(bad, "ada")
		require.ErrorContains(t, err, what, bad)
		if len(bad) > 5 {
			require.NotContains(t, err.Error(), bad)
		}
	}
	require.ErrorContains(t, rules.CheckPassword("grace hopper wins", "grace@navy.example"), "name")
	require.ErrorContains(t, access.PasswordRules{MinLength: 4}.CheckPassword("x9$Lq!v", "ada"), "8 characters")
	require.NoError(t, access.PasswordRules{MinLength: 8}.CheckPassword("x9$Lq!v8", "ada"))
	require.ErrorContains(t, access.PasswordRules{MinKinds: 3}.CheckPassword("seven green tractors", "ada"), "3 of")
	require.NoError(t, access.PasswordRules{MinKinds: 4}.CheckPassword("Seven green tractors 9", "ada"))
	require.False(t, rules.Expired(0, now))
	aged := access.PasswordRules{MaxAge: 1000}
	require.False(t, aged.Expired(now-1000, now))
	require.True(t, aged.Expired(now-1001, now))
}

// E19: a thousand wrong passwords, tried as fast as may be, take more than a week.
func TestLockout(t *testing.T) {
	t.Parallel()
	var l access.Lockout
	failed, last, clock := int32(0), int64(0), int64(now)
	var waits []time.Duration
	for n := 0; n < 1000; {
		next, err := l.Begin(failed, last, clock)
		if err == nil {
			failed, last = next, clock
			n++
			continue
		}
		var locked *access.LockedError
		require.ErrorAs(t, err, &locked)
		require.ErrorIs(t, err, engine.ErrLimit)
		require.Equal(t, failed, next, "a refused login is not counted")
		waits = append(waits, locked.Wait)
		clock += locked.Wait.Milliseconds()
	}
	require.Equal(t, []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 15 * time.Minute, 15 * time.Minute}, waits[:7])
	require.Len(t, waits, 995)
	require.Greater(t, time.Duration(clock-now)*time.Millisecond, 7*24*time.Hour)
	next, err := l.Begin(failed, last, last+25*time.Hour.Milliseconds())
	require.NoError(t, err)
	require.Equal(t, int32(1), next, "forgotten")
}

func TestLockoutNeverWaitsLongerThanItsMax(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := access.Lockout{
			Free: rapid.Int32Range(-1, 10).Draw(t, "free"), First: time.Duration(rapid.Int64Range(-1, int64(time.Hour)).Draw(t, "first")),
			Max: time.Duration(rapid.Int64Range(-1, int64(48*time.Hour)).Draw(t, "max")),
		}
		failed := rapid.Int32().Draw(t, "failed")
		last := rapid.Int64Range(0, 1<<42).Draw(t, "last")
		at := rapid.Int64Range(0, 1<<42).Draw(t, "now")
		next, err := l.Begin(failed, last, at)
		if err == nil {
			require.Positive(t, next)
			return
		}
		var locked *access.LockedError
		require.ErrorAs(t, err, &locked)
		require.Positive(t, locked.Wait)
		require.LessOrEqual(t, locked.Wait, max(l.Max, l.First, 15*time.Minute))
		_, err = l.Begin(failed, last, max(last, at)+locked.Wait.Milliseconds()+1)
		require.NoError(t, err, "after the wait it may")
	})
}

func TestSession(t *testing.T) {
	t.Parallel()
	var rules access.SessionRules
	u := &engine.User{ID: 7, Kind: engine.UserPerson, Generation: 3}
	s, c := rules.NewSession(u, 11, [32]byte{1}, "192.0.2.1", "browser", now)
	require.NoError(t, rules.CheckSession(c, &s, u, now))
	require.Equal(t, int64(now+12*3600_000), s.ExpiresAt)
	for name, change := range map[string]func(s *engine.Session, u *engine.User, c *access.Credential, at *int64){
		"idle": func(_ *engine.Session, _ *engine.User, _ *access.Credential, at *int64) { *at += 30 * 60_000 },
		"expired": func(s *engine.Session, _ *engine.User, _ *access.Credential, at *int64) {
			*at = s.ExpiresAt
			s.SeenAt = *at
		},
		"too old by now": func(s *engine.Session, _ *engine.User, _ *access.Credential, at *int64) {
			s.ExpiresAt = 1 << 60
			*at += 12 * 3600_000
			s.SeenAt = *at
		},
		"disabled":     func(_ *engine.Session, u *engine.User, _ *access.Credential, _ *int64) { u.Disabled = true },
		"changed":      func(_ *engine.Session, u *engine.User, _ *access.Credential, _ *int64) { u.Generation++ },
		"a service":    func(_ *engine.Session, u *engine.User, _ *access.Credential, _ *int64) { u.Kind = engine.UserService },
		"another user": func(_ *engine.Session, u *engine.User, _ *access.Credential, _ *int64) { u.ID = 8 },
		"another secret": func(_ *engine.Session, _ *engine.User, c *access.Credential, _ *int64) {
			*c = access.NewCredential(access.KindSession, 11, [32]byte{2})
		},
		"a token": func(_ *engine.Session, _ *engine.User, c *access.Credential, _ *int64) {
			*c = access.NewCredential(access.KindToken, 11, [32]byte{1})
		},
		"another id": func(_ *engine.Session, _ *engine.User, c *access.Credential, _ *int64) {
			*c = access.NewCredential(access.KindSession, 12, [32]byte{1})
		},
		"nothing": func(_ *engine.Session, _ *engine.User, c *access.Credential, _ *int64) { *c = access.Credential{} },
	} {
		s, u, c, at := s, *u, c, int64(now)
		change(&s, &u, &c, &at)
		require.ErrorIs(t, rules.CheckSession(c, &s, &u, at), access.ErrUnauthenticated, name)
	}
	require.Equal(t, time.Minute, rules.TouchAfter())
}

func TestToken(t *testing.T) {
	t.Parallel()
	var rules access.TokenRules
	u := &engine.User{ID: 7}
	day := 24 * time.Hour.Milliseconds()
	tok, c, err := rules.NewToken(u, 7, "deploy", []string{"jobs.*", "instances.trigger"}, []string{"billing", "pay-*"}, 21, [32]byte{9}, now, now+day)
	require.NoError(t, err)
	require.Regexp(t, `^fj_21_[a-z2-7]{52}$`, c.Text())
	back, err := access.ParseCredential(c.Text())
	require.NoError(t, err)
	require.Equal(t, c, back)
	require.NoError(t, access.CheckToken(back, &tok, u, now))
	for _, bad := range []struct {
		tok engine.Token
		u   engine.User
		at  int64
	}{
		{engine.Token{}, *u, now},
		{tok, engine.User{ID: 8}, now},
		{tok, engine.User{ID: 7, Disabled: true}, now},
		{tok, *u, now + day},
		{func() engine.Token { t := tok; t.RevokedAt = now; return t }(), *u, now},
		{func() engine.Token { t := tok; t.Hash[31]++; return t }(), *u, now},
	} {
		require.ErrorIs(t, access.CheckToken(c, &bad.tok, &bad.u, bad.at), access.ErrUnauthenticated)
	}
	for _, bad := range []struct {
		name        string
		permissions []string
		apps        []string
		expires     int64
	}{
		{"", []string{"*"}, nil, now + day},
		{"x", nil, nil, now + day},
		{"x", []string{"*"}, nil, now},
		{"x", []string{"*"}, nil, now + 400*day},
		{"x", []string{"jobs"}, nil, now + day},
		{"x", []string{"users.manage"}, nil, now + day},
		{"x", []string{"self.manage"}, nil, now + day},
		{"x", []string{"public"}, nil, now + day},
		{"x", []string{"*"}, []string{"bill*"}, now + day},
		{"x", []string{"*"}, []string{""}, now + day},
	} {
		_, _, err := rules.NewToken(u, 7, bad.name, bad.permissions, bad.apps, 21, [32]byte{9}, now, bad.expires)
		require.ErrorIs(t, err, engine.ErrInvalid, "%+v", bad)
	}
	_, _, err = rules.NewToken(u, 7, "x", make([]string, 65), nil, 21, [32]byte{9}, now, now+day)
	require.ErrorIs(t, err, engine.ErrTooLarge)
}

func TestCredentialsShowNoSecret(t *testing.T) {
	t.Parallel()
	code, c := access.NewCode(engine.CodeSetup, 5, 0, [32]byte{1, 2, 3}, now, 1000)
	require.True(t, c.Matches(code.Hash))
	require.Equal(t, access.KindSetup, c.Kind())
	for _, text := range []string{fmt.Sprint(c), fmt.Sprintf("%v %+v %#v %s %q", c, c, c, c, c)} {
		require.NotContains(t, text, strings.Split(c.Text(), "_")[2][:10])
		require.Contains(t, text, "fjsetup_5_***")
	}
	seen := map[[32]byte]bool{}
	for _, kind := range []access.CredentialKind{access.KindToken, access.KindSession, access.KindSetup, access.KindLogin} {
		for id := int64(1); id < 4; id++ {
			seen[access.NewCredential(kind, id, [32]byte{1}).Hash()] = true
		}
	}
	require.Len(t, seen, 12, "no credential stands in for another")
}

func FuzzParseCredential(f *testing.F) {
	good := access.NewCredential(access.KindToken, 42, [32]byte{1, 255}).Text()
	for _, seed := range []string{good, strings.ToUpper(good), good + "=", "fj_042_" + good[6:], "fj_-1_" + good[6:], "fjs__", "", "_", good[:len(good)-1] + "b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := access.ParseCredential(text)
		if err != nil {
			require.ErrorIs(t, err, access.ErrUnauthenticated)
			return
		}
		require.Equal(t, text, c.Text(), "two texts for one credential")
		require.True(t, c.Matches(c.Hash()))
	})
}
