package interaction

import (
	"net/http"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// Request writes the interaction as a request for [Parse], in its one canonical form: searches and operations by GET,
// and of what the header said only what counts.
func (i Interaction) Request() (method, path, query string, header http.Header) {
	header = make(http.Header)
	if i.Async {
		header.Set("Prefer", "respond-async")
	}
	parameters := i.Parameters
	if i.Kind == ConditionalCreate {
		header.Set("If-None-Exist", smart.EncodeParameters(i.Criteria()))
		parameters = slices.DeleteFunc(slices.Clone(parameters), isSpecial)
	}
	return i.method(), i.Path(), smart.EncodeParameters(parameters), header
}

func (i Interaction) method() string {
	switch i.Kind {
	case Create, ConditionalCreate, Bundle:
		return http.MethodPost
	case Update, ConditionalUpdate:
		return http.MethodPut
	case Patch, ConditionalPatch:
		return http.MethodPatch
	case Delete, ConditionalDelete:
		return http.MethodDelete
	default:
		return http.MethodGet
	}
}

// Path is the path below the base, without a slash at either end. No character in it needs encoding in a URL.
func (i Interaction) Path() string {
	switch i.Kind {
	case Capabilities:
		return "metadata"
	case TypeSearch:
		return i.Type
	case CompartmentSearch:
		return i.Compartment.String() + "/" + i.Type
	case SystemHistory, TypeHistory, InstanceHistory:
		return join(i.Type, i.ID, "_history")
	case VRead:
		return join(i.Type, i.ID, "_history", i.VersionID)
	default:
		return join(i.Type, i.ID, i.Operation)
	}
}

// join is path.Join for segments that are clean or empty.
func join(segments ...string) string {
	path := ""
	for _, segment := range segments {
		if path != "" && segment != "" {
			path += "/"
		}
		path += segment
	}
	return path
}
