// Package storage keeps the truth in SQL. It implements engine.Store with bun for SQLite,
// the embedded default, and for MySQL and MariaDB: one code, whose differences live in the
// dialect. It is the only package that knows SQL; rows are its own structs, and what a
// driver says becomes an error of engine at this border.
//
// It decides nothing. A Change is stored as given, or refused when the database finds it
// impossible: a lost fence, a duplicate, a row that breaks a CHECK. What is final stays
// final here too.
package storage
