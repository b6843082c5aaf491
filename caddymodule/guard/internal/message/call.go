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

// Call is a request in parts: the client's, an entry of a batch, or one of our own.
type Call struct {
	Method string      // the HTTP method
	Path   string      // below the FHIR base, without a leading slash
	Query  string      // without a question mark
	Header http.Header // those that speak of the call: If-Match, If-None-Exist, Prefer, Content-Type …
	Body   []byte      // nil if there is none
}

// Get is a call that only asks.
func Get(path, query string) Call { return Call{Method: http.MethodGet, Path: path, Query: query} }

// BinaryMetadata is the call for a Binary without its data, which may be long.
func BinaryMetadata(path string) Call {
	return Get(path, smart.EncodeParameters([]smart.Parameter{{Name: "_elements", Value: "id,meta,implicitRules,language,contentType,securityContext"}}))
}

// SearchPath is the path of a search without what a search by POST adds to it.
func (c Call) SearchPath() string {
	return strings.TrimSuffix(strings.TrimSuffix(c.Path, "_search"), "/")
}

// Interaction tells what a call does. A search by POST has its form among its parameters.
func (c Call) Interaction() (interaction.Interaction, error) {
	i, err := interaction.Parse(c.Method, c.Path, c.Query, c.Header)
	if err == nil && strings.HasSuffix(c.Path, "_search") && c.Body != nil {
		i, err = i.WithForm(string(c.Body))
	}
	if err != nil {
		status := interaction.Status(err)
		return i, &guard.Error{Status: status, Description: sentence(err), Err: err}
	}
	return i, nil
}

// sentence is an error as clients read it. The errors of package interaction hold no part of the request.
func sentence(err error) string {
	text := err.Error()
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// accept is what an Accept header takes (RFC 9110 §12.5.1), by media types in small letters.
type accept map[string]float64

// ParseAccept reads Accept. A malformed range is none, and one without a weight that can be read counts in full.
func ParseAccept(header http.Header) accept {
	a := accept{}
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

// FhirMedia are the names of FHIR's own formats, with those of DSTU2, and the general ones that FHIR's clients send for
// them (R4 http.html#mime-type).
var FhirMedia = SetOf(TypeJSON, "application/json", "application/json+fhir", "text/json", typeXML, "application/xml+fhir", "application/fhir+turtle")

// typeXML is the media type that nothing here is read or written in.
const typeXML = "application/fhir+xml"

// Fhir is how much FHIR's formats are wanted by name, but for one name.
func (a accept) Fhir(but string) (weight float64) {
	for media, w := range a {
		if media != but && FhirMedia[media] {
			weight = max(weight, w)
		}
	}
	return weight
}

// TakesJSON reports whether JSON is among what is accepted, which without a header is anything.
func (a accept) TakesJSON() bool {
	for media, weight := range a {
		if weight > 0 && (strings.Contains(media, "json") || media == "*/*" || media == "application/*") {
			return true
		}
	}
	return len(a) == 0
}

// FormatOf is the parameter _format, which overrides Accept (R4 http.html#parameters). Empty if there is none.
func FormatOf(parameters []smart.Parameter) string {
	for _, p := range parameters {
		if p.Name == "_format" && p.Value != "" {
			return strings.ToLower(p.Value)
		}
	}
	return ""
}

var errFormat = errors.New("only JSON is written")

// CheckFormat refuses a request whose answer may not be in JSON, in which all is that was judged (RFC 9110 §15.5.7).
func CheckFormat(header http.Header, parameters []smart.Parameter) error {
	format := FormatOf(parameters)
	if strings.Contains(format, "json") || format == "" && ParseAccept(header).TakesJSON() {
		return nil
	}
	return NotAcceptable(errFormat, "Answers are FHIR JSON here: ask for application/fhir+json.")
}

// IsLenient reports whether a client accepts that unknown parameters are ignored: Prefer: handling=lenient (RFC 7240 §4.4,
// FHIR R4 search.html#errors). Of several handling preferences, the first one counts.
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

// IsRewritable reports whether a value of _format is FHIR JSON or XML, which HAPI also wraps in HTML.
func IsRewritable(format string) bool {
	return (strings.Contains(format, "json") || strings.Contains(format, "xml")) && !strings.Contains(format, "html")
}

// Rewritable are the elements of Accept that are JSON, XML or anything.
func Rewritable(accept []string) (kept []string) {
	for element := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		media, _, _ := mime.ParseMediaType(element)
		if media == "*/*" || media == "application/*" || FormatOfMedia(media) != NoFormat {
			kept = append(kept, strings.TrimSpace(element))
		}
	}
	return kept
}

// IsFHIRFormat reports whether a value of _format is one of FHIR's.
func IsFHIRFormat(format string) bool {
	return strings.Contains(format, "json") || strings.Contains(format, "xml") || strings.Contains(format, "turtle") || format == "ttl"
}

// SetOf is a set of names.
func SetOf(names ...string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}
