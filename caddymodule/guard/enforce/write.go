package enforce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/policy"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// write is a create, update, patch or delete on its way.
type write struct {
	*exchange
	c      call
	i      interaction.Interaction
	grants []access.Grant // that permit it on the type
	whole  bool           // one of them is about all resources of the type

	criteria *search // of a conditional one
}

// What a write comes to, by kinds: each has files of its own.
type (
	conditionals struct{ *write } // conditional.go
	updates      struct{ *write } // update.go
	patches      struct{ *write } // patch.go, fhirpathpatch.go
)

func (w *write) conditionals() conditionals { return conditionals{w} }
func (w *write) updates() updates           { return updates{w} }
func (w *write) patches() patches           { return patches{w} }

// newWrite refuses what no scope permits whatever the resource is.
func (x writes) newWrite(ctx context.Context, c call, i interaction.Interaction) (*write, error) {
	p := i.Permission() &^ smart.Search
	w := &write{exchange: x.exchange, c: c, i: i, grants: x.rights.For(i.Type, p), whole: x.rights.Whole(i.Type, p)}
	switch {
	case len(w.grants) == 0:
		return nil, x.refused(i)
	case i.Type == "Patient" && p&(smart.Create|smart.Delete) != 0:
		w.grants = slices.DeleteFunc(w.grants, func(g access.Grant) bool { return g.Patient != "" })
	}
	if len(w.grants) == 0 {
		return nil, forbidden(ErrScope, "Under scopes that are bound to a patient, no Patient is created or deleted.").Lifted(x.lacking(i))
	}
	if extra := w.extra(); extra != "" {
		return nil, forbidden(ErrScope, "%s is not allowed under these scopes.", extra)
	}
	if w.conditionals().isConditional() {
		return w, w.conditionals().plan(ctx)
	}
	return w, nil
}

// extra is what the request asks for beyond the one resource, and what no scope allows. Empty if nothing.
func (w *write) extra() string {
	switch {
	case !w.writes().mayExtend(w.c.header, w.i):
		return "A write of other resources along with the one named (_cascade, X-Cascade, X-Provenance)"
	case !w.whole && !w.conditionals().isConditional() && len(w.i.Criteria()) > 0:
		return "The parameter " + strconv.Quote(w.i.Criteria()[0].Name)
	}
	return ""
}

// mayExtend reports whether the scopes allow all resources that a write may reach beside the one that it names: those
// that refer to a deleted one, on HAPI's servers, and a Provenance (R4 provenance.html#header).
func (x writes) mayExtend(header http.Header, i interaction.Interaction) bool {
	all := x.rights.All()
	if header.Get("X-Provenance") != "" && (all&smart.Search == 0 || !x.rights.Whole("Provenance", smart.Create)) {
		return false
	}
	cascades := header.Get("X-Cascade") != "" || slices.ContainsFunc(i.Parameters, isCascade)
	return !cascades || all&smart.Delete != 0
}

// isCascade reports whether a parameter has HAPI's server delete what refers to a resource, too.
func isCascade(p smart.Parameter) bool {
	name, _, _ := strings.Cut(p.Name, ":")
	return name == "_cascade"
}

// version is a resource as it is or will be.
type version struct {
	resource.Resource
	text []byte
	etag string // of the version on the server, by which it is held
}

// newVersion reads the resource that the client writes.
func (w *write) newVersion(text []byte) (*version, error) {
	res, err := resource.Parse(text, w.BaseURL)
	switch {
	case err != nil:
		return nil, invalid(err, "The body is no resource in JSON that has one reading.")
	case res.Type != w.i.Type:
		return nil, invalid(errBody, "The resource is not of the type in the path.")
	}
	if err := w.checkEffect(res, text); err != nil {
		return nil, err
	}
	return &version{Resource: res, text: text}, w.writes().checkConditional(text)
}

// errAbsent says that a resource is not there. Clients are told no more than by ErrOutside.
var errAbsent = fmt.Errorf("%w: it is not there", ErrOutside)

