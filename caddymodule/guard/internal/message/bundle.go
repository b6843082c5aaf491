package message

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// Bundle is a Bundle with resources that stay text.
type Bundle struct {
	ResourceType string  // Bundle, or another type if the resource is not a Bundle
	Type         string  // Bundle.type
	Total        int     // -1 if unknown
	Links        Links   // Bundle.link
	Entries      []Entry // Bundle.entry
}

// Entry is a Bundle.entry.
type Entry struct {
	FullURL        string             // fullUrl
	Resource       []byte             // resource as text
	ParsedResource resource.Resource  // if it was parsed to be judged
	Ranks          []searchparam.Rank // by the keys of _sort, once computed
	Mode           string             // search.mode
	Search         []byte             // search as text
	Request        []byte             // request as text
	Response       []byte             // response as text
}

// ParseBundle parses a Bundle of the FHIR server. Unknown members are dropped, because they are not judged. With an error, the
// result may contain the type of another resource.
func ParseBundle(text []byte) (*Bundle, error) {
	r := bundleReader{bundle: &Bundle{Total: -1}, cursor: rawjson.NewCursor(text).AllowDuplicates()}
	return r.read()
}

// ParseSearchResponse parses the response to a search. If it is judged, all resources are parsed, and duplicate names in an
// object are an error. The entries are appended to a list, which may be nil.
func (to Addresses) ParseSearchResponse(a *Response, isJudged bool, list []Entry, sent func() SentTerms) (*Bundle, error) {
	if a.Status/100 != 2 {
		return nil, searchRejection(a, sent)
	}
	if err := a.RequireJSON(); err != nil {
		return nil, err
	}
	r := bundleReader{bundle: &Bundle{Total: -1, Entries: list}, cursor: rawjson.NewCursor(a.Body)}
	if isJudged {
		r.resources = resource.NewReader(r.cursor, a.Body, to.Base)
	} else {
		r.cursor.AllowDuplicates()
	}
	b, err := r.read()
	if err != nil {
		return nil, NewWithheldError(err)
	}
	return b, nil
}

// searchRejection returns the FHIR server's rejection of a search, with its reasons about the client's input.
func searchRejection(a *Response, sent func() SentTerms) error {
	if a.Status/100 == 5 || a.Status == http.StatusTooManyRequests {
		return ServerFailure(a)
	}
	rejection := InvalidRequest(ErrInvalidSearch, "The FHIR server rejected the search (%d).", a.Status)
	rejection.Description = ExplainRejection(rejection.Description, a, sent())
	return rejection
}

// bundleReader parses a Bundle in one pass.
type bundleReader struct {
	bundle    *Bundle
	cursor    *rawjson.Cursor
	resources *resource.Reader // nil: resources are not judged
}

func (r *bundleReader) read() (*Bundle, error) {
	err := r.cursor.Object(r.readMember)
	if err == nil {
		err = r.cursor.CheckEnd()
	}
	if err == nil && r.bundle.ResourceType != "Bundle" {
		err = fmt.Errorf("unexpected resourceType %q, expected Bundle", r.bundle.ResourceType)
	}
	return r.bundle, err
}

func (r *bundleReader) readMember(name []byte) (err error) {
	switch string(name) {
	case "resourceType":
		r.bundle.ResourceType, err = r.cursor.Text()
	case "type":
		r.bundle.Type, err = r.cursor.Text()
	case "total":
		var number []byte
		if number, err = r.cursor.Raw(); err == nil {
			r.bundle.Total, err = strconv.Atoi(string(number))
		}
	case "link":
		var links []byte
		if links, err = r.cursor.Raw(); err == nil {
			err = json.Unmarshal(links, &r.bundle.Links)
		}
	case "entry":
		err = r.cursor.Array(r.readEntry)
	default:
		err = r.cursor.Skip()
	}
	return err
}

// readEntry parses an entry. The fullUrl of a judged entry is not read, because the resource identifies itself.
func (r *bundleReader) readEntry() error {
	r.bundle.Entries = append(r.bundle.Entries, Entry{})
	e := &r.bundle.Entries[len(r.bundle.Entries)-1]
	return r.cursor.Object(func(name []byte) (err error) {
		switch member := string(name); {
		case member == "resource" && r.resources != nil:
			e.ParsedResource, e.Resource, err = r.resources.Read()
		case member == "resource":
			e.Resource, err = r.cursor.Raw()
		case member == "fullUrl" && r.resources == nil:
			e.FullURL, err = r.cursor.Text()
		case member == "search" && r.resources != nil:
			e.Mode, err = readMode(r.cursor)
		case member == "search":
			if e.Search, err = r.cursor.Raw(); err == nil {
				e.Mode, err = readMode(rawjson.NewCursor(e.Search))
			}
		case member == "request":
			e.Request, err = r.cursor.Raw()
		case member == "response":
			e.Response, err = r.cursor.Raw()
		default:
			err = r.cursor.Skip()
		}
		return err
	})
}

// readMode parses search.mode of an entry, without an allocation for the usual modes.
func readMode(c *rawjson.Cursor) (mode string, err error) {
	err = c.Object(func(name []byte) error {
		if string(name) != "mode" {
			return c.Skip()
		}
		text, err := c.Bytes()
		switch string(text) {
		case "match":
			mode = "match"
		case "include":
			mode = "include"
		default:
			mode = string(text)
		}
		return err
	})
	return mode, err
}

