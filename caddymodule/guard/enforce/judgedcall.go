package enforce

import (
	"context"
	"errors"
	"math"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/compartment"
)

// judgedCall is an operation on its way, whose answer is judged resource by resource.
type judgedCall struct {
	x     *operations
	c     call // the client's
	asked call // what is asked of the FHIR server
	op    Operation

	parameters []smart.Parameter // of what is asked

	count    int  // entries of a page
	complete bool // one grant is about all types, so that nothing of a patient's is hidden
}

// page answers with the entries from a position on. A page has as many as were asked for, taken from several pages of
// the server if something is hidden: a shorter one would tell how much is withheld. If nobody asked for pages, those of
// the server are judged as one, for what names a resource may be on another page.
func (j *judgedCall) page(ctx context.Context, at place) (*answer, error) {
	var out *bundle
	var size int64
	all := judgedEntries{hidden: !at.isFirst()}
	had := at.Left
	for fetched := 0; fetched < maxFetches && size < j.x.limit; fetched++ {
		a, err := j.fetch(ctx, at)
		if err != nil {
			return nil, err
		}
		got, err := parseBundle(a.body)
		if err != nil || got.kind == "document" || got.kind == "message" {
			return j.single(ctx, a, got)
		}
		judged, err := j.judged(ctx, got)
		if err != nil {
			return nil, err
		}
		if out == nil {
			out = &bundle{kind: got.kind, total: -1}
		}
		next, isShort := got.links.to("next"), judged.hidden || !j.complete
		if j.count == math.MaxInt {
			all, judged = all.with(judged), judgedEntries{}
		} else {
			judged.hidden = judged.hidden || !at.isFirst() || next != ""
		}
		if j.fill(out, j.kept(judged), &at) {
			return j.finishBeside(ctx, out, &at, had)
		}
		size += int64(len(a.body))
		if next == "" && j.count == math.MaxInt {
			return j.finishAll(ctx, out, all, nil)
		} else if next == "" {
			return j.finishBeside(ctx, out, nil, had)
		} else if at, err = j.after(next, got.links.to("self"), at); err != nil {
			return nil, err
		} else if j.count < math.MaxInt && !isShort && len(out.entries) > 0 {
			break
		}
	}
	if j.count < math.MaxInt {
		return j.finishBeside(ctx, out, &at, had)
	}
	all.hidden = true // perhaps, on the pages that follow
	return j.finishAll(ctx, out, all, &at)
}

// fill adds the entries behind those of a page that were taken before, and reports whether there was no room for all.
func (j *judgedCall) fill(out *bundle, kept []entry, at *place) (full bool) {
	kept = kept[min(at.Taken, len(kept)):]
	room := j.count - len(out.entries)
	if full = room < len(kept); full {
		kept = kept[:room]
		at.Taken += room
	}
	out.entries = append(out.entries, kept...)
	return full
}

// fetch asks the FHIR server for the page at a position.
func (j *judgedCall) fetch(ctx context.Context, at place) (*answer, error) {
	c := j.asked
	if !at.isFirst() {
		c = get(at.Path, at.Query)
	}
	a, err := j.x.server.Ask(ctx, c)
	if err != nil {
		return nil, err
	}
	if !a.succeeded() {
		return nil, failedOperation(a, j.asked.said())
	}
	return a, a.requireJSON()
}

// after is the position behind a page.
func (j *judgedCall) after(next, self string, at place) (place, error) {
	asked := at.Path
	if at.isFirst() {
		asked = j.asked.path
	}
	return local(next, self, asked, at)
}

// single answers with one resource, or with a document or message, of which each entry must be covered.
func (j *judgedCall) single(ctx context.Context, a *answer, got *bundle) (*answer, error) {
	parts := [][]byte{a.body}
	if got.resourceType == "Bundle" {
		parts = nil
		for _, e := range got.entries {
			parts = append(parts, e.resource)
		}
	}
	for _, text := range parts {
		res, err := j.x.at.parse(text)
		if err != nil {
			return nil, err
		}
		if res.Type == "Parameters" || res.Type == "OperationOutcome" || res.Type == "Bundle" {
			return nil, withheld(errOperationAnswer)
		}
		ok, err := j.x.judge.Covered(ctx, res, j.x.answerGrants(j.op, res.Type))
		if err == nil && !ok {
			err = notFound()
		}
		if err != nil {
			return nil, err
		}
	}
	return j.x.at.localize(a), nil
}

var errOperationAnswer = errors.New("answer of an operation that is no resource of somebody's")

// judgedEntries are the entries of some pages, without what is not covered.
type judgedEntries struct {
	matches []entry
	others  []candidate
	hidden  bool // whether there is, or could be on other pages, something that is not covered
}

// with are the entries of further pages, too.
func (e judgedEntries) with(more judgedEntries) judgedEntries {
	return judgedEntries{append(e.matches, more.matches...), append(e.others, more.others...), e.hidden || more.hidden}
}

// judged are the entries of a page that are covered.
func (j *judgedCall) judged(ctx context.Context, got *bundle) (judged judgedEntries, err error) {
	for _, e := range got.entries {
		if e.mode == "outcome" || e.resource == nil {
			continue
		}
		if e.parsed, err = j.x.at.parse(e.resource); err != nil {
			return judged, err
		}
		ok, err := j.x.judge.Covered(ctx, e.parsed, j.x.answerGrants(j.op, e.parsed.Type))
		switch {
		case err != nil:
			return judged, err
		case !ok:
			judged.hidden = true
		case isOwn(e):
			judged.matches = append(judged.matches, e)
		default:
			judged.others = append(judged.others, candidate{entry: e, node: nodeOf(e), searched: true})
		}
	}
	return judged, nil
}

// kept are the entries that may be seen.
func (j *judgedCall) kept(judged judgedEntries) []entry {
	kept := append(judged.matches, j.reached(judged.matches, judged.others, judged.hidden)...)
	j.x.at.localizeEntries(kept)
	return kept
}

// isOwn reports whether a resource is in the answer for itself: it belongs to a patient, as its type has it, or a Device
// that is assigned.
func isOwn(e entry) bool {
	_, ok := compartment.Patient(e.parsed.Type)
	return ok || e.parsed.Type == "Device" && access.OfPatients(e.parsed)
}

// reached are those of the others that the client could have come to by what it sees. The rest may be in the answer
// because a resource names them that is hidden.
func (j *judgedCall) reached(matches []entry, others []candidate, hidden bool) []entry {
	if hidden || !j.complete {
		return newWeb(matches).reach(others, includes{include: true, revinclude: true, iterate: true})
	}
	var all []entry
	for _, c := range others {
		all = append(all, c.entry)
	}
	return all
}

// finishAll is finish for entries that are judged as one, if there are any.
func (j *judgedCall) finishAll(ctx context.Context, out *bundle, all judgedEntries, rest *place) (*answer, error) {
	out.entries = append(out.entries, j.kept(all)...)
	return j.finish(ctx, out, rest)
}

// finish adds the links: to the rest, if there is one.
func (j *judgedCall) finish(ctx context.Context, out *bundle, rest *place) (*answer, error) {
	out.links = []link{{Relation: "self", URL: j.x.at.url(j.c.path, j.c.query)}}
	if rest != nil {
		next, err := j.x.pages.seal(ctx, page{
			Method: j.c.method, Path: j.c.path, Query: j.c.query, Body: string(j.c.body), At: position{Places: []place{*rest}},
		})
		if err != nil {
			return nil, err
		}
		out.links = append(out.links, link{Relation: "next", URL: next})
	}
	return newAnswer(http.StatusOK, out.text()), nil
}
