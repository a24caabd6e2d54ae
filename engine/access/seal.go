package access

import (
	"bufio"
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/fanjet/fanjet/engine"
)

// KeySize is the size of a key, in bytes (AES-256).
const KeySize = 32

const (
	sealVersion = 1
	nonceSize   = 12
	tagOverhead = 16
)

// SealRandom is how many random bytes one sealing takes: the value's own key and two nonces.
const SealRandom = KeySize + 2*nonceSize

// WrapRandom is how many random bytes one wrapping takes: a nonce.
const WrapRandom = nonceSize

// Keyring holds the keys that the keys of values are wrapped with. The current one wraps,
// each unwraps. It is safe for concurrent use. With random nonces a key is good for 2^32
// sealings (NIST SP 800-38D, 8.3).
type Keyring struct {
	current string
	keys    map[string]cipher.AEAD
}

// ParseKeyring reads the keys as a file or the environment holds them: one a line, the
// current one first, each an id of a-z, 0-9, _ and -, a colon and 32 bytes in base64. Empty
// lines and those that begin with # do not count. No error shows a key.
func ParseKeyring(text []byte) (*Keyring, error) {
	k := &Keyring{keys: map[string]cipher.AEAD{}}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		id, encoded, _ := strings.Cut(line, ":")
		key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(encoded))
		if err != nil || len(key) != KeySize || !engine.ValidName(id) {
			return nil, fmt.Errorf("keys, line %d: want id:key, the key as %d bytes in base64: %w", n, KeySize, engine.ErrInvalid)
		}
		if _, ok := k.keys[id]; ok {
			return nil, fmt.Errorf("keys, line %d: key %s is there twice: %w", n, id, engine.ErrInvalid)
		}
		if k.keys[id], err = newAEAD(key); err != nil {
			return nil, fmt.Errorf("keys, line %d: %w", n, err)
		}
		if k.current == "" {
			k.current = id
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("keys: %w: %w", engine.ErrInvalid, err)
	}
	if k.current == "" {
		return nil, fmt.Errorf("keys: there is none: want a line of id:key, the key as %d bytes in base64: %w", KeySize, engine.ErrInvalid)
	}
	return k, nil
}

// FormatKey is a line that ParseKeyring reads.
func FormatKey(id string, key [KeySize]byte) string {
	return id + ":" + base64.StdEncoding.EncodeToString(key[:])
}

func newAEAD(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// Current is the id of the key that wraps.
func (k *Keyring) Current() string { return k.current }

// Label says what a sealed value is, and is part of what the encryption proves.
type Label struct{ text string }

// SecretLabel is the label of a secret of an app.
func SecretLabel(app int64, name string) Label { return newLabel("secret", app, name) }

// TOTPLabel is the label of the second factor of a user.
func TOTPLabel(user int64) Label { return newLabel("totp", user, "") }

func newLabel(kind string, id int64, name string) Label {
	b := append([]byte("fanjet\x00"+kind+"\x00"), binary.BigEndian.AppendUint64(nil, uint64(id))...)
	return Label{text: string(b) + name}
}

// Seal encrypts a value under a key of its own, and that key under the current one of the
// ring: AES-256-GCM both times (NIST SP 800-38D), with the label, and for the key the ring
// key's id, as associated data. The random bytes must never be used for anything else.
func (k *Keyring) Seal(l Label, value []byte, random [SealRandom]byte) ([]byte, error) {
	if err := engine.CheckBytes("secret", value, engine.MaxSecret); err != nil {
		return nil, err
	}
	own := random[:KeySize]
	wrapNonce, nonce := random[KeySize:KeySize+nonceSize], random[KeySize+nonceSize:]
	aead, err := newAEAD(own)
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	out := k.wrap(l, own, wrapNonce)
	out = append(out, nonce...)
	return aead.Seal(out, nonce, value, []byte(l.text)), nil
}

// wrap begins a sealed value: version, id of the ring key, nonce, wrapped key.
func (k *Keyring) wrap(l Label, own, nonce []byte) []byte {
	out := append([]byte{sealVersion, byte(len(k.current))}, k.current...)
	out = append(out, nonce...)
	return k.keys[k.current].Seal(out, nonce, own, wrapData(l, k.current))
}

func wrapData(l Label, keyID string) []byte { return []byte("key\x00" + keyID + "\x00" + l.text) }

// sealed is a sealed value, taken apart.
type sealed struct {
	keyID                           string
	wrapNonce, wrapped, nonce, body []byte
}

func takeApart(b []byte) (s sealed, ok bool) {
	if len(b) < 2 || b[0] != sealVersion {
		return s, false
	}
	n := int(b[1])
	b = b[2:]
	if len(b) < n+2*nonceSize+KeySize+2*tagOverhead {
		return s, false
	}
	cut := func(n int) (part []byte) { part, b = b[:n], b[n:]; return part }
	s.keyID = string(cut(n))
	s.wrapNonce, s.wrapped, s.nonce = cut(nonceSize), cut(KeySize+tagOverhead), cut(nonceSize)
	s.body = b
	return s, true
}

func (k *Keyring) unwrap(l Label, s sealed) ([]byte, error) {
	ring, ok := k.keys[s.keyID]
	if !ok {
		return nil, fmt.Errorf("the value is sealed with key %q, which is not among the keys: add it to the file: %w", engine.CutText(s.keyID, engine.MaxName), engine.ErrInvalid)
	}
	own, err := ring.Open(nil, s.wrapNonce, s.wrapped, wrapData(l, s.keyID))
	if err != nil {
		return nil, errOpen()
	}
	return own, nil
}

func errOpen() error {
	return fmt.Errorf("the sealed value was changed, belongs to something else, or another key has this id: %w", engine.ErrInvalid)
}

// Open decrypts what Seal made for the same label.
func (k *Keyring) Open(l Label, b []byte) ([]byte, error) {
	s, ok := takeApart(b)
	if !ok {
		return nil, errOpen()
	}
	own, err := k.unwrap(l, s)
	if err != nil {
		return nil, err
	}
	aead, err := newAEAD(own)
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	value, err := aead.Open(nil, s.nonce, s.body, []byte(l.text))
	if err != nil {
		return nil, errOpen()
	}
	return value, nil
}

// Rewrap wraps the key of a sealed value with the current key of the ring and leaves the
// value as it is, so that an old key can be given up.
func (k *Keyring) Rewrap(l Label, b []byte, random [WrapRandom]byte) ([]byte, error) {
	s, ok := takeApart(b)
	if !ok {
		return nil, errOpen()
	}
	own, err := k.unwrap(l, s)
	if err != nil {
		return nil, err
	}
	return append(append(k.wrap(l, own, random[:]), s.nonce...), s.body...), nil
}

// KeyOf is the id of the key that a sealed value is wrapped with, empty if it is none.
func KeyOf(b []byte) string {
	s, _ := takeApart(b)
	return s.keyID
}