// Response returns the Bundle as a response. Its buffer returns to the pool once it is sent.
func (b *Bundle) Response() *Response {
	size := 256 // estimate, rarely too small
	for _, l := range b.Links {
		size += len(l.URL) + 64
	}
	for i := range b.Entries {
		e := &b.Entries[i]
		size += len(e.FullURL) + len(e.Resource) + len(e.Search) + len(e.Request) + len(e.Response) + 96
	}
	buffer := Buffers.Get().(*bytes.Buffer)
	buffer.Grow(size)
	_, _ = buffer.Write(b.append(buffer.AvailableBuffer())) // never fails
	a := NewResponse(http.StatusOK, buffer.Bytes())
	a.Buffer = buffer
	return a
}

// JSON writes the Bundle.
func (b *Bundle) JSON() []byte { return b.Response().Body }

func (b *Bundle) append(out []byte) []byte {
	out = append(out, `{"resourceType":"Bundle","type":`...)
	out = appendQuoted(out, b.Type)
	if b.Total >= 0 {
		out = strconv.AppendInt(append(out, `,"total":`...), int64(b.Total), 10)
	}
	if len(b.Links) > 0 {
		out = b.Links.Append(append(out, `,"link":`...))
	}
	for i := range b.Entries { // FHIR has no empty arrays
		if i == 0 {
			out = append(out, `,"entry":[`...)
		} else {
			out = append(out, ',')
		}
		out = b.Entries[i].append(out)
	}
	if len(b.Entries) > 0 {
		out = append(out, ']')
	}
	return append(out, '}')
}

func (e *Entry) append(out []byte) []byte {
	out = append(out, '{')
	start := len(out)
	if e.FullURL != "" {
		out = appendQuoted(append(out, `"fullUrl":`...), e.FullURL)
	}
	for _, m := range [...]struct {
		name  string
		value []byte
	}{{"resource", e.Resource}, {"search", e.Search}, {"request", e.Request}, {"response", e.Response}} {
		if len(m.value) == 0 {
			continue
		}
		if len(out) > start {
			out = append(out, ',')
		}
		out = append(append(append(out, '"'), m.name...), `":`...)
		out = append(out, m.value...)
	}
	return append(out, '}')
}

// Addresses are the addresses of the FHIR API for clients.
type Addresses struct {
	Path string // path of the API
	Base string // URL of the API; empty: links are relative
}

// URL returns the client address of a path below the FHIR base.
func (to Addresses) URL(path, query string) string {
	u := strings.TrimSuffix(cmp.Or(to.Base, to.Path)+"/"+path, "/")
	if query != "" {
		u += "?" + query
	}
	return u
}

// Parse parses a resource in a response.
func (to Addresses) Parse(text []byte) (resource.Resource, error) {
	res, err := resource.Parse(text, to.Base)
	if err != nil {
		return res, NewWithheldError(err)
	}
	return res, nil
}

// ResourceURL matches the type, id and version at the end of a resource's URL.
var ResourceURL = regexp.MustCompile(`(?:^|/)([A-Z][A-Za-z]+/[A-Za-z0-9.-]{1,64}(?:/_history/[A-Za-z0-9.-]{1,64})?)$`)

// LocalURL returns the client address of a resource, regardless of the FHIR server's base URL.
func (to Addresses) LocalURL(address string) (string, bool) {
	address, _, _ = strings.Cut(address, "?")
	if match := ResourceURL.FindStringSubmatch(address); match != nil {
		return to.URL(match[1], ""), true
	}
	return "", false
}

// WithoutVersion removes the version from a reference.
func WithoutVersion(reference string) string {
	resource, _, _ := strings.Cut(reference, "/_history/")
	return resource
}

// Links is the value of Bundle.link.
type Links []Link

// Link is a Bundle.link.
type Link struct {
	Relation string `json:"relation"` // self, next, … (RFC 8288)
	URL      string `json:"url"`      // target
}

// Find returns the URL of the link with a relation; empty if none has it.
func (all Links) Find(relation string) string {
	for _, l := range all {
		if l.Relation == relation {
			return l.URL
		}
	}
	return ""
}

// Append writes the value of Bundle.link. An empty list must be omitted, because FHIR has no empty arrays.
func (all Links) Append(out []byte) []byte {
	out = append(out, '[')
	for i, l := range all {
		if i > 0 {
			out = append(out, ',')
		}
		out = appendQuoted(append(out, `{"relation":`...), l.Relation)
		out = appendQuoted(append(out, `,"url":`...), l.URL)
		out = append(out, '}')
	}
	return append(out, ']')
}

// VisitStrings calls visit with each string in a JSON text, and with the name of the member that contains it directly or in an
// array.
func VisitStrings(text []byte, visit func(name, value string) error) error {
	return visitStrings(rawjson.NewCursor(text).AllowDuplicates(), "", visit)
}

func visitStrings(c *rawjson.Cursor, name string, visit func(name, value string) error) error {
	switch c.Kind() {
	case rawjson.Object:
		return c.Object(func(member []byte) error { return visitStrings(c, string(member), visit) })
	case rawjson.Array:
		return c.Array(func() error { return visitStrings(c, name, visit) })
	case rawjson.String:
		value, err := c.Text()
		if err != nil {
			return err
		}
		return visit(name, value)
	}
	return c.Skip()
}

// References returns the literal references in a resource, at any depth.
func References(text []byte) ([]string, error) {
	var all []string
	err := VisitStrings(text, func(name, value string) error {
		if name == "reference" {
			all = append(all, value)
		}
		return nil
	})
	return all, err
}

// QuoteJSON returns s as a JSON string.
func QuoteJSON(s string) string { return string(appendQuoted(nil, s)) }

// appendQuoted appends s as a JSON string. Most strings need no escapes.
func appendQuoted(out []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			text, _ := json.Marshal(s) // never fails for a string
			return append(out, text...)
		}
	}
	return append(append(append(out, '"'), s...), '"')
}
