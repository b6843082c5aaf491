package definitions

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// IsBy reports whether a definition with one date existed on another. The dates may differ in precision; a definition
// without a date always existed.
func IsBy(defined, date string) bool {
	n := min(len(defined), len(date), len("2006-01-02"))
	return defined[:n] <= date[:n]
}

var errDate = errors.New("not a date of FHIR")

// CheckDate fails for what is no date of FHIR; an empty one is none.
func CheckDate(date string) error {
	if date == "" {
		return nil
	}
	for _, layout := range []string{"2006", "2006-01", "2006-01-02", time.RFC3339} {
		if _, err := time.Parse(layout, date); err == nil {
			return nil
		}
	}
	return &outcome.Error{Status: http.StatusBadRequest, Code: "invalid", Err: errDate, Text: "the parameter date must be a date, like 2026-01-31"}
}

// NotAsOf is the error for a definition that is here only in versions after a date.
func NotAsOf(kind, reference, date string) error {
	return &outcome.Error{
		Status: http.StatusUnprocessableEntity, Code: "not-supported", Err: outcome.ErrUnsupported,
		Text: fmt.Sprintf("%s %s is not here as it was on %s", kind, reference, date),
	}
}
