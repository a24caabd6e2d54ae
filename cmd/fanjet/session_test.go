//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fanjet/fanjet/engine/api"
)

// TestSession tells the story of somebody who installs a server: setup, login, users, tokens.
func TestSession(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	dir := t.TempDir()
	web := httpConfig{address: "127.0.0.1:0", insecure: true, keys: filepath.Join(dir, "keys"), makeKeys: true}
	p, err := startParts(t.Context(), partsConfig{dir: dir, port: -1, log: warnings(io.Discard), http: web})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.close()) })
	info, err := os.Stat(filepath.Join(dir, "keys"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	var out, errs bytes.Buffer
	con := &console{&out, &errs}
	said := func() string { defer out.Reset(); return out.String() }
	const ann, bob = "eleven green chairs fly", "nine purple lamps sleep"
	typed := func(s string) io.Reader { return strings.NewReader(s + "\n") }

	require.NoError(t, p.http.invite(t.Context(), con.out))
	m := regexp.MustCompile(`fanjet setup --server (http://127\.0\.0\.1:\d+) --code (fjsetup_\S+) --name YOU`).FindStringSubmatch(said())
	require.NotNil(t, m)
	server, code := m[1], m[2]
	require.ErrorContains(t, (&setupCmd{Server: server, Code: code, Name: "ann", in: typed("short")}).Run(con), "the password is too short")
	require.NoError(t, (&setupCmd{Server: server, Code: code, Name: "ann", in: typed(ann)}).Run(con))
	require.Contains(t, said(), "ann is system-admin. Log in with: fanjet login --server "+server)
	require.ErrorContains(t, (&setupCmd{Server: server, Code: code, Name: "eve", in: typed(ann)}).Run(con), "there is a user already")
	require.NoError(t, p.http.invite(t.Context(), con.out))
	require.Empty(t, said())

	// Without a login nothing goes.
	_, text, exit := command("user", "list")
	require.Equal(t, exitInvalid, exit)
	require.Contains(t, text, "log in with fanjet login first")
	require.ErrorContains(t, (&loginCmd{Server: server, Name: "ann", Days: 1, in: typed("wrong")}).Run(con), "the name or the password is wrong")
	require.NoError(t, (&loginCmd{Server: server, Name: "ann", Days: 1, in: typed(ann)}).Run(con))
	file, err := loginFile()
	require.NoError(t, err)
	require.Equal(t, "Logged in at "+server+" as ann for 1 days; the token is in "+file+".\n", said())
	info, err = os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	listed, text, exit := command("user", "list")
	require.Zero(t, exit, text)
	require.Regexp(t, `(?m)^ann +person +active +last login \S+Z$`, listed)

	// What gives rights away takes a person.
	add := userAddCmd{Name: "bob", Role: []string{"viewer@shop", "operator@*"}, personFlags: personFlags{in: typed(ann)}}
	require.NoError(t, add.Run(con))
	require.Regexp(t, `(?s)user bob, a person\n.*fjlogin_\S+`, said())
	bad := userAddCmd{Name: "zoe", Role: []string{"king"}, personFlags: personFlags{in: typed(ann)}}
	require.ErrorContains(t, bad.Run(con), "user zoe is made, but has no roles: role \"king\"")
	require.NoError(t, (&userDisableCmd{Name: "bob", personFlags: personFlags{in: typed(ann)}}).Run(con))
	require.Equal(t, "user bob is disabled\n", said())
	require.ErrorContains(t, (&userEnableCmd{Name: "bob", personFlags: personFlags{in: typed(bob)}}).Run(con), "log in: ")
	require.NoError(t, (&userEnableCmd{Name: "bob", personFlags: personFlags{in: typed(ann)}}).Run(con))
	require.NoError(t, (&userResetCmd{Name: "bob", personFlags: personFlags{in: typed(ann)}}).Run(con))
	require.Contains(t, said(), "fjlogin_")

	create := tokenCreateCmd{Name: "ci", Allow: []string{"jobs.*"}, App: []string{"shop"}, Days: 7, personFlags: personFlags{in: typed(ann)}}
	require.NoError(t, create.Run(con))
	secret := strings.TrimSpace(said())
	require.Regexp(t, `^fj_\d+_[a-z2-7]{52}$`, secret)
	listed, text, exit = command("token", "list", "-o", "json")
	require.Zero(t, exit, text)
	require.NotContains(t, listed, secret)
	var tokens []api.Token
	require.NoError(t, json.Unmarshal([]byte(listed), &tokens))
	require.Len(t, tokens, 2)
	revoke := tokenRevokeCmd{ID: tokens[1].ID, personFlags: personFlags{in: typed(ann)}}
	require.NoError(t, revoke.Run(con))
	_, text, exit = command("token", "list", "--token", secret)
	require.Equal(t, exitFailed, exit)
	require.Contains(t, text, "is revoked")

	require.NoError(t, logoutCmd{}.Run(con))
	require.NoFileExists(t, file)
	require.NotContains(t, errs.String(), ann)
}

// TestHTTPFlags refuses what would send passwords in the clear, or cannot be.
func TestHTTPFlags(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--http", "7780"}, "--http 7780: write it as HOST:PORT"},
		{[]string{"--http", ":7780"}, "passwords would be sent in the clear"},
		{[]string{"--http", "10.1.2.3:7780"}, "give --http-cert and --http-key, or --http-proxy"},
		{[]string{"--http-cert", "a.pem"}, "--http-cert and --http-key go together"},
		{[]string{"--http-cert", "/no/such/a.pem", "--http-key", "/no/such/a.key"}, "--http-cert, --http-key: open /no/such/a.pem"},
		{[]string{"--http-cert", "a.pem", "--http-key", "a.key", "--http-proxy"}, "leave it out with --http-cert"},
	} {
		_, errs, code := command(append([]string{"server"}, c.args...)...)
		require.Equal(t, exitInvalid, code, c.args)
		require.Contains(t, errs, c.want, c.args)
	}
	for _, server := range []string{"example.com", "http://example.com", "ftp://x"} {
		require.Error(t, (&loginCmd{Server: server, Name: "x", Days: 1, in: strings.NewReader("\n")}).Run(&console{io.Discard, io.Discard}))
	}
}

// TestHTTPAddressTaken: a port that is taken is told before anything is started.
func TestHTTPAddressTaken(t *testing.T) {
	t.Parallel()
	first, err := startParts(t.Context(), partsConfig{dir: t.TempDir(), port: -1, log: warnings(io.Discard), http: httpConfig{address: "127.0.0.1:0", insecure: true}})
	require.NoError(t, err)
	defer func() { require.NoError(t, first.close()) }()
	dir := filepath.Join(t.TempDir(), "data")
	_, errs, code := command("server", "--data", dir, "--listen", "127.0.0.1:0", "--http", strings.TrimPrefix(first.http.url, "http://"))
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "the API cannot listen")
	require.Contains(t, errs, "--http ''")
	require.NoDirExists(t, dir)
}
