package write

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// newWrite refuses what no scope permits whatever the resource is.
func (x *Writes) newWrite(ctx context.Context, c message.Call, i interaction.Interaction) (*write, error) {
	p, rights := i.Permission()&^smart.Search, x.Judge.Rights()
	w := &write{in: x, c: c, i: i, whole: rights.Whole(i.Type, p) && (p == smart.Delete || len(rights.Opening(i.Type)) == 0)}
	w.may = permission{judge: x.Judge, shared: x.Shared, resourceType: i.Type, grants: rights.For(i.Type, p)}
	switch {
	case len(w.may.grants) == 0:
		return nil, message.Refused(rights, i)
	case i.Type == "Patient" && p&(smart.Create|smart.Delete) != 0:
		w.may.grants = slices.DeleteFunc(w.may.grants, func(g access.Grant) bool { return g.Patient != "" })
	}
	if len(w.may.grants) == 0 {
		return nil, message.Forbidden(message.ErrScope, "Under scopes that are bound to a patient, no Patient is created or deleted.").Lifted(message.Lacking(rights, i))
	}
	if extra := w.extra(); extra != "" {
		return nil, message.Forbidden(message.ErrScope, "%s is not allowed under these scopes.", extra)
	}
	var err error
	if w.isConditional() {
		w.criteria, err = x.planned(ctx, i)
	}
	return w, err
}

// extra is what the request asks for beyond the one resource, and what no scope allows. Empty if nothing.
func (w *write) extra() string {
	switch {
	case !MayExtend(w.in.Judge.Rights(), w.c.Header, w.i):
		return "A write of other resources along with the one named (_cascade, X-Cascade, X-Provenance)"
	case !w.whole && !w.isConditional() && len(w.i.Criteria()) > 0:
		return "The parameter " + strconv.Quote(w.i.Criteria()[0].Name)
	}
	return ""
}

// MayExtend reports whether the scopes allow all resources that a write may reach beside the one that it names: those
// that refer to a deleted one, on HAPI's servers, and a Provenance (R4 provenance.html#header).
func MayExtend(rights *access.Rights, header http.Header, i interaction.Interaction) bool {
	if header.Get("X-Provenance") != "" && (!rights.Whole(smart.AnyType, smart.Search) || !rights.Whole("Provenance", smart.Create)) {
		return false
	}
	cascades := header.Get("X-Cascade") != "" || slices.ContainsFunc(i.Parameters, isCascade)
	return !cascades || rights.Whole(smart.AnyType, smart.Delete)
}

// newVersion reads the resource that the client writes.
func (w *write) newVersion(text []byte) (*version, error) {
	res, err := resource.Parse(text, w.in.At.Base)
	switch {
	case err != nil:
		return nil, message.Invalid(err, "The body is no resource in JSON that has one reading.")
	case res.Type != w.i.Type:
		return nil, message.Invalid(message.ErrBody, "The resource is not of the type in the path.")
	}
	if err := w.in.checkEffect(res, text); err != nil {
		return nil, err
	}
	return &version{Resource: res, text: text}, checkConditional(w.in.Judge.Rights(), text)
}

// errAbsent says that a resource is not there. Clients are told no more than by ErrOutside.
var errAbsent = fmt.Errorf("%w: it is not there", message.ErrOutside)

// current asks for the version that is to be changed. One that is not covered is answered like one that is not there.
func (w *write) current(ctx context.Context) (*version, error) {
	of := interaction.Reference{Type: w.i.Type, ID: w.i.ID}
	a, err := w.in.Server.Ask(ctx, message.Get(of.String(), ""))
	if err != nil {
		return nil, err
	}
	res, err := w.in.Judge.Stored(ctx, of, w.may.grants, a)
	refusal, _ := errors.AsType[*guard.Error](err)
	switch {
	case refusal != nil && errors.Is(err, message.ErrOutside) && a.Status == http.StatusNotFound:
		refusal.Err = errAbsent
		return nil, refusal
	case err != nil:
		return nil, err
	}
	return w.held(res, a)
}

var errNoVersion = errors.New("the FHIR server tells no version, so that the one judged could be another when it is written")

// held is the version with the ETag by which it is held, if the client's conditions allow it to be changed.
func (w *write) held(res resource.Resource, a *message.Answer) (*version, error) {
	etag := a.Header.Get("Etag")
	if etag == "" && res.VersionID != "" {
		etag = `W/"` + res.VersionID + `"`
	}
	if etag == "" {
		return nil, message.Withheld(errNoVersion)
	}
	match, none := w.c.Header.Values("If-Match"), w.c.Header.Values("If-None-Match")
	if len(match) > 0 && !namesETag(match, etag) || namesETag(none, etag) {
		return nil, &guard.Error{Status: http.StatusPreconditionFailed, Description: "The resource has another version.", Err: errConflict}
	}
	return &version{res, a.Body, etag}, nil
}

// namesETag reports whether a condition names the ETag, or any.
func namesETag(condition []string, etag string) bool {
	return slices.Contains(condition, "*") || message.IsNotModified(http.Header{"If-None-Match": condition}, etag)
}
