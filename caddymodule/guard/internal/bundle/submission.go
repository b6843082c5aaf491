package bundle

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/write"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// submission is a Bundle that a client sends to the base: a batch or a transaction.
type submission struct {
	resourceType string
	kind         string // Bundle.type
	entries      []submitted
	limit        int
}

// submitted is an entry of a submission. Its resource stays text.
type submitted struct {
	fullURL  string
	resource []byte
	method   string
	url      string
	header   http.Header // what the entry says that a request says in headers
}

var errTooMany = errors.New("too many entries")

// parseSubmission reads a client's Bundle. No name may stand twice in an object, since servers differ in which one
// counts. Members that requests have no place for are left out, and go no further.
func parseSubmission(text []byte, limit int) (*submission, error) {
	s := &submission{limit: limit}
	c := rawjson.NewCursor(text)
	err := c.Object(func(name []byte) (err error) {
		switch string(name) {
		case "resourceType":
			s.resourceType, err = c.Text()
		case "type":
			s.kind, err = c.Text()
		case "entry":
			err = c.Array(func() error { return s.read(c) })
		default:
			err = c.Skip()
		}
		return err
	})
	if err == nil {
		err = c.End()
	}
	return s, s.check(err)
}

// check refuses what is no batch or transaction.
func (s *submission) check(err error) error {
	switch {
	case errors.Is(err, errTooMany):
		return &guard.Error{
			Status: http.StatusRequestEntityTooLarge, Description: fmt.Sprintf("The Bundle has more than %d entries.", s.limit), Err: err,
		}
	case err != nil:
		return message.Invalid(err, "The body is no Bundle in JSON that has one reading.")
	case s.resourceType != "Bundle" || s.kind != "batch" && s.kind != "transaction":
		return message.Invalid(message.ErrBody, "Only a Bundle of type batch or transaction can be sent to the base.")
	}
	return nil
}

// read reads an entry.
func (s *submission) read(c *rawjson.Cursor) error {
	if len(s.entries) == s.limit {
		return errTooMany
	}
	e := submitted{header: http.Header{}}
	err := c.Object(func(name []byte) (err error) {
		switch string(name) {
		case "fullUrl":
			e.fullURL, err = c.Text()
		case "resource":
			e.resource, err = c.Raw()
		case "request":
			err = e.readRequest(c)
		default:
			err = c.Skip()
		}
		return err
	})
	s.entries = append(s.entries, e)
	return err
}

// conditions are the headers that members of Bundle.entry.request stand for.
var conditions = map[string]string{
	"ifMatch": "If-Match", "ifNoneMatch": "If-None-Match", "ifModifiedSince": "If-Modified-Since", "ifNoneExist": "If-None-Exist",
}

// readRequest reads Bundle.entry.request.
func (e *submitted) readRequest(c *rawjson.Cursor) error {
	return c.Object(func(name []byte) (err error) {
		switch header := conditions[string(name)]; {
		case string(name) == "method":
			e.method, err = c.Text()
		case string(name) == "url":
			e.url, err = c.Text()
		case header != "":
			var value string
			value, err = c.Text()
			e.header.Set(header, value)
		default:
			err = c.Skip()
		}
		return err
	})
}

// methods are those that an entry may have. R4 has HEAD as well, whose answer would be an entry that says nothing.
var methods = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// call is the entry as a request of its own.
func (e *submitted) call() (c message.Call, i interaction.Interaction, err error) {
	if !slices.Contains(methods, e.method) {
		return c, i, message.Invalid(message.ErrBody, "The entry's request.method is none of GET, POST, PUT, PATCH and DELETE.")
	}
	c = message.Call{Method: e.method, Header: e.header}
	if c.Path, c.Query, err = e.target(); err != nil {
		return c, i, err
	}
	if err := e.checkHeader(); err != nil {
		return c, i, err
	}
	if e.method != http.MethodPost {
		e.header.Del("If-None-Exist")
	}
	if i, err = c.Interaction(); err != nil {
		return c, i, err
	}
	if i.Kind == interaction.Bundle {
		return c, i, message.Invalid(message.ErrBody, "A Bundle in a Bundle is no request.")
	}
	c.Body, err = e.body(i)
	return c, i, err
}

