package remote

import (
	"net/http"
	"slices"
)

// Answer is a checked answer of a server. It may be shared and does not change.
type Answer struct {
	// Status is 200, one of those for which Negative is true, or 304 where NotModified is.
	Status int

	// Header holds the headers about the answer itself and its lifetime. Others are left out, among them cookies.
	Header http.Header

	// Resource is the type of the resource in the body.
	Resource string

	// URL is the canonical of the resource, if it has one.
	URL string

	// Body is the resource; nil where NotModified is true.
	Body []byte

	// NotModified says that the client's answer is still good.
	NotModified bool
}

var negative = []int{http.StatusBadRequest, http.StatusNotFound, http.StatusGone, http.StatusUnprocessableEntity}

// Negative reports whether the answer is an OperationOutcome with status 400, 404, 410 or 422. It may be stored, but
// briefly: what is missing now may come.
func (a *Answer) Negative() bool { return slices.Contains(negative, a.Status) }

// answerHeaders are the headers that an Answer has.
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
