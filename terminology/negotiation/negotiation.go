// Package negotiation reads the headers by which a client says how an answer is to look (RFC 9110 §12.5), in one way for
// all who answer: if one read them otherwise than another, the same request would have different answers.
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

// The formats.
const (
	JSON Format = iota
	XML
)

// FormatOf returns the format of a media type, or of a short name for _format, both in lower case.
func FormatOf(kind string) (f Format, known bool) {
	switch kind {
	case "json", "text/json", "application/json", "application/fhir+json", "application/json+fhir":
		return JSON, true
	case "xml", "text/xml", "application/xml", "application/fhir+xml", "application/xml+fhir":
		return XML, true
	}
	return JSON, false
}

// FormatName returns the media type or short name in a parameter _format, in lower case and without parameters. A space
// stands for a plus sign that was not escaped.
func FormatName(parameter string) string {
	kind, _, _ := strings.Cut(parameter, ";")
	return strings.ToLower(strings.ReplaceAll(strings.TrimSpace(kind), " ", "+"))
}

// PrefersXML reports whether a request asks for XML, by _format in its query or else by Accept. Invalid queries and
// unknown formats count as JSON.
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

// AcceptsXML reports whether Accept prefers XML. Most requests do not name XML, which a substring search finds out faster
// than parsing.
func AcceptsXML(accept []string) bool {
	named := slices.ContainsFunc(accept, func(value string) bool { return strings.Contains(strings.ToLower(value), "xml") })
	if !named {
		return false
	}
	preferred, _ := Accepted(accept)
	return preferred == XML
}

// Accepted returns the format that Accept prefers (RFC 9110 §12.5.1), the first of equal ones, and its parameter
// fhirVersion. Wildcards, a browser's text/html and anything unknown mean JSON. A build without XML prefers XML only if Accept
// names nothing else that the build can write.
func Accepted(values []string) (best Format, version string) {
	weight, onlyXML := 0, false
	for item := range Items(values) {
		kind, parameters, err := mime.ParseMediaType(item)
		if err != nil {
			continue
		}
		asked, known := FormatOf(kind)
		if !known && kind != "*/*" && kind != "application/*" && kind != "text/html" {
			continue
		}
		q := quality(parameters["q"])
		if asked == XML && !HasXML() {
			onlyXML = onlyXML || q > 0
			continue
		}
		if q > weight {
			best, weight, version = asked, q, parameters["fhirversion"]
		}
	}
	if weight == 0 && onlyXML {
		return XML, ""
	}
	return best, version
}

// Items yields the non-empty elements of a list header (RFC 9110 §5.6.1). It splits at quoted commas too, which do not
// matter in the lists read here.
func Items(values []string) func(yield func(string) bool) {
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

// FullWeight is the weight of what is wanted without reserve, in thousandths.
const FullWeight = 1000

// Weight returns the weight in the parameters of an item, in thousandths (RFC 9110 §12.4.2): FullWeight if it is missing
// or cannot be read.
func Weight(parameters string) int {
	name, value, ok := strings.Cut(parameters, "=")
	if !ok || !strings.EqualFold(strings.Trim(name, " \t"), "q") {
		return FullWeight
	}
	return quality(value)
}

func quality(value string) int {
	whole, fraction, _ := strings.Cut(strings.Trim(value, " \t"), ".")
	digits := (fraction + "000")[:3]
	n, err := strconv.ParseUint(digits, 10, 16)
	if len(fraction) > 3 || err != nil || whole != "0" {
		return FullWeight
	}
	return int(n)
}

// Bounds on the languages that count, and on the length of one. RFC 5646 §4.4.1 asks for 35 characters at least.
const (
	maxLanguages      = 20
	maxLanguageLength = 64
)

type language struct {
	tag    string
	weight int // in thousandths
}

// Languages returns Accept-Language in one spelling, which is that of browsers: en-US,en;q=0.9. The most wanted come
// first; what is no language range (RFC 4647 §2.2) is left out. It is empty if any language will do, as without the header.
func Languages(values []string) string {
	if len(values) == 0 {
		return ""
	}
	var buffer [maxLanguages]language
	list := buffer[:0]
	for item := range Items(values) {
		tag, parameters, _ := strings.Cut(item, ";")
		if tag = strings.TrimRight(tag, " \t"); !isRange(tag) {
			continue
		}
		if list = append(list, language{tag, Weight(parameters)}); len(list) == maxLanguages {
			break
		}
	}
	slices.SortStableFunc(list, func(a, b language) int { return cmp.Compare(b.weight, a.weight) })
	if len(list) == 1 && list[0] == (language{"*", FullWeight}) {
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
	case FullWeight:
		return dst
	case 0:
		return append(dst, ";q=0"...)
	}
	thousandths := strconv.Itoa(FullWeight + l.weight)[1:]
	return append(append(dst, ";q=0."...), strings.TrimRight(thousandths, "0")...)
}

// isRange reports whether a text is a language range: subtags of one to eight letters and digits, or wildcards.
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

// appendTag appends a range in the case that RFC 5646 §2.1.1 recommends: a region in capitals, a script with one, all else
// in lower case, as is what follows a subtag of a single letter.
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

// XMLCodec converts resources between FHIR's JSON and FHIR's XML. Package fhirxml has one and registers it.
type XMLCodec struct {
	// AppendXML appends a resource, given in JSON, as an XML document.
	AppendXML func(dst, resource []byte) ([]byte, error)

	// AppendJSON appends a resource, given as an XML document, in JSON.
	AppendJSON func(dst, document []byte) ([]byte, error)
}

var xmlCodec *XMLCodec // nil: none is registered

// RegisterXML enables XML in requests, responses and definitions. Packages call it from init.
func RegisterXML(c XMLCodec) { xmlCodec = &c }

// HasXML reports whether this build has a codec for XML. Without one, the gateway refuses to write XML (406) and to read it
// (415). The guard's own checks of XML do not need it.
func HasXML() bool { return xmlCodec != nil }

var errNoXML = errors.New("this build cannot convert FHIR XML: import the package terminology/fhirxml, or use JSON")

// AppendXML appends a resource, given in JSON, as an XML document. It fails in a build without XML.
func AppendXML(dst, resource []byte) ([]byte, error) {
	if xmlCodec == nil {
		return dst, errNoXML
	}
	return xmlCodec.AppendXML(dst, resource)
}

// AppendJSON appends a resource, given as an XML document, in JSON. It fails in a build without XML.
func AppendJSON(dst, document []byte) ([]byte, error) {
	if xmlCodec == nil {
		return dst, errNoXML
	}
	return xmlCodec.AppendJSON(dst, document)
}
