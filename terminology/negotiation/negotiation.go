// Package negotiation parses content negotiation headers (RFC 9110 §12.5). All packages use it, so that the same request always
// gets the same representation.
package negotiation

import (
	"cmp"
	"errors"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Format is a format of FHIR resources (R4 §2.21.0.6).
type Format uint8

// Supported formats.
const (
	JSON Format = iota
	XML
)

// FormatOf returns the format for a media type or for a short name from _format. kind must be in lower case.
func FormatOf(kind string) (f Format, known bool) {
	switch kind {
	case "json", "text/json", "application/json", "application/fhir+json", "application/json+fhir":
		return JSON, true
	case "xml", "text/xml", "application/xml", "application/fhir+xml", "application/xml+fhir":
		return XML, true
	}
	return JSON, false
}

// FormatName returns the media type or short name in the _format parameter, in lower case and without media type parameters. It
// treats a space as an unescaped plus sign.
func FormatName(parameter string) string {
	kind, _, _ := strings.Cut(parameter, ";")
	return strings.ToLower(strings.ReplaceAll(strings.TrimSpace(kind), " ", "+"))
}

// PrefersXML reports whether a request prefers XML, according to _format in the query or, if it is absent, Accept. It returns
// false for invalid queries and unknown formats.
func PrefersXML(r *http.Request) bool {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return false
	}
	for _, parameter := range query["_format"] {
		if name := FormatName(parameter); name != "" {
			f, _ := FormatOf(name)
			return f == XML
		}
	}
	return AcceptsXML(r.Header["Accept"])
}

// AcceptsXML reports whether Accept prefers XML. A substring search is a fast path, because most requests don't mention XML.
func AcceptsXML(accept []string) bool {
	mentionsXML := slices.ContainsFunc(accept, func(value string) bool { return strings.Contains(strings.ToLower(value), "xml") })
	if !mentionsXML {
		return false
	}
	preferred, _ := PreferredFormat(accept)
	return preferred == XML
}

// PreferredFormat returns the format that Accept prefers (RFC 9110 §12.5.1), and its parameter fhirVersion. Among equal
// weights, the first one wins. Wildcards, text/html sent by browsers, and unknown types mean JSON. A build without XML prefers
// XML only if Accept contains no other supported type.
func PreferredFormat(values []string) (best Format, version string) {
	weight, onlyXML := 0, false
	for item := range ListItems(values) {
		kind, parameters, err := mime.ParseMediaType(item)
		if err != nil {
			continue
		}
		requested, known := FormatOf(kind)
		if !known && kind != "*/*" && kind != "application/*" && kind != "text/html" {
			continue
		}
		q := parseQuality(parameters["q"])
		if requested == XML && !HasXML() {
			onlyXML = onlyXML || q > 0
			continue
		}
		if q > weight {
			best, weight, version = requested, q, parameters["fhirversion"]
		}
	}
	if weight == 0 && onlyXML {
		return XML, ""
	}
	return best, version
}

// ListItems yields the nonempty elements of a list header (RFC 9110 §5.6.1). It also splits at quoted commas, which don't occur
// in the supported headers.
func ListItems(values []string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for _, value := range values {
			for item := range strings.SplitSeq(value, ",") {
				if item = strings.Trim(item, " \t"); item != "" && !yield(item) {
					return
				}
			}
		}
	}
}

// MaxWeight is the maximum weight in thousandths.
const MaxWeight = 1000

// Weight returns the weight in the parameters of a list element, in thousandths (RFC 9110 §12.4.2). It returns MaxWeight if the
// weight is missing or invalid.
func Weight(parameters string) int {
	name, value, ok := strings.Cut(parameters, "=")
	if !ok || !strings.EqualFold(strings.Trim(name, " \t"), "q") {
		return MaxWeight
	}
	return parseQuality(value)
}

func parseQuality(value string) int {
	integer, fraction, _ := strings.Cut(strings.Trim(value, " \t"), ".")
	digits := (fraction + "000")[:3]
	n, err := strconv.ParseUint(digits, 10, 16)
	if len(fraction) > 3 || err != nil || integer != "0" {
		return MaxWeight
	}
	return int(n)
}

// Maximum number of languages, and maximum length of a language in characters. RFC 5646 §4.4.1 requires at least 35 characters.
const (
	maxLanguages      = 20
	maxLanguageLength = 64
)

type language struct {
	tag    string
	weight int // weight in thousandths
}

