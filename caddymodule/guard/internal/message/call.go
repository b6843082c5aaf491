package message

import (
	"errors"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// Call is a request in parts: the client's request, an entry of a batch, or a request of the gateway.
type Call struct {
	Method string      // HTTP method
	Path   string      // below the FHIR base, without a leading slash
	Query  string      // without the question mark
	Header http.Header // headers about the call: If-Match, If-None-Exist, Prefer, Content-Type …
	Body   []byte      // nil without a body
}

// NewGet returns a GET call.
func NewGet(path, query string) Call { return Call{Method: http.MethodGet, Path: path, Query: query} }

// GetBinaryMetadata returns the call for a Binary without its data, which may be long.
func GetBinaryMetadata(path string) Call {
	return NewGet(path, smart.EncodeParameters([]smart.Parameter{{Name: "_elements", Value: "id,meta,implicitRules,language,contentType,securityContext"}}))
}

// SearchPath returns the path of a search without the _search of POST.
func (c Call) SearchPath() string {
	return strings.TrimSuffix(strings.TrimSuffix(c.Path, "_search"), "/")
}

// Interaction returns the interaction of a call. The form of a search by POST is part of the parameters.
func (c Call) Interaction() (interaction.Interaction, error) {
	i, err := interaction.Parse(c.Method, c.Path, c.Query, c.Header)
	if err == nil && strings.HasSuffix(c.Path, "_search") && c.Body != nil {
		i, err = i.WithForm(string(c.Body))
	}
	if err != nil {
		status := interaction.Status(err)
		return i, &guard.Error{Status: status, Description: toSentence(err), Err: err}
	}
	return i, nil
}

// toSentence returns an error as a sentence for clients. Errors of package interaction contain no part of the request.
func toSentence(err error) string {
	text := err.Error()
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// acceptWeights contains the weights of an Accept header (RFC 9110 §12.5.1) by media type in lower case.
type acceptWeights map[string]float64

// ParseAccept parses Accept. It ignores malformed ranges; an invalid weight counts as 1.
func ParseAccept(header http.Header) acceptWeights {
	a := acceptWeights{}
	for element := range strings.SplitSeq(strings.Join(header["Accept"], ","), ",") {
		media, parameters, err := mime.ParseMediaType(element)
		if err != nil {
			continue
		}
		weight, err := strconv.ParseFloat(parameters["q"], 64)
		if err != nil {
			weight = 1
		}
		a[media] = max(a[media], weight)
	}
	return a
}

// FHIRMediaTypes are the media types of FHIR's own formats, including those of DSTU2, and general types that FHIR clients send
// for them (R4 http.html#mime-type).
var FHIRMediaTypes = NewSet(TypeJSON, "application/json", "application/json+fhir", "text/json", typeXML, "application/xml+fhir", "application/fhir+turtle")

// typeXML is the media type of FHIR XML, which is rewritten but not judged.
const typeXML = "application/fhir+xml"

// FHIRWeight returns the greatest weight of FHIR's media types, except for one media type.
func (a acceptWeights) FHIRWeight(but string) (weight float64) {
	for media, w := range a {
		if media != but && FHIRMediaTypes[media] {
			weight = max(weight, w)
		}
	}
	return weight
}

// AcceptsJSON reports whether the header accepts JSON. Without a header, any type is accepted.
func (a acceptWeights) AcceptsJSON() bool {
	for media, weight := range a {
		if weight > 0 && (strings.Contains(media, "json") || media == "*/*" || media == "application/*") {
			return true
		}
	}
	return len(a) == 0
}

// FormatParameter returns the parameter _format, which overrides Accept (R4 http.html#parameters). Empty if it is missing.
func FormatParameter(parameters []smart.Parameter) string {
	for _, p := range parameters {
		if p.Name == "_format" && p.Value != "" {
			return strings.ToLower(p.Value)
		}
	}
	return ""
}

var errUnsupportedFormat = errors.New("response format not supported: only JSON is available")

// CheckFormat rejects a request that does not accept JSON, the format of all judged responses (RFC 9110 §15.5.7).
func CheckFormat(header http.Header, parameters []smart.Parameter) error {
	format := FormatParameter(parameters)
	if strings.Contains(format, "json") || format == "" && ParseAccept(header).AcceptsJSON() {
		return nil
	}
	return NotAcceptable(errUnsupportedFormat, "This response is only available as FHIR JSON: request application/fhir+json.")
}

// IsLenient reports whether a client accepts that unknown parameters are ignored: Prefer: handling=lenient (RFC 7240 §4.4, FHIR
// R4 search.html#errors). The first of several handling preferences counts.
func IsLenient(header http.Header) bool {
	for preference := range strings.SplitSeq(strings.Join(header["Prefer"], ","), ",") {
		for part := range strings.SplitSeq(preference, ";") {
			name, value, _ := strings.Cut(part, "=")
			if strings.EqualFold(strings.TrimSpace(name), "handling") {
				return strings.EqualFold(strings.Trim(strings.TrimSpace(value), `"`), "lenient")
			}
		}
	}
	return false
}

// NotAcceptable rejects a request for a format (RFC 9110 §15.5.7).
func NotAcceptable(err error, description string) error {
	return &guard.Error{Status: http.StatusNotAcceptable, Description: description, Err: err}
}

// IsRewritable reports whether a value of _format is FHIR JSON or XML, but not the HTML in which HAPI can wrap them.
func IsRewritable(format string) bool {
	return (strings.Contains(format, "json") || strings.Contains(format, "xml")) && !strings.Contains(format, "html")
}

// RewritableTypes returns the elements of Accept that are JSON, XML or a wildcard.
func RewritableTypes(accept []string) (rewritable []string) {
	for element := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		media, _, _ := mime.ParseMediaType(element)
		if media == "*/*" || media == "application/*" || FormatOfMediaType(media) != NoFormat {
			rewritable = append(rewritable, strings.TrimSpace(element))
		}
	}
	return rewritable
}

// IsFHIRFormat reports whether a value of _format is one of FHIR's.
func IsFHIRFormat(format string) bool {
	return strings.Contains(format, "json") || strings.Contains(format, "xml") || strings.Contains(format, "turtle") || format == "ttl"
}

// NewSet returns a set of names.
func NewSet(names ...string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}
