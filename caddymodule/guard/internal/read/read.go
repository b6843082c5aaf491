// Package read answers read, vread and history. Each version that the FHIR server returns is judged. An uncovered version is
// handled like a missing resource.
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

// Handler answers the reads and histories of one request.
type Handler struct {
	Server    *fhirserver.Server // sends requests to the FHIR server
	Judge     *judge.Judge       // judges responses from the FHIR server
	Addresses message.Addresses  // public addresses of the FHIR API
	Pages     paging.Pages       // seals page links
}

// Read answers a read or vread. It sends the request to the FHIR server even if no grant may cover the resource. Missing and
// uncovered resources get the same response, so that clients cannot distinguish them.
func (x *Handler) Read(ctx context.Context, c message.Call, i interaction.Interaction) (*message.Response, error) {
	grants := x.Judge.Rights().GrantsFor(i.Type, smart.Read)
	if len(grants) == 0 {
		return nil, message.InsufficientScope(x.Judge.Rights(), i)
	}
	of := interaction.Reference{Type: i.Type, ID: i.ID}
	judge := x.Judge.ReadCurrent
	if i.Kind == interaction.VRead {
		judge = x.Judge.ReadCovered
		if err := x.Judge.CheckCurrent(ctx, of); err != nil {
			return nil, err
		}
	}
	buffered, err := x.Server.DoBuffered(ctx, message.NewGet(c.Path, ""))
	if err != nil {
		buffered.Release()
		return nil, err
	}
	a := &buffered.Response
	if _, err := judge(ctx, of, grants, a); err != nil {
		buffered.Release()
		return nil, err
	}
	a.Buffer = buffered.Detach()
	return a, nil
}

// JudgeBinary judges the read of a Binary and returns the judged part: without the data, unless policies evaluate it.
func (x *Handler) JudgeBinary(ctx context.Context, c message.Call, i interaction.Interaction) (*message.Response, resource.Resource, error) {
	grants := x.Judge.Rights().GrantsFor(i.Type, smart.Read)
	if len(grants) == 0 {
		return nil, resource.Resource{}, message.InsufficientScope(x.Judge.Rights(), i)
	}
	a, err := x.Server.Do(ctx, x.Judge.BinaryCall(c.Path))
	if err != nil {
		return nil, resource.Resource{}, err
	}
	res, err := x.Judge.ReadCurrent(ctx, interaction.Reference{Type: i.Type, ID: i.ID}, grants, a)
	return a, res, err
}

// InstanceHistory returns the covered versions of a resource. Each version is judged separately, because an older one may have
// belonged to another patient.
func (x *Handler) InstanceHistory(ctx context.Context, c message.Call, i interaction.Interaction) (*message.Response, error) {
	grants := x.Judge.Rights().GrantsFor(i.Type, smart.Read)
	if len(grants) == 0 {
		return nil, message.InsufficientScope(x.Judge.Rights(), i)
	}
	if err := x.Judge.CheckCurrent(ctx, interaction.Reference{Type: i.Type, ID: i.ID}); err != nil {
		return nil, err
	}
	requestsBefore := x.Server.RequestCount() + 1
	a, err := x.startHistory(ctx, c, i)
	if err != nil {
		return nil, x.Judge.PadRejection(ctx, i.Type, grants, requestsBefore, err)
	}
	return a, nil
}

// History returns the versions of all resources of a type or of all types. It requires scopes for all these resources, because
// a deletion does not contain the owner of the resource.
func (x *Handler) History(ctx context.Context, c message.Call, i interaction.Interaction) (*message.Response, error) {
	of := cmp.Or(i.Type, smart.AnyType)
	switch {
	case len(x.Judge.Rights().GrantsFor(of, smart.Search)) == 0:
		return nil, message.InsufficientScope(x.Judge.Rights(), i)
	case !x.Judge.Rights().IsUnrestricted(of, smart.Search):
		return nil, message.Forbidden(message.ErrDisclosure, "%s requires scopes for all resources, without a constraint or a patient.", i.Kind).WithScope(message.MissingScopes(x.Judge.Rights(), i))
	}
	return x.startHistory(ctx, c, i)
}

func (x *Handler) startHistory(ctx context.Context, c message.Call, i interaction.Interaction) (*message.Response, error) {
	if err := paging.RejectPagingLinks(i.Parameters); err != nil {
		return nil, err
	}
	return x.HistoryPage(ctx, c, i, paging.Position{Branches: make([]paging.BranchPosition, 1)}, x.Addresses.URL(c.Path, c.Query))
}

