package operation

import (
	"context"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/paging"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/compartment"
)

// judgedCall is an operation on its way, whose answer is judged resource by resource.
type judgedCall struct {
	x     *Calls
	c     message.Call // the client's
	asked message.Call // what is asked of the FHIR server
	op    Operation

	parameters []smart.Parameter // of what is asked

	count    int  // entries of a page
	complete bool // one grant is about all types, so that nothing of a patient's is hidden
}

// judgedEntries are the entries of some pages, without what is not covered.
type judgedEntries struct {
	matches []message.Entry
	others  []message.Entry
	hidden  bool // whether there is, or could be on other pages, something that is not covered
}

// with are the entries of further pages, too.
func (e judgedEntries) with(more judgedEntries) judgedEntries {
	return judgedEntries{append(e.matches, more.matches...), append(e.others, more.others...), e.hidden || more.hidden}
}

// judged are the entries of a page that are covered.
func (j *judgedCall) judged(ctx context.Context, got *message.Bundle) (judged judgedEntries, err error) {
	for _, e := range got.Entries {
		if e.Mode == "outcome" || e.Resource == nil {
			continue
		}
		if e.Parsed, err = j.x.At.Parse(e.Resource); err != nil {
			return judged, err
		}
		ok, err := j.x.Judge.Covered(ctx, e.Parsed, j.x.answerGrants(j.op, e.Parsed.Type))
		switch {
		case err != nil:
			return judged, err
		case !ok:
			judged.hidden = true
		case isOwn(e):
			judged.matches = append(judged.matches, e)
		default:
			judged.others = append(judged.others, e)
		}
	}
	return judged, nil
}

// isOwn reports whether a resource is in the answer for itself: it belongs to a patient, as its type has it, or a Device
// that is assigned.
func isOwn(e message.Entry) bool {
	_, ok := compartment.Patient(e.Parsed.Type)
	return ok || e.Parsed.Type == "Device" && access.OfPatients(e.Parsed)
}

// finish adds the links: to the rest, if there is one.
func (j *judgedCall) finish(ctx context.Context, out *message.Bundle, rest *paging.Place) (*message.Answer, error) {
	out.Links = []message.Link{{Relation: "self", URL: j.x.At.URL(j.c.Path, j.c.Query)}}
	if rest != nil {
		next, err := j.x.Pages.Seal(ctx, paging.Page{
			Method: j.c.Method, Path: j.c.Path, Query: j.c.Query, Body: string(j.c.Body), At: paging.Position{Places: []paging.Place{*rest}},
		})
		if err != nil {
			return nil, err
		}
		out.Links = append(out.Links, message.Link{Relation: "next", URL: next})
	}
	return message.NewAnswer(http.StatusOK, out.Text()), nil
}
