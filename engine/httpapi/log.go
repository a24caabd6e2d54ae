package httpapi

import (
	"errors"
	"log/slog"
	"strings"
)

// errEnough ends a reading of logs early.
var errEnough = errors.New("enough lines")

func isEnough(err error) bool { return errors.Is(err, errEnough) }

// level is the word for a level of a log line.
func level(l int8) string { return strings.ToLower(slog.Level(l).String()) }
