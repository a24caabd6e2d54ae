package schedule

import "fmt"

// FieldError is one thing wrong with a schedule or a calendar. Compile joins all it finds; use
// errors.As to reach the first.
type FieldError struct {
	// Field is where, as it is written in a document: schedule.cron.
	Field string
	// Column counts the characters in the field's text from 1; 0 stands for the whole field.
	Column int
	// Message says what is wrong and what to write.
	Message string
}

// Error is "field: message", with the column if there is one.
func (e *FieldError) Error() string {
	if e.Column > 0 {
		return fmt.Sprintf("%s: column %d: %s", e.Field, e.Column, e.Message)
	}
	return e.Field + ": " + e.Message
}

func fieldError(field, format string, args ...any) *FieldError {
	return &FieldError{Field: field, Message: fmt.Sprintf(format, args...)}
}

// clip bounds what an error repeats of a text.
func clip(s string) string {
	const most = 40
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
