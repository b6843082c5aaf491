package message

import (
	"encoding/json"
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
