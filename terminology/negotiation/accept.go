package negotiation

import (
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
