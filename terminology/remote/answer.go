package remote

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/negotiation"
)

// Response is a validated response from a server. It is shared between requests and must not be modified.
type Response struct {
	// Status is 200, 304, or the status of a negative response.
	Status int

	// Header contains only headers that describe the response itself and its lifetime. Others, such as cookies, are dropped.
	Header http.Header

	// Resource is the resource type of the body.
	Resource string

	// URL is the canonical of the resource, or "".
	URL string

	// Body is the resource. It is nil if NotModified is true.
	Body []byte

	// NotModified reports whether the client's cached response is still valid.
	NotModified bool
}

var negativeStatuses = []int{http.StatusBadRequest, http.StatusNotFound, http.StatusGone, http.StatusUnprocessableEntity}

// IsNegative reports whether the response is an OperationOutcome with status 400, 404, 410 or 422; store it only briefly.
func (a *Response) IsNegative() bool { return slices.Contains(negativeStatuses, a.Status) }

var responseHeaders = []string{
	"Age", "Cache-Control", "Content-Language", "Content-Location", "Content-Type", "Date", "Etag", "Expires", "Last-Modified", "Vary",
}

// setLifetime sets the lifetime of the response. It overrides all headers except no-store.
func (a *Response) setLifetime(ttl time.Duration) {
	if strings.Contains(strings.ToLower(strings.Join(a.Header["Cache-Control"], ",")), "no-store") {
		return
	}
	for _, name := range []string{"Age", "Date", "Expires", "Vary"} { // Vary is removed because all clients get the same response
		delete(a.Header, name)
	}
	a.Header.Set("Cache-Control", fmt.Sprintf("max-age=%d", int64(max(1, ttl/time.Second))))
}

func responseHeader(header http.Header) http.Header {
	list := make(http.Header)
	for _, name := range responseHeaders {
		if values := header[name]; len(values) > 0 {
			list[name] = slices.Clone(values)
		}
	}
	return list
}

// MatchesCanonical reports whether the resource in the response has the given canonical, in any version. A response without a
// canonical always matches.
func (a *Response) MatchesCanonical(canonical string) bool {
	requested, _, _ := strings.Cut(canonical, "|")
	told, _, _ := strings.Cut(a.URL, "|")
	return requested == "" || told == "" || requested == told
}

// read reads and validates a response.
func (s *Server) read(q Request, response *http.Response) (*Response, error) {
	response.Header.Del("Content-Location") // it may be a URL that clients cannot access
	if response.StatusCode == http.StatusNotModified && q.IfNoneMatch != "" {
		return &Response{Status: http.StatusNotModified, Header: responseHeader(response.Header), NotModified: true}, nil
	}
	if err := checkStatus(&Response{Status: response.StatusCode}); err != nil {
		return nil, err // the body is irrelevant
	}
	if response.ContentLength > s.options.MaxResponseSize {
		return nil, fmt.Errorf("%w: %d bytes", errTooLarge, response.ContentLength)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, s.options.MaxResponseSize+1))
	switch {
	case err != nil:
		return nil, networkError(errTruncated, err)
	case int64(len(body)) > s.options.MaxResponseSize:
		return nil, fmt.Errorf("%w: more than %d bytes", errTooLarge, s.options.MaxResponseSize)
	}
	return newResponse(q.Path, response.StatusCode, response.Header, body)
}

// expectedTypes returns the resource types that the operation or interaction with the given path returns.
func expectedTypes(operation string) []string {
	switch kind, last := path.Base(path.Dir(operation)), path.Base(operation); {
	case last == "$expand":
		return []string{"ValueSet"}
	case last == "metadata":
		return []string{"CapabilityStatement", "TerminologyCapabilities"}
	case strings.HasPrefix(last, "$"):
		return []string{"Parameters"}
	case last == "ValueSet", last == "CodeSystem", last == "ConceptMap":
		return []string{"Bundle"}
	case kind == "ValueSet", kind == "CodeSystem", kind == "ConceptMap":
		return []string{kind}
	}
	return nil
}

// newResponse validates the response of the operation with the given path and converts it to a [Response].
func newResponse(operation string, status int, header http.Header, body []byte) (*Response, error) {
	a := &Response{Status: status, Header: responseHeader(header), Body: body}
	if err := checkStatus(a); err != nil {
		return nil, err
	}
	if encoding := header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return nil, fmt.Errorf("%w: content coding %q", errMalformed, encoding)
	}
	found, err := summarize(header.Get("Content-Type"), body)
	if err != nil {
		return nil, fmt.Errorf("%w: status %d: %w", errMalformed, status, err)
	}
	a.Resource, a.URL = found.resource, found.url
	if err := a.checkResource(operation, found); err != nil {
		return nil, err
	}
	return a, nil
}

