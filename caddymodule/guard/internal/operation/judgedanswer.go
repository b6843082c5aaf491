package operation

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/paging"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/search"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/compartment"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// judgedCall is an operation on its way, whose answer is judged resource by resource.
type judgedCall struct {
	x     *Calls
	c     message.Call // the client's
	asked message.Call // what is asked of the FHIR server
	op    Operation

	parameters []smart.Parameter // of what is asked

	count    int    // entries of a page
	complete bool   // one grant is about all types, so that nothing of a patient's is hidden
	ruled    bool   // rules of the site may deny resources
	patient  string // ID of the Patient on which the operation is called; empty for other resources and types
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
		case j.isMember(e.Parsed):
			judged.matches = append(judged.matches, e)
		default:
			judged.others = append(judged.others, e)
		}
	}
	return judged, nil
}

// isMember reports whether a resource is in the answer on its own account, and not because another resource refers to it. Its
// type must be in the compartment of patients, or it is a Device that is assigned to a patient. Where rules may deny the
// referrer, the resource itself must be in the compartment of the patient of the call: Devices are in none.
func (j *judgedCall) isMember(res resource.Resource) bool {
	if !j.ruled {
		_, ok := compartment.Patient(res.Type)
		return ok || res.Type == "Device" && access.OfPatients(res)
	}
	for id := range compartment.Patients(res) {
		if j.patient == "" || j.patient == id {
			return true
		}
	}
	return false
}

// finish adds the links: to the rest, if there is one.
func (j *judgedCall) finish(ctx context.Context, out *message.Bundle, rest *paging.Place) (*message.Answer, error) {
	out.Links = []message.Link{{Relation: "self", URL: j.x.At.URL(j.c.Path, j.c.Query)}}
	if rest != nil {
		next, err := j.x.Pages.Seal(ctx, paging.AsSent(j.c, paging.Position{Places: []paging.Place{*rest}}))
		if err != nil {
			return nil, err
		}
		out.Links = append(out.Links, message.Link{Relation: "next", URL: next})
	}
	return out.Answer(), nil
}

// maxBeside is how many resources may be fetched for a page beside its own.
const maxBeside = 100

// maxHad is how many resources beside the pages' own a link names at most.
const maxHad = 2000

// finishBeside is finish for a page that was asked for by its length, with what is everybody's that its entries name.
// The FHIR server may have that on any page, where a hidden resource may be why. So it comes with what names it, once:
// the link says which ones pages have had, unless these are too many.
func (j *judgedCall) finishBeside(ctx context.Context, out *message.Bundle, rest *paging.Place, had []string) (*message.Answer, error) {
	if j.op.Name == "$everything" {
		var err error
		if had, err = j.beside(ctx, out, had); err != nil {
			return nil, err
		}
	}
	if len(had) > maxHad {
		had = nil
	}
	if rest != nil {
		rest.Left = had
	}
	return j.finish(ctx, out, rest)
}

// beside adds what is everybody's that entries name and no page has had, by one search for each type. It returns what
// pages have had now.
func (j *judgedCall) beside(ctx context.Context, out *message.Bundle, had []string) ([]string, error) {
	for _, e := range out.Entries {
		if name := e.Parsed.Type + "/" + e.Parsed.ID; j.isBeside(e.Parsed.Type) && !slices.Contains(had, name) {
			had = append(had, name)
		}
	}
	ids := map[string][]string{}
	for _, e := range out.Entries {
		for _, name := range search.Named(e) {
			resourceType, id, _ := strings.Cut(name, "/")
			if j.isBeside(resourceType) && !slices.Contains(had, name) && len(ids[resourceType]) < maxBeside {
				had, ids[resourceType] = append(had, name), append(ids[resourceType], id)
			}
		}
	}
	for _, resourceType := range slices.Sorted(maps.Keys(ids)) {
		if err := j.find(ctx, out, resourceType, ids[resourceType]); err != nil {
			return nil, err
		}
	}
	return had, nil
}

// isBeside reports whether resources of a type are everybody's, and the client asks for them.
func (j *judgedCall) isBeside(resourceType string) bool {
	wanted := j.x.Shared.IsEveryones(resourceType) && len(j.x.answerGrants(j.op, resourceType)) > 0
	for _, p := range j.parameters {
		wanted = wanted && p.Name != "_since" && (p.Name != "_type" || slices.Contains(strings.Split(p.Value, ","), resourceType))
	}
	return wanted
}

// find adds resources of a type by their ids. Where the FHIR server knows no such search, there are none.
func (j *judgedCall) find(ctx context.Context, out *message.Bundle, resourceType string, ids []string) error {
	a, err := j.x.Server.Ask(ctx, message.Get(resourceType, smart.EncodeParameters([]smart.Parameter{
		{Name: "_id", Value: strings.Join(ids, ",")}, {Name: "_count", Value: strconv.Itoa(len(ids))},
	})))
	if err != nil || a.Status/100 == 4 {
		return err
	}
	got, err := j.x.At.BundleOf(a, false, nil, message.Call{}.Said)
	if err != nil {
		return err
	}
	judged, err := j.judged(ctx, got)
	if err != nil {
		return err
	}
	entries := append(judged.matches, judged.others...) // matches where a site has made a type of the compartment everybody's
	for _, e := range entries {
		if e.Parsed.Type == resourceType && slices.Contains(ids, e.Parsed.ID) {
			e.Search = search.IncludeMode
			out.Entries = append(out.Entries, e)
		}
	}
	return nil
}
