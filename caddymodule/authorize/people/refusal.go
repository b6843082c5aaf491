package people

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
)

var errDisabledHere = errors.New("the user here whom they are linked to is disabled")

// Refusal is [ErrNotAllowed] with the reason, which is for the audit trail alone.
func Refusal(why error) error {
	refusal := *ErrNotAllowed
	refusal.Err = why
	return &refusal
}

// ErrNotForgotten says that a person was refused, and keeps what they were given, because the store failed.
var ErrNotForgotten = errors.New("the account could not be deleted")

// deny refuses a person, and deletes the accounts that the same provider admitted before, which ends their sessions and
// tokens. The identity must be of an ID token just verified, so that only the provider can do this. An account that
// another idp of the same issuer admitted last is left alone.
func deny(ctx context.Context, a *Accounts, p *Provider, id identity, why error) error {
	found, err := Finder{a}.BySubject(ctx, p, id.subject)
	for _, known := range found {
		if audit.FromContext(ctx).User == "" {
			audit.FromContext(ctx).User = known.ID
		}
		if known.Provider == p.Key {
			err = errors.Join(err, a.Forget(ctx, known.ID))
		}
	}
	if err != nil {
		why = fmt.Errorf("%w; %w: %w", why, ErrNotForgotten, err)
	}
	return Refusal(why)
}

// Forget deletes an account, which ends what depends on it until the person signs in again.
func (a *Accounts) Forget(ctx context.Context, id string) error {
	// The kept one first: the other would be restored from it.
	return store.Do(
		ctx, store.In(a.Durable, &store.Call{Op: store.Delete, Key: keptAccountPrefix + id}),
		store.In(a.Store, &store.Call{Op: store.Delete, Key: accountKey(id)}),
	)
}

// whyRefused says how a person misses each rule, without the claims themselves.
func (p *Provider) whyRefused(id identity) error {
	var missed []string
	for _, rule := range p.Allow {
		missed = append(missed, fmt.Sprintf("allow %s %s: %s", rule.Claim, rule.Value, id.misses(rule)))
	}
	return errors.New(strings.Join(missed, "; "))
}

func (id identity) misses(rule AllowRule) string {
	switch {
	case rule.isOnGroup() && slices.Contains(id.user.Unread, tokenclaim.Groups):
		return "the groups that the idp sent cannot be read"
	case rule.isOnGroup() && len(id.groups) == 0:
		return "the idp sent no groups"
	case rule.isOnGroup():
		return "not in this group"
	case id.user.Email == "":
		return "the idp sent no e-mail address"
	case id.verifiedEmail() == "":
		return "the e-mail address is not verified"
	}
	return "another e-mail address"
}
