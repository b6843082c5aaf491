package interaction

import (
	"errors"
	"net/http"
)

// The causes for which [Parse] refuses a request, each with its status. Errors hold no part of the request, which may
// tell of patients.
var (
	// errPath says that the path is none of FHIR's (R4 http.html#summary), 404.
	errPath = errors.New("no path of FHIR's REST API")
	// errType says that the path names a type that FHIR R4 does not have (resourcelist.html), 404.
	errType = errors.New("unknown resource type")
	// errID says that an id or version id is not 1 to 64 letters, digits, hyphens and dots (R4 datatypes.html#id), or is
	// a dot segment (RFC 3986 §3.3), 404.
	errID = errors.New("malformed id")
	// errMethod says that FHIR defines no interaction of this method for the path (RFC 9110 §15.5.6), 405.
	errMethod = errors.New("no interaction of this method")
	// errQuery says that the query or form can be read in two ways, or has parameters that the interaction has no place
	// for, 400.
	errQuery = errors.New("ambiguous query")
	// errCriteria says that a conditional interaction has no criteria, or several sets of them (R4 http.html#ccreate,
	// #cond-update, #3.1.0.7.1), 400.
	errCriteria = errors.New("no criteria, or two sets of them")
	// errForm says that a form was given to another interaction than a search (R4 http.html#search), 400.
	errForm = errors.New("no search to have a form")
)

// Status is the HTTP status for an error of this package.
func Status(err error) int {
	switch {
	case errors.Is(err, errPath), errors.Is(err, errType), errors.Is(err, errID):
		return http.StatusNotFound
	case errors.Is(err, errMethod):
		return http.StatusMethodNotAllowed
	default:
		return http.StatusBadRequest
	}
}
