package page

import (
	"fmt"
	"time"
)

// date writes a date or time of FHIR as the language does. A year, or a year and a month, stay
// as they are.
func (l *translation) date(text string) string {
	for layout, shown := range map[string]*Text{time.DateOnly: T("2006-01-02"), time.RFC3339: T("2006-01-02 15:04")} {
		if at, err := time.Parse(layout, text); err == nil {
			return at.Format(fmt.Sprint(l.translate(shown)))
		}
	}
	return text
}
