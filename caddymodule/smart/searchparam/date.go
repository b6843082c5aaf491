package searchparam

import (
	"fmt"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// span is a range of time, up to but not including its end. A date is as long as its precision: 2024-03 is a month. A
// time without a zone is UTC.
type span struct{ start, end time.Time }

// Periods without a start or an end are this long.
var always = span{time.Unix(-1<<40, 0), time.Unix(1<<40, 0)}

// date is a date with a prefix.
type date struct {
	prefix prefix
	span   span
}

// dateLayouts are the ways to write a date, and for how long it lasts.
var dateLayouts = []struct {
	layout              string
	years, months, days int
	length              time.Duration
}{
	{"2006", 1, 0, 0, 0},
	{"2006-01", 0, 1, 0, 0},
	{"2006-01-02", 0, 0, 1, 0},
	{"2006-01-02T15:04Z07:00", 0, 0, 0, time.Minute},
	{"2006-01-02T15:04", 0, 0, 0, time.Minute},
	{"2006-01-02T15:04:05Z07:00", 0, 0, 0, time.Second},
	{"2006-01-02T15:04:05", 0, 0, 0, time.Second},
}

// readDate reads a date with a prefix.
func readDate(s string) (criterion, error) {
	p, rest := cutPrefix(s)
	found, ok := parseDate(unescape(rest))
	if !ok {
		return nil, fmt.Errorf("%w: no date", errValue)
	}
	return date{p, found}, nil
}

// Span returns what a date or a time of FHIR spans, up to but not including its end: 2024-03 is a month. A time without a
// zone is UTC.
func Span(s string) (start, end time.Time, ok bool) {
	found, ok := parseDate(s)
	return found.start, found.end, ok
}

// parseDate reads a date or a time. Fractions of a second are those of an instant, which lasts a nanosecond.
func parseDate(s string) (span, bool) {
	for _, l := range dateLayouts {
		start, err := time.Parse(l.layout, s)
		if err != nil {
			continue
		}
		length := l.length
		if length == time.Second && start.Nanosecond() != 0 {
			length = time.Nanosecond
		}
		return span{start, start.AddDate(l.years, l.months, l.days).Add(length)}, true
	}
	return span{}, false
}

// matches compares with a date, a period, or the times of a timing.
func (d date) matches(_ resource.Resource, path resource.Path, element []byte) bool {
	switch path.Type {
	case "Period":
		found, ok := period(element)
		return ok && d.compare(found)
	case "Timing":
		return d.matchesTiming(element)
	case "date", "dateTime", "instant":
		found, ok := parseDate(primitive(element))
		return ok && d.compare(found)
	default:
		return false
	}
}

// matchesTiming compares with the times of a timing.
func (d date) matchesTiming(timing []byte) bool {
	events, ok := resource.Field(timing, "event")
	if !ok {
		return false
	}
	for event := range resource.Elements(events) {
		if found, ok := parseDate(primitive(event)); ok && d.compare(found) {
			return true
		}
	}
	return false
}

// period reads a Period, of which the end is included to its precision.
func period(element []byte) (span, bool) {
	found := always
	start, end := member(element, "start"), member(element, "end")
	if start != "" {
		s, ok := parseDate(start)
		if !ok {
			return span{}, false
		}
		found.start = s.start
	}
	if end != "" {
		e, ok := parseDate(end)
		if !ok {
			return span{}, false
		}
		found.end = e.end
	}
	return found, start+end != ""
}

// compare compares what was found with what is searched for (https://hl7.org/fhir/R4/search.html#prefix). About a date
// (ap) is any that overlaps it.
func (d date) compare(found span) bool {
	within := !found.start.Before(d.span.start) && !found.end.After(d.span.end)
	switch d.prefix {
	case "eq":
		return within
	case "ne":
		return !within
	case "gt":
		return found.end.After(d.span.end)
	case "lt":
		return found.start.Before(d.span.start)
	case "ge":
		return within || found.end.After(d.span.end)
	case "le":
		return within || found.start.Before(d.span.start)
	case "sa":
		return !found.start.Before(d.span.end)
	case "eb":
		return !found.end.After(d.span.start)
	default:
		return found.start.Before(d.span.end) && d.span.start.Before(found.end)
	}
}
