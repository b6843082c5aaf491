package front

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"path"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// isInstance reports whether the path of an operation names a resource by its id.
func isInstance(operation string) bool {
	return slices.Contains(definitionTypes, path.Base(path.Dir(path.Dir(operation))))
}

// errNextID is the error for a resource by an id that the next handler alone knows.
var errNextID error = outcome.Unknown("", "the resource belongs to the FHIR server behind this gateway")

// serveInstance serves an operation on an instance if no definitions are fetched from the next handler. Ids are those of
// the next handler: the library may have another resource with the same one. Without a next handler, they are the library's.
func (f *Front) serveInstance(w http.ResponseWriter, r *http.Request, next NextHandler, local operation) result {
	q := f.newRequest(r, next, func(http.ResponseWriter, *http.Request) error { return errNextID })
	if q.number = 0; q.schemes != nil && r.Method != http.MethodPost {
		q.known = seenNext
	}
	if res := f.serveOperation(w, r, q); !errors.Is(res.failure(), errNextID) {
		return res
	}
	if q.body != nil {
		r.Body = io.NopCloser(bytes.NewReader(q.body))
	}
	return f.serveOperation(w, r, f.newRequest(r, next, local))
}
