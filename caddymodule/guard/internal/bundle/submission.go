package bundle

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
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
