package api

import (
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// Expand answers [base]/ValueSet/$expand and [base]/ValueSet/{id}/$expand; the caller has checked that the request is one of
// these. It writes the answer, or writes nothing and returns an [*Error], which wraps [ErrUnknown], [ErrIncomplete] or
// [ErrUnsupported] if another server may be able to answer; status 502 or 504 means that a definition could not be fetched.
// Any other error means that the answer was not written completely.
//
// The body of a POST is read and put back, so that another server can be asked the same.
func (h *Handler) Expand(w http.ResponseWriter, r *http.Request) error {
	o := h.begin(r)
	defer o.budget.Rest()
	inputs, err := o.read(w, "valueSet")
	if err != nil {
		return err
	}
	var p common
	if err := p.read(inputs); err != nil {
		return err
	}
	o.fill(&p)
	x, err := fetching(o, o.library, func(l *terminology.Library) (*expansion.Expansion, []outcome.Missing, error) {
		x, err := o.expand(l, &p)
		return x, missingIn(err), err
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
		o.budget.Rest()
		err = respond(writer, x.Len() > streamed, w, r, f)
	})
	return err
}

// serve answers an operation that returns one resource.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, answer func(o *operation, l *terminology.Library, inputs []parameters.Input) ([]byte, error)) error {
	o := h.begin(r)
	defer o.budget.Rest()
	inputs, err := o.read(w, "")
	if err != nil {
		return err
	}
	f, err := negotiate(r, inputs)
	if err != nil {
		return err
	}
	body, err := fetching(o, o.library, func(l *terminology.Library) ([]byte, []outcome.Missing, error) {
		body, err := answer(o, l, inputs)
		return body, missingIn(err), err
	})
	if err != nil {
		return f.provisional(err)
	}
	o.budget.Rest()
	return f.write(w, r, body)
}
