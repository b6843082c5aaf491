package terminology

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// subset is the part of an answer that the parameters _summary and _elements ask for (R4 RESTful search,
// Summary and Elements). The zero value is all of it.
type subset struct {
	summary  string   // true, text, data or count
	elements []string // names of elements
}

// summaryElements are the elements that R4 marks as the summary of a ValueSet or CodeSystem. The expansion is not among
// them.
var summaryElements = []string{
	"url", "identifier", "version", "name", "title", "status", "experimental", "date", "publisher", "contact", "useContext",
	"jurisdiction", "immutable", "caseSensitive", "valueSet", "hierarchyMeaning", "compositional", "versionNeeded", "content",
	"supplements", "count", "filter", "property",
}

// set takes over one parameter, and reports whether it is one of the two.
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

// trimType takes the type of a resource off a path: of ValueSet.url remains url.
func trimType(path string) string {
	if kind, rest, ok := strings.Cut(path, "."); ok && isResourceType(kind) {
		return rest
	}
	return path
}

// all reports whether nothing is to be left out.
func (s *subset) all() bool { return s.summary == "" && s.elements == nil }

// has reports whether an element is to be shown. Mandatory ones always are.
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

// hasCodes reports whether the codes of the expansion are to be shown.
func (s *subset) hasCodes() bool { return s.summary != "count" && s.has("expansion") }

// appendMeta appends the tag which says that the resource is not whole.
func (s *subset) appendMeta(dst []byte) []byte {
	if s.all() {
		return dst
	}
	return appendSubsetted(dst)
}

// appendSubsetted appends the tag of a resource that is not whole.
func appendSubsetted(dst []byte) []byte {
	return append(dst, `,"meta":{"tag":[{"system":"http://terminology.hl7.org/CodeSystem/v3-ObservationValue","code":"SUBSETTED","display":"subsetted"}]}`...)
}

// appendTag appends what tells a part from others, for the entity tag.
func (s *subset) appendTag(dst []byte) []byte {
	if s.all() {
		return dst
	}
	sum := sha256.Sum256([]byte(s.summary + "\x00" + strings.Join(s.elements, ",")))
	return hex.AppendEncode(append(dst, '-'), sum[:8])
}