// historyParameters select versions. Other parameters are dropped, because partial versions cannot be judged.
var historyParameters = []string{"_count", "_since", "_at"}

// HistoryPage returns the versions from a position on. If no version is visible, the resource is reported as missing.
func (x *Handler) HistoryPage(ctx context.Context, c message.Call, i interaction.Interaction, at paging.Position, self string) (*message.Response, error) {
	if i.Kind == interaction.InstanceHistory && !at.IsStart() { // checked when the first page was requested
		if err := x.Judge.CheckCurrent(ctx, interaction.Reference{Type: i.Type, ID: i.ID}); err != nil {
			return nil, err
		}
	}
	isUnrestricted := x.Judge.Rights().IsUnrestricted(i.Type, i.Permission())
	first := message.NewGet(c.Path, c.Query)
	if !isUnrestricted {
		forwarded := slices.DeleteFunc(slices.Clone(i.Parameters), func(p smart.Parameter) bool { return !slices.Contains(historyParameters, p.Name) })
		first.Query = smart.EncodeParameters(forwarded)
	}
	if len(at.Branches) != 1 {
		return nil, message.NotFound()
	}
	out := &message.Bundle{Type: "history", Total: -1, Links: []message.Link{{Relation: "self", URL: self}}}
	from := at.Branches[0]
	for fetched := 0; !from.IsDone && len(out.Entries) == 0 && fetched < x.maxFetches(at, isUnrestricted); fetched++ {
		got, next, err := x.fetchHistory(ctx, first, from)
		if err != nil {
			return nil, err
		}
		if isUnrestricted && i.Kind == interaction.InstanceHistory {
			out.Total = got.Total
		}
		if out.Entries, err = x.visibleVersions(ctx, i, got.Entries, isUnrestricted); err != nil {
			return nil, err
		}
		from = next
	}
	if len(out.Entries) == 0 && !isUnrestricted && at.IsStart() {
		return nil, message.NotFound()
	}
	if !from.IsDone {
		next, err := x.Pages.Seal(ctx, paging.Page{Path: c.Path, Query: c.Query, Position: paging.Position{Branches: []paging.BranchPosition{from}}})
		if err != nil {
			return nil, err
		}
		out.Links = append(out.Links, message.Link{Relation: "next", URL: next})
	}
	return out.Response(), nil
}

// maxFetches returns how many pages of the FHIR server may be fetched for one page. For the first page, it is one: otherwise,
// the time until 404 would reveal the number of versions of another patient's resource.
func (x *Handler) maxFetches(at paging.Position, isUnrestricted bool) int {
	if at.IsStart() && !isUnrestricted {
		return 1
	}
	return paging.MaxFetches
}

// fetchHistory requests a page of versions from the FHIR server.
func (x *Handler) fetchHistory(ctx context.Context, first message.Call, from paging.BranchPosition) (*message.Bundle, paging.BranchPosition, error) {
	c := from.Call(first)
	a, err := x.Server.Do(ctx, c)
	if err != nil {
		return nil, paging.BranchPosition{}, err
	}
	if a.Status == http.StatusNotFound || a.Status == http.StatusGone {
		return nil, paging.BranchPosition{}, message.NotFound()
	}
	got, err := x.Addresses.ParseSearchResponse(a, false, nil, first.SentTerms)
	if err != nil {
		return nil, paging.BranchPosition{}, err
	}
	next, err := from.Next(got.Links, c)
	return got, next, err
}

// visibleVersions returns the visible entries.
func (x *Handler) visibleVersions(ctx context.Context, i interaction.Interaction, entries []message.Entry, isUnrestricted bool) ([]message.Entry, error) {
	var visible []message.Entry
	grants := x.Judge.Rights().GrantsFor(i.Type, smart.Read)
	for _, e := range entries {
		ok := isUnrestricted
		if !isUnrestricted && len(e.Resource) > 0 {
			res, err := x.Addresses.Parse(e.Resource)
			if err != nil {
				return nil, err
			}
			if ok, err = x.Judge.IsCovered(ctx, res, grants); err != nil {
				return nil, err
			}
			ok = ok && res.Type == i.Type && res.ID == i.ID
		}
		if ok {
			e, err := x.publicVersion(e)
			if err != nil {
				return nil, message.NewWithheldError(err)
			}
			visible = append(visible, e)
		}
	}
	return visible, nil
}

// publicVersion returns the entry for a version with public addresses, reduced to the members that R4 defines.
func (x *Handler) publicVersion(e message.Entry) (message.Entry, error) {
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
		response.Location, _ = x.Addresses.LocalURL(response.Location)
		e.Response, _ = json.Marshal(response)
	}
	return e, err
}
