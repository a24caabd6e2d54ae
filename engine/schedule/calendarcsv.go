package schedule

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
)

// ParseCSV reads a calendar from lines of date,kind[,name], at most MaxCalendarSize bytes: the
// date is 2006-01-02, the kind off or work. A first line date,kind,name and lines that begin
// with # are left out. Errors name the line.
func ParseCSV(r io.Reader) (*Calendar, error) {
	limited := &io.LimitedReader{R: r, N: MaxCalendarSize + 1}
	in := csv.NewReader(limited)
	in.Comment, in.FieldsPerRecord, in.TrimLeadingSpace, in.ReuseRecord = '#', -1, true, true
	out := &Calendar{}
	for first := true; ; first = false {
		record, err := in.Read()
		if limited.N <= 0 {
			return nil, fmt.Errorf("CSV: the file is larger than %d bytes", MaxCalendarSize)
		}
		var syntax *csv.ParseError
		switch {
		case errors.Is(err, io.EOF):
			if err := out.Check(); err != nil {
				return nil, fmt.Errorf("CSV: %w", err)
			}
			return out, nil
		case errors.As(err, &syntax):
			return nil, fmt.Errorf("CSV: line %d: %w", syntax.Line, syntax.Err)
		case err != nil:
			return nil, fmt.Errorf("CSV: %w", err)
		}
		line, _ := in.FieldPos(0)
		record[0] = strings.TrimPrefix(record[0], "\ufeff")
		for i := range record {
			record[i] = strings.TrimSpace(record[i])
		}
		if first && strings.EqualFold(record[0], "date") {
			continue
		}
		if err := out.record(record); err != nil {
			return nil, fmt.Errorf("CSV: line %d: %w", line, err)
		}
	}
}

// record takes date, kind and name.
func (c *Calendar) record(fields []string) error {
	if len(fields) < 2 || len(fields) > 3 {
		return fmt.Errorf("%d columns; write date,kind or date,kind,name", len(fields))
	}
	if _, err := parseDate("date", fields[0]); err != nil {
		return err
	}
	d := Day{Date: fields[0]}
	if len(fields) == 3 {
		d.Name = icalText(fields[2])
	}
	list := &c.Off
	switch strings.ToLower(fields[1]) {
	case "off":
	case "work":
		list = &c.Work
	default:
		return fmt.Errorf("kind %q: write off or work", clip(fields[1]))
	}
	if len(*list) == MaxCalendarDays {
		return fmt.Errorf("more than %d days of kind %s", MaxCalendarDays, fields[1])
	}
	*list = append(*list, d)
	return nil
}
