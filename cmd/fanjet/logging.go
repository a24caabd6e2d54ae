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

// logger is a log and its level, which can be raised while it is used.
type logger struct {
	*slog.Logger
	level *slog.LevelVar
}

// hush leaves errors only.
func (l *logger) hush() { l.level.Set(max(slog.LevelError, l.level.Level())) }

func (f logFlags) logger(w io.Writer) *logger {
	var level slog.LevelVar
	_ = level.UnmarshalText([]byte(f.LogLevel)) // one of the four
	o := &slog.HandlerOptions{Level: &level}
	if f.LogFormat == "json" {
		return &logger{slog.New(slog.NewJSONHandler(w, o)), &level}
	}
	return &logger{slog.New(slog.NewTextHandler(w, o)), &level}
}

// warnings is the log of a command whose output is for people: what went wrong only.
func warnings(w io.Writer) *logger {
	return logFlags{LogLevel: "warn"}.logger(w)
}
