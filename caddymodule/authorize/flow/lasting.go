package flow

import (
	"strconv"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
)

// lastingField is the field for how long offline_access is given, in days. Without a value it
// is for as long as the configuration lets it last.
const lastingField = "days"

const day = 24 * time.Hour

// lasting is for how long people can give offline_access.
type lasting struct {
	max time.Duration // the configuration's
}

// days are the shorter times to choose among.
func (l lasting) days() (days []int) {
	for _, n := range []int{90, 30, 1} {
		if time.Duration(n)*day < l.max {
			days = append(days, n)
		}
	}
	return days
}

// until returns when what is given now ends; zero for the longest time.
func (l lasting) until(chosen string) (time.Time, error) {
	if chosen == "" {
		return time.Time{}, nil
	}
	for _, n := range l.days() {
		if chosen == strconv.Itoa(n) {
			return time.Now().Add(time.Duration(n) * day).UTC(), nil
		}
	}
	return time.Time{}, errNoDecision
}

// onPage returns what the page offers, the longest time first.
func (l lasting) onPage() []page.ConsentTime {
	times := []page.ConsentTime{{Text: page.T("Until I end it, %s at most", inWords(l.max)), Ticked: true}}
	for _, n := range l.days() {
		times = append(times, page.ConsentTime{Value: strconv.Itoa(n), Text: inWords(time.Duration(n) * day)})
	}
	return times
}

// inWords rounds down to days, or else up to hours.
func inWords(d time.Duration) *page.Text {
	if d >= day {
		return page.Plural("%d day", "%d days", int(d/day))
	}
	return page.Plural("%d hour", "%d hours", int((d+time.Hour-1)/time.Hour))
}
