package enforce

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// instanceHistory answers with those versions of a resource that are covered. Each is judged by itself, for it may have
// been another patient's.
func (x *reads) instanceHistory(ctx context.Context, c call, i interaction.Interaction) (*answer, error) {
	grants := x.judge.Rights().For(i.Type, smart.Read)
	if len(grants) == 0 {
		return nil, refused(x.judge.Rights(), i)
	}
	asked := x.server.Asked() + 1
	a, err := x.historyOf(ctx, c, i)
	if err != nil {
		return nil, x.judge.EvenOut(ctx, i.Type, grants, asked, err)
	}
	return a, nil
}

// history answers with the versions of all resources of a type, or of all types. Deletions say nothing of whose the
// resource was, so it takes scopes that are about all.
func (x *reads) history(ctx context.Context, c call, i interaction.Interaction) (*answer, error) {
	of := i.Type
	if of == "" {
		of = smart.AnyType
	}
	switch {
	case len(x.judge.Rights().For(of, smart.Search)) == 0:
		return nil, refused(x.judge.Rights(), i)
	case x.judge.Rights().All()&smart.Search == 0 && (i.Type == "" || !x.judge.Rights().Whole(i.Type, smart.Search)):
		return nil, forbidden(ErrOracle, "%s takes scopes that are about all resources, without constraint and patient.", i.Kind).Lifted(lacking(x.judge.Rights(), i))
	}
	return x.historyOf(ctx, c, i)
}

func (x *reads) historyOf(ctx context.Context, c call, i interaction.Interaction) (*answer, error) {
	if err := refusePaging(i.Parameters); err != nil {
		return nil, err
	}
	return x.historyPage(ctx, c, i, position{Places: make([]place, 1)}, x.at.url(c.path, c.query))
}

// historyParameters are those that say which versions are asked for. Versions without all their elements cannot be
// judged.
var historyParameters = []string{"_count", "_since", "_at"}

// historyPage answers with the versions from a position on. If none may be seen, the resource is not there.
func (x *reads) historyPage(ctx context.Context, c call, i interaction.Interaction, at position, self string) (*answer, error) {
	whole := x.judge.Rights().Whole(i.Type, i.Permission()) || x.judge.Rights().All()&i.Permission() == i.Permission()
	first := get(c.path, c.query)
	if !whole {
		passed := slices.DeleteFunc(slices.Clone(i.Parameters), func(p smart.Parameter) bool { return !slices.Contains(historyParameters, p.Name) })
		first.query = smart.EncodeParameters(passed)
	}
	if len(at.Places) != 1 {
		return nil, notFound()
	}
	out := &bundle{kind: "history", total: -1, links: []link{{Relation: "self", URL: self}}}
	from := at.Places[0]
	for fetched := 0; !from.Done && len(out.entries) == 0 && fetched < x.fetches(at, whole); fetched++ {
		got, next, err := x.fetchHistory(ctx, first, from)
		if err != nil {
			return nil, err
		}
		if whole && i.Kind == interaction.InstanceHistory {
			out.total = got.total
		}
		if out.entries, err = x.versions(ctx, i, got.entries, whole); err != nil {
			return nil, err
		}
		from = next
	}
	if len(out.entries) == 0 && !whole && at.isStart() {
		return nil, notFound()
	}
	if !from.Done {
		next, err := x.pages.seal(ctx, page{Path: c.path, Query: c.query, At: position{Places: []place{from}}})
		if err != nil {
			return nil, err
		}
		out.links = append(out.links, link{Relation: "next", URL: next})
	}
	return newAnswer(http.StatusOK, out.text()), nil
}

// fetches is how many of the server's pages a page may take. The first takes one, or how many versions there are of what
// is another's would show in the time that it takes to say that it is not there.
func (x *reads) fetches(at position, whole bool) int {
	if at.isStart() && !whole {
		return 1
	}
	return maxFetches
}

// fetchHistory asks the FHIR server for a page of versions.
func (x *reads) fetchHistory(ctx context.Context, first call, from place) (*bundle, place, error) {
	c := get(from.Path, from.Query)
	if from.isFirst() {
		c = first
	}
	a, err := x.server.Ask(ctx, c)
	if err != nil {
		return nil, place{}, err
	}
	if a.status == http.StatusNotFound || a.status == http.StatusGone {
		return nil, place{}, notFound()
	}
	got, err := x.at.bundleOf(a, false, first.said())
	if err != nil {
		return nil, place{}, err
	}
	next := place{Done: true}
	if to := got.links.to("next"); to != "" {
		next, err = local(to, got.links.to("self"), c.path, from)
	}
	return got, next, err
}

// versions are the entries that may be seen.
func (x *reads) versions(ctx context.Context, i interaction.Interaction, entries []entry, whole bool) ([]entry, error) {
	var kept []entry
	grants := x.judge.Rights().For(i.Type, smart.Read)
	for _, e := range entries {
		ok := whole
		if !whole && len(e.resource) > 0 {
			res, err := x.at.parse(e.resource)
			if err != nil {
				return nil, err
			}
			if ok, err = x.judge.Covered(ctx, res, grants); err != nil {
				return nil, err
			}
			ok = ok && res.Type == i.Type && res.ID == i.ID
		}
		if ok {
			e, err := x.version(e)
			if err != nil {
				return nil, withheld(err)
			}
			kept = append(kept, e)
		}
	}
	x.at.localizeEntries(kept)
	return kept, nil
}

// version is the entry of a version with our addresses, and of what else it says only what R4 has there.
func (x *reads) version(e entry) (entry, error) {
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
	if len(e.request) > 0 {
		err = json.Unmarshal(e.request, &request)
		if match := resourceURL.FindStringSubmatch(request.URL); match != nil {
			request.URL = match[1]
		} else if strings.Contains(request.URL, "/") {
			request.URL = ""
		}
		e.request, _ = json.Marshal(request)
	}
	if len(e.response) > 0 && err == nil {
		err = json.Unmarshal(e.response, &response)
		response.Location, _ = x.at.localURL(response.Location)
		e.response, _ = json.Marshal(response)
	}
	return e, err
}
