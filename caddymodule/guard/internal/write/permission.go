package write

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/policy"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// CheckNew refuses a resource that none of the grants allows to be created.
func (x *Writes) CheckNew(ctx context.Context, res resource.Resource, text []byte, grants []access.Grant) error {
	if err := checkConditional(x.Judge.Rights(), text); err != nil {
		return err
	}
	may := permission{x.Judge, x.Shared, res.Type, grants}
	return may.permit(ctx, nil, &version{Resource: res, text: text})
}

// permit reports by its error whether one grant allows to make one version of the other. There is none before a resource
// is created, and none after it is deleted.
func (w permission) permit(ctx context.Context, before, after *version) error {
	var refusal error
	for _, g := range w.grants {
		err := w.allows(ctx, g, before, after)
		if !errors.Is(err, message.ErrOutside) {
			return err
		}
		refusal = err
	}
	return refusal
}

// allows reports by its error whether a grant does.
func (w permission) allows(ctx context.Context, g access.Grant, before, after *version) error {
	for _, v := range []*version{before, after} {
		if v == nil {
			continue
		}
		if ok, err := w.covers(ctx, g, v); err != nil || !ok {
			return cmp.Or(err, error(outside(w.resourceType)))
		}
	}
	if after == nil || g.Patient == "" {
		return nil
	}
	return w.checkReferences(ctx, g, before, after)
}

// checkCovered refuses a version that no grant covers, whatever is there before.
func (w permission) checkCovered(ctx context.Context, after *version) error {
	for _, g := range w.grants {
		if ok, err := w.covers(ctx, g, after); ok || err != nil {
			return err
		}
	}
	return outside(w.resourceType)
}

// covers reports whether a grant covers a version that is written, unless the site's rules say otherwise.
func (w permission) covers(ctx context.Context, g access.Grant, v *version) (bool, error) {
	if effect := w.judge.Ruled(ctx, v.Resource); effect != "" {
		return effect == policy.Allow, nil
	}
	return w.judge.Holds(ctx, g, w.judge.Rights().CoversNew(g, v.Resource))
}

// outside says that no grant covers what is written.
func outside(resourceType string) *guard.Error {
	return message.Forbidden(message.ErrOutside, "No scope allows to write this %s: before and after, it must match the constraint of one and the same scope, "+
		"and name the patient of that scope and no other.", resourceType)
}

// checkReferences refuses references that a new version adds, and by which a record would hang on one that is not
// covered. One to what is not there gets the same answer; the server's own would tell which it is.
func (w permission) checkReferences(ctx context.Context, g access.Grant, before, after *version) error {
	var old []string
	if before != nil {
		old, _ = message.References(before.text) // it was read before
	}
	added, err := message.References(after.text)
	if err != nil {
		return message.Invalid(err, "The body is no resource in JSON that has one reading.")
	}
	for _, literal := range added {
		if slices.Contains(old, literal) {
			continue
		}
		if ok, err := w.mayRefer(ctx, g, after.Resource, literal); err != nil || !ok {
			return cmp.Or(err, error(message.Forbidden(message.ErrOutside, "The resource refers to another one that is not there, or that the access token does not cover.")))
		}
	}
	return nil
}

// mayRefer reports whether a resource under a grant that is bound to a patient may refer to another.
func (w permission) mayRefer(ctx context.Context, g access.Grant, from resource.Resource, literal string) (bool, error) {
	if strings.HasPrefix(literal, "#") || strings.HasPrefix(literal, "urn:") {
		return true, nil
	}
	to, ok := from.ParseReference(literal)
	switch {
	case !ok:
		return false, nil
	case w.shared.IsNamed(to.Type):
		return true, nil
	case to.Base != "": // perhaps another name of the server's own
		return false, nil
	case to.Type == "Patient":
		return to.ID == g.Patient, nil
	}
	return w.judge.IsKnown(ctx, g, interaction.Reference{Type: to.Type, ID: to.ID})
}
