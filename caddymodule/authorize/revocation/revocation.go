// Package revocation knows which tokens are void.
//
// All of it is in the durable store, and near at hand for each check of an access token: in
// the store of what is in flight, to which it is copied after a restart, or, if gateways share
// the durable store, in this gateway's copy of that.
package revocation

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// Revocations void tokens and grants. They are in the durable store, and each check reads them
// near: in the store of what is in flight, to which they are copied, or, if several gateways
// share the durable store, in this gateway's copy of that.
type Revocations struct {
	near, durable store.Store
	inFlight      store.Store // has the marks of used codes
	logger        *slog.Logger

	loaded  atomic.Bool
	loading sync.Mutex
}

// New returns the revocations in a store and a durable store, which may be the same.
func New(inFlight, durable store.Store, logger *slog.Logger) *Revocations {
	r := &Revocations{near: inFlight, durable: durable, inFlight: inFlight, logger: logger}
	if store.IsShared(durable) { // the store follows them
		r.near = durable
	}
	r.loaded.Store(r.near == durable)
	return r
}

// Now is the time by which revocations and grants are dated: gateways that share a store
// have one clock.
func (r *Revocations) Now() time.Time { return store.Now(r.durable) }

const revokedPrefix = "revoked:"

// UsedCodeKey is the key that marks a grant's code as used.
func UsedCodeKey(family string) string { return "token:" + family }

// CodeRedeemed is the value of a used code's mark.
var CodeRedeemed = []byte("its code was used")

// Revoke voids an access token or a whole grant, by its id, for the time it has left, negative if it has expired, and
// [ClockJump] and a little longer, because clocks differ. In the same step it deletes what is over with it in
// the durable store. If the store is full, the mark of the grant's code, which is void too,
// makes room.
func (r *Revocations) Revoke(ctx context.Context, id string, left time.Duration, ended ...string) error {
	left += ClockJump + time.Minute
	until, _ := r.Now().Add(left).MarshalText() // fails only after the year 9999
	revoked := &store.Call{Op: store.Put, Key: revokedPrefix + id, Value: until, TTL: left}
	durable := append([]*store.Call{revoked}, store.Deleting(ended...)...)
	near := durable
	if r.durable != r.near {
		near = []*store.Call{revoked}
	}
	err := r.near.Do(ctx, near...)
	if errors.Is(err, store.ErrFull) {
		mark := &store.Call{Op: store.Delete, Key: UsedCodeKey(id)}
		err = store.Do(ctx, store.In(r.near, near...), store.In(r.inFlight, mark))
	}
	if r.durable != r.near {
		err = errors.Join(err, r.durable.Do(ctx, durable...))
	}
	return err
}

// IDSize is the size of a random id in bytes.
const IDSize = 16

// NewTokenID makes the jti of an access token. It begins with the family's id, so that one
// entry revokes all tokens of a grant, even those being made. The time in nanoseconds
// follows: the seconds of iat could not be compared with a cutoff.
func NewTokenID(family string, at time.Time) string { return family + "." + NewDatedID(at) }

// NewDatedID returns a random id that begins with a time.
func NewDatedID(at time.Time) string {
	dated := binary.BigEndian.AppendUint64(nil, uint64(at.UnixNano()))
	return base64.RawURLEncoding.EncodeToString(append(dated, oauth2.RandomBytes(IDSize)...))
}

// IssuedAt returns the time of a jti, or the zero time if it is malformed.
func IssuedAt(tokenID string) time.Time {
	dated, err := base64.RawURLEncoding.DecodeString(tokenID[strings.LastIndexByte(tokenID, '.')+1:])
	if err != nil || len(dated) != 8+IDSize {
		return time.Time{}
	}
	return time.Unix(0, int64(binary.BigEndian.Uint64(dated)))
}

// RandomID returns 128 random bits in base64url.
func RandomID() string { return base64.RawURLEncoding.EncodeToString(oauth2.RandomBytes(IDSize)) }

// A Check reads in a step whether a grant is void. Unlike [Revocations.Revoked], it misses
// nothing that another gateway has stored.
type Check struct {
	near    store.Store
	revoked *store.Call // nil without a family
	cutoffs []*store.Call
}

// Binding is what a code or token is bound to, which decides what cutoffs apply.
type Binding struct {
	User, ClientID string // the sub and the client_id
	Session        string // the sid; empty if it outlives the session
	ByConsent      bool   // an access token that the person consented to
	ShortLived     bool   // a code or access token; refresh tokens that end are deleted
}

// Check returns the check of a grant by the id of its family, if it has one by now, and by
// what it is bound to. It reads as part of [Check.Step].
func (r *Revocations) Check(ctx context.Context, family string, b Binding) (*Check, error) {
	if err := r.load(ctx); err != nil {
		return nil, err
	}
	c := &Check{near: r.near}
	if family != "" {
		c.revoked = &store.Call{Op: store.Get, Key: revokedPrefix + family}
	}
	for _, key := range append(commonCutoffs(b), rareCutoffs(b)...) {
		c.cutoffs = append(c.cutoffs, &store.Call{Op: store.Get, Key: key})
	}
	return c, nil
}

