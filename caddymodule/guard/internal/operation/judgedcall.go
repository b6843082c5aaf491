package operation

import (
	"context"
	"errors"
	"math"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/paging"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/search"
)

// page answers with the entries from a position on. A page has as many as were asked for, taken from several pages of
// the server if something is hidden: a shorter one would tell how much is withheld. If nobody asked for pages, those of
// the server are judged as one, for what names a resource may be on another page.
func (j *judgedCall) page(ctx context.Context, at paging.Place) (*message.Answer, error) {
	var out *message.Bundle
	var size int64
	all := judgedEntries{hidden: !at.IsFirst()}
	had := at.Left
	for fetched := 0; fetched < paging.MaxFetches && size < j.x.Limit; fetched++ {
		a, err := j.fetch(ctx, at)
		if err != nil {
			return nil, err
		}
		got, err := message.ParseBundle(a.Body)
		if err != nil || got.Kind == "document" || got.Kind == "message" {
			return j.single(ctx, a, got)
		}
		judged, err := j.judged(ctx, got)
		if err != nil {
			return nil, err
		}
		if out == nil {
			out = &message.Bundle{Kind: got.Kind, Total: -1}
		}
		next, isShort := got.Links.To("next"), judged.hidden || !j.complete
		if j.count == math.MaxInt {
			all, judged = all.with(judged), judgedEntries{}
		} else {
			judged.hidden = judged.hidden || !at.IsFirst() || next != ""
		}
		if j.fill(out, j.kept(judged), &at) {
			return j.finishBeside(ctx, out, &at, had)
		}
		size += int64(len(a.Body))
		if next == "" && j.count == math.MaxInt {
			return j.finishAll(ctx, out, all, nil)
		} else if next == "" {
			return j.finishBeside(ctx, out, nil, had)
		} else if at, err = at.Next(got.Links, at.Call(j.asked)); err != nil {
			return nil, err
		} else if j.count < math.MaxInt && !isShort && len(out.Entries) > 0 {
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
func (j *judgedCall) fill(out *message.Bundle, kept []message.Entry, at *paging.Place) (full bool) {
	kept = kept[min(at.Taken, len(kept)):]
	room := j.count - len(out.Entries)
	if full = room < len(kept); full {
		kept = kept[:room]
		at.Taken += room
	}
	out.Entries = append(out.Entries, kept...)
	return full
}

// fetch asks the FHIR server for the page at a position.
func (j *judgedCall) fetch(ctx context.Context, at paging.Place) (*message.Answer, error) {
	a, err := j.x.Server.Ask(ctx, at.Call(j.asked))
	if err != nil {
		return nil, err
	}
	if !a.Succeeded() {
		return nil, FailedOperation(a, j.asked.Said())
	}
	return a, a.RequireJSON()
}

// single answers with one resource, or with a document or message, of which each entry must be covered.
func (j *judgedCall) single(ctx context.Context, a *message.Answer, got *message.Bundle) (*message.Answer, error) {
	parts := [][]byte{a.Body}
	if got.ResourceType == "Bundle" {
		parts = nil
		for _, e := range got.Entries {
			parts = append(parts, e.Resource)
		}
	}
	for _, text := range parts {
		res, err := j.x.At.Parse(text)
		if err != nil {
			return nil, err
		}
		if res.Type == "Parameters" || res.Type == "OperationOutcome" || res.Type == "Bundle" {
			return nil, message.Withheld(errOperationAnswer)
		}
		ok, err := j.x.Judge.Covered(ctx, res, j.x.answerGrants(j.op, res.Type))
		if err == nil && !ok {
			err = message.NotFound()
		}
		if err != nil {
			return nil, err
		}
	}
	return a, nil
}

var errOperationAnswer = errors.New("answer of an operation that is no resource of somebody's")

// kept returns the entries to show: all members, and other entries that visible ones refer to. The rest may be in the answer
// because a withheld resource refers to them.
//
// Denied resources move the boundaries of the FHIR server's pages. Under rules, a page of $everything with a length
// therefore gets its other entries from finishBeside alone: not from the FHIR server's page that happens to contain them.
func (j *judgedCall) kept(judged judgedEntries) []message.Entry {
	switch {
	case j.ruled && j.op.Name == "$everything" && j.count < math.MaxInt:
		return judged.matches
	case judged.hidden || !j.complete:
		return append(judged.matches, search.Reached(judged.matches, judged.others)...)
	}
	return append(judged.matches, judged.others...)
}

// finishAll is finish for entries that are judged as one, if there are any.
func (j *judgedCall) finishAll(ctx context.Context, out *message.Bundle, all judgedEntries, rest *paging.Place) (*message.Answer, error) {
	out.Entries = append(out.Entries, j.kept(all)...)
	return j.finish(ctx, out, rest)
}
