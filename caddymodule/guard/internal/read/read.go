// Package read answers read, vread and histories. Each version that the FHIR server returns is judged; a version that is not
// allowed is answered like a missing resource.
//
// References: FHIR R4, RESTful API (http.html#read, #history).
package read

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirserver"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/judge"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/paging"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// Reads are the reads that one request needs, and histories.
type Reads struct {
	Server *fhirserver.Server // asks the FHIR server
	Judge  *judge.Judge       // judges what it answers
	At     message.Addresses  // names what it holds as clients know it
	Pages  paging.Pages       // seals links to pages
}

// Read answers a read or vread. The server is asked whether or not the resource is covered, and what is not there gets
// the same answer as what is not covered, so that nobody learns which it is.
func (x *Reads) Read(ctx context.Context, c message.Call, i interaction.Interaction) (*message.Answer, error) {
	grants := x.Judge.Rights().For(i.Type, smart.Read)
	if len(grants) == 0 {
		return nil, message.Refused(x.Judge.Rights(), i)
	}
	of := interaction.Reference{Type: i.Type, ID: i.ID}
	judge := x.Judge.Readable
	if i.Kind == interaction.VRead {
		judge = x.Judge.Resource
		if err := x.Judge.CheckCurrent(ctx, of); err != nil {
			return nil, err
		}
	}
	held, err := x.Server.Hold(ctx, message.Get(c.Path, ""))
	if err != nil {
		held.Release()
		return nil, err
	}
	a := &held.Answer
	if _, err := judge(ctx, of, grants, a); err != nil {
		held.Release()
		return nil, err
	}
	a.Buffer = held.Kept()
	return a, nil
}

// Admit judges the read of a Binary, by all but its data unless policies look at that, and returns what it is judged
// by.
func (x *Reads) Admit(ctx context.Context, c message.Call, i interaction.Interaction) (*message.Answer, resource.Resource, error) {
	grants := x.Judge.Rights().For(i.Type, smart.Read)
	if len(grants) == 0 {
		return nil, resource.Resource{}, message.Refused(x.Judge.Rights(), i)
	}
	a, err := x.Server.Ask(ctx, x.Judge.BinaryCall(c.Path))
	if err != nil {
		return nil, resource.Resource{}, err
	}
	res, err := x.Judge.Readable(ctx, interaction.Reference{Type: i.Type, ID: i.ID}, grants, a)
	return a, res, err
}

// InstanceHistory answers with those versions of a resource that are covered. Each is judged by itself, for it may have
// been another patient's.
func (x *Reads) InstanceHistory(ctx context.Context, c message.Call, i interaction.Interaction) (*message.Answer, error) {
	grants := x.Judge.Rights().For(i.Type, smart.Read)
	if len(grants) == 0 {
		return nil, message.Refused(x.Judge.Rights(), i)
	}
	if err := x.Judge.CheckCurrent(ctx, interaction.Reference{Type: i.Type, ID: i.ID}); err != nil {
		return nil, err
	}
	asked := x.Server.Asked() + 1
	a, err := x.historyOf(ctx, c, i)
	if err != nil {
		return nil, x.Judge.EvenOut(ctx, i.Type, grants, asked, err)
	}
	return a, nil
}

// History answers with the versions of all resources of a type, or of all types. Deletions say nothing of whose the
// resource was, so it takes scopes that are about all.
func (x *Reads) History(ctx context.Context, c message.Call, i interaction.Interaction) (*message.Answer, error) {
	of := cmp.Or(i.Type, smart.AnyType)
	switch {
	case len(x.Judge.Rights().For(of, smart.Search)) == 0:
		return nil, message.Refused(x.Judge.Rights(), i)
	case !x.Judge.Rights().Whole(of, smart.Search):
		return nil, message.Forbidden(message.ErrOracle, "%s takes scopes that are about all resources, without constraint and patient.", i.Kind).Lifted(message.Lacking(x.Judge.Rights(), i))
	}
	return x.historyOf(ctx, c, i)
}

func (x *Reads) historyOf(ctx context.Context, c message.Call, i interaction.Interaction) (*message.Answer, error) {
	if err := paging.RefusePaging(i.Parameters); err != nil {
		return nil, err
	}
	return x.HistoryPage(ctx, c, i, paging.Position{Places: make([]paging.Place, 1)}, x.At.URL(c.Path, c.Query))
}

// historyParameters are those that say which versions are asked for. Versions without all their elements cannot be
// judged.
var historyParameters = []string{"_count", "_since", "_at"}

