package cache

import (
	"cmp"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// format is a format of FHIR resources (R4 §2.21.0.6).
type format uint8

const (
	jsonFormat format = iota
	xmlFormat
)

// representation is how an answer is to look, by the parameters _format and _pretty and the headers Accept and
// Accept-Language.
type representation struct {
	format      format
	pretty      bool
	fhirVersion string // of the media type (R4 §2.21.0.6); may be empty
	language    string // Accept-Language, normalised; empty where displayLanguage is given
}

// Errors for representations that the operation is to refuse.
var (
	errFormat   = errors.New("_format must be json or xml")
	errRepeated = errors.New("_format and _pretty may be given only once")
)

// negotiate takes the parameters of the representation out of the list. _format takes precedence over Accept (R4
// §3.1.0.1.11).
func negotiate(list parameters, header http.Header) (parameters, representation, error) {
	var r representation
	list, formats := list.take("_format")
	list, pretty := list.take("_pretty")
	if len(formats) > 1 || len(pretty) > 1 {
		return list, r, errRepeated
	}
	r.pretty = len(pretty) > 0 && pretty[0] == "true"
	if !list.has("displayLanguage") {
		r.language = normalLanguages(header["Accept-Language"])
	}
	if len(formats) == 0 {
		r.format, r.fhirVersion = accepted(header["Accept"])
		return list, r, nil
	}
	kind, version, _ := strings.Cut(formats[0], ";")
	kind = strings.ReplaceAll(strings.TrimSpace(kind), " ", "+") // a plus sign that was not escaped
	var known bool
	if r.format, known = formatOf(strings.ToLower(kind)); !known {
		return list, r, errFormat
	}
	if _, parameters, err := mime.ParseMediaType("x/x;" + version); err == nil {
		r.fhirVersion = parameters["fhirversion"]
	}
	return list, r, nil
}

// formatOf returns the format of a media type, or of a short name for _format.
func formatOf(kind string) (f format, known bool) {
	switch kind {
	case "json", "text/json", "application/json", "application/fhir+json", "application/json+fhir":
		return jsonFormat, true
	case "xml", "text/xml", "application/xml", "application/fhir+xml", "application/xml+fhir":
		return xmlFormat, true
	}
	return jsonFormat, false
}

// accepted returns the format that Accept prefers (RFC 9110 §12.5.1), the first of equal ones. Wildcards, a browser's
// text/html and anything unknown mean JSON.
func accepted(values []string) (best format, version string) {
	weight := -1
	for item := range listItems(values) {
		kind, parameters, err := mime.ParseMediaType(item)
		if err != nil {
			continue
		}
		asked, known := formatOf(kind)
		if !known && kind != "*/*" && kind != "application/*" && kind != "text/html" {
			continue
		}
		if q := quality(parameters["q"]); q > max(weight, 0) {
			best, weight, version = asked, q, parameters["fhirversion"]
		}
	}
	return best, version
}

// listItems yields the non-empty elements of a list header (RFC 9110 §5.6.1). It splits at quoted commas too, which do not
// matter in the lists read here.
func listItems(values []string) func(yield func(string) bool) {
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

const fullQuality = 1000

// quality returns a weight in thousandths (RFC 9110 §12.4.2), fullQuality if it is missing or cannot be read.
func quality(value string) int {
	whole, fraction, _ := strings.Cut(strings.Trim(value, " \t"), ".")
	digits := (fraction + "000")[:3]
	n, err := strconv.ParseUint(digits, 10, 16)
	if len(fraction) > 3 || err != nil || whole != "0" {
		return fullQuality
	}
	return int(n)
}

const maxLanguageRanges = 20

// normalLanguages normalises Accept-Language: lower case, no spaces, the most wanted first.
func normalLanguages(values []string) string {
	type languageRange struct {
		tag string
		q   int
	}
	var ranges []languageRange
	for item := range listItems(values) {
		tag, parameters, _ := strings.Cut(item, ";")
		if tag = strings.ToLower(strings.Trim(tag, " \t")); tag != "" && len(ranges) < maxLanguageRanges {
			ranges = append(ranges, languageRange{tag, weightOf(parameters)})
		}
	}
	slices.SortStableFunc(ranges, func(a, b languageRange) int { return cmp.Compare(b.q, a.q) })
	if len(ranges) == 1 && ranges[0] == (languageRange{"*", fullQuality}) {
		return "" // any language, as without the header
	}
	var b strings.Builder
	for i, r := range ranges {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(r.tag)
		if r.q != fullQuality {
			b.WriteString(";q=0." + fmt.Sprintf("%03d", r.q))
		}
	}
	return b.String()
}

func (r representation) append(dst []byte) []byte {
	dst = append(dst, byte(r.format), 0)
	if r.pretty {
		dst[len(dst)-1] = 1
	}
	return appendPart(appendPart(dst, r.fhirVersion), r.language)
}

// apply makes a request ask for exactly this representation, however the producer reads it.
func (r representation) apply(header http.Header) {
	accept := "application/fhir+json"
	if r.format == xmlFormat {
		accept = "application/fhir+xml"
	}
	if r.fhirVersion != "" {
		accept = mime.FormatMediaType(accept, map[string]string{"fhirVersion": r.fhirVersion})
	}
	header.Set("Accept", accept)
	if r.language != "" {
		header.Set("Accept-Language", r.language)
	}
}

func (r representation) fits(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	format, known := formatOf(kind)
	return err == nil && known && format == r.format
}
