package enforce

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/rawjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// bundle is a Bundle, of which the resources stay text.
type bundle struct {
	resourceType string
	kind         string // Bundle.type
	total        int    // -1 if it is not told
	links        []link
	entries      []entry
}

// link is a Bundle.link.
type link struct {
	Relation string `json:"relation"`
	URL      string `json:"url"`
}

// entry is a Bundle.entry.
type entry struct {
	fullURL  string
	resource []byte
	parsed   resource.Resource  // if it was read to be judged
	ranks    []searchparam.Rank // by the keys of _sort, if they were asked for
	mode     string             // search.mode
	search   []byte
	request  []byte
	response []byte
}

// parseBundle reads a Bundle of the FHIR server's, or what else it answered with instead. Members that say nothing to
// us are left out: what is not understood is not passed on.
func parseBundle(text []byte) (*bundle, error) {
	b := &bundle{total: -1}
	c := rawjson.NewCursor(text).AllowDuplicates()
	err := c.Object(func(name []byte) (err error) {
		switch string(name) {
		case "resourceType":
			b.resourceType, err = c.Text()
		case "type":
			b.kind, err = c.Text()
		case "total":
			b.total, err = number(c)
		case "link":
			err = c.Array(func() error { return b.readLink(c) })
		case "entry":
			err = c.Array(func() error { return b.readEntry(c) })
		default:
			err = c.Skip()
		}
		return err
	})
	if err == nil {
		err = c.End()
	}
	if err == nil && b.resourceType != "Bundle" {
		err = fmt.Errorf("resourceType %q where a Bundle should be", b.resourceType)
	}
	return b, err
}

// parseJudged is parseBundle with all resources read.
func (x *exchange) parseJudged(text []byte) (*bundle, error) {
	b, err := parseBundle(text)
	if err != nil {
		return nil, err
	}
	for i := range b.entries {
		e := &b.entries[i]
		if e.mode == "outcome" {
			continue
		}
		if e.parsed, err = resource.Parse(e.resource, x.BaseURL); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func number(c *rawjson.Cursor) (int, error) {
	raw, err := c.Raw()
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(raw))
}

func (b *bundle) readLink(c *rawjson.Cursor) error {
	raw, err := c.Raw()
	if err != nil {
		return err
	}
	var l link
	if err := json.Unmarshal(raw, &l); err != nil {
		return err
	}
	b.links = append(b.links, l)
	return nil
}

func (b *bundle) readEntry(c *rawjson.Cursor) error {
	var e entry
	err := c.Object(func(name []byte) (err error) {
		switch string(name) {
		case "fullUrl":
			e.fullURL, err = c.Text()
		case "resource":
			e.resource, err = c.Raw()
		case "search":
			e.search, err = c.Raw()
		case "request":
			e.request, err = c.Raw()
		case "response":
			e.response, err = c.Raw()
		default:
			err = c.Skip()
		}
		return err
	})
	if err != nil {
		return err
	}
	if e.search != nil {
		var search struct{ Mode string }
		if err := json.Unmarshal(e.search, &search); err != nil {
			return err
		}
		e.mode = search.Mode
	}
	b.entries = append(b.entries, e)
	return nil
}

// linked is the URL of the link with a relation; empty if there is none.
func (b *bundle) linked(relation string) string {
	for _, l := range b.links {
		if l.Relation == relation {
			return l.URL
		}
	}
	return ""
}

// text writes the Bundle.
func (b *bundle) text() []byte {
	var out bytes.Buffer
	out.WriteString(`{"resourceType":"Bundle","type":` + quoted(b.kind))
	if b.total >= 0 {
		out.WriteString(`,"total":` + strconv.Itoa(b.total))
	}
	for i, l := range b.links {
		out.WriteString(opening(i, `,"link":[`) + `{"relation":` + quoted(l.Relation) + `,"url":` + quoted(l.URL) + `}`)
	}
	out.WriteString(closing(len(b.links)))
	for i, e := range b.entries {
		out.WriteString(opening(i, `,"entry":[`))
		e.write(&out)
	}
	out.WriteString(closing(len(b.entries)) + "}")
	return out.Bytes()
}

// opening is what comes before the element at i of an array, and closing what comes after its last. FHIR has no empty
// arrays.
func opening(i int, start string) string {
	if i == 0 {
		return start
	}
	return ","
}

func closing(n int) string {
	if n == 0 {
		return ""
	}
	return "]"
}

func (e *entry) write(out *bytes.Buffer) {
	separator := "{"
	member := func(name string, value []byte) {
		if len(value) > 0 {
			out.WriteString(separator + `"` + name + `":`)
			out.Write(value)
			separator = ","
		}
	}
	if e.fullURL != "" {
		member("fullUrl", []byte(quoted(e.fullURL)))
	}
	member("resource", e.resource)
	member("search", e.search)
	member("request", e.request)
	member("response", e.response)
	if separator == "{" {
		out.WriteString("{")
	}
	out.WriteString("}")
}

// quoted is s as JSON.
func quoted(s string) string {
	text, _ := json.Marshal(s) // a string never fails
	return string(text)
}
