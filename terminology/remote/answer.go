package remote

import (
	"net/http"
	"slices"
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

func answerHeader(header http.Header) http.Header {
	list := make(http.Header)
	for _, name := range answerHeaders {
		if values := header[name]; len(values) > 0 {
			list[name] = slices.Clone(values)
		}
	}
	return list
}