// current asks for the version that is to be changed. One that is not covered is answered like one that is not there.
func (w *write) current(ctx context.Context) (*version, error) {
	a, err := w.ask(ctx, get(w.i.Type+"/"+w.i.ID, ""))
	if err != nil {
		return nil, err
	}
	asked := w.asked
	v, err := w.judgeCurrent(ctx, a)
	if err != nil {
		return nil, w.evenOut(ctx, w.i.Type, w.grants, asked, err)
	}
	return v, nil
}

// judgeCurrent is the version in an answer, if one of the grants covers it.
func (w *write) judgeCurrent(ctx context.Context, a *answer) (*version, error) {
	if a.status == http.StatusNotFound {
		refusal := notFound()
		refusal.Err = errAbsent
		return nil, refusal
	}
	if a.status != http.StatusOK {
		return nil, notRead(a)
	}
	if err := requireJSON(a); err != nil {
		return nil, err
	}
	res, err := w.parse(a.body)
	if err != nil {
		return nil, err
	}
	ok, err := w.covered(ctx, res, w.grants)
	if err == nil && (!ok || res.Type != w.i.Type || res.ID != w.i.ID) {
		err = notFound()
	}
	if err != nil {
		return nil, err
	}
	return w.held(res, a)
}

var errNoVersion = errors.New("the FHIR server tells no version, so that the one judged could be another when it is written")

// held is the version with the ETag by which it is held, if the client's conditions allow it to be changed.
func (w *write) held(res resource.Resource, a *answer) (*version, error) {
	etag := a.header.Get("Etag")
	if etag == "" && res.VersionID != "" {
		etag = `W/"` + res.VersionID + `"`
	}
	if etag == "" {
		return nil, withheld(errNoVersion)
	}
	match, none := w.c.header.Values("If-Match"), w.c.header.Values("If-None-Match")
	if len(match) > 0 && !namesETag(match, etag) || namesETag(none, etag) {
		return nil, &guard.Error{Status: http.StatusPreconditionFailed, Description: "The resource has another version.", Err: errConflict}
	}
	return &version{res, a.body, etag}, nil
}

// namesETag reports whether a condition names the ETag, or any.
func namesETag(condition []string, etag string) bool {
	return slices.Contains(condition, "*") || isNotModified(http.Header{"If-None-Match": condition}, etag)
}

// permit reports by its error whether one grant allows to make one version of the other. There is none before a resource
// is created, and none after it is deleted.
func (w *write) permit(ctx context.Context, before, after *version) error {
	var refusal error
	for _, g := range w.grants {
		err := w.allows(ctx, g, before, after)
		if !errors.Is(err, ErrOutside) {
			return err
		}
		refusal = err
	}
	return refusal
}

// allows reports by its error whether a grant does.
func (w *write) allows(ctx context.Context, g access.Grant, before, after *version) error {
	for _, v := range []*version{before, after} {
		if v == nil {
			continue
		}
		if ok, err := w.covers(ctx, g, v); err != nil || !ok {
			return cmp.Or(err, error(outside(w.i.Type)))
		}
	}
	if after == nil || g.Patient == "" {
		return nil
	}
	return w.checkReferences(ctx, g, before, after)
}

// checkCovered refuses a version that no grant covers, whatever is there before.
func (w *write) checkCovered(ctx context.Context, after *version) error {
	for _, g := range w.grants {
		if ok, err := w.covers(ctx, g, after); ok || err != nil {
			return err
		}
	}
	return outside(w.i.Type)
}

// covers reports whether a grant covers a version that is written, unless the site's rules say otherwise.
func (w *write) covers(ctx context.Context, g access.Grant, v *version) (bool, error) {
	if effect := w.ruled(ctx, v.Resource); effect != "" {
		return effect == policy.Allow, nil
	}
	return w.holds(ctx, g, w.rights.CoversNew(g, v.Resource))
}

// outside says that no grant covers what is written.
func outside(resourceType string) *guard.Error {
	return forbidden(ErrOutside, "No scope allows to write this %s: before and after, it must match the constraint of one and the same scope, "+
		"and name the patient of that scope and no other.", resourceType)
}
