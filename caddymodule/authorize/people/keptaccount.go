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

// Keep makes the account of a provider's subject, or what links it to a local
// user, outlive the session, for as long as there is a refresh token of theirs.
func (a *Accounts) Keep(ctx context.Context, provider, subject string, lifetime time.Duration) error {
	p := a.Providers[provider]
	if p == nil {
		return nil
	}
	id := accountID(p.Issuer, subject)
	value, err := a.Store.Get(ctx, accountKey(id))
	if errors.Is(err, store.ErrNotFound) { // removed in this very moment
		return nil
	}
	if err != nil {
		return err
	}
	return a.keepFor(ctx, id, value, lifetime+a.Lifetime)
}

// keptAccount is an account as the durable store keeps it.
type keptAccount struct {
	storedAccount
	Until time.Time `json:"until,omitzero"` // when nothing refers to it any more
}

// keepFor keeps what a provider said of a person for some time at least: what was kept
// for longer stays as long, with what is said now. It is written if that is something
// else, or must last longer.
func (a *Accounts) keepFor(ctx context.Context, id string, account []byte, lifetime time.Duration) error {
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
		if !errors.Is(err, store.ErrExists) && !errors.Is(err, store.ErrChanged) { // by another at the same time
			return err
		}
	}
	return ctx.Err()
}

// keptUntil is until when an account must be kept that is kept already: no shorter. One
// that does not say is from before they did, and may be that of a refresh token.
func (a *Accounts) keptUntil(old []byte, until time.Time) (time.Time, error) {
	var kept keptAccount
	if err := json.Unmarshal(old, &kept); err != nil {
		return until, fmt.Errorf("reading a kept account: %w", err)
	}
	if kept.Until.IsZero() {
		kept.Until = time.Now().Add(a.RefreshLifetime + a.Lifetime).Truncate(time.Second)
	}
	if kept.Until.After(until) {
		return kept.Until, nil
	}
	return until, nil
}

// turnAway refuses a person, and ends the account that the same provider let them have
// before: with it sessions and tokens end, for as long as the person is not let in
// again. The identity must be that of an ID token that has just been verified, so that
// nobody but the provider can end anything. An account that another idp of the same
// issuer let in last is that one's to end.
func (a *Accounts) turnAway(ctx context.Context, p *Provider, id identity) error {
	stored, err := a.storedAccount(ctx, id.user.ID)
	if stored != nil && audit.FromContext(ctx).User == "" {
		audit.FromContext(ctx).User = id.user.ID
	}
	if err == nil && stored != nil && stored.Provider == p.Key {
		// That which brings the other back goes first.
		err = errors.Join(a.Durable.Delete(ctx, keptAccountPrefix+id.user.ID), a.Store.Delete(ctx, accountKey(id.user.ID)))
	}
	refusal := *ErrNotAllowed
	refusal.Err = err
	return &refusal
}

const keptAccountPrefix = "kept-account:"

// restoreAccount brings an account back that was kept, so that the next who asks
// for it finds it in the store.
func (a *Accounts) restoreAccount(ctx context.Context, id string) ([]byte, error) {
	value, err := a.Durable.Get(ctx, keptAccountPrefix+id)
	if err != nil {
		return nil, err
	}
	return value, a.Store.Put(ctx, accountKey(id), value, a.Lifetime)
}
