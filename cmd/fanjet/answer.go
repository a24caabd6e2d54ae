package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// outputFlag says how a command answers.
type outputFlag struct {
	Output string `short:"o" enum:"text,json" default:"text" help:"How to answer: ${enum}."`
}

// write answers with v as JSON, or with text.
func (f outputFlag) write(w io.Writer, v any, text func(io.Writer)) error {
	if f.Output != "json" {
		text(w)
		return nil
	}
	return writeJSON(w, v)
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

// utc writes epoch milliseconds as 2006-01-02T15:04:05Z, with a fraction if there is one; 0 is
// none.
func utc(ms int64) string {
	if ms == 0 {
		return "-"
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.999Z07:00")
}
