// Package revocation manages revoked tokens and cutoffs.
//
// All data is in the durable store. A copy for checks of access tokens is in the store of in-flight
// data, loaded after a restart, or, if gateways share the durable store, in the gateway's replica.
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

// Revocations manages revoked tokens and grants. They are in the durable store. Checks read a near copy: in
// the store of in-flight data, or, if several gateways share the durable store, in this gateway's replica.
type Revocations struct {
	near, durable store.Store
	inFlight      store.Store // store of the marks of used codes
	logger        *slog.Logger

	loaded  atomic.Bool
	loading sync.Mutex
}

// New returns the revocations in an in-flight and a durable store, which may be the same.
func New(inFlight, durable store.Store, logger *slog.Logger) *Revocations {
	r := &Revocations{near: inFlight, durable: durable, inFlight: inFlight, logger: logger}
	if store.IsShared(durable) { // shared stores maintain a replica
		r.near = durable
	}
	r.loaded.Store(r.near == durable)
	return r
}

// Now returns the time for dating revocations and grants; gateways that share a store use the store's clock.
func (r *Revocations) Now() time.Time { return store.Now(r.durable) }

const revokedPrefix = "revoked:"

// UsedCodeKey returns the key that marks a grant's code as used.
func UsedCodeKey(family string) string { return "token:" + family }

// CodeRedeemed is the value of a used code's mark.
var CodeRedeemed = []byte("its code was used")

// Revoke voids an access token or an entire grant by id, for the remaining lifetime (negative if
// expired) plus [ClockJump] and a margin for clock skew. In the same step it deletes the ended entries
// of the durable store. In a full store, the mark of the grant's code, which is void too, makes room.
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
		err = store.Do(ctx, store.StepIn(r.near, near...), store.StepIn(r.inFlight, mark))
	}
	if r.durable != r.near {
		err = errors.Join(err, r.durable.Do(ctx, durable...))
	}
	return err
}

// IDSize is the size of a random id in bytes.
const IDSize = 16

// NewTokenID returns a jti for an access token. It starts with the family's id, so that one entry
// revokes all tokens of a grant, including tokens being issued. The time in nanoseconds follows,
// because the seconds of iat are too coarse for comparison with a cutoff.
func NewTokenID(family string, at time.Time) string { return family + "." + NewDatedID(at) }

// NewDatedID returns a random id that starts with a time.
func NewDatedID(at time.Time) string {
	dated := binary.BigEndian.AppendUint64(nil, uint64(at.UnixNano()))
	return base64.RawURLEncoding.EncodeToString(append(dated, oauth2.RandomBytes(IDSize)...))
}

// IssuedAt returns the time in a jti, or the zero time if malformed.
func IssuedAt(tokenID string) time.Time {
	dated, err := base64.RawURLEncoding.DecodeString(tokenID[strings.LastIndexByte(tokenID, '.')+1:])
	if err != nil || len(dated) != 8+IDSize {
		return time.Time{}
	}
	return time.Unix(0, int64(binary.BigEndian.Uint64(dated)))
}

// RandomID returns 128 random bits in base64url.
func RandomID() string { return base64.RawURLEncoding.EncodeToString(oauth2.RandomBytes(IDSize)) }

// A Check reads in a step whether a grant is void. Unlike [Revocations.Revoked], it sees all changes of other gateways.
type Check struct {
	near    store.Store
	revoked *store.Call // nil without a family
	cutoffs []*store.Call
}

// Binding contains the values that determine the cutoffs for a code or token.
type Binding struct {
	User, ClientID string // sub and client_id
	Session        string // sid; empty if not bound to a session
	ByConsent      bool   // an access token based on a consent
	ShortLived     bool   // a code or access token; revoked refresh tokens are deleted instead
}

// Check returns the check of a grant by its family's id, if any, and its binding. It reads as part of [Check.Step].
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

// Step returns the step to execute. It must follow the steps that store new grants: either the step
// reads the revocation, or the revocation finds the stored grant.
func (c *Check) Step() store.Step {
	if c.revoked == nil {
		return store.StepIn(c.near, c.cutoffs...)
	}
	return store.StepIn(c.near, append([]*store.Call{c.revoked}, c.cutoffs...)...)
}

// Cutoff returns the latest cutoff read by the step, or the zero time.
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

// IsRevoked reports whether the step has read a revocation of the family, or a cutoff for the issue time.
func (c *Check) IsRevoked(issued time.Time) (bool, error) {
	if c.revoked != nil && c.revoked.Value != nil {
		return true, nil
	}
	cutoff, err := c.Cutoff()
	return IsCutOff(issued, cutoff), err
}

// Revoked reports whether an access token or its grant was revoked. With a shared store, another
// gateway's revocation may not be visible yet; a [Check] sees it.
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

// LatestCutoff returns the latest cutoff for a binding, or the zero time. As with
// [Revocations.Revoked], another gateway's cutoff may not be visible yet.
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

// rareCutoffs returns the cutoffs announced by [RareCutoff].
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

// load copies the revocations stored before this process started, once. Until it succeeds, no token is valid.
func (r *Revocations) load(ctx context.Context) error {
	if r.loaded.Load() {
		return nil
	}
	r.loading.Lock()
	defer r.loading.Unlock()
	if r.loaded.Load() { // loaded while waiting
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
	if errors.Is(err, store.ErrNotFound) { // deleted concurrently
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
	maxRevocations   = 200  // maximum number per user and client
	maxEndedSessions = 1000 // maximum number per user
)

// recentList limits the entries of one kind per user, who could otherwise create new ones all day:
// each is stored for the lifetime of access tokens. A cutoff replaces the oldest entries and voids
// all older codes and access tokens of the user.
type recentList struct {
	store.RecentList
	cutoff string // key of the replacing cutoff
	prefix string // prefix of entry keys
}

// LimitRevocations counts the revocation of a user's token or grant to a client. Beyond the limit,
// a cutoff replaces the oldest.
func (r *Revocations) LimitRevocations(ctx context.Context, user, clientID, id string) {
	r.limit(ctx, id, recentList{
		RecentList: store.RecentList{Store: r.durable, Key: store.Key("revocations", pair(user, clientID)), Max: maxRevocations, TTL: cutoffLifetime},
		cutoff:     revocationsCutoff(user, clientID), prefix: revokedPrefix,
	})
}

// LimitEndedSessions does the same for the cutoffs of ended sessions.
func (r *Revocations) LimitEndedSessions(ctx context.Context, user, sid string) {
	r.limit(ctx, sid, recentList{
		RecentList: store.RecentList{Store: r.durable, Key: store.Key("ended-sessions", user), Max: maxEndedSessions, TTL: cutoffLifetime},
		cutoff:     endedSessionsCutoff(user), prefix: SessionCutoff(""),
	})
}

// limit only logs errors, because the entry itself is already stored.
func (r *Revocations) limit(ctx context.Context, id string, list recentList) {
	dropped, err := list.Add(ctx, listItem(r.Now().Add(r.margin()), id))
	for _, item := range dropped {
		err = errors.Join(err, r.fold(ctx, item, list))
	}
	if err != nil {
		r.logger.ErrorContext(ctx, "endings of a person not counted", "error", err)
	}
}

// fold replaces an entry with the cutoff.
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

// listItem encodes the time and id of an entry, padded to the longest id, a jti.
func listItem(at time.Time, id string) string { return fmt.Sprintf("%019d %-55s", at.UnixNano(), id) }
