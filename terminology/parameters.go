package terminology

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
)

// maxParameterLength is how long a parameter may be, in bytes.
const maxParameterLength = 8 << 10

// parameters are those of $expand that are implemented (interface.md §4.2, R4 operation-valueset-expand).
type parameters struct {
	url    string // may be url|version
	filter *string
	offset *int
	count  *int
}

// notRepeated are the parameters of $expand that occur at most once.
var notRepeated = []string{
	"url", "valueSet", "valueSetVersion", "context", "contextDirection", "filter", "date", "offset", "count",
	"includeDesignations", "includeDefinition", "activeOnly", "excludeNested", "excludeNotForUI",
	"excludePostCoordinated", "displayLanguage",
}

// unsupported are the parameters of $expand which would change the codes in the answer and are not
// implemented, with the value that asks for nothing, if there is one.
var unsupported = map[string]string{
	"activeOnly": "false", "excludeNotForUI": "false",
	"valueSet": "", "valueSetVersion": "", "context": "", "date": "",
	"exclude-system": "", "system-version": "", "check-system-version": "", "force-system-version": "",
}

// parseParameters reads the parameters from a query string.
func parseParameters(query string) (parameters, error) {
	var p parameters
	values, err := url.ParseQuery(query)
	if err != nil {
		return p, badRequest("invalid", "the query string is malformed: %v", err)
	}
	if err := checkParameters(values); err != nil {
		return p, err
	}
	if p.url = values.Get("url"); p.url == "" {
		return p, badRequest("required", "the parameter url is required: the canonical of the value set to expand")
	}
	if p.offset, err = number(values, "offset"); err != nil {
		return p, err
	}
	if p.count, err = number(values, "count"); err != nil {
		return p, err
	}
	if values.Has("filter") {
		filter := values.Get("filter")
		p.filter = &filter
	}
	return p, nil
}

// checkParameters refuses what is wrong with parameters in general. They are looked at by name, so that
// of several faults the same one is told each time.
func checkParameters(values url.Values) error {
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if len(values[name]) > 1 && slices.Contains(notRepeated, name) {
			return badRequest("invalid", "the parameter %s may be given only once", name)
		}
		for _, value := range values[name] {
			if len(value) > maxParameterLength {
				return badRequest("too-long", "a parameter may be at most %d bytes long", maxParameterLength)
			}
			if neutral, ok := unsupported[name]; ok && (value != neutral || neutral == "") {
				return &Error{
					Status: http.StatusUnprocessableEntity, Code: "not-supported", Err: ErrUnsupported,
					Text: "the parameter " + name + " is not supported here, and the answer would be wrong without it",
				}
			}
		}
	}
	return nil
}

// number reads a parameter that is a whole number from 0 up.
func number(values url.Values, name string) (*int, error) {
	if !values.Has(name) {
		return nil, nil
	}
	// Bounded by 32 bits as FHIR's integer is, so that offset + count cannot overflow.
	n, err := strconv.ParseUint(values.Get(name), 10, 31)
	if errors.Is(err, strconv.ErrRange) {
		return nil, badRequest("invalid", "the parameter %s is too large", name)
	}
	if err != nil {
		return nil, badRequest("invalid", "the parameter %s must be a whole number from 0 up", name)
	}
	result := int(n)
	return &result, nil
}
