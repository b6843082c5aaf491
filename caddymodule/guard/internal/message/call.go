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

// Call is a parsed request: the client's request, an entry of a batch, or a request of the gateway.
type Call struct {
	Method string      // HTTP method
	Path   string      // path below the FHIR base, without a leading slash
	Query  string      // query without the question mark
	Header http.Header // headers of the call: If-Match, If-None-Exist, Prefer, Content-Type etc.
	Body   []byte      // nil if there is no body
}

// NewGet returns a GET call.
func NewGet(path, query string) Call { return Call{Method: http.MethodGet, Path: path, Query: query} }

// GetBinaryMetadata returns the call for a Binary without its data, which may be large.
func GetBinaryMetadata(path string) Call {
	return NewGet(path, smart.EncodeParameters([]smart.Parameter{{Name: "_elements", Value: "id,meta,implicitRules,language,contentType,securityContext"}}))
}

// SearchPath returns the path of a search without the _search segment of a POST.
func (c Call) SearchPath() string {
	return strings.TrimSuffix(strings.TrimSuffix(c.Path, "_search"), "/")
}

// Interaction returns the interaction of a call. The form of a search by POST is included in the parameters.
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

// toSentence formats an error as a sentence for clients. Errors of package interaction contain no part of the request.
func toSentence(err error) string {
	text := err.Error()
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// acceptWeights maps media types in an Accept header, in lower case, to their weights (RFC 9110 §12.5.1).
type acceptWeights map[string]float64

// ParseAccept parses Accept. It ignores malformed media ranges. An invalid weight is treated as 1.
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

// FHIRMediaTypes are the media types of FHIR's formats, including those of DSTU2, and the generic types that FHIR clients send
// instead (R4 http.html#mime-type).
var FHIRMediaTypes = NewSet(TypeJSON, "application/json", "application/json+fhir", "text/json", typeXML, "application/xml+fhir", "application/fhir+turtle")

// typeXML is the media type of FHIR XML, which is rewritten but not judged.
const typeXML = "application/fhir+xml"

// FHIRWeight returns the maximum weight of FHIR's media types. It ignores the weight of one media type.
func (a acceptWeights) FHIRWeight(but string) (weight float64) {
	for media, w := range a {
		if media != but && FHIRMediaTypes[media] {
			weight = max(weight, w)
		}
	}
	return weight
}

// AcceptsJSON reports whether the header accepts JSON. If there is no header, every type is accepted.
func (a acceptWeights) AcceptsJSON() bool {
	for media, weight := range a {
		if weight > 0 && (strings.Contains(media, "json") || media == "*/*" || media == "application/*") {
			return true
		}
	}
	return len(a) == 0
}

// FormatParameter returns the _format parameter, which overrides Accept (R4 http.html#parameters), or "" if it is missing.
func FormatParameter(parameters []smart.Parameter) string {
	for _, p := range parameters {
		if p.Name == "_format" && p.Value != "" {
			return strings.ToLower(p.Value)
		}
	}
	return ""
}

var errUnsupportedFormat = errors.New("response format not supported: only JSON is available")

// CheckFormat returns an error if the request does not accept JSON, the format of all judged responses (RFC 9110 §15.5.7).
func CheckFormat(header http.Header, parameters []smart.Parameter) error {
	format := FormatParameter(parameters)
	if strings.Contains(format, "json") || format == "" && ParseAccept(header).AcceptsJSON() {
		return nil
	}
	return NotAcceptable(errUnsupportedFormat, "This response is only available as FHIR JSON: request application/fhir+json.")
}

// IsLenient reports whether a client permits ignoring unknown parameters: Prefer: handling=lenient (RFC 7240 §4.4, FHIR R4
// search.html#errors). If there are several handling preferences, the first applies.
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

// NotAcceptable returns the error for a request for an unsupported format (RFC 9110 §15.5.7).
func NotAcceptable(err error, description string) error {
	return &guard.Error{Status: http.StatusNotAcceptable, Description: description, Err: err}
}

// IsRewritable reports whether a value of _format means FHIR JSON or XML. HTML, in which HAPI can wrap them, is not rewritable.
func IsRewritable(format string) bool {
	return (strings.Contains(format, "json") || strings.Contains(format, "xml")) && !strings.Contains(format, "html")
}

// RewritableTypes returns the elements of Accept that mean JSON, XML or a wildcard.
func RewritableTypes(accept []string) (rewritable []string) {
	for element := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		media, _, _ := mime.ParseMediaType(element)
		if media == "*/*" || media == "application/*" || FormatOfMediaType(media) != NoFormat {
			rewritable = append(rewritable, strings.TrimSpace(element))
		}
	}
	return rewritable
}

// IsFHIRFormat reports whether a value of _format means a FHIR format.
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
