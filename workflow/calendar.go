package workflow

import (
	"path"
	"strings"

	"go.yaml.in/yaml/v4"
)

// KindCalendar is the kind of a calendar's document.
const KindCalendar = "Calendar"

// CalendarDefinition is a business calendar as its author wrote it. engine/schedule gives it its
// meaning and checks its days.
type CalendarDefinition struct {
	// Kind is always KindCalendar.
	Kind string `json:"kind"`
	// Name identifies the calendar in its app: [a-z0-9][a-z0-9_-]{0,62}.
	Name string `json:"name"`
	// App is the app whose schedules may name it; same form as Name.
	App string `json:"app"`
	// File is an iCalendar (.ics) or CSV (.csv) file, its path relative to the document's; its
	// days are added to those written here.
	File string `json:"file,omitempty"`
	// Calendar is the days; its fields stand beside the others.
	Calendar
}

// Calendar says on which days a schedule may fire: a day in Work is one; else a day in Off, one
// of Repeats, and one of Weekdays is none; else it is one. Dates are 2006-01-02.
type Calendar struct {
	// Weekdays (mon … sun) are off every week.
	Weekdays []string `json:"weekdays,omitempty"`
	// Off are days on which nothing fires.
	Off []CalendarDay `json:"off,omitempty"`
	// Repeats are days off that come again.
	Repeats []CalendarRepeat `json:"repeats,omitempty"`
	// Work are days on which schedules fire whatever the other fields say: working days that
	// make up for a holiday.
	Work []CalendarDay `json:"work,omitempty"`
}

// CalendarDay is a day, or several in a row. In a document it may be the date alone.
type CalendarDay struct {
	// Date is the first day.
	Date string `json:"date"`
	// Until is the last day, included; Date if empty.
	Until string `json:"until,omitempty"`
	// Name is for people.
	Name string `json:"name,omitempty"`
}

// CalendarRepeat is days off that come every year or every week.
type CalendarRepeat struct {
	// Every is yearly or weekly.
	Every string `json:"every"`
	// Interval takes every so manieth year or week; default 1.
	Interval int `json:"interval,omitempty"`
	// Date is the first day it may be. A yearly one without months, month_days and weekdays
	// comes on its month and day, a weekly one without weekdays on its weekday.
	Date string `json:"date"`
	// Days is how many days it lasts; default 1.
	Days int `json:"days,omitempty"`
	// Months (1 … 12) and MonthDays (1 … 31, -1 is the month's last) are when a yearly one comes.
	Months    []int `json:"months,omitempty"`
	MonthDays []int `json:"month_days,omitempty"`
	// Weekdays are mon … sun; for a yearly one with a number before them: 4thu is the fourth
	// Thursday of its months, -1mon the last Monday.
	Weekdays []string `json:"weekdays,omitempty"`
	// Until is the last day on which it may begin. Count is how often it comes; 0 is without
	// bound. At most one of the two is set.
	Until string `json:"until,omitempty"`
	Count int    `json:"count,omitempty"`
	// Except are dates on which it would begin and does not.
	Except []string `json:"except,omitempty"`
	// Name is for people.
	Name string `json:"name,omitempty"`
}

func (d *decoder) calendar(n *yaml.Node) *CalendarDefinition {
	var c CalendarDefinition
	place := d.fill(&c, n, "the calendar")
	d.name(place("name"), "name", c.Name)
	d.appName(place("app"), &c.App)
	ext := strings.ToLower(path.Ext(c.File))
	switch {
	case c.File != "" && ext != ".ics" && ext != ".csv":
		d.fail(place("file"), "file must be an iCalendar file that ends in .ics, or a CSV file that ends in .csv, not %q", clip(c.File))
	case c.File == "" && len(c.Weekdays)+len(c.Off)+len(c.Repeats)+len(c.Work) == 0:
		d.fail(n, "the calendar has no days; write weekdays, off, repeats, work, or the file that has them")
	}
	return &c
}
