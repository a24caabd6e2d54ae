package main

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// table lays rows out in columns; those named in right are flush right. The last column
// is not padded.
func table(rows [][]string, right ...int) string {
	var width []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(width) {
				width = append(width, 0)
			}
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	flush := make(map[int]bool, len(right))
	for _, i := range right {
		flush[i] = true
	}
	var b strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			if i > 0 {
				line.WriteString("  ")
			}
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if flush[i] {
				line.WriteString(pad + cell)
			} else {
				line.WriteString(cell + pad)
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " "))
		b.WriteByte('\n')
	}
	return b.String()
}

// thousands writes 1234567 as 1 234 567.
func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if strings.HasPrefix(s, "-") {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + " " + s[i:]
	}
	return sign + s
}

// plural is "1 node" or "2 nodes".
func plural(n int64, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return thousands(n) + " " + noun
}

// short writes a duration as people read it: 8ms, 1.2s, 34s, 2m05s, 3h04m.
func short(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Truncate(100*time.Millisecond).Seconds(), 'f', 1, 64) + "s"
	case d < time.Minute:
		return strconv.Itoa(int(d.Seconds())) + "s"
	case d < time.Hour:
		return strconv.Itoa(int(d.Minutes())) + "m" + two(int(d.Seconds())%60) + "s"
	}
	return strconv.Itoa(int(d.Hours())) + "h" + two(int(d.Minutes())%60) + "m"
}

func two(n int) string {
	if n < 10 {
		return "0" + strconv.Itoa(n)
	}
	return strconv.Itoa(n)
}

// size writes bytes as 512 B, 1.5 KiB, 157.0 MiB.
func size(n int64) string {
	if n < 1024 {
		return strconv.FormatInt(n, 10) + " B"
	}
	f, unit := float64(n)/1024, 0
	for f >= 1024 && unit < 4 {
		f /= 1024
		unit++
	}
	return strconv.FormatFloat(f, 'f', 1, 64) + " " + []string{"KiB", "MiB", "GiB", "TiB", "PiB"}[unit]
}

// clip cuts text to width characters, with a mark, and keeps it on one line.
func clip(s string, width int) string {
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r < ' ' }), " ")
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	runes := []rune(s)
	return string(runes[:max(width-1, 0)]) + "…"
}
