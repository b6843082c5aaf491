package authorize

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// How many endings of one person are kept each by an entry of its own. One cutoff stands
// for all before: what was given until the latest of them, by any grant or in any session,
// has ended. Only access tokens and codes end by it that are older than so many endings.
const (
	// maxRevocations is how many revocations there are of what one person let one client have.
	maxRevocations = 200

	// maxEndedSessions is how many sessions of one person there are that ended.
	maxEndedSessions = maxSessions
)

// recentEndings are the latest endings of a kind of one person. Each leaves an entry in
// the stores for as long as an access token may live, and who is let in could end things
// all day.
type recentEndings struct {
	recentList
	cutoff string                                     // stands for those that are too many
	forget func(ctx context.Context, id string) error // removes the entry of one
}

func (r *revocations) keepRevocation(ctx context.Context, user, clientID, id string) {
	r.keepEnding(ctx, id, recentEndings{
		recentList: recentList{store: r.durable, key: storeKey("revocations", pair(user, clientID)), most: maxRevocations, ttl: cutoffLifetime},
		cutoff:     revocationsCutoff(user, clientID),
		forget: func(ctx context.Context, id string) error {
			return errors.Join(r.store.Delete(ctx, tokenKey(id)), r.durable.Delete(ctx, revokedPrefix+id))
		},
	})
}

func (r *revocations) keepEndedSession(ctx context.Context, session *storedSession) {
	r.keepEnding(ctx, session.sid, recentEndings{
		recentList: recentList{store: r.durable, key: storeKey("ended-sessions", session.User), most: maxEndedSessions, ttl: cutoffLifetime},
		cutoff:     endedSessionsCutoff(session.User),
		forget: func(ctx context.Context, sid string) error {
			return errors.Join(r.store.Delete(ctx, sessionCutoff(sid)), r.durable.Delete(ctx, sessionCutoff(sid)))
		},
	})
}

// keepEnding adds an ending, which is stored by then: that it is not counted is no failure
// of it.
func (r *revocations) keepEnding(ctx context.Context, id string, of recentEndings) {
	dropped, err := of.keep(ctx, endingItem(time.Now(), id))
	for _, item := range dropped {
		err = errors.Join(err, r.foldEnding(ctx, item, of))
	}
	if err != nil {
		r.logger.ErrorContext(ctx, "endings of a person not counted", "error", err)
	}
}

// foldEnding has the cutoff stand for an ending.
func (r *revocations) foldEnding(ctx context.Context, item string, of recentEndings) error {
	nanoseconds, id, _ := strings.Cut(item, " ")
	at, err := strconv.ParseInt(nanoseconds, 10, 64)
	if err == nil {
		err = r.cutOffAt(ctx, time.Unix(0, at), rareCutoff, of.cutoff)
	}
	if err != nil {
		return err
	}
	return of.forget(ctx, strings.TrimRight(id, " "))
}

// endingItem is an ending in a [recentList]: when, and of what. A jti, the longest of ids,
// has 55 characters.
func endingItem(at time.Time, id string) string { return fmt.Sprintf("%019d %-55s", at.UnixNano(), id) }
