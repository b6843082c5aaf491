package enforce

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// read answers a read or vread. The server is asked whether or not the resource is covered, and what is not there gets
// the same answer as what is not covered, so that nobody learns which it is.
func (x *exchange) read(ctx context.Context, c call, i interaction.Interaction) (*answer, error) {
	grants := x.rights.For(i.Type, smart.Read)
	if len(grants) == 0 {
		return nil, x.refused(i)
	}
	held, err := x.hold(ctx, get(c.path, ""))
	if err != nil {
		held.release()
		return nil, err
	}
	asked := x.asked
	a, err := x.judgeRead(ctx, i, grants, held.answer())
	if err != nil {
		held.release()
		return nil, x.evenOut(ctx, i.Type, grants, asked, err)
	}
	a.buffer = held.kept()
	return a, nil
}

// judgeRead is the answer to a read, if one of the grants covers the resource in it.
func (x *exchange) judgeRead(ctx context.Context, i interaction.Interaction, grants []access.Grant, a *answer) (*answer, error) {
	if a.status != http.StatusOK {
		return nil, notRead(a)
	}
	if err := requireJSON(a); err != nil {
		return nil, err
	}
	res, err := x.parse(a.body)
	if err != nil {
		return nil, err
	}
	if res.Type != i.Type || res.ID != i.ID {
		return nil, notFound()
	}
	ok, err := x.covered(ctx, res, grants)
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, notFound()
	}
	return x.localize(a), nil
}

// notRead is what a failed read is answered with. A status that depends on the resource would tell that it is there,
// or was: 410 does.
func notRead(a *answer) error {
	if a.status/100 == 5 || a.status == http.StatusTooManyRequests {
		return failed(a)
	}
	return notFound()
}

// evenOut returns a refusal of a resource after as many questions to the server as one of its type takes that depends on
// another: what is not there would be told by fewer. What is asked for in the others' place is there: the patient. It
// counts from how many were asked before the resource was judged.
func (x *judging) evenOut(ctx context.Context, resourceType string, grants []access.Grant, asked int, refusal error) error {
	if !errors.Is(refusal, ErrOutside) || !x.Shared.Depends(resourceType) {
		return refusal
	}
	for _, patient := range boundTo(grants) {
		if asked++; x.asked >= asked {
			continue
		}
		if _, err := x.ask(ctx, get("Patient/"+patient, "")); err != nil {
			return err
		}
	}
	return refusal
}

// boundTo are the patients to whom grants are bound, each once.
func boundTo(grants []access.Grant) []string {
	var all []string
	for _, g := range grants {
		if g.Patient != "" && !slices.Contains(all, g.Patient) {
			all = append(all, g.Patient)
		}
	}
	return all
}

// refused says that no scope allows the interaction.
func (x *judging) refused(i interaction.Interaction) error {
	of := i.Type
	if of == "" || of == smart.AnyType {
		of = "all types"
	}
	refusal := forbidden(ErrScope, "No scope allows %s of %s: it needs the permission %s.", i.Kind, of, i.Permission())
	if missing := x.rights.Missing; missing != "" {
		refusal = forbidden(ErrScope, "%s", missing)
	} else if x.rights.OnlyWhole(i.Type, i.Permission()) {
		refusal = forbidden(ErrScope, "Scopes that are bound to a patient do not allow %s of %s.", i.Kind, of)
	}
	return refusal.Lifted(x.lacking(i))
}

// lacking are the scopes that allow an interaction.
func (x *judging) lacking(i interaction.Interaction) string {
	ofAll := i.Kind == interaction.TypeHistory || i.Kind == interaction.SystemHistory ||
		i.Type == "Patient" && i.Permission()&(smart.Create|smart.Delete) != 0
	return x.rights.Lacking(i.Type, i.Permission(), ofAll)
}

// beyond refuses what only scopes to read and search everything allow.
func (x *judging) beyond(cause error, format string, args ...any) *guard.Error {
	return forbidden(cause, format, args...).Lifted(x.rights.Lacking(smart.AnyType, readSearch, true))
}
