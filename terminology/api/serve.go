package api

import (
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// Expand answers [base]/ValueSet/$expand and [base]/ValueSet/{id}/$expand; the caller has checked that the request is one of
// these. It writes the answer, or writes nothing and returns an [*Error], which wraps [ErrUnknown], [ErrIncomplete] or
// [ErrUnsupported] if another server may be able to answer; status 502 or 504 means that a definition could not be fetched.
// Any other error means that the answer was not written completely.
//
// The body of a POST is read and put back, so that another server can be asked the same.
func (h *Handler) Expand(w http.ResponseWriter, r *http.Request) error {
	c := h.begin(r)
	defer c.Budget.Rest()
	inputs, err := c.read(w, "valueSet")
	if err != nil {
		return err
	}
	p, err := c.Parameters(inputs)
	if err != nil {
		return err
	}
	x, err := Fetch(c, c.library, func(l *terminology.Library) (*expansion.Expansion, []outcome.Missing, error) {
		x, err := c.expand(l, p)
		return x, MissingIn(err), err
	})
	if err != nil {
		return err
	}
	f, err := negotiate(r, p.Given)
	if err != nil {
		return err
	}
	x.Library.Use(func() {
		writer := expansion.NewWriter(x, p.get) // needs the turn, as it may make a tree
		c.Budget.Rest()
		err = respond(writer, x.Len() > streamed, w, r, f)
	})
	return err
}

// serve answers an operation that returns one resource.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, answer Answer) error {
	c := h.begin(r)
	defer c.Budget.Rest()
	inputs, err := c.read(w, "")
	if err != nil {
		return err
	}
	f, err := negotiate(r, inputs)
	if err != nil {
		return err
	}
	body, err := Fetch(c, c.library, func(l *terminology.Library) ([]byte, []outcome.Missing, error) {
		body, missed, err := answer(c, l, inputs)
		if err == nil && h.Others && len(missed) > 0 {
			err = provisional(body, missed)
		}
		return body, MissingIn(err), err
	})
	if err != nil {
		return f.provisional(err)
	}
	c.Budget.Rest()
	return f.write(w, r, body)
}

// provisional returns the error that holds an answer for which definitions were missing that other servers may have.
func provisional(body []byte, missed []outcome.Missing) error {
	e := outcome.Incomplete("not-found", "the answer rests on what is not here: %v", missed[0])
	e.Missing, e.Provisional = missed, &outcome.Provisional{Body: body}
	return e
}
