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
	Kind         string  // Bundle.type
	Total        int     // -1 if unknown
	Links        Links   // Bundle.link
	Entries      []Entry // Bundle.entry
}

// Entry is a Bundle.entry.
type Entry struct {
	FullURL  string             // fullUrl
	Resource []byte             // resource as text
	Parsed   resource.Resource  // if it was parsed to be judged
	Ranks    []searchparam.Rank // by the keys of _sort, once computed
	Mode     string             // search.mode
	Search   []byte             // search as text
	Request  []byte             // request as text
	Response []byte             // response as text
}

// ParseBundle parses a Bundle of the FHIR server. Unknown members are dropped, because they are not judged. With an error, the
// result may contain the type of another resource.
func ParseBundle(text []byte) (*Bundle, error) {
	r := bundleReader{b: &Bundle{Total: -1}, c: rawjson.NewCursor(text).AllowDuplicates()}
	return r.read()
}

// BundleOf parses the response to a search. If it is judged, all resources are parsed, and duplicate names in an object are an
// error. The entries are appended to a list, which may be nil.
func (to Addresses) BundleOf(a *Response, judged bool, list []Entry, sent func() SentTerms) (*Bundle, error) {
	if a.Status/100 != 2 {
		return nil, refusedSearch(a, sent)
	}
	if err := a.RequireJSON(); err != nil {
		return nil, err
	}
	r := bundleReader{b: &Bundle{Total: -1, Entries: list}, c: rawjson.NewCursor(a.Body)}
	if judged {
		r.resources = resource.NewReader(r.c, a.Body, to.Base)
	} else {
		r.c.AllowDuplicates()
	}
	b, err := r.read()
	if err != nil {
		return nil, NewWithheldError(err)
	}
	return b, nil
}

// refusedSearch returns the FHIR server's rejection of a search, with its reasons about the client's input.
func refusedSearch(a *Response, sent func() SentTerms) error {
	if a.Status/100 == 5 || a.Status == http.StatusTooManyRequests {
		return Failed(a)
	}
	refusal := Invalid(ErrSearch, "The FHIR server refuses the search (%d).", a.Status)
	refusal.Description = ExplainRejection(refusal.Description, a, sent())
	return refusal
}

// bundleReader parses a Bundle in one pass.
type bundleReader struct {
	b         *Bundle
	c         *rawjson.Cursor
	resources *resource.Reader // nil: resources are not judged
}

func (r *bundleReader) read() (*Bundle, error) {
	err := r.c.Object(r.member)
	if err == nil {
		err = r.c.End()
	}
	if err == nil && r.b.ResourceType != "Bundle" {
		err = fmt.Errorf("resourceType %q where a Bundle should be", r.b.ResourceType)
	}
	return r.b, err
}

func (r *bundleReader) member(name []byte) (err error) {
	switch string(name) {
	case "resourceType":
		r.b.ResourceType, err = r.c.Text()
	case "type":
		r.b.Kind, err = r.c.Text()
	case "total":
		var number []byte
		if number, err = r.c.Raw(); err == nil {
			r.b.Total, err = strconv.Atoi(string(number))
		}
	case "link":
		var links []byte
		if links, err = r.c.Raw(); err == nil {
			err = json.Unmarshal(links, &r.b.Links)
		}
	case "entry":
		err = r.c.Array(r.entry)
	default:
		err = r.c.Skip()
	}
	return err
}

// entry parses an entry. The fullUrl of a judged entry is not read, because the resource identifies itself.
func (r *bundleReader) entry() error {
	r.b.Entries = append(r.b.Entries, Entry{})
	e := &r.b.Entries[len(r.b.Entries)-1]
	return r.c.Object(func(name []byte) (err error) {
		switch member := string(name); {
		case member == "resource" && r.resources != nil:
			e.Parsed, e.Resource, err = r.resources.Read()
		case member == "resource":
			e.Resource, err = r.c.Raw()
		case member == "fullUrl" && r.resources == nil:
			e.FullURL, err = r.c.Text()
		case member == "search" && r.resources != nil:
			e.Mode, err = modeOf(r.c)
		case member == "search":
			if e.Search, err = r.c.Raw(); err == nil {
				e.Mode, err = modeOf(rawjson.NewCursor(e.Search))
			}
		case member == "request":
			e.Request, err = r.c.Raw()
		case member == "response":
			e.Response, err = r.c.Raw()
		default:
			err = r.c.Skip()
		}
		return err
	})
}

// modeOf parses search.mode of an entry, without an allocation for the usual modes.
func modeOf(c *rawjson.Cursor) (mode string, err error) {
	err = c.Object(func(name []byte) error {
		if string(name) != "mode" {
			return c.Skip()
		}
		said, err := c.Bytes()
		switch string(said) {
		case "match":
			mode = "match"
		case "include":
			mode = "include"
		default:
			mode = string(said)
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

// Text writes the Bundle.
func (b *Bundle) Text() []byte { return b.Response().Body }

func (b *Bundle) append(out []byte) []byte {
	out = append(out, `{"resourceType":"Bundle","type":`...)
	out = appendQuoted(out, b.Kind)
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

// To returns the URL of the link with a relation; empty if none has it.
func (all Links) To(relation string) string {
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

// EachString calls visit with each string in a JSON text, and with the name of the member that contains it directly or in an
// array.
func EachString(text []byte, visit func(name, said string) error) error {
	return visitStrings(rawjson.NewCursor(text).AllowDuplicates(), "", visit)
}

func visitStrings(c *rawjson.Cursor, name string, visit func(name, said string) error) error {
	switch c.Kind() {
	case rawjson.Object:
		return c.Object(func(member []byte) error { return visitStrings(c, string(member), visit) })
	case rawjson.Array:
		return c.Array(func() error { return visitStrings(c, name, visit) })
	case rawjson.String:
		said, err := c.Text()
		if err != nil {
			return err
		}
		return visit(name, said)
	}
	return c.Skip()
}

// References returns the literal references in a resource, at any depth.
func References(text []byte) ([]string, error) {
	var all []string
	err := EachString(text, func(name, said string) error {
		if name == "reference" {
			all = append(all, said)
		}
		return nil
	})
	return all, err
}

// Quoted returns s as a JSON string.
func Quoted(s string) string { return string(appendQuoted(nil, s)) }

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
