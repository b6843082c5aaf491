package remote

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Answer is a checked answer of a server. It may be shared and does not change.
type Answer struct {
	// Status is 200, one of those that Negative names, or 304.
	Status int

	// Header holds the headers about the answer itself and its lifetime, and no others, such as cookies.
	Header http.Header

	// Resource is the type of the resource in the body.
	Resource string

	// URL is the canonical of the resource, if it has one.
	URL string

	// Body is the resource; nil if NotModified is true.
	Body []byte

	// NotModified says that the client's answer is still good.
	NotModified bool
}

var negative = []int{http.StatusBadRequest, http.StatusNotFound, http.StatusGone, http.StatusUnprocessableEntity}

// Negative reports whether the answer is an OperationOutcome with status 400, 404, 410 or 422. It may be stored, but only
// briefly.
func (a *Answer) Negative() bool { return slices.Contains(negative, a.Status) }

var answerHeaders = []string{
	"Age", "Cache-Control", "Content-Language", "Content-Location", "Content-Type", "Date", "Etag", "Expires", "Last-Modified", "Vary",
}

// setLifetime sets for how long the answer is fresh, in place of what its headers say. One with no-store stays that.
func (a *Answer) setLifetime(ttl time.Duration) {
	if strings.Contains(strings.ToLower(strings.Join(a.Header["Cache-Control"], ",")), "no-store") {
		return
	}
	for _, name := range []string{"Age", "Date", "Expires", "Vary"} { // Vary: what it asks for is the same for all
		delete(a.Header, name)
	}
	a.Header.Set("Cache-Control", fmt.Sprintf("max-age=%d", int64(max(1, ttl/time.Second))))
}

func answerHeader(header http.Header) http.Header {
	list := make(http.Header)
	for _, name := range answerHeaders {
		if values := header[name]; len(values) > 0 {
			list[name] = slices.Clone(values)
		}
	}
	return list
}

// IsOf reports whether an answer is about a canonical, in any version. An answer that names none is.
func (a *Answer) IsOf(canonical string) bool {
	asked, _, _ := strings.Cut(canonical, "|")
	told, _, _ := strings.Cut(a.URL, "|")
	return asked == "" || told == "" || asked == told
}
