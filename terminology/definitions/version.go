package definitions

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// CompareVersions compares versions part by part, and numerically if both parts are numbers (semantic versioning). A
// non-numeric part sorts before a number, and a pre-release (1.0.0-ballot) before its release. Dates (20190101, 2019-01-01)
// also sort correctly.
func CompareVersions(a, b string) int {
	if isDate(a) && isDate(b) {
		return cmp.Or(compareParts(a, b, "-"), cmp.Compare(a, b))
	}
	releaseA, preA, hasPreA := strings.Cut(a, "-")
	releaseB, preB, hasPreB := strings.Cut(b, "-")
	if c := compareParts(releaseA, releaseB, "."); c != 0 {
		return c
	}
	if hasPreA != hasPreB {
		if hasPreA {
			return -1
		}
		return 1
	}
	return cmp.Or(compareParts(preA, preB, "."), cmp.Compare(a, b))
}

// isDate reports whether a version starts like a date, such as 2019-01.
func isDate(version string) bool {
	year, rest, ok := strings.Cut(version, "-")
	_, err := strconv.ParseUint(year, 10, 16)
	return ok && len(year) == 4 && err == nil && rest != "" && rest[0] <= '9'
}

// compareParts compares two lists of parts. A list that is a prefix of the other sorts first.
func compareParts(a, b, separator string) int {
	partsA, partsB := strings.Split(a, separator), strings.Split(b, separator)
	for i := range min(len(partsA), len(partsB)) {
		if c := comparePart(partsA[i], partsB[i]); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(partsA), len(partsB))
}

func comparePart(a, b string) int {
	m, errA := strconv.ParseUint(a, 10, 64)
	n, errB := strconv.ParseUint(b, 10, 64)
	switch {
	case errA == nil && errB == nil:
		return cmp.Compare(m, n)
	case errA == nil:
		return 1
	case errB == nil:
		return -1
	default:
		return cmp.Compare(a, b)
	}
}

// IsWildcard reports whether any part of a version is x, X or *.
func IsWildcard(version string) bool {
	for part := range strings.SplitSeq(version, ".") {
		if isAnyPart(part) {
			return true
		}
	}
	return false
}

func isAnyPart(part string) bool { return part == "x" || part == "X" || part == "*" }

// MatchesVersion reports whether a version equals a pattern or matches its wildcards. A trailing wildcard matches all remaining
// parts: 1.x matches 1.2.0. The URI of an edition matches its versions. The comparison stops at the first mismatch, so long
// patterns are cheap.
func MatchesVersion(version, pattern string) bool {
	if version == pattern || pattern != "" && editionOf(version) == pattern {
		return true
	}
	have, want := version, pattern
	for {
		has, haveRest, haveMore := strings.Cut(have, ".")
		part, wantRest, wantMore := strings.Cut(want, ".")
		switch {
		case !isAnyPart(part) && part != has:
			return false
		case !wantMore:
			return !haveMore || isAnyPart(part)
		case !haveMore:
			next, _, _ := strings.Cut(wantRest, ".")
			return isAnyPart(next) && version != ""
		}
		have, want = haveRest, wantRest
	}
}

// supersedesVersion reports whether the version of a definition is preferred to that of one loaded earlier. Dates and numbers
// cannot be compared: HL7's v3 code systems changed from 2018-08-12 to 2.0.0. Nor can versions of different editions.
func supersedesVersion(later, earlier string) bool {
	if later == "" || earlier == "" || isDate(later) != isDate(earlier) || editionOf(later) != editionOf(earlier) {
		return true
	}
	return CompareVersions(later, earlier) >= 0
}

// editionOf returns the edition of a version that is a URI with a date, such as those of SNOMED CT
// (http://snomed.info/sct/900000000000207008/version/20260801), or "".
func editionOf(version string) string {
	edition, _, ok := strings.Cut(version, "/version/")
	if !ok {
		return ""
	}
	return edition
}

// ExistedOn reports whether a definition with the date defined existed on the given date. The dates may differ in precision. A
// definition without a date is assumed to have always existed.
func ExistedOn(defined, date string) bool {
	n := min(len(defined), len(date), len("2006-01-02"))
	return defined[:n] <= date[:n]
}

var errInvalidDate = errors.New("not a FHIR date")

// CheckDate returns an error for an invalid FHIR date. An empty string is valid.
func CheckDate(date string) error {
	if date == "" {
		return nil
	}
	for _, layout := range []string{"2006", "2006-01", "2006-01-02", time.RFC3339} {
		if _, err := time.Parse(layout, date); err == nil {
			return nil
		}
	}
	return &outcome.Error{Status: http.StatusBadRequest, Code: "invalid", Err: errInvalidDate, Text: "the parameter date must be a date, like 2026-01-31"}
}

// NewOnlyLaterVersionsError returns the error for a definition if all loaded versions are later than date.
func NewOnlyLaterVersionsError(kind, reference, date string) error {
	return &outcome.Error{
		Status: http.StatusUnprocessableEntity, Code: "not-supported", Err: outcome.ErrUnsupported,
		Text: fmt.Sprintf("no loaded version of %s %s existed on %s", kind, reference, date),
	}
}