// HistoryPage answers with the versions from a position on. If none may be seen, the resource is not there.
func (x *Reads) HistoryPage(ctx context.Context, c message.Call, i interaction.Interaction, at paging.Position, self string) (*message.Answer, error) {
	if i.Kind == interaction.InstanceHistory && !at.IsStart() { // the start has been checked
		if err := x.Judge.CheckCurrent(ctx, interaction.Reference{Type: i.Type, ID: i.ID}); err != nil {
			return nil, err
		}
	}
	whole := x.Judge.Rights().Whole(i.Type, i.Permission())
	first := message.Get(c.Path, c.Query)
	if !whole {
		passed := slices.DeleteFunc(slices.Clone(i.Parameters), func(p smart.Parameter) bool { return !slices.Contains(historyParameters, p.Name) })
		first.Query = smart.EncodeParameters(passed)
	}
	if len(at.Places) != 1 {
		return nil, message.NotFound()
	}
	out := &message.Bundle{Kind: "history", Total: -1, Links: []message.Link{{Relation: "self", URL: self}}}
	from := at.Places[0]
	for fetched := 0; !from.Done && len(out.Entries) == 0 && fetched < x.fetches(at, whole); fetched++ {
		got, next, err := x.fetchHistory(ctx, first, from)
		if err != nil {
			return nil, err
		}
		if whole && i.Kind == interaction.InstanceHistory {
			out.Total = got.Total
		}
		if out.Entries, err = x.versions(ctx, i, got.Entries, whole); err != nil {
			return nil, err
		}
		from = next
	}
	if len(out.Entries) == 0 && !whole && at.IsStart() {
		return nil, message.NotFound()
	}
	if !from.Done {
		next, err := x.Pages.Seal(ctx, paging.Page{Path: c.Path, Query: c.Query, At: paging.Position{Places: []paging.Place{from}}})
		if err != nil {
			return nil, err
		}
		out.Links = append(out.Links, message.Link{Relation: "next", URL: next})
	}
	return out.Answer(), nil
}

// fetches is how many of the server's pages a page may take. The first takes one, or how many versions there are of what
// is another's would show in the time that it takes to say that it is not there.
func (x *Reads) fetches(at paging.Position, whole bool) int {
	if at.IsStart() && !whole {
		return 1
	}
	return paging.MaxFetches
}

// fetchHistory asks the FHIR server for a page of versions.
func (x *Reads) fetchHistory(ctx context.Context, first message.Call, from paging.Place) (*message.Bundle, paging.Place, error) {
	c := from.Call(first)
	a, err := x.Server.Ask(ctx, c)
	if err != nil {
		return nil, paging.Place{}, err
	}
	if a.Status == http.StatusNotFound || a.Status == http.StatusGone {
		return nil, paging.Place{}, message.NotFound()
	}
	got, err := x.At.BundleOf(a, false, nil, first.Said)
	if err != nil {
		return nil, paging.Place{}, err
	}
	next, err := from.Next(got.Links, c)
	return got, next, err
}

// versions are the entries that may be seen.
func (x *Reads) versions(ctx context.Context, i interaction.Interaction, entries []message.Entry, whole bool) ([]message.Entry, error) {
	var kept []message.Entry
	grants := x.Judge.Rights().For(i.Type, smart.Read)
	for _, e := range entries {
		ok := whole
		if !whole && len(e.Resource) > 0 {
			res, err := x.At.Parse(e.Resource)
			if err != nil {
				return nil, err
			}
			if ok, err = x.Judge.Covered(ctx, res, grants); err != nil {
				return nil, err
			}
			ok = ok && res.Type == i.Type && res.ID == i.ID
		}
		if ok {
			e, err := x.version(e)
			if err != nil {
				return nil, message.Withheld(err)
			}
			kept = append(kept, e)
		}
	}
	return kept, nil
}

// version is the entry of a version with our addresses, and of what else it says only what R4 has there.
func (x *Reads) version(e message.Entry) (message.Entry, error) {
	var request struct {
		Method string `json:"method,omitempty"`
		URL    string `json:"url,omitempty"`
	}
	var response struct {
		Status       string `json:"status,omitempty"`
		Location     string `json:"location,omitempty"`
		ETag         string `json:"etag,omitempty"`
		LastModified string `json:"lastModified,omitempty"`
	}
	var err error
	if len(e.Request) > 0 {
		err = json.Unmarshal(e.Request, &request)
		if match := message.ResourceURL.FindStringSubmatch(request.URL); match != nil {
			request.URL = match[1]
		} else if strings.Contains(request.URL, "/") {
			request.URL = ""
		}
		e.Request, _ = json.Marshal(request)
	}
	if len(e.Response) > 0 && err == nil {
		err = json.Unmarshal(e.Response, &response)
		response.Location, _ = x.At.LocalURL(response.Location)
		e.Response, _ = json.Marshal(response)
	}
	return e, err
}
