package expansion

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// Subset is the part of an answer that _summary and _elements ask for (R4 RESTful search, Summary and Elements). The
// zero value is all of it.
type Subset struct {
	Summary  string   // true, text, data or count
	elements []string // names of elements
}

// summaryElements are the summary elements of ValueSet and CodeSystem in R4. The expansion is not among them.
var summaryElements = []string{
	"url", "identifier", "version", "name", "title", "status", "experimental", "date", "publisher", "contact", "useContext",
	"jurisdiction", "immutable", "caseSensitive", "valueSet", "hierarchyMeaning", "compositional", "versionNeeded", "content",
	"supplements", "count", "filter", "property",
}

// Set reads one parameter and reports whether it is one of the two.
func (s *Subset) Set(in *parameters.Input) (known bool, err error) {
	switch in.Name {
	case "_summary":
		switch in.Value {
		case "true", "text", "data", "count":
			s.Summary = in.Value
		case "false":
		default:
			return true, outcome.BadRequest("invalid", "the parameter _summary must be true, text, data, count or false")
		}
	case "_elements":
		for name := range strings.SplitSeq(in.Value, ",") {
			name, _, _ = strings.Cut(trimType(strings.TrimSpace(name)), ".")
			if name != "" {
				s.elements = append(s.elements, name)
			}
		}
	default:
		return false, nil
	}
	if s.Summary != "" && s.elements != nil {
		return true, outcome.BadRequest("invalid", "of the parameters _summary and _elements only one may be given")
	}
	return true, nil
}

// trimType removes the resource type from a path: ValueSet.url becomes url.
func trimType(path string) string {
	if kind, rest, ok := strings.Cut(path, "."); ok && definitions.IsResourceType(kind) {
		return rest
	}
	return path
}

func (s *Subset) all() bool { return s.Summary == "" && s.elements == nil }

// Has reports whether to show an element. Mandatory ones are always shown.
func (s *Subset) Has(element string) bool {
	if s.all() || element == "id" || element == "status" || element == "content" {
		return true
	}
	switch s.Summary {
	case "data":
		return element != "text"
	case "count":
		return element == "expansion"
	case "true":
		return slices.Contains(summaryElements, element)
	}
	return slices.Contains(s.elements, element)
}

func (s *Subset) hasCodes() bool { return s.Summary != "count" && s.Has("expansion") }

func (s *Subset) appendMeta(dst []byte) []byte {
	if s.all() {
		return dst
	}
	return AppendSubsetted(dst)
}

// AppendSubsetted appends the tag of an incomplete resource.
func AppendSubsetted(dst []byte) []byte {
	return append(dst, `,"meta":{"tag":[{"system":"http://terminology.hl7.org/CodeSystem/v3-ObservationValue","code":"SUBSETTED","display":"subsetted"}]}`...)
}

// appendTag appends what identifies the subset in an entity tag.
func (s *Subset) appendTag(dst []byte) []byte {
	if s.all() {
		return dst
	}
	sum := sha256.Sum256([]byte(s.Summary + "\x00" + strings.Join(s.elements, ",")))
	return hex.AppendEncode(append(dst, '-'), sum[:8])
}
