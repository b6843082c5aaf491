package export

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/operation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/paging"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// lackingToExport are the scopes for an export of types, if the token has some of a system: no other exports.
func (x *Exports) lackingToExport(types ...string) string {
	if !slices.ContainsFunc(x.Judge.Rights().Scopes, func(scope string) bool { return strings.HasPrefix(scope, "system/") }) {
		return ""
	}
	return systemScopes(types...)
}

var errExport = errors.New("export that cannot be guarded")

// Export begins an export of bulk data (Bulk Data Access 2.0). Scopes of persons never export; system scopes export the
// types of which they cover all. The job's address is sealed for the token.
func (x *Exports) Export(ctx context.Context, c message.Call, i interaction.Interaction) (*message.Answer, error) {
	s := selection{x.Judge.Rights().WholeTypes("system", message.ReadSearch), i, x.Parameters, message.IsLenient(c.Header)}
	needed, ok := exportLevel(i)
	switch {
	case !ok:
		return nil, message.Forbidden(operation.ErrOperation, "An export is of the system, of all patients or of a group.")
	case !i.Async:
		return nil, message.Invalid(errExport, "An export takes the header Prefer: respond-async.")
	case !s.All && len(s.Names) == 0:
		return nil, message.Forbidden(message.ErrScope, "An export takes a system scope with the permissions r and s, without a constraint.").Lifted(x.lackingToExport(needed...))
	}
	for _, name := range needed {
		if !s.Has(name) {
			return nil, message.Forbidden(message.ErrScope, "An export of these takes a system scope for %s, with the permissions r and s.", name).Lifted(x.lackingToExport(name))
		}
	}
	parameters, err := operation.Parameters(c, i)
	if err != nil {
		return nil, err
	}
	if parameters, err = s.confine(parameters); err != nil {
		return nil, err
	}
	if s.Judged {
		if err := x.checkSubjects(ctx, s, parameters); err != nil {
			return nil, err
		}
	}
	base, err := x.serverBase(ctx)
	if err != nil {
		return nil, err
	}
	a, err := x.Server.Ask(ctx, exportCall(c, parameters))
	if err != nil {
		return nil, err
	}
	location := a.Header.Get("Content-Location")
	if a.Status != http.StatusAccepted || location == "" {
		return nil, operation.FailedOperation(a, c.Said())
	}
	return x.started(ctx, job{Base: base, Request: strings.TrimSuffix(c.Path+"?"+c.Query, "?"), Types: s.Names, All: s.All, Judged: s.Judged}, location)
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

// started answers with the job's address, sealed.
func (x *Exports) started(ctx context.Context, j job, location string) (_ *message.Answer, err error) {
	if j.Path, j.Query, err = below(j.Base, location); err != nil {
		return nil, err
	}
	address, err := x.sealed(ctx, JobPath, j)
	if err != nil {
		return nil, err
	}
	a := message.NewAnswer(http.StatusAccepted, nil)
	a.Header.Set("Content-Location", address)
	return a, nil
}

// serverBase is the path of the FHIR API in the server's own links, as a search's link to itself tells it: a proxy may
// have put another one before it.
func (x *Exports) serverBase(ctx context.Context) (string, error) {
	a, err := x.Server.Ask(ctx, message.Get("Patient", "_id=none&_count=1"))
	if err != nil {
		return "", err
	}
	if b, err := x.At.BundleOf(a, false, nil, message.Call{}.Said); err == nil {
		if base, ok := paging.BaseOf(b.Links.To("self"), "Patient"); ok {
			return base, nil
		}
	}
	return x.At.Path, nil
}
