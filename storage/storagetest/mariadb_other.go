//go:build !unix

package storagetest

import (
	"os"
	"testing"
)

// MariaDB returns the URL of a fresh database on a private MariaDB server, which needs a
// unix system.
func MariaDB(t testing.TB) string {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal("a private MariaDB needs a unix system")
	}
	t.Skip("a private MariaDB needs a unix system")
	return ""
}
