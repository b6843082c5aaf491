// Package responsemark lets handlers behind the guard mark their own responses. It does not import the guard, so that builds
// that contain only fhir_expand do not link the guard.
package responsemark

import "net/http"

// WriteHeader writes the header of a response that this process generated from definitions, such as an expansion. If w wraps
// the guard's writer, WriteHeader marks the response there: it has no links to seal, so it passes unbuffered. The mark applies
// only to the header written now. Responses from a FHIR server, and responses that a handler in between buffers, are still
// rewritten.
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
