package cache

import (
	"errors"
	"mime"
	"net/http"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/negotiation"
)

// representation is how an answer is to look, by the parameters _format and _pretty and the headers Accept and
// Accept-Language.
type representation struct {
	format      negotiation.Format
	pretty      bool
	fhirVersion string // of the media type (R4 §2.21.0.6); may be empty
	language    string // Accept-Language in one spelling; empty where displayLanguage is given
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
		r.language = negotiation.Languages(header["Accept-Language"])
	}
	if len(formats) == 0 {
		r.format, r.fhirVersion = negotiation.Accepted(header["Accept"])
		return list, r, nil
	}
	kind, version, _ := strings.Cut(formats[0], ";")
	kind = strings.ReplaceAll(strings.TrimSpace(kind), " ", "+") // a plus sign that was not escaped
	var known bool
	if r.format, known = negotiation.FormatOf(strings.ToLower(kind)); !known {
		return list, r, errFormat
	}
	if _, parameters, err := mime.ParseMediaType("x/x;" + version); err == nil {
		r.fhirVersion = parameters["fhirversion"]
	}
	return list, r, nil
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
	if r.format == negotiation.XML {
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
	format, known := negotiation.FormatOf(kind)
	return err == nil && known && format == r.format
}
