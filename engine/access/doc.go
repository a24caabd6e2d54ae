// Package access decides who may do what, and holds the arithmetic that proves it: the table
// of roles, passwords, lock-out, one-time codes, tokens, sessions, the chain of the audit log
// and the encryption of secrets.
//
// It is pure: the time, ids and what is random are arguments, and it stores nothing. A server
// reads the nouns from engine.IdentityStore, asks here, and stores what comes of it. What is
// not allowed by a line of the table is refused.
package access

import "errors"

// ErrUnauthenticated says that the caller has shown nothing that proves who it is, or
// something that proves it no longer: log in again.
var ErrUnauthenticated = errors.New("not authenticated")
