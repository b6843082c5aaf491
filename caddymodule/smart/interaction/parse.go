package interaction

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// methods are the interactions of R4's summary (http.html#summary) by form of path and method.
var methods = map[place]map[string]Kind{
	ofSystem:            {http.MethodGet: SystemSearch, http.MethodPost: Bundle},
	ofMetadata:          {http.MethodGet: Capabilities},
	ofSystemHistory:     {http.MethodGet: SystemHistory},
	ofSystemSearch:      {http.MethodPost: SystemSearch},
	ofTypeHistory:       {http.MethodGet: TypeHistory},
	ofTypeSearch:        {http.MethodPost: TypeSearch},
	ofInstanceHistory:   {http.MethodGet: InstanceHistory},
	ofVersion:           {http.MethodGet: VRead},
	ofCompartment:       {http.MethodGet: CompartmentSearch},
	ofCompartmentSearch: {http.MethodPost: CompartmentSearch},
	ofOperation:         {http.MethodGet: Operation, http.MethodPost: Operation},
	ofType: {
		http.MethodGet:    TypeSearch,
		http.MethodPost:   Create,
		http.MethodPut:    ConditionalUpdate,
		http.MethodPatch:  ConditionalPatch,
		http.MethodDelete: ConditionalDelete,
	},
	ofInstance: {
		http.MethodGet:    Read,
		http.MethodPut:    Update,
		http.MethodPatch:  Patch,
		http.MethodDelete: Delete,
	},
}

// Parse tells what a request does. The path is the decoded one below the FHIR base, without a slash at either end; the
// query is as sent. HEAD is the GET it stands for. Headers that stand for another method are not read, and a path with
// a slash at the end is not one without.
//
// Every request has one reading or is an error: one of the sentinels of this package, whose HTTP status [Status] tells.
func Parse(method, path, query string, header http.Header) (Interaction, error) {
	var i Interaction
	at, err := i.locate(path)
	if err != nil {
		return Interaction{}, err
	}
	if method == http.MethodHead {
		method = http.MethodGet
	}
	kind, ok := methods[at][method]
	if !ok {
		return Interaction{}, errMethod
	}
	i.Kind, i.Async = kind, prefersAsync(header)
	if i.Parameters, err = parse(query); err != nil {
		return Interaction{}, err
	}
	switch kind { // If-None-Exist means nothing but for a create
	case Create:
		err = i.conditionCreate(header.Values("If-None-Exist"))
	case ConditionalUpdate, ConditionalPatch, ConditionalDelete:
		if !hasCriteria(i.Parameters) {
			err = errCriteria
		}
	}
	if err != nil {
		return Interaction{}, err
	}
	return i, nil
}

func parse(query string) ([]smart.Parameter, error) {
	list, err := smart.ParseParameters(query)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errQuery, err)
	}
	return list, nil
}

// WithForm adds the form of a search by POST behind the parameters of its query; servers take both (R4
// http.html#search).
func (i Interaction) WithForm(body string) (Interaction, error) {
	switch i.Kind {
	case TypeSearch, SystemSearch, CompartmentSearch:
	default:
		return Interaction{}, errForm
	}
	form, err := parse(body)
	if err != nil {
		return Interaction{}, err
	}
	i.Parameters = slices.Concat(i.Parameters, form)
	return i, nil
}

// prefersAsync looks for respond-async (RFC 7240 §4.1). Some servers part preferences by semicolons too, so it is found
// there as well: what they answer at once is judged in any case.
func prefersAsync(header http.Header) bool {
	for _, line := range header.Values("Prefer") {
		for preference := range strings.FieldsFuncSeq(line, func(r rune) bool { return r == ',' || r == ';' }) {
			name, _, _ := strings.Cut(preference, "=")
			if strings.EqualFold(strings.TrimSpace(name), "respond-async") {
				return true
			}
		}
	}
	return false
}