// target is request.url as path and query. It is relative to the base (R4 bundle.html), decoded once as a request's
// path is, and refused as that one is if servers could read it differently. An absolute one is refused even if it is
// below the base: which base that is, proxies and servers see differently.
func (e *submitted) target() (path, query string, err error) {
	path, query, _ = strings.Cut(e.url, "?")
	if e.url == "" {
		return "", "", message.Invalid(message.ErrBody, "The entry has no request.url.")
	}
	if strings.HasPrefix(path, "/") || strings.ContainsAny(path, ":#") {
		return "", "", message.Invalid(guard.ErrPath, "The entry's request.url is not relative to the FHIR base.")
	}
	decoded, err := url.PathUnescape(path)
	if err != nil || strings.Contains(strings.ToLower(path), "%2f") {
		return "", "", message.Invalid(guard.ErrPath, "The entry's request.url holds a character that servers read differently.")
	}
	r := &http.Request{Method: e.method, URL: &url.URL{Path: "/" + decoded}}
	return decoded, query, guard.CheckPath(r, "")
}

// checkHeader refuses what is no header's value.
func (e *submitted) checkHeader() error {
	for _, values := range e.header {
		if strings.ContainsFunc(values[0], func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return message.Invalid(message.ErrBody, "A condition of the entry holds a control character.")
		}
	}
	return nil
}

// body is what a request for the interaction has as its body. Of an entry that has no use for a resource, none is sent.
func (e *submitted) body(i interaction.Interaction) ([]byte, error) {
	switch i.Kind {
	case interaction.Create, interaction.ConditionalCreate, interaction.Update, interaction.ConditionalUpdate:
		return e.version(i)
	case interaction.Patch, interaction.ConditionalPatch:
		return e.patch()
	case interaction.Operation:
		if e.method == http.MethodPost && e.resource != nil {
			e.header.Set("Content-Type", message.TypeJSON)
			return e.resource, nil
		}
	}
	return nil, nil
}

// parse reads the entry's resource.
func (e *submitted) parse() (resource.Resource, error) {
	if e.resource == nil {
		return resource.Resource{}, message.Invalid(message.ErrBody, "The entry has no resource.")
	}
	res, err := resource.Parse(e.resource)
	if err != nil {
		return res, message.Invalid(err, "The entry's resource is no resource in JSON that has one reading.")
	}
	return res, nil
}

// version is the resource to be written. It must be the one that request.url names: some servers go by the one, some by
// the other.
func (e *submitted) version(i interaction.Interaction) ([]byte, error) {
	res, err := e.parse()
	switch {
	case err != nil:
		return nil, err
	case res.Type != i.Type:
		return nil, message.Invalid(message.ErrBody, "The entry's resource is not of the type in request.url.")
	case i.Kind == interaction.Update && res.ID != i.ID:
		return nil, message.Invalid(message.ErrBody, "The id of the entry's resource is not the one in request.url.")
	}
	e.header.Set("Content-Type", message.TypeJSON)
	return e.resource, nil
}

// patch is a JSON Patch, which comes in a Binary, or a FHIRPath Patch, which is a Parameters resource (R4
// http.html#patch).
func (e *submitted) patch() ([]byte, error) {
	res, err := e.parse()
	if err != nil {
		return nil, err
	}
	if res.Type == "Parameters" {
		e.header.Set("Content-Type", message.TypeJSON)
		return e.resource, nil
	}
	media, _ := res.Member("contentType")
	data, _ := res.Member("data")
	body, err := base64.StdEncoding.DecodeString(resource.Text(data))
	if res.Type != "Binary" || resource.Text(media) != write.TypeJSONPatch || err != nil || len(body) == 0 {
		return nil, message.Invalid(message.ErrBody, "A patch in a Bundle is a Binary of type application/json-patch+json with data, or Parameters.")
	}
	e.header.Set("Content-Type", write.TypeJSONPatch)
	return body, nil
}
