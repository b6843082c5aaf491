package remote

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// read reads a response, which must be an answer.
func (s *Server) read(q Request, response *http.Response) (*Answer, error) {
	response.Header.Del("Content-Location") // is an address at that server
	if response.StatusCode == http.StatusNotModified && q.IfNoneMatch != "" {
		return &Answer{Status: http.StatusNotModified, Header: answerHeader(response.Header), NotModified: true}, nil
	}
	if err := checkStatus(&Answer{Status: response.StatusCode}); err != nil {
		return nil, err // whatever the body says
	}
	if response.ContentLength > s.options.MaxAnswer {
		return nil, fmt.Errorf("%w: %d bytes", errTooLarge, response.ContentLength)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, s.options.MaxAnswer+1))
	switch {
	case err != nil:
		return nil, networkError(errCutShort, err)
	case int64(len(body)) > s.options.MaxAnswer:
		return nil, fmt.Errorf("%w: more than %d bytes", errTooLarge, s.options.MaxAnswer)
	}
	return check(q.Path, response.StatusCode, response.Header, body)
}

// expected returns the types of resources that an operation or interaction returns, by its path.
func expected(operation string) []string {
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

// check makes an answer of a response, if that answers the operation with the path.
func check(operation string, status int, header http.Header, body []byte) (*Answer, error) {
	a := &Answer{Status: status, Header: answerHeader(header), Body: body}
	if err := checkStatus(a); err != nil {
		return nil, err
	}
	if encoding := header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return nil, fmt.Errorf("%w: it is encoded as %q", errMalformed, encoding)
	}
	found, err := outline(header.Get("Content-Type"), body)
	if err != nil {
		return nil, fmt.Errorf("%w: status %d: %w", errMalformed, status, err)
	}
	a.Resource, a.URL = found.resource, found.url
	if err := a.checkResource(operation, found); err != nil {
		return nil, err
	}
	return a, nil
}

func checkStatus(a *Answer) error {
	switch status := a.Status; {
	case status == http.StatusOK, a.Negative():
		return nil
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusProxyAuthRequired:
		return fmt.Errorf("%w: status %d", ErrRefused, status)
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		return fmt.Errorf("%w: status %d", errBusy, status)
	case status >= 500:
		return fmt.Errorf("%w: status %d", errFailed, status)
	case status >= 300 && status < 400:
		return fmt.Errorf("%w: status %d: it redirects elsewhere, which is not followed; set its address to where it is", errMalformed, status)
	default:
		return fmt.Errorf("%w: status %d", errMalformed, status)
	}
}

// checkResource refuses a resource that the operation does not return with this status.
func (a *Answer) checkResource(operation string, found content) error {
	switch {
	case a.Negative():
		if found.resource != "OperationOutcome" {
			return fmt.Errorf("%w: status %d with a resource %q and not an OperationOutcome", errMalformed, a.Status, found.resource)
		}
	case !slices.Contains(expected(operation), found.resource):
		return fmt.Errorf("%w: a resource %q, which %s does not return", errMalformed, found.resource, path.Base(operation))
	case path.Base(operation) == "$expand" && !found.expanded:
		return fmt.Errorf("%w: a ValueSet without an expansion", errMalformed)
	}
	return nil
}

type content struct {
	resource string
	url      string // its canonical
	expanded bool   // it has a member expansion
}

// outline reads a resource through to its end.
func outline(contentType string, body []byte) (content, error) {
	kind, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return content{}, fmt.Errorf("media type %q: %w", contentType, err)
	}
	if charset := params["charset"]; charset != "" && !strings.EqualFold(charset, "utf-8") {
		return content{}, fmt.Errorf("character set %q", charset)
	}
	switch kind {
	case "application/fhir+json", "application/json", "text/json", "application/json+fhir":
		return outlineJSON(body)
	case "application/fhir+xml", "application/xml", "text/xml", "application/xml+fhir":
		return outlineXML(body)
	}
	return content{}, fmt.Errorf("media type %q", kind)
}

// outlineJSON reads a resource in JSON. It accepts duplicate names, since finding them takes memory.
func outlineJSON(body []byte) (content, error) {
	var head struct {
		ResourceType textMember   `json:"resourceType"`
		URL          textMember   `json:"url"`
		Expansion    objectMember `json:"expansion"`
	}
	err := json.Unmarshal(body, &head, jsontext.AllowDuplicateNames(true))
	return content{string(head.ResourceType), string(head.URL), bool(head.Expansion)}, err
}

// textMember is a string. A value of another kind counts as absent, so that an expansion with a faulty url is still used.
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

// objectMember reports whether a member is an object.
type objectMember bool

// UnmarshalJSONFrom implements [json.UnmarshalerFrom].
func (m *objectMember) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	*m = d.PeekKind() == '{'
	return d.SkipValue()
}

// fhirNamespace is the XML namespace of resources (R4 §2.6.1).
const fhirNamespace = "http://hl7.org/fhir"

// outlineXML reads a resource in XML. It refuses a document type (R4 §2.6.1).
func outlineXML(body []byte) (found content, err error) {
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
			return found, errors.New("an XML document type")
		case xml.StartElement:
			if depth == 0 && (t.Name.Space != fhirNamespace || found.resource != "") {
				return found, fmt.Errorf("an XML element %q of namespace %q", t.Name.Local, t.Name.Space)
			}
			switch depth {
			case 0:
				found.resource = t.Name.Local
			case 1:
				found.expanded = found.expanded || t.Name.Local == "expansion"
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

// attribute returns the value of an attribute without namespace.
func attribute(of xml.StartElement, name string) string {
	for _, a := range of.Attr {
		if a.Name.Space == "" && a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// Begins reports whether a response that begins with part may answer the operation with the path.
func Begins(operation string, header http.Header, part []byte) bool {
	found, _ := outline(header.Get("Content-Type"), part) // its error is that part ends too early
	return slices.Contains(expected(operation), found.resource)
}
