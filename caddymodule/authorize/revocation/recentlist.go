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

// recentList are the latest endings of a kind of one person. Each leaves an entry in
// the stores for as long as an access token may live, and who is let in could end things
// all day.
type recentList struct {
	store.RecentList
	cutoff string                                     // stands for those that are too many
	forget func(ctx context.Context, id string) error // removes the entry of one
}

// LimitRevocations makes room for a revocation of what a user let a client have.
func (r *Revocations) LimitRevocations(ctx context.Context, user, clientID, id string) {
	r.limit(ctx, id, recentList{
		RecentList: store.RecentList{Store: r.durable, Key: store.Key("revocations", pair(user, clientID)), Max: maxRevocations, TTL: cutoffLifetime},
		cutoff:     revocationsCutoff(user, clientID),
		forget: func(ctx context.Context, id string) error {
			return errors.Join(r.store.Delete(ctx, TokenKey(id)), r.durable.Delete(ctx, revokedPrefix+id))
		},
	})
}

// LimitEndedSessions makes room for a session of a user that ended.
func (r *Revocations) LimitEndedSessions(ctx context.Context, user, sid string) {
	r.limit(ctx, sid, recentList{
		RecentList: store.RecentList{Store: r.durable, Key: store.Key("ended-sessions", user), Max: maxEndedSessions, TTL: cutoffLifetime},
		cutoff:     endedSessionsCutoff(user),
		forget: func(ctx context.Context, sid string) error {
			return errors.Join(r.store.Delete(ctx, SessionCutoff(sid)), r.durable.Delete(ctx, SessionCutoff(sid)))
		},
	})
}

// limit adds an ending, which is stored by then: that it is not counted is no failure
// of it.
func (r *Revocations) limit(ctx context.Context, id string, of recentList) {
	dropped, err := of.Add(ctx, listItem(time.Now(), id))
	for _, item := range dropped {
		err = errors.Join(err, r.fold(ctx, item, of))
	}
	if err != nil {
		r.logger.ErrorContext(ctx, "endings of a person not counted", "error", err)
	}
}

// fold has the cutoff stand for an ending.
func (r *Revocations) fold(ctx context.Context, item string, of recentList) error {
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

// listItem is an ending in a [store.RecentList]: when, and of what. A jti, the longest of ids,
// has 55 characters.
func listItem(at time.Time, id string) string { return fmt.Sprintf("%019d %-55s", at.UnixNano(), id) }
