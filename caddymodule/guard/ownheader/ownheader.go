// Package ownheader lets handlers behind the guard mark their own responses. It imports nothing of the guard, so that a build
// with fhir_expand alone does not link the guard.
package ownheader

import "net/http"

// Write writes the header of a response that this process made from definitions, such as an expansion. It marks
// the header in the guard's writer, if there is one below w: no link in the response needs to be sealed, so the response
// passes unbuffered. This applies only to the header written now: responses of a FHIR server, and responses that a handler
// in between holds back, are rewritten.
func Write(w http.ResponseWriter, status int) {
	for at := w; at != nil; {
		if guarded, ok := at.(interface{ BeginOwn() (end func()) }); ok {
			defer guarded.BeginOwn()()
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
