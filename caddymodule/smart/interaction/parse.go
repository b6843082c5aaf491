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
	if i.Parameters, err = smart.ParseParameters(query); err != nil {
		return Interaction{}, fmt.Errorf("%w: %w", errQuery, err)
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

// WithForm adds the form of a search by POST behind the parameters of its query; servers take both (R4
// http.html#search).
func (i Interaction) WithForm(body string) (Interaction, error) {
	switch i.Kind {
	case TypeSearch, SystemSearch, CompartmentSearch:
	default:
		return Interaction{}, errForm
	}
	form, err := smart.ParseParameters(body)
	if err != nil {
		return Interaction{}, fmt.Errorf("%w: %w", errQuery, err)
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

// place is a form of path. Together with the method it tells the interaction.
type place uint8

const (
	ofSystem place = iota + 1
	ofMetadata
	ofSystemHistory
	ofSystemSearch
	ofType
	ofTypeHistory
	ofTypeSearch
	ofInstance
	ofInstanceHistory
	ofVersion
	ofCompartment
	ofCompartmentSearch
	ofOperation
)

// locate reads a path below the base into i. Each path has one form, since ids and types have no underscore, dollar sign
// or asterisk, and an empty segment is neither.
func (i *Interaction) locate(path string) (place, error) {
	switch path {
	case "":
		return ofSystem, nil
	case "metadata":
		return ofMetadata, nil
	case "_history":
		return ofSystemHistory, nil
	case "_search":
		return ofSystemSearch, nil
	}
	if i.takeOperation(path) {
		return ofOperation, nil
	}
	typ, rest, more := strings.Cut(path, "/")
	if !IsType(typ) {
		return 0, unknownFirst(typ)
	}
	i.Type = typ
	if !more {
		return ofType, nil
	}
	return i.locateInType(rest)
}

// unknownFirst tells a word that could be a type from one that could not.
func unknownFirst(segment string) error {
	if segment == "" || segment[0] < 'A' || segment[0] > 'Z' {
		return errPath
	}
	return errType
}

func (i *Interaction) locateInType(path string) (place, error) {
	switch {
	case path == "_history":
		return ofTypeHistory, nil
	case path == "_search":
		return ofTypeSearch, nil
	case i.takeOperation(path):
		return ofOperation, nil
	}
	id, rest, more := strings.Cut(path, "/")
	if !isID(id) {
		return 0, errID
	}
	i.ID = id
	if !more {
		return ofInstance, nil
	}
	return i.locateInInstance(rest)
}

func (i *Interaction) locateInInstance(path string) (place, error) {
	version, isVersion := strings.CutPrefix(path, "_history/")
	switch {
	case path == "_history":
		return ofInstanceHistory, nil
	case i.takeOperation(path):
		return ofOperation, nil
	case !isVersion:
		return i.locateInCompartment(path)
	case strings.Contains(version, "/"):
		return 0, errPath
	case !isID(version):
		return 0, errID
	}
	i.VersionID = version
	return ofVersion, nil
}

// locateInCompartment reads what follows the id of a compartment. The type searched for takes the place of the
// compartment's own.
func (i *Interaction) locateInCompartment(path string) (place, error) {
	if !isCompartment(i.Type) {
		return 0, errPath
	}
	i.Compartment = Reference{Type: i.Type, ID: i.ID}
	i.Type, i.ID = "*", ""
	switch path {
	case "*":
		return ofCompartment, nil
	case "_search":
		return ofCompartmentSearch, nil
	}
	typ, posted := strings.CutSuffix(path, "/_search")
	switch {
	case strings.Contains(typ, "/"):
		return 0, errPath
	case !IsType(typ):
		return 0, unknownFirst(typ)
	}
	i.Type = typ
	if posted {
		return ofCompartmentSearch, nil
	}
	return ofCompartment, nil
}

// takeOperation reads a segment that is the name of an operation. Names beyond R4's own have dots and underscores, such
// as HAPI's $hapi.fhir.replace-references.
func (i *Interaction) takeOperation(segment string) bool {
	name, ok := strings.CutPrefix(segment, "$")
	if !ok || name == "" || strings.ContainsFunc(name, func(r rune) bool { return r != '_' && !isIDRune(r) }) {
		return false
	}
	i.Operation = segment
	return true
}

func isID(s string) bool {
	return s != "" && len(s) <= 64 && s != "." && s != ".." &&
		!strings.ContainsFunc(s, func(r rune) bool { return !isIDRune(r) })
}

func isIDRune(r rune) bool {
	return 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '-' || r == '.'
}
