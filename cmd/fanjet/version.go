package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

type versionCmd struct{}

// Run prints the version on one line.
func (versionCmd) Run(con *console) error {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	fmt.Fprintln(con.out, versionLine(info))
	return nil
}

func versionLine(info *debug.BuildInfo) string {
	version := info.Main.Version
	if version == "" {
		version = "(unknown)"
	}
	parts := []string{"fanjet " + version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
	set := map[string]string{}
	for _, s := range info.Settings {
		set[s.Key] = s.Value
	}
	if rev := set["vcs.revision"]; rev != "" {
		what := set["vcs"] + " " + rev[:min(12, len(rev))]
		if set["vcs.modified"] == "true" {
			what += " with local changes"
		}
		if at := set["vcs.time"]; at != "" {
			what += ", " + at
		}
		parts = append(parts, what)
	}
	return strings.Join(parts, ", ")
}
