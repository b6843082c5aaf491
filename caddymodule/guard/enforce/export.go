package enforce

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/policy"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// exportAsking asks the FHIR server.
type exportAsking interface {
	Ask(ctx context.Context, c call) (*answer, error)
	Pass(ctx context.Context, c call, accept []string, w http.ResponseWriter) error
}

// exportJudging says what the token may export.
type exportJudging interface {
	Rights() *access.Rights
	MayDeny() bool
	Ruled(ctx context.Context, res resource.Resource) policy.Effect
	Under(ctx context.Context, c call, i interaction.Interaction, answer func() (*answer, error)) (*answer, error)
}

// exports are the exports that one request needs.
type exports struct {
	server     exportAsking
	judge      exportJudging
	at         addresses
	sealing    Sealing
	binding    string        // of links to the token
	r          *http.Request // the client's
	parameters searchparam.Set
	limit      int64 // of a line
}

// lackingToExport are the scopes for an export of types, if the token has some of a system: no other exports.
func (x *exports) lackingToExport(types ...string) string {
	if !slices.ContainsFunc(x.judge.Rights().Scopes, func(scope string) bool { return strings.HasPrefix(scope, "system/") }) {
		return ""
	}
	return systemScopes(types...)
}

// systemScopes are the scopes to export types; without one, all.
func systemScopes(types ...string) string {
	if len(types) == 0 {
		types = []string{smart.AnyType}
	}
	scopes := make([]string, len(types))
	for n, t := range types {
		scopes[n] = smart.ResourceScope{Level: "system", Type: t, Permission: readSearch}.String()
	}
	return strings.Join(scopes, " ")
}

var errExport = errors.New("export that cannot be guarded")

// Export begins an export of bulk data (Bulk Data Access 2.0). Scopes of persons never export; system scopes export the
// types of which they cover all. The job's address is sealed for the token.
func (x *exports) Export(ctx context.Context, c call, i interaction.Interaction) (*answer, error) {
	types := x.exportable()
	needed, ok := exportLevel(i)
	switch {
	case !ok:
		return nil, forbidden(ErrOperation, "An export is of the system, of all patients or of a group.")
	case !i.Async:
		return nil, invalid(errExport, "An export takes the header Prefer: respond-async.")
	case !types.all && len(types.names) == 0:
		return nil, forbidden(ErrScope, "An export takes a system scope with the permissions r and s, without a constraint.").Lifted(x.lackingToExport(needed...))
	}
	for _, name := range needed {
		if !types.has(name) {
			return nil, forbidden(ErrScope, "An export of these takes a system scope for %s, with the permissions r and s.", name).Lifted(x.lackingToExport(name))
		}
	}
	parameters, err := operationParameters(c, i)
	if err != nil {
		return nil, err
	}
	if parameters, err = types.confine(i, parameters); err != nil {
		return nil, err
	}
	base, err := x.serverBase(ctx)
	if err != nil {
		return nil, err
	}
	a, err := x.server.Ask(ctx, exportCall(c, parameters))
	if err != nil {
		return nil, err
	}
	location := a.header.Get("Content-Location")
	if a.status != http.StatusAccepted || location == "" {
		return nil, failedOperation(a, c.said())
	}
	return x.started(ctx, job{Base: base, Request: pathAndQuery(c), Types: types.names, All: types.all}, location)
}

// exportLevel are the types that an export needs for its level; ok is false for a level that there is not.
func exportLevel(i interaction.Interaction) (needed []string, ok bool) {
	switch {
	case i.Type == "":
		return nil, true
	case i.Type == "Patient" && i.ID == "":
		return []string{"Patient"}, true
	case i.Type == "Group" && i.ID != "":
		return []string{"Group", "Patient"}, true
	}
	return nil, false
}

// pathAndQuery is what a call asks for, below the FHIR base.
func pathAndQuery(c call) string {
	if c.query == "" {
		return c.path
	}
	return c.path + "?" + c.query
}

// started answers with the job's address, sealed.
func (x *exports) started(ctx context.Context, j job, location string) (_ *answer, err error) {
	if j.Path, j.Query, err = below(j.Base, location); err != nil {
		return nil, err
	}
	address, err := x.sealed(ctx, jobPath, j)
	if err != nil {
		return nil, err
	}
	a := newAnswer(http.StatusAccepted, nil)
	a.header.Set("Content-Location", address)
	return a, nil
}

// serverBase is the path of the FHIR API in the server's own links, as a search's link to itself tells it: a proxy may
// have put another one before it.
func (x *exports) serverBase(ctx context.Context) (string, error) {
	a, err := x.server.Ask(ctx, get("Patient", "_id=none&_count=1"))
	if err != nil {
		return "", err
	}
	if b, err := x.at.bundleOf(a, false, nil); err == nil {
		if base, ok := baseOf(b.links.to("self"), "Patient"); ok {
			return base, nil
		}
	}
	return x.at.path, nil
}

// below is a link of the FHIR server as path and query below its base.
func below(base, link string) (path, query string, err error) {
	u, err := url.Parse(link)
	if err != nil {
		return "", "", withheld(err)
	}
	rest, ok := strings.CutPrefix(u.Path, base+"/")
	if !ok || rest == "" {
		return "", "", withheld(errForeignLink)
	}
	return rest, u.RawQuery, nil
}
