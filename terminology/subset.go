package terminology

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// subset is the part of an answer that _summary and _elements ask for (R4 RESTful search, Summary and Elements). The
// zero value is all of it.
type subset struct {
	summary  string   // true, text, data or count
	elements []string // names of elements
}

// summaryElements are the summary elements of ValueSet and CodeSystem in R4. The expansion is not among them.
var summaryElements = []string{
	"url", "identifier", "version", "name", "title", "status", "experimental", "date", "publisher", "contact", "useContext",
	"jurisdiction", "immutable", "caseSensitive", "valueSet", "hierarchyMeaning", "compositional", "versionNeeded", "content",
	"supplements", "count", "filter", "property",
}

// set reads one parameter and reports whether it is one of the two.
func (s *subset) set(in *input) (known bool, err error) {
	switch in.name {
	case "_summary":
		switch in.value {
		case "true", "text", "data", "count":
			s.summary = in.value
		case "false":
		default:
			return true, badRequest("invalid", "the parameter _summary must be true, text, data, count or false")
		}
	case "_elements":
		for name := range strings.SplitSeq(in.value, ",") {
			name, _, _ = strings.Cut(trimType(strings.TrimSpace(name)), ".")
			if name != "" {
				s.elements = append(s.elements, name)
			}
		}
	default:
		return false, nil
	}
	if s.summary != "" && s.elements != nil {
		return true, badRequest("invalid", "of the parameters _summary and _elements only one may be given")
	}
	return true, nil
}

// trimType removes the resource type from a path: ValueSet.url becomes url.
func trimType(path string) string {
	if kind, rest, ok := strings.Cut(path, "."); ok && isResourceType(kind) {
		return rest
	}
	return path
}

func (s *subset) all() bool { return s.summary == "" && s.elements == nil }

// has reports whether to show an element. Mandatory ones are always shown.
func (s *subset) has(element string) bool {
	if s.all() || element == "id" || element == "status" || element == "content" {
		return true
	}
	switch s.summary {
	case "data":
		return element != "text"
	case "count":
		return element == "expansion"
	case "true":
		return slices.Contains(summaryElements, element)
	}
	return slices.Contains(s.elements, element)
}

func (s *subset) hasCodes() bool { return s.summary != "count" && s.has("expansion") }

func (s *subset) appendMeta(dst []byte) []byte {
	if s.all() {
		return dst
	}
	return appendSubsetted(dst)
}

// appendSubsetted appends the tag of an incomplete resource.
func appendSubsetted(dst []byte) []byte {
	return append(dst, `,"meta":{"tag":[{"system":"http://terminology.hl7.org/CodeSystem/v3-ObservationValue","code":"SUBSETTED","display":"subsetted"}]}`...)
}

// appendTag appends what identifies the subset in an entity tag.
func (s *subset) appendTag(dst []byte) []byte {
	if s.all() {
		return dst
	}
	sum := sha256.Sum256([]byte(s.summary + "\x00" + strings.Join(s.elements, ",")))
	return hex.AppendEncode(append(dst, '-'), sum[:8])
}
