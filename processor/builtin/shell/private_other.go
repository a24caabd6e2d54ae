//go:build !unix

package shell

import (
	"io/fs"
	"os"
)

const nonblocking = 0

// systemVariables are those without which programs do not start here.
var systemVariables = []string{"SystemRoot", "ComSpec", "PATHEXT", "TEMP", "TMP"}

// lock keeps a file of the folder open, which here keeps the folder from being removed by others.
func lock(dir string) (*os.File, error) {
	return os.OpenFile(dir+`\lock`, os.O_CREATE|os.O_RDWR, 0o600)
}

func ours(fs.FileInfo) bool { return false } // nothing tells a folder in use from one that was left
