package consent

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

const (
	keyPrefix = "consent:"

	// maxConsents is how many clients a person can have answered. Beyond it, the earliest answers are forgotten.
	maxConsents = 1000
)

// listOf is the list of a person's consents: of what follows the prefix of their keys.
func (cs *Consents) listOf(user string) store.RecentList {
	return store.RecentList{Store: cs.Durable, Key: store.Key("consents", user), Max: maxConsents, TTL: lifetime}
}

// item is what a consent is listed as.
func item(user, clientID string) string {
	return strings.TrimPrefix(consentKey(user, clientID), keyPrefix)
}

// alter changes a consent as stored, and lists it. If the person has too many, the earliest are forgotten.
func (cs *Consents) alter(ctx context.Context, user, clientID string, do func(stored []byte) ([]byte, error)) error {
	list, listed := cs.listOf(user), item(user, clientID)
	for {
		err := store.Alter(ctx, cs.Durable, consentKey(user, clientID), lifetime, do, list.Adding(listed))
		if !errors.Is(err, store.ErrTooLong) || ctx.Err() != nil {
			return err
		}
		dropped, err := list.Fold(ctx, len(listed))
		if err == nil {
			dropped = slices.DeleteFunc(dropped, func(other string) bool { return other == listed })
			_, err = store.DeleteKeys(ctx, cs.Durable, keysOf(dropped), func(*Consent) bool { return true })
		}
		if err != nil {
			return err
		}
	}
}

func keysOf(items []string) (keys []string) {
	for _, item := range items {
		if key := keyPrefix + item; !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// Delete deletes consents, and returns how many: all of a user, all to a client, or that of the user to the client if both
// are named.
func (cs *Consents) Delete(ctx context.Context, user, clientID string) (deleted int, err error) {
	named := func(c *Consent) bool {
		return (user == "" || c.User == user) && (clientID == "" || c.ClientID == clientID)
	}
	switch {
	case user != "" && clientID != "":
		return store.DeleteKeys(ctx, cs.Durable, []string{consentKey(user, clientID)}, named)
	case user == "":
		return store.DeleteFunc(ctx, cs.Durable, keyPrefix, named)
	}
	items, err := cs.listOf(user).Items(ctx, len(item("", "")))
	if err != nil {
		return 0, err
	}
	return store.DeleteKeys(ctx, cs.Durable, keysOf(items), named)
}