func checkStatus(a *Response) error {
	switch status := a.Status; {
	case status == http.StatusOK, a.IsNegative():
		return nil
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusProxyAuthRequired:
		return fmt.Errorf("%w: status %d", ErrRejected, status)
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		return fmt.Errorf("%w: status %d", errBusy, status)
	case status >= 500:
		return fmt.Errorf("%w: status %d", errServerFailed, status)
	case status >= 300 && status < 400:
		return fmt.Errorf("%w: status %d: redirects to other servers are not followed; configure the new address", errMalformed, status)
	default:
		return fmt.Errorf("%w: status %d", errMalformed, status)
	}
}

// checkResource returns an error if the operation does not return such a resource with this status.
func (a *Response) checkResource(operation string, found bodySummary) error {
	switch {
	case a.IsNegative():
		if found.resource != "OperationOutcome" {
			return fmt.Errorf("%w: status %d with a resource %q instead of an OperationOutcome", errMalformed, a.Status, found.resource)
		}
	case !slices.Contains(expectedTypes(operation), found.resource):
		return fmt.Errorf("%w: a resource %q, which is not a result of %s", errMalformed, found.resource, path.Base(operation))
	case path.Base(operation) == "$expand" && !found.hasExpansion:
		return fmt.Errorf("%w: a ValueSet without an expansion", errMalformed)
	}
	return nil
}

type bodySummary struct {
	resource     string
	url          string // canonical
	hasExpansion bool   // whether there is a member expansion
}

// summarize parses an entire resource and returns its identifying members.
func summarize(contentType string, body []byte) (bodySummary, error) {
	kind, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return bodySummary{}, fmt.Errorf("media type %q: %w", contentType, err)
	}
	if charset := params["charset"]; charset != "" && !strings.EqualFold(charset, "utf-8") {
		return bodySummary{}, fmt.Errorf("character set %q", charset)
	}
	switch kind {
	case "application/fhir+json", "application/json", "text/json", "application/json+fhir":
		return summarizeJSON(body)
	case "application/fhir+xml", "application/xml", "text/xml", "application/xml+fhir":
		return summarizeXML(body)
	}
	return bodySummary{}, fmt.Errorf("media type %q", kind)
}

// summarizeJSON parses a resource in JSON. It accepts duplicate names because detecting them would require memory.
func summarizeJSON(body []byte) (bodySummary, error) {
	var head struct {
		ResourceType textMember   `json:"resourceType"`
		URL          textMember   `json:"url"`
		Expansion    objectMember `json:"expansion"`
	}
	err := json.Unmarshal(body, &head, jsontext.AllowDuplicateNames(true))
	return bodySummary{string(head.ResourceType), string(head.URL), bool(head.Expansion)}, err
}

// textMember is a string member. Values of other types are ignored: an expansion with an invalid URL can still be used.
type textMember string

// UnmarshalJSONFrom implements [json.UnmarshalerFrom].
func (m *textMember) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() != '"' {
		return d.SkipValue()
	}
	text, err := d.ReadToken()
	*m = textMember(text.String())
	return err
}

// objectMember is true if the member is an object.
type objectMember bool

// UnmarshalJSONFrom implements [json.UnmarshalerFrom].
func (m *objectMember) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	*m = d.PeekKind() == '{'
	return d.SkipValue()
}

// fhirNamespace is the XML namespace of resources (R4 §2.6.1).
const fhirNamespace = "http://hl7.org/fhir"

// summarizeXML parses a resource in XML. It returns an error for document type declarations (R4 §2.6.1).
func summarizeXML(body []byte) (found bodySummary, err error) {
	d := xml.NewDecoder(bytes.NewReader(body))
	for depth := 0; ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) && found.resource != "" {
			return found, nil
		}
		if err != nil {
			return found, err
		}
		switch t := token.(type) {
		case xml.Directive:
			return found, errors.New("an XML document type declaration")
		case xml.StartElement:
			if depth == 0 && (t.Name.Space != fhirNamespace || found.resource != "") {
				return found, fmt.Errorf("an XML element %q of namespace %q", t.Name.Local, t.Name.Space)
			}
			switch depth {
			case 0:
				found.resource = t.Name.Local
			case 1:
				found.hasExpansion = found.hasExpansion || t.Name.Local == "expansion"
				if t.Name.Local == "url" {
					found.url = attribute(t, "value")
				}
			}
			depth++
		case xml.EndElement:
			depth--
		}
	}
}

