package message

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// Addresses are how clients know the FHIR API.
type Addresses struct {
	Path string // of the API
	Base string // its URL; empty: links are relative
}

// URL is the address of a path below the FHIR base, as clients know it.
func (to Addresses) URL(path, query string) string {
	base := to.Base
	if base == "" {
		base = to.Path
	}
	u := strings.TrimSuffix(base+"/"+path, "/")
	if query != "" {
		u += "?" + query
	}
	return u
}

// Parse reads a resource of an answer.
func (to Addresses) Parse(text []byte) (resource.Resource, error) {
	res, err := resource.Parse(text, to.Base)
	if err != nil {
		return res, Withheld(err)
	}
	return res, nil
}

// ResourceURL finds the resource in an address: its type, id and version.
var ResourceURL = regexp.MustCompile(`(?:^|/)([A-Z][A-Za-z]+/[A-Za-z0-9.-]{1,64}(?:/_history/[A-Za-z0-9.-]{1,64})?)$`)

// LocalURL is the address of a resource as clients know it, whatever the FHIR server calls itself.
func (to Addresses) LocalURL(address string) (string, bool) {
	address, _, _ = strings.Cut(address, "?")
	if match := ResourceURL.FindStringSubmatch(address); match != nil {
		return to.URL(match[1], ""), true
	}
	return "", false
}

// Localize has an answer's headers name resources as clients know them.
func (to Addresses) Localize(a *Answer) *Answer {
	for _, name := range []string{"Location", "Content-Location"} {
		if address := a.Header.Get(name); address == "" {
			continue
		} else if local, ok := to.LocalURL(address); ok {
			a.Header.Set(name, local)
		} else {
			a.Header.Del(name)
		}
	}
	return a
}

// WithoutVersion is a reference to a resource, from one to a version of it.
func WithoutVersion(reference string) string {
	resource, _, _ := strings.Cut(reference, "/_history/")
	return resource
}

// Links is the value of Bundle.link.
type Links []Link

// Link is a Bundle.link.
type Link struct {
	Relation string `json:"relation"` // self, next, … (RFC 8288)
	URL      string `json:"url"`      // where it leads
}

// Span is a part of a text.
type Span struct {
	From, To int // of its first byte, and of the one behind its last
}

// FindLinks finds the value of Bundle.link; nil if the text is no Bundle, or has none. Entries are read only if it could
// stand behind them.
func FindLinks(text []byte) (Span, Links) {
	r := linkReader{c: rawjson.NewCursor(text).AllowDuplicates(), text: text}
	if err := r.c.Object(r.member); err != nil && !errors.Is(err, errNoMore) || !r.isBundle {
		return Span{}, nil
	}
	return r.at, r.links
}

// errNoMore ends the reading of a Bundle of which nothing else is wanted.
var errNoMore = errors.New("no more links")

// linkReader reads a Bundle for its links.
type linkReader struct {
	c        *rawjson.Cursor
	text     []byte
	isBundle bool
	at       Span
	links    Links
}

func (r *linkReader) member(name []byte) error {
	switch kind := r.c.Kind(); {
	case string(name) == "resourceType" && kind == rawjson.String:
		said, err := r.c.Bytes()
		r.isBundle = string(said) == "Bundle"
		return err
	case string(name) == "link" && kind == rawjson.Array:
		r.at.From = r.c.Offset()
		raw, err := r.c.Raw()
		if err != nil {
			return err
		}
		r.at.To = r.c.Offset()
		return json.Unmarshal(raw, &r.links)
	case string(name) == "entry" && r.isBundle && !mayNameLink(r.text[r.c.Offset():]):
		return errNoMore
	}
	return r.c.Skip()
}

// mayNameLink reports whether an object in a text could have a member with the name link, be it written with escapes.
// What it looks for is rare, so it is far quicker than reading the text.
func mayNameLink(text []byte) bool {
	if bytes.Contains(text, []byte(`\u006`)) {
		return true // as the escape of each of its letters begins
	}
	for at := 0; ; {
		found := bytes.Index(text[at:], []byte(`k"`))
		if found < 0 {
			return false
		}
		if at += found + 2; bytes.HasSuffix(text[:at], []byte(`"link"`)) {
			return true
		}
	}
}

// To is the URL of the link with a relation; empty if there is none.
func (all Links) To(relation string) string {
	for _, l := range all {
		if l.Relation == relation {
			return l.URL
		}
	}
	return ""
}

// Append writes the value of Bundle.link. FHIR has no empty arrays: a Bundle that has none has no such member.
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

// EachString calls visit with each string of a JSON text and the name of the member that it is, or is in an array of.
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

// References are the literal references in a resource, at any depth.
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

// Quoted is s as JSON.
func Quoted(s string) string { return string(appendQuoted(nil, s)) }

// appendQuoted writes s as JSON. Most strings need no escapes.
func appendQuoted(out []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			text, _ := json.Marshal(s) // a string never fails
			return append(out, text...)
		}
	}
	return append(append(append(out, '"'), s...), '"')
}
