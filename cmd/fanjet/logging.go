package main

import (
	"io"
	"log/slog"
)

// logFlags are the flags of a command that writes a log.
type logFlags struct {
	LogLevel  string `enum:"debug,info,warn,error" default:"info" env:"FANJET_LOG_LEVEL" help:"From which level on: ${enum}."`
	LogFormat string `enum:"text,json" default:"text" env:"FANJET_LOG_FORMAT" help:"One of ${enum}."`
}

func (f logFlags) logger(w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(f.LogLevel)) // one of the four
	o := &slog.HandlerOptions{Level: level}
	if f.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// warnings is the log of a command whose output is for people: what went wrong only.
func warnings(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn}))
}
