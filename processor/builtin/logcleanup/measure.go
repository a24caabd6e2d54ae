package logcleanup

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Bounds of an age.
const (
	minAge = time.Second
	maxAge = 36_500 * 24 * time.Hour
)

// parseAge reads 36h, 90m, 7d or 2w. An age is never zero, negative or absurd.
func parseAge(s string) (time.Duration, error) {
	d, err := readAge(strings.TrimSpace(s))
	switch {
	case err != nil:
		return 0, err
	case d < minAge:
		return 0, fmt.Errorf("%v is less than 1s; an age of nothing would mean everything", d)
	case d > maxAge:
		return 0, errors.New("it is more than 36500d")
	}
	return d, nil
}

func readAge(s string) (time.Duration, error) {
	for suffix, unit := range map[string]time.Duration{"d": 24 * time.Hour, "w": 7 * 24 * time.Hour} {
		digits, ok := strings.CutSuffix(s, suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if errors.Is(err, strconv.ErrRange) || err == nil && n > int64(math.MaxInt64/unit) {
			return 0, errors.New("it is more than 36500d")
		}
		if err != nil {
			return 0, errAge
		}
		return max(-1, time.Duration(n)) * unit, nil //nolint:durationcheck // a number of units
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, errAge
	}
	return d, nil
}

var errAge = errors.New("write a number with its unit, such as 90m, 36h, 7d or 2w")

var sizeUnits = map[string]int64{
	"": 1, "B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15,
	"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40, "PIB": 1 << 50,
}

// parseSize reads 1048576, 500MB or 20GiB; never zero.
func parseSize(s string) (int64, error) {
	s = strings.TrimSpace(s)
	end := 0
	for end < len(s) && s[end] >= '0' && s[end] <= '9' {
		end++
	}
	unit, known := sizeUnits[strings.ToUpper(strings.TrimSpace(s[end:]))]
	if end == 0 || !known {
		return 0, errors.New("write bytes as a whole number with its unit, such as 500MB or 20GiB")
	}
	n, err := strconv.ParseInt(s[:end], 10, 64)
	if err != nil || n > math.MaxInt64/unit {
		return 0, errors.New("it is too large")
	}
	if n == 0 {
		return 0, errors.New("it is zero")
	}
	return n * unit, nil
}

// goal is how much of the filesystem is to be free: bytes, or a percentage.
type goal struct {
	bytes   int64
	percent int64
}

func parseGoal(s string) (goal, error) {
	digits, ok := strings.CutSuffix(strings.TrimSpace(s), "%")
	if !ok {
		n, err := parseSize(s)
		return goal{bytes: n}, err
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 1 || n > 95 {
		return goal{}, errors.New("a percentage is a whole number from 1% to 95%")
	}
	return goal{percent: n}, nil
}

// of gives the goal in bytes on a filesystem of that size.
func (g goal) of(total int64) int64 {
	if g.percent == 0 {
		return g.bytes
	}
	return int64(float64(total) / 100 * float64(g.percent))
}
