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

// Bundle is a FHIR Bundle. Its resources are stored as text.
type Bundle struct {
	ResourceType string  // Bundle, or the actual type if the resource is not a Bundle
	Type         string  // Bundle.type
	Total        int     // -1 if unknown
	Links        Links   // Bundle.link
	Entries      []Entry // Bundle.entry
}

// Entry is a Bundle.entry.
type Entry struct {
	FullURL        string             // Bundle.entry.fullUrl
	Resource       []byte             // raw JSON of Bundle.entry.resource
	ParsedResource resource.Resource  // the resource, if it was parsed for judging
	Ranks          []searchparam.Rank // ranks by the sort keys of _sort, once computed
	Mode           string             // Bundle.entry.search.mode
	Search         []byte             // raw JSON of Bundle.entry.search
	Request        []byte             // raw JSON of Bundle.entry.request
	Response       []byte             // raw JSON of Bundle.entry.response
}

// ParseBundle parses a Bundle from the FHIR server. Unknown members are dropped, because they are not judged. If it returns an
// error, ResourceType may be the type of another resource.
func ParseBundle(text []byte) (*Bundle, error) {
	r := bundleReader{bundle: &Bundle{Total: -1}, cursor: rawjson.NewCursor(text).AllowDuplicates()}
	return r.read()
}

// ParseSearchResponse parses the response to a search. If isJudged is true, it parses all resources, and duplicate names in an
// object are an error. It appends the entries to list, which may be nil.
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

// searchRejection returns the error for a search that the FHIR server rejected, with reasons about the client's input.
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
	resources *resource.Reader // nil if resources are not judged
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

// readEntry parses an entry. It skips the fullUrl of a judged entry, because the resource identifies itself.
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

// readMode parses search.mode of an entry. It does not allocate for the usual modes.
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

// Response returns the Bundle as a response. Its buffer is returned to the pool after it is sent.
func (b *Bundle) Response() *Response {
	size := 256 // estimated size, rarely too small
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

// JSON returns the Bundle as JSON.
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
	for i := range b.Entries { // FHIR forbids empty arrays
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

// Addresses contains the public addresses of the FHIR API.
type Addresses struct {
	Path string // path of the FHIR API
	Base string // URL of the FHIR API; links are relative if it is empty
}

// URL returns the public address of a path below the FHIR base.
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

// LocalURL returns the public address of a resource, whatever the FHIR server's base URL.
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

// Link is an element of Bundle.link.
type Link struct {
	Relation string `json:"relation"` // self, next etc. (RFC 8288)
	URL      string `json:"url"`      // target URL
}

// Find returns the URL of the link with a relation, or "" if there is none.
func (all Links) Find(relation string) string {
	for _, l := range all {
		if l.Relation == relation {
			return l.URL
		}
	}
	return ""
}

// Append appends the value of Bundle.link. FHIR has no empty arrays, so callers must omit an empty list.
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

// VisitStrings calls visit for each string in a JSON text. name is the name of the member that contains the string directly or
// in an array.
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

// appendQuoted appends s as a JSON string. It is fast if s contains nothing to escape.
func appendQuoted(out []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			text, _ := json.Marshal(s) // marshaling a string never fails
			return append(out, text...)
		}
	}
	return append(append(append(out, '"'), s...), '"')
}
