package server

import (
	"context"

	"github.com/fanjet/fanjet/broker"
)

// LogLine is a line that a task has logged.
type LogLine struct {
	At      int64 // epoch ms, by the worker's clock
	Level   int8  // of slog
	Text    string
	Task    int64 // its number
	Attempt int32 // of the instance
	Worker  string
}

// LogLines calls each for the lines that the instance's tasks wrote, in order, as Logs does.
func (s *Server) LogLines(ctx context.Context, instance int64, each func(LogLine) error) error {
	return s.Logs(ctx, instance, func(b *broker.LogBatch) error {
		for _, l := range b.Lines {
			if err := each(LogLine{At: l.At, Level: l.Level, Text: l.Text, Task: b.Number, Attempt: b.Attempt, Worker: b.Worker}); err != nil {
				return err
			}
		}
		return nil
	})
}