// Step is the step to make. Put it after those that store something new: either this reads the
// revocation, or who revokes finds what was stored.
func (c *Check) Step() store.Step {
	if c.revoked == nil {
		return store.In(c.near, c.cutoffs...)
	}
	return store.In(c.near, append([]*store.Call{c.revoked}, c.cutoffs...)...)
}

// Cutoff returns the latest cutoff that the step found, or the zero time.
func (c *Check) Cutoff() (latest time.Time, err error) {
	for _, call := range c.cutoffs {
		at, err := parseCutoff(call.Value)
		if err != nil {
			return latest, err
		}
		if at.After(latest) {
			latest = at
		}
	}
	return latest, nil
}

// Void reports whether the step found a revocation of the family, or a cutoff of what was
// issued at a time.
func (c *Check) Void(issued time.Time) (bool, error) {
	if c.revoked != nil && c.revoked.Value != nil {
		return true, nil
	}
	cutoff, err := c.Cutoff()
	return IsCutOff(issued, cutoff), err
}

// Revoked reports whether an access token was revoked, by itself or with its grant. Where
// several gateways share the store, what another has just revoked may not be known yet; a
// [Check] finds it.
func (r *Revocations) Revoked(ctx context.Context, tokenID string) (bool, error) {
	if err := r.load(ctx); err != nil {
		return false, err
	}
	family, _, member := strings.Cut(tokenID, ".")
	revoked, err := r.isRevoked(ctx, tokenID)
	if member && err == nil && !revoked {
		return r.isRevoked(ctx, family)
	}
	return revoked, err
}

func (r *Revocations) isRevoked(ctx context.Context, id string) (bool, error) {
	_, err := r.near.Get(ctx, revokedPrefix+id)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// LatestCutoff returns the latest cutoff that applies to a binding, or the zero time. As with
// [Revocations.Revoked], one that another gateway has just stored may not be known yet.
func (r *Revocations) LatestCutoff(ctx context.Context, b Binding) (latest time.Time, err error) {
	if err := r.load(ctx); err != nil {
		return time.Time{}, err
	}
	keys := commonCutoffs(b)
	rare, err := readCutoff(ctx, r.near, RareCutoff)
	if !rare.IsZero() {
		keys = append(keys, rareCutoffs(b)...)
	}
	for _, key := range keys {
		var at time.Time
		if err == nil {
			at, err = readCutoff(ctx, r.near, key)
		}
		if at.After(latest) {
			latest = at
		}
	}
	return latest, err
}

func commonCutoffs(b Binding) (keys []string) {
	if b.Session != "" {
		keys = append(keys, SessionCutoff(b.Session))
	}
	if b.ByConsent {
		keys = append(keys, ConsentCutoff(b.User, b.ClientID))
	}
	return keys
}

// rareCutoffs are those that [RareCutoff] stands for.
func rareCutoffs(b Binding) []string {
	keys := []string{UserCutoff(b.User), ClientCutoff(b.ClientID), PairCutoff(b.User, b.ClientID)}
	if b.ShortLived {
		keys = append(keys, revocationsCutoff(b.User, b.ClientID))
	}
	if b.ShortLived && b.Session != "" {
		keys = append(keys, endedSessionsCutoff(b.User))
	}
	return keys
}

// load makes the revocations known that were stored before this process started, once. Until
// that has succeeded, no token is valid.
func (r *Revocations) load(ctx context.Context) error {
	if r.loaded.Load() {
		return nil
	}
	r.loading.Lock()
	defer r.loading.Unlock()
	if r.loaded.Load() { // while waiting
		return nil
	}
	if err := r.copyDurable(ctx); err != nil {
		return fmt.Errorf("reading the revocations: %w", err)
	}
	r.loaded.Store(true)
	return nil
}

// copyDurable copies the entries of the durable store.
func (r *Revocations) copyDurable(ctx context.Context) error {
	keys, err := r.durable.List(ctx, revokedPrefix)
	if err != nil {
		return err
	}
	for _, key := range keys {
		if err := r.copyRevocation(ctx, key); err != nil {
			return err
		}
	}
	return r.copyCutoffs(ctx)
}

func (r *Revocations) copyRevocation(ctx context.Context, key string) error {
	text, err := r.durable.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) { // by now
		return nil
	}
	var until time.Time
	if err == nil {
		err = until.UnmarshalText(text)
	}
	left := store.Until(r.durable, until)
	if err != nil || left <= 0 {
		return err
	}
	return r.near.Put(ctx, key, text, left)
}

func (r *Revocations) copyCutoffs(ctx context.Context) error {
	keys, err := r.durable.List(ctx, cutoffPrefix)
	for _, key := range keys {
		var at time.Time
		if err == nil {
			at, err = readCutoff(ctx, r.durable, key)
		}
		if err == nil {
			err = r.putCutoffs(ctx, r.near, at, []string{key}, nil)
		}
	}
	return err
}

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
