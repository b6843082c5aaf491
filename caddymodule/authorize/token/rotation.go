package token

import (
	"context"
	"errors"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// rotation replaces a refresh token by the next, in one step of each store that also reads
// whether the grant still stands.
type rotation struct {
	families *families
	client   *client.Client
	family   *refreshFamily
	stored   []byte // the family as it was found
	value    []byte // as it is to be; nil if the token was replaced already

	check            *revocation.Check
	session, consent []*store.Call // what is read, if it matters
}

// rotate returns the next refresh token: a new one, or within the grace period the same one
// again. If another request was faster, the error is [store.ErrChanged].
//
// For a new one it does not read whether the family was revoked. Who revokes deletes the family
// last: then the swap fails, if the check was too early. And PostgreSQL reads after the swap: a
// second use may have revoked the family by then, but this request was the first.
func (fs *families) rotate(ctx context.Context, client *client.Client, f *refreshFamily, stored []byte, token string) (string, error) {
	r := &rotation{families: fs, client: client, family: f, stored: stored}
	if !f.isCurrent(token) {
		return f.successor(token), r.do(ctx, f.Grant.Family)
	}
	next := f.rotate(token, fs.now())
	var err error
	if r.value, err = store.ToJSON(f); err != nil {
		return "", err
	}
	return next, r.do(ctx, "")
}

// do makes the step, and refuses if a family was revoked, unless that is "".
func (r *rotation) do(ctx context.Context, revocable string) (err error) {
	g := r.family.Grant
	if r.check, err = r.families.revocations.Check(ctx, revocable, g.binding()); err != nil {
		return err
	}
	r.consent = r.families.grants.readingConsent(g, r.client)
	if g.online() {
		r.session = []*store.Call{session.Reading(g.Session)}
	}
	var calls []*store.Call
	if r.value != nil {
		calls = append(calls, r.replacing(r.stored, r.value))
	}
	calls = append(append(calls, r.consent...), r.session...)
	if err := store.Do(ctx, r.check.Step(), store.In(r.families.durable, calls...)); err != nil {
		return err
	}
	return r.confirm(ctx)
}

func (r *rotation) replacing(old, value []byte) *store.Call {
	fs := r.families
	return &store.Call{
		Op: store.Swap, Key: familyKey(r.family.Grant.Family), Old: old, Value: value,
		TTL: store.Until(fs.durable, r.family.expires(fs.RefreshIdle)),
	}
}

// confirm refuses a grant that ended before the step. One that has ended for good is removed;
// one whose consent may come back gets its token back.
func (r *rotation) confirm(ctx context.Context) error {
	durable, g := r.families.durable, r.family.Grant
	undoing := context.WithoutCancel(ctx)
	void, err := r.check.Void(g.GrantedAt)
	switch {
	case err != nil:
		return err
	case void:
		return errors.Join(errInvalidRefreshToken, durable.Delete(undoing, familyKey(g.Family)))
	case r.session != nil && r.session[0].Value == nil:
		return errors.Join(errSignedOut, durable.Delete(undoing, familyKey(g.Family)))
	}
	err = r.families.grants.checkReadConsent(g, r.client, r.consent)
	if err != nil && r.value != nil {
		undone := durable.Do(undoing, r.replacing(r.value, r.stored))
		if !store.Lost(undone) {
			err = errors.Join(err, undone)
		}
	}
	return err
}
