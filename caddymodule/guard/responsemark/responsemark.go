// Package responsemark lets handlers behind the guard mark their own responses. It does not import the guard, so that a build
// with only fhir_expand does not link it.
package responsemark

import "net/http"

// WriteHeader writes the header of a response that this process generated from definitions, such as an expansion. It marks the
// header in the guard's writer if w wraps that writer: the response has no links to seal, so it passes unbuffered. The mark
// applies only to the header written now: responses of a FHIR server, and responses that a handler in between buffers, are
// still rewritten.
func WriteHeader(w http.ResponseWriter, status int) {
	for at := w; at != nil; {
		if marker, ok := at.(interface{ BeginLocalResponse() (end func()) }); ok {
			defer marker.BeginLocalResponse()()
			break
		}
		wrapper, ok := at.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			break
		}
		at = wrapper.Unwrap()
	}
	w.WriteHeader(status)
}
