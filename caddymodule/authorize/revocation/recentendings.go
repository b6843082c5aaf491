package revocation

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// How many endings of one person are kept each by an entry of its own. One cutoff stands
// for all before: what was given until the latest of them, by any grant or in any session,
// has ended. Only access tokens and codes end by it that are older than so many endings.
const (
	// maxRevocations is how many revocations there are of what one person let one client have.
	maxRevocations = 200

	// maxEndedSessions is how many sessions of one person there are that ended.
	maxEndedSessions = 1000
)

// recentEndings are the latest endings of a kind of one person. Each leaves an entry in
// the stores for as long as an access token may live, and who is let in could end things
// all day.
type recentEndings struct {
	store.RecentList
	cutoff string                                     // stands for those that are too many
	forget func(ctx context.Context, id string) error // removes the entry of one
}

// KeepRevocation makes room for a revocation of what a user let a client have.
func (r *Revocations) KeepRevocation(ctx context.Context, user, clientID, id string) {
	r.keepEnding(ctx, id, recentEndings{
		RecentList: store.RecentList{Store: r.durable, Key: store.Key("revocations", pair(user, clientID)), Most: maxRevocations, TTL: cutoffLifetime},
		cutoff:     revocationsCutoff(user, clientID),
		forget: func(ctx context.Context, id string) error {
			return errors.Join(r.store.Delete(ctx, TokenKey(id)), r.durable.Delete(ctx, revokedPrefix+id))
		},
	})
}

// KeepEndedSession makes room for a session of a user that ended.
func (r *Revocations) KeepEndedSession(ctx context.Context, user, sid string) {
	r.keepEnding(ctx, sid, recentEndings{
		RecentList: store.RecentList{Store: r.durable, Key: store.Key("ended-sessions", user), Most: maxEndedSessions, TTL: cutoffLifetime},
		cutoff:     endedSessionsCutoff(user),
		forget: func(ctx context.Context, sid string) error {
			return errors.Join(r.store.Delete(ctx, SessionCutoff(sid)), r.durable.Delete(ctx, SessionCutoff(sid)))
		},
	})
}

// keepEnding adds an ending, which is stored by then: that it is not counted is no failure
// of it.
func (r *Revocations) keepEnding(ctx context.Context, id string, of recentEndings) {
	dropped, err := of.Keep(ctx, endingItem(time.Now(), id))
	for _, item := range dropped {
		err = errors.Join(err, r.foldEnding(ctx, item, of))
	}
	if err != nil {
		r.logger.ErrorContext(ctx, "endings of a person not counted", "error", err)
	}
}

// foldEnding has the cutoff stand for an ending.
func (r *Revocations) foldEnding(ctx context.Context, item string, of recentEndings) error {
	nanoseconds, id, _ := strings.Cut(item, " ")
	at, err := strconv.ParseInt(nanoseconds, 10, 64)
	if err == nil {
		err = r.CutOffAt(ctx, time.Unix(0, at), RareCutoff, of.cutoff)
	}
	if err != nil {
		return err
	}
	return of.forget(ctx, strings.TrimRight(id, " "))
}

// endingItem is an ending in a [store.RecentList]: when, and of what. A jti, the longest of ids,
// has 55 characters.
func endingItem(at time.Time, id string) string { return fmt.Sprintf("%019d %-55s", at.UnixNano(), id) }
