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

const (
	maxRevocations   = 200  // of one person's tokens and grants to one client
	maxEndedSessions = 1000 // of one person
)

// recentList limits the entries of one kind and person, who could make new ones all day:
// each stays for as long as an access token may live. A cutoff replaces the oldest entries.
// It voids all older codes and access tokens of the person.
type recentList struct {
	store.RecentList
	cutoff string // replaces the oldest
	prefix string // of an entry's key
}

// LimitRevocations counts the revocation of a user's token or grant to a client. If there
// are too many, a cutoff replaces the oldest.
func (r *Revocations) LimitRevocations(ctx context.Context, user, clientID, id string) {
	r.limit(ctx, id, recentList{
		RecentList: store.RecentList{Store: r.durable, Key: store.Key("revocations", pair(user, clientID)), Max: maxRevocations, TTL: cutoffLifetime},
		cutoff:     revocationsCutoff(user, clientID), prefix: revokedPrefix,
	})
}

// LimitEndedSessions does the same with the cutoff of an ended session.
func (r *Revocations) LimitEndedSessions(ctx context.Context, user, sid string) {
	r.limit(ctx, sid, recentList{
		RecentList: store.RecentList{Store: r.durable, Key: store.Key("ended-sessions", user), Max: maxEndedSessions, TTL: cutoffLifetime},
		cutoff:     endedSessionsCutoff(user), prefix: SessionCutoff(""),
	})
}

// limit only logs errors, because the entry itself is stored already.
func (r *Revocations) limit(ctx context.Context, id string, list recentList) {
	dropped, err := list.Add(ctx, listItem(r.Now().Add(r.margin()), id))
	for _, item := range dropped {
		err = errors.Join(err, r.fold(ctx, item, list))
	}
	if err != nil {
		r.logger.ErrorContext(ctx, "endings of a person not counted", "error", err)
	}
}

// fold replaces an entry by the cutoff.
func (r *Revocations) fold(ctx context.Context, item string, list recentList) error {
	nanoseconds, id, _ := strings.Cut(item, " ")
	at, err := strconv.ParseInt(nanoseconds, 10, 64)
	if err == nil {
		err = r.CutOffAt(ctx, time.Unix(0, at), RareCutoff, list.cutoff)
	}
	if err != nil {
		return err
	}
	key := list.prefix + strings.TrimRight(id, " ")
	err = r.near.Delete(ctx, key)
	if r.durable != r.near {
		err = errors.Join(err, r.durable.Delete(ctx, key))
	}
	return err
}

// listItem is the time and id of an entry, padded to the longest id, a jti.
func listItem(at time.Time, id string) string { return fmt.Sprintf("%019d %-55s", at.UnixNano(), id) }
