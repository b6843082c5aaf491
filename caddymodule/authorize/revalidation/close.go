package revalidation

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

const (
	// maxSignIns is how many sign-ins of one person at a provider are listed.
	maxSignIns = 1000

	// beginning is longer than it takes from the list to the record of a sign-in.
	beginning = time.Minute
)

// closer removes sign-ins of which nothing is left.
type closer struct {
	records   records
	providers *providers
	lifetime  time.Duration // of a list
	logger    *slog.Logger
}

var sidSize = len(oauth2.RandomToken())

// listOf lists the sessions of a person at a provider.
func (c *closer) listOf(ctx context.Context, r *record) store.RecentList {
	return store.RecentList{
		Store: c.records.store, Key: store.Key("upstream-of", r.Provider+"\x00"+r.Subject), Max: maxSignIns, TTL: c.lifetime,
		Ended: func(sids []string) ([]bool, error) { return c.areOver(ctx, r.Provider, sids) },
	}
}

// expect lists a sign-in that is about to be stored. Until it is, its mark keeps it from counting as over.
func (c *closer) expect(ctx context.Context, r *record) error {
	_, err := c.listOf(ctx, r).Add(ctx, r.SID, &store.Call{Op: store.Put, Key: duePrefix + r.name(), Value: []byte("begins"), TTL: beginning})
	return err
}

// areOver reports of which sessions' sign-ins nothing is left.
func (c *closer) areOver(ctx context.Context, provider string, sids []string) ([]bool, error) {
	var keys []string
	for _, sid := range sids {
		keys = append(keys, recordPrefix+name(sid, provider), duePrefix+name(sid, provider))
	}
	values, err := store.Values(ctx, c.records.store, keys...)
	over := make([]bool, len(sids))
	for i := range sids {
		over[i] = err == nil && values[2*i] == nil && len(values[2*i+1]) == 0
	}
	return over, err
}

// close removes a sign-in whose session has ended with all that it gave, and gives the refresh token
// back, lest the provider keep a sign-in that nobody needs. It does so with the person's last
// sign-in only: some providers revoke all that the person gave us with one refresh token. A provider
// that has another issuer than at sign-in replaced the one that issued the token, and is not sent it.
func (c *closer) close(ctx context.Context, r *record) {
	if err := c.records.remove(ctx, r.name()); err != nil {
		return // the next sweep tries again
	}
	p := c.providers.asked(r.Provider)
	sids, err := c.listOf(ctx, r).Items(ctx, sidSize)
	slices.Sort(sids)
	var over []bool
	if err == nil {
		over, err = c.areOver(ctx, r.Provider, slices.Compact(sids))
	}
	if p == nil || p.Issuer != r.Issuer || err != nil || !r.Expires.IsZero() || slices.Contains(over, false) {
		return
	}
	token, err := c.records.open(ctx, r)
	if err == nil && c.providers.silent(p.Key) == nil {
		err = p.Client.Revoke(ctx, token)
	}
	if err != nil {
		c.logger.InfoContext(ctx, "a refresh token was not given back to the identity provider", "idp", p.Key, "error", err)
	}
}