// attribute returns the value of an attribute that has no namespace.
func attribute(of xml.StartElement, name string) string {
	for _, a := range of.Attr {
		if a.Name.Space == "" && a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// MayBeResponse reports whether part can be the beginning of a response of the operation with the given path.
func MayBeResponse(operation string, header http.Header, part []byte) bool {
	found, _ := summarize(header.Get("Content-Type"), part) // an error only means that part is truncated
	return slices.Contains(expectedTypes(operation), found.resource)
}

// TrimToPage returns the response with only the entries on the requested page, because some servers ignore count or offset. A
// response that cannot be trimmed is returned unchanged.
func (a *Response) TrimToPage(q ParsedRequest) *Response {
	if !q.hasPage || q.page.Count == nil || a.Resource != "ValueSet" || len(a.Body) == 0 {
		return a
	}
	body, isXML := a.Body, bytes.HasPrefix(bytes.TrimSpace(a.Body), []byte{'<'})
	var err error
	if isXML {
		body, err = negotiation.AppendJSON(nil, body)
	}
	if err == nil {
		body, err = trimExpansion(body, q.page)
	}
	if err == nil && isXML && body != nil {
		body, err = negotiation.AppendXML(nil, body)
	}
	if err != nil || body == nil {
		return a
	}
	part := *a
	part.Body = body
	return &part
}

// trimExpansion returns a ValueSet with only the entries on a page. It returns nil if there are no other entries.
func trimExpansion(body []byte, page expansion.Page) ([]byte, error) {
	resource, err := readMembers(body)
	at := slices.IndexFunc(resource, func(m fhirjson.Member) bool { return m.Name == "expansion" })
	if err != nil || at < 0 {
		return nil, err
	}
	expansion, err := readMembers(resource[at].Value)
	if err != nil {
		return nil, err
	}
	entries, err := arrayElements(memberValue(expansion, "contains"))
	if err != nil || len(entries) <= *page.Count {
		return nil, err
	}
	offset, all := 0, len(entries)
	if page.Offset != nil {
		offset = *page.Offset
	}
	from, total := min(offset, all), all
	if offsetText := string(memberValue(expansion, "offset")); offsetText == strconv.Itoa(offset) || totalExceeds(expansion, all) {
		from, total = 0, offset+all // the server ignored count but applied offset: the entries already begin at offset
	}
	known := cmp.Or(string(memberValue(expansion, "total")), strconv.Itoa(total))
	expansion = slices.DeleteFunc(expansion, func(m fhirjson.Member) bool { return m.Name == "contains" || m.Name == "total" || m.Name == "offset" })
	add := func(name, value string) {
		expansion = append(expansion, fhirjson.Member{Name: name, Value: jsontext.Value(value)})
	}
	add("total", known)
	add("offset", strconv.Itoa(offset))
	if rest := entries[from:min(from+*page.Count, all)]; len(rest) > 0 {
		add("contains", "["+string(bytes.Join(rest, []byte{','}))+"]")
	}
	resource[at].Value = encodeObject(expansion)
	return encodeObject(resource), nil
}

// totalExceeds reports whether expansion.total is greater than n.
func totalExceeds(expansion []fhirjson.Member, n int) bool {
	total, err := strconv.Atoi(string(memberValue(expansion, "total")))
	return err == nil && total > n
}

func readMembers(raw []byte) (list []fhirjson.Member, err error) {
	r := fhirjson.NewValueReader(raw)
	err = r.Object(func(name []byte) error {
		_, err := r.ReadMember(string(name), &list)
		return err
	})
	return list, err
}

// arrayElements returns the elements of a JSON array, or nil if raw is not an array.
func arrayElements(raw jsontext.Value) (list [][]byte, err error) {
	if raw.Kind() != '[' {
		return nil, nil
	}
	r := fhirjson.NewValueReader(raw)
	err = r.Array(func() error {
		value, err := r.Value(0)
		list = append(list, value.Clone())
		return err
	})
	return list, err
}

func memberValue(list []fhirjson.Member, name string) jsontext.Value {
	at := slices.IndexFunc(list, func(m fhirjson.Member) bool { return m.Name == name })
	if at < 0 {
		return nil
	}
	return list[at].Value
}

func encodeObject(list []fhirjson.Member) []byte {
	dst := []byte{'{'}
	for i, m := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = m.Append(dst)
	}
	return append(dst, '}')
}