// NormalizeLanguages returns Accept-Language in the notation of browsers, such as en-US,en;q=0.9, sorted by preference and
// without invalid ranges (RFC 4647 §2.2). It returns "" if any language is acceptable or there is no header.
func NormalizeLanguages(values []string) string {
	if len(values) == 0 {
		return ""
	}
	var buffer [maxLanguages]language
	list := buffer[:0]
	for item := range ListItems(values) {
		tag, parameters, _ := strings.Cut(item, ";")
		if tag = strings.TrimRight(tag, " \t"); !isRange(tag) {
			continue
		}
		if list = append(list, language{tag, Weight(parameters)}); len(list) == maxLanguages {
			break
		}
	}
	slices.SortStableFunc(list, func(a, b language) int { return cmp.Compare(b.weight, a.weight) })
	if len(list) == 1 && list[0] == (language{"*", MaxWeight}) {
		return ""
	}
	dst := make([]byte, 0, 64)
	for i, l := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = l.append(dst)
	}
	return string(dst)
}

func (l language) append(dst []byte) []byte {
	dst = appendTag(dst, l.tag)
	switch l.weight {
	case MaxWeight:
		return dst
	case 0:
		return append(dst, ";q=0"...)
	}
	thousandths := strconv.Itoa(MaxWeight + l.weight)[1:]
	return append(append(dst, ";q=0."...), strings.TrimRight(thousandths, "0")...)
}

// isRange reports whether tag is a language range: subtags of one to eight letters and digits, or wildcards.
func isRange(tag string) bool {
	if len(tag) > maxLanguageLength {
		return false
	}
	for subtag := range strings.SplitSeq(tag, "-") {
		other := func(r rune) bool { return !('a' <= r|0x20 && r|0x20 <= 'z') && !('0' <= r && r <= '9') }
		if subtag != "*" && (subtag == "" || len(subtag) > 8 || strings.ContainsFunc(subtag, other)) {
			return false
		}
	}
	return tag[0] > '9' || tag[0] == '*'
}

// appendTag appends a range in the case that RFC 5646 §2.1.1 recommends: regions in upper case, scripts capitalized, and
// everything else in lower case, including subtags after a single-letter subtag.
func appendTag(dst []byte, tag string) []byte {
	single := false
	for first := true; tag != ""; first = false {
		var subtag string
		subtag, tag, _ = strings.Cut(tag, "-")
		if !first {
			dst = append(dst, '-')
		}
		switch {
		case !first && !single && len(subtag) == 2:
			dst = append(dst, strings.ToUpper(subtag)...)
		case !first && !single && len(subtag) == 4:
			dst = append(append(dst, strings.ToUpper(subtag[:1])...), strings.ToLower(subtag[1:])...)
		default:
			dst = append(dst, strings.ToLower(subtag)...)
		}
		single = single || len(subtag) == 1 && subtag != "*"
	}
	return dst
}

// XMLCodec converts resources between FHIR's JSON and XML formats. Package fhirxml registers a codec.
type XMLCodec struct {
	// AppendXML appends a resource as an XML document. The resource is given in JSON.
	AppendXML func(dst, resource []byte) ([]byte, error)

	// AppendJSON appends a resource in JSON. The resource is given as an XML document.
	AppendJSON func(dst, document []byte) ([]byte, error)
}

var xmlCodec *XMLCodec // nil until registered

// RegisterXML enables XML in requests, responses and definitions. It must be called in init.
func RegisterXML(c XMLCodec) { xmlCodec = &c }

// HasXML reports whether this build has an XML codec. Otherwise, the gateway rejects requests for XML responses (406) and
// requests with XML bodies (415). The guard inspects XML without the codec.
func HasXML() bool { return xmlCodec != nil }

var errNoXML = errors.New("this build cannot convert FHIR XML: import the package terminology/fhirxml, or use JSON")

// AppendXML appends a resource as an XML document. The resource is given in JSON. It returns an error in a build without XML.
func AppendXML(dst, resource []byte) ([]byte, error) {
	if xmlCodec == nil {
		return dst, errNoXML
	}
	return xmlCodec.AppendXML(dst, resource)
}

// AppendJSON appends a resource in JSON. The resource is given as an XML document. It returns an error in a build without XML.
func AppendJSON(dst, document []byte) ([]byte, error) {
	if xmlCodec == nil {
		return dst, errNoXML
	}
	return xmlCodec.AppendJSON(dst, document)
}
