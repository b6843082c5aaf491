package remote

import (
	"net/http"
	"slices"
)

// Answer is what a server said. It has been checked, and may be shared; nothing of it may be changed.
type Answer struct {
	// Status is the HTTP status: 200, one of those for which Negative is true, or 304 where NotModified is.
	Status int

	// Header holds those headers that say something of the answer itself, as Content-Type and ETag do, or
	// of how long it is good. Others are left out, among them cookies.
	Header http.Header

	// Resource is the type of the resource in the body.
	Resource string

	// URL is the canonical that the resource says it has; empty where it says none.
	URL string

	// Body is the resource; nil where NotModified is true.
	Body []byte

	// NotModified says that the answer which the asker has is still good.
	NotModified bool
}

// negative are the statuses of an OperationOutcome that says that there is no other answer to the question,
// as long as the definitions are what they are.
var negative = []int{http.StatusBadRequest, http.StatusNotFound, http.StatusGone, http.StatusUnprocessableEntity}

// Negative reports whether the answer is that there is none: an OperationOutcome with a status of 400, 404,
// 410 or 422. It may be cached, but shortly: what is not there now may be put there.
func (a *Answer) Negative() bool { return slices.Contains(negative, a.Status) }

// kept are the headers of an answer that count.
var kept = []string{
	"Age", "Cache-Control", "Content-Language", "Content-Location", "Content-Type", "Date", "Etag", "Expires", "Last-Modified", "Vary",
}

// keep returns those headers that count.
func keep(header http.Header) http.Header {
	list := make(http.Header)
	for _, name := range kept {
		if values := header[name]; len(values) > 0 {
			list[name] = slices.Clone(values)
		}
	}
	return list
}
