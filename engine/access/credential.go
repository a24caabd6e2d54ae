package access

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fanjet/fanjet/engine"
)

// SecretSize is how many random bytes a credential has: 256 bits, so that its hash needs
// neither salt nor cost.
const SecretSize = 32

// CredentialKind says what a credential is for, and begins its text, so that whoever finds
// one in a file knows what it is.
type CredentialKind string

// The kinds.
const (
	KindToken   CredentialKind = "fj"
	KindSession CredentialKind = "fjs"
	KindSetup   CredentialKind = "fjsetup"
	KindLogin   CredentialKind = "fjlogin"
)

var credentialKinds = []CredentialKind{KindToken, KindSession, KindSetup, KindLogin}

var credentialText = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// Credential is the secret of a token, a session or a one-time code, with the id under which
// its hash is stored. It is written fj_<id>_<secret>, and only by Text: printed, logged or
// encoded it shows no secret.
type Credential struct {
	kind   CredentialKind
	id     int64
	secret [SecretSize]byte
}

// NewCredential makes one from an id and random bytes.
func NewCredential(kind CredentialKind, id int64, random [SecretSize]byte) Credential {
	return Credential{kind: kind, id: id, secret: random}
}

// ParseCredential reads what Text writes, and nothing else. No error shows the text.
func ParseCredential(text string) (Credential, error) {
	bad := fmt.Errorf("this is no token of ours: %w", ErrUnauthenticated)
	parts := strings.Split(text, "_")
	if len(text) > 128 || len(parts) != 3 || !slices.Contains(credentialKinds, CredentialKind(parts[0])) {
		return Credential{}, bad
	}
	id, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil || id <= 0 {
		return Credential{}, bad
	}
	secret, err := credentialText.DecodeString(parts[2])
	if err != nil || len(secret) != SecretSize {
		return Credential{}, bad
	}
	c := NewCredential(CredentialKind(parts[0]), id, [SecretSize]byte(secret))
	if c.Text() != text {
		return Credential{}, bad
	}
	return c, nil
}

// Kind is what the credential is for.
func (c Credential) Kind() CredentialKind { return c.kind }

// ID is the id of the token, session or code.
func (c Credential) ID() int64 { return c.id }

// Text is what its holder keeps.
func (c Credential) Text() string {
	return string(c.kind) + "_" + strconv.FormatInt(c.id, 10) + "_" + credentialText.EncodeToString(c.secret[:])
}

// String hides the secret.
func (c Credential) String() string {
	return string(c.kind) + "_" + strconv.FormatInt(c.id, 10) + "_***"
}

// GoString hides the secret.
func (c Credential) GoString() string { return c.String() }

// Hash is what is stored. It holds the kind and the id, so that no credential can stand in for
// another.
func (c Credential) Hash() [32]byte {
	h := sha256.New()
	h.Write([]byte(c.kind))
	h.Write(binary.BigEndian.AppendUint64([]byte{0}, uint64(c.id)))
	h.Write(c.secret[:])
	return [32]byte(h.Sum(nil))
}

// Matches tells whether the hash is its, in constant time.
func (c Credential) Matches(hash [32]byte) bool {
	own := c.Hash()
	return subtle.ConstantTimeCompare(own[:], hash[:]) == 1
}

// NewCode is a one-time code for the user (0 for setup) that is good for ttl ms, and the
// credential to show once.
func NewCode(purpose engine.CodePurpose, id, user int64, random [SecretSize]byte, now, ttl int64) (engine.Code, Credential) {
	kind := KindLogin
	if purpose == engine.CodeSetup {
		kind = KindSetup
	}
	c := NewCredential(kind, id, random)
	return engine.Code{ID: id, Purpose: purpose, User: user, Hash: c.Hash(), CreatedAt: now, ExpiresAt: now + ttl}, c
}
