package enforce

import "net/http"

// BeginOwn writes the header of an answer that this process has made of definitions, such as an expansion: no link in it
// needs to be sealed, so it passes as it comes. It says so of this one header alone, at the moment when it is written: what a
// FHIR server has answered, or a handler in between holds back, goes the way that answers go. Nothing that is sent can
// take its place.
func BeginOwn(w http.ResponseWriter, status int) {
	if p := passingFrom(w); p != nil {
		p.own = p.terminology
		defer func() { p.own = false }()
	}
	w.WriteHeader(status)
}

// passingFrom finds the guard's writer below those of the handlers behind it; nil if there is none.
func passingFrom(w http.ResponseWriter) *passingWriter {
	for {
		switch at := w.(type) {
		case *passingWriter:
			return at
		case interface{ Unwrap() http.ResponseWriter }:
			w = at.Unwrap()
		default:
			return nil
		}
	}
}
