package people

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

func accountKey(id string) string { return "account:" + id }

// Keep makes the account of a provider's subject, and so its link to a local user, last as
// long as a refresh token.
func (a *Accounts) Keep(ctx context.Context, provider, subject string, lifetime time.Duration) error {
	p := a.Providers[provider]
	if p == nil {
		return nil
	}
	id := accountID(p.Issuer, subject)
	value, err := a.Store.Get(ctx, accountKey(id))
	if errors.Is(err, store.ErrNotFound) { // just removed
		return nil
	}
	if err != nil {
		return err
	}
	return a.retain(ctx, id, value, lifetime+a.Lifetime)
}

// keptAccount is an account in the durable store.
type keptAccount struct {
	storedAccount
	Until time.Time `json:"until,omitzero"` // when nothing refers to it any more
}

// retain keeps an account for at least a lifetime. It writes only if the account changes or
// must last longer.
func (a *Accounts) retain(ctx context.Context, id string, account []byte, lifetime time.Duration) error {
	var kept keptAccount
	if err := json.Unmarshal(account, &kept); err != nil {
		return fmt.Errorf("keeping an account: %w", err)
	}
	for ctx.Err() == nil {
		old, err := a.Durable.Get(ctx, keptAccountPrefix+id)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		kept.Until = time.Now().Add(lifetime).Truncate(time.Second)
		if err == nil {
			if kept.Until, err = a.keptUntil(old, kept.Until); err != nil {
				return err
			}
		}
		value, err := json.Marshal(kept)
		if err != nil || bytes.Equal(value, old) {
			return err
		}
		if old == nil {
			err = a.Durable.Add(ctx, keptAccountPrefix+id, value, time.Until(kept.Until))
		} else {
			err = a.Durable.Swap(ctx, keptAccountPrefix+id, old, value, time.Until(kept.Until))
		}
		if !errors.Is(err, store.ErrExists) && !errors.Is(err, store.ErrChanged) { // a concurrent change
			return err
		}
	}
	return ctx.Err()
}

// keptUntil is the later of until and the time until which an account is kept already. One
// of an earlier version has no time, and counts as that of a new refresh token.
func (a *Accounts) keptUntil(old []byte, until time.Time) (time.Time, error) {
	var kept keptAccount
	if err := json.Unmarshal(old, &kept); err != nil {
		return until, fmt.Errorf("reading a kept account: %w", err)
	}
	if kept.Until.IsZero() {
		kept.Until = time.Now().Add(a.RefreshLifetime + a.Lifetime).Truncate(time.Second)
	}
	if kept.Until.After(until) {
		until = kept.Until
	}
	return until, nil
}

// deny refuses a person, and deletes the account that the same provider admitted before,
// which ends its sessions and tokens. The identity must be of an ID token just verified, so
// that only the provider can do this. An account that another idp of the same issuer
// admitted last is left alone.
func (a *Accounts) deny(ctx context.Context, p *Provider, id identity) error {
	stored, err := a.storedAccount(ctx, id.user.ID)
	if stored != nil && audit.FromContext(ctx).User == "" {
		audit.FromContext(ctx).User = id.user.ID
	}
	if err == nil && stored != nil && stored.Provider == p.Key {
		// The kept one first: the other would be restored from it.
		err = errors.Join(a.Durable.Delete(ctx, keptAccountPrefix+id.user.ID), a.Store.Delete(ctx, accountKey(id.user.ID)))
	}
	refusal := *ErrNotAllowed
	refusal.Err = err
	return &refusal
}

const keptAccountPrefix = "kept-account:"

// restoreAccount copies a kept account back to the store, and returns it, or nil.
func (a *Accounts) restoreAccount(ctx context.Context, id string) (*storedAccount, error) {
	value, err := a.Durable.Get(ctx, keptAccountPrefix+id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	stored := new(storedAccount)
	if err == nil {
		err = a.Store.Put(ctx, accountKey(id), value, a.Lifetime)
	}
	if err == nil {
		err = json.Unmarshal(value, stored)
	}
	return stored, err
}
