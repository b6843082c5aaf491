// Package revocation manages revoked tokens and cutoffs.
//
// All data is in the durable store. Checks of access tokens read a copy. A single gateway loads the copy into the store of
// in-flight data after a restart. If gateways share the durable store, each gateway's replica is the copy.
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

// Revocations manages revoked tokens and grants. They are in the durable store. Checks read the copy in nearStore: the store of
// in-flight data or, if several gateways share the durable store, this gateway's replica.
type Revocations struct {
	nearStore, durableStore store.Store
	inFlight                store.Store // store in which used codes are marked
	logger                  *slog.Logger

	loaded atomic.Bool
	loadMu sync.Mutex
}

// New returns the revocations stored in inFlight and durable, which may be the same store.
func New(inFlight, durable store.Store, logger *slog.Logger) *Revocations {
	r := &Revocations{nearStore: inFlight, durableStore: durable, inFlight: inFlight, logger: logger}
	if store.IsShared(durable) { // a shared store has a replica in this process
		r.nearStore = durable
	}
	r.loaded.Store(r.nearStore == durable)
	return r
}

// Now returns the current time for revocations and grants. Gateways that share a store use the store's clock.
func (r *Revocations) Now() time.Time { return store.Now(r.durableStore) }

const revokedPrefix = "revoked:"

// UsedCodeKey returns the store key that marks the authorization code of a grant as used. family is the id of the grant.
func UsedCodeKey(family string) string { return "token:" + family }

// CodeRedeemed is the value stored for a used code.
var CodeRedeemed = []byte("its code was used")

// Revoke voids an access token or an entire grant by its id. The entry is stored for ttl, the remaining lifetime (negative if
// expired), plus [MaxClockJump] and a margin for clock skew. The same step deletes other entries from the durable store. If the
// store of in-flight data is full, the mark of the grant's code is deleted to free space, because the code is void, too.
func (r *Revocations) Revoke(ctx context.Context, id string, ttl time.Duration, deleted ...string) error {
	ttl += MaxClockJump + time.Minute
	until, _ := r.Now().Add(ttl).MarshalText() // fails only for years after 9999
	revoked := &store.Call{Op: store.Put, Key: revokedPrefix + id, Value: until, TTL: ttl}
	durableCalls := append([]*store.Call{revoked}, store.DeleteCalls(deleted...)...)
	nearCalls := durableCalls
	if r.durableStore != r.nearStore {
		nearCalls = []*store.Call{revoked}
	}
	err := r.nearStore.Do(ctx, nearCalls...)
	if errors.Is(err, store.ErrFull) {
		mark := &store.Call{Op: store.Delete, Key: UsedCodeKey(id)}
		err = store.Do(ctx, store.NewStep(r.nearStore, nearCalls...), store.NewStep(r.inFlight, mark))
	}
	if r.durableStore != r.nearStore {
		err = errors.Join(err, r.durableStore.Do(ctx, durableCalls...))
	}
	return err
}

// IDSize is the size of a random id in bytes.
const IDSize = 16

// NewTokenID returns a jti for an access token. It starts with the id of the grant ("family"), so that one entry revokes all
// tokens of the grant, including those being issued. It also contains the time in nanoseconds, because iat is too coarse to be
// compared with a cutoff.
func NewTokenID(family string, at time.Time) string { return family + "." + NewTimestampedID(at) }

// NewTimestampedID returns a random id that starts with an encoded time.
func NewTimestampedID(at time.Time) string {
	timestamped := binary.BigEndian.AppendUint64(nil, uint64(at.UnixNano()))
	return base64.RawURLEncoding.EncodeToString(append(timestamped, oauth2.RandomBytes(IDSize)...))
}

// IssuedAt returns the time encoded in a jti, or the zero time if the jti is malformed.
func IssuedAt(tokenID string) time.Time {
	timestamped, err := base64.RawURLEncoding.DecodeString(tokenID[strings.LastIndexByte(tokenID, '.')+1:])
	if err != nil || len(timestamped) != 8+IDSize {
		return time.Time{}
	}
	return time.Unix(0, int64(binary.BigEndian.Uint64(timestamped)))
}

// RandomID returns 128 random bits in base64url.
func RandomID() string { return base64.RawURLEncoding.EncodeToString(oauth2.RandomBytes(IDSize)) }

// A Check reads in a store step whether a grant is void. Unlike [Revocations.IsTokenRevoked], it sees all gateways' changes.
type Check struct {
	nearStore store.Store
	revoked   *store.Call // nil if the token has no family
	cutoffs   []*store.Call
}

// Binding contains what a code or token is bound to. It determines which cutoffs apply.
type Binding struct {
	User, ClientID string // sub and client_id
	Session        string // sid; "" if not bound to a session
	BasedOnConsent bool   // whether this is an access token based on a consent
	ShortLived     bool   // whether this is a code or access token; refresh tokens are deleted when they are revoked
}

// NewCheck returns the check of a grant by its id (family), which may be "", and its binding. [Check.Step] reads the data.
func (r *Revocations) NewCheck(ctx context.Context, family string, b Binding) (*Check, error) {
	if err := r.load(ctx); err != nil {
		return nil, err
	}
	c := &Check{nearStore: r.nearStore}
	if family != "" {
		c.revoked = &store.Call{Op: store.Get, Key: revokedPrefix + family}
	}
	for _, key := range append(commonCutoffKeys(b), rareCutoffKeys(b)...) {
		c.cutoffs = append(c.cutoffs, &store.Call{Op: store.Get, Key: key})
	}
	return c, nil
}

// Step returns the step that reads the data. It must be executed after the steps that store new grants. Then, either this step
// reads a concurrent revocation, or the revocation deletes the stored grant.
func (c *Check) Step() store.Step {
	if c.revoked == nil {
		return store.NewStep(c.nearStore, c.cutoffs...)
	}
	return store.NewStep(c.nearStore, append([]*store.Call{c.revoked}, c.cutoffs...)...)
}

// Cutoff returns the latest cutoff that the step has read, or the zero time.
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

// IsRevoked reports whether the step has read a revocation of the grant, or a cutoff at or after the issue time.
func (c *Check) IsRevoked(issued time.Time) (bool, error) {
	if c.revoked != nil && c.revoked.Value != nil {
		return true, nil
	}
	cutoff, err := c.Cutoff()
	return IsCutOff(issued, cutoff), err
}

// IsTokenRevoked reports whether an access token or its grant was revoked. With a shared store, revocations by other gateways
// may not be visible yet. Use a [Check] to include them.
func (r *Revocations) IsTokenRevoked(ctx context.Context, tokenID string) (bool, error) {
	if err := r.load(ctx); err != nil {
		return false, err
	}
	family, _, hasFamily := strings.Cut(tokenID, ".")
	revoked, err := r.isRevoked(ctx, tokenID)
	if hasFamily && err == nil && !revoked {
		return r.isRevoked(ctx, family)
	}
	return revoked, err
}

func (r *Revocations) isRevoked(ctx context.Context, id string) (bool, error) {
	_, err := r.nearStore.Get(ctx, revokedPrefix+id)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// LatestCutoff returns the latest cutoff for a binding, or the zero time. As with [Revocations.IsTokenRevoked], cutoffs set by
// other gateways may not be visible yet.
func (r *Revocations) LatestCutoff(ctx context.Context, b Binding) (latest time.Time, err error) {
	if err := r.load(ctx); err != nil {
		return time.Time{}, err
	}
	keys := commonCutoffKeys(b)
	rareCutoff, err := readCutoff(ctx, r.nearStore, RareCutoffMarker)
	if !rareCutoff.IsZero() {
		keys = append(keys, rareCutoffKeys(b)...)
	}
	for _, key := range keys {
		var at time.Time
		if err == nil {
			at, err = readCutoff(ctx, r.nearStore, key)
		}
		if at.After(latest) {
			latest = at
		}
	}
	return latest, err
}

func commonCutoffKeys(b Binding) (keys []string) {
	if b.Session != "" {
		keys = append(keys, SessionCutoffKey(b.Session))
	}
	if b.BasedOnConsent {
		keys = append(keys, ConsentCutoffKey(b.User, b.ClientID))
	}
	return keys
}

// rareCutoffKeys returns the store keys of the cutoffs that exist only if [RareCutoffMarker] does.
func rareCutoffKeys(b Binding) []string {
	keys := []string{UserCutoffKey(b.User), ClientCutoffKey(b.ClientID), UserClientCutoffKey(b.User, b.ClientID)}
	if b.ShortLived {
		keys = append(keys, revocationsCutoffKey(b.User, b.ClientID))
	}
	if b.ShortLived && b.Session != "" {
		keys = append(keys, endedSessionsCutoffKey(b.User))
	}
	return keys
}

// load copies the revocations stored before this process started to the near store, once. Until then, no token is valid.
func (r *Revocations) load(ctx context.Context) error {
	if r.loaded.Load() {
		return nil
	}
	r.loadMu.Lock()
	defer r.loadMu.Unlock()
	if r.loaded.Load() { // another goroutine has loaded them
		return nil
	}
	if err := r.copyDurable(ctx); err != nil {
		return fmt.Errorf("loading revocations: %w", err)
	}
	r.loaded.Store(true)
	return nil
}

// copyDurable copies the revocations and cutoffs in the durable store to the near store.
func (r *Revocations) copyDurable(ctx context.Context) error {
	keys, err := r.durableStore.List(ctx, revokedPrefix)
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
	text, err := r.durableStore.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) { // the entry was deleted concurrently
		return nil
	}
	var until time.Time
	if err == nil {
		err = until.UnmarshalText(text)
	}
	ttl := store.Until(r.durableStore, until)
	if err != nil || ttl <= 0 {
		return err
	}
	return r.nearStore.Put(ctx, key, text, ttl)
}

func (r *Revocations) copyCutoffs(ctx context.Context) error {
	keys, err := r.durableStore.List(ctx, cutoffPrefix)
	for _, key := range keys {
		var at time.Time
		if err == nil {
			at, err = readCutoff(ctx, r.durableStore, key)
		}
		if err == nil {
			err = r.putCutoffs(ctx, r.nearStore, at, []string{key}, nil)
		}
	}
	return err
}

const (
	maxRevocations   = 200  // maximum number of revocations per user and client
	maxEndedSessions = 1000 // maximum number of session cutoffs per user
)

// limitedList limits the entries of one kind per user. Otherwise, a user could create new ones all day, because each is stored
// for the lifetime of access tokens. A cutoff replaces the oldest entries. It voids all codes and access tokens issued to the
// user before them.
type limitedList struct {
	store.RecentList
	cutoffKey string // store key of the cutoff that replaces the oldest entries
	keyPrefix string // prefix of the store keys of entries
}

// LimitRevocations adds the revocation of a user's token or grant to the list for a client. Beyond maxRevocations, a cutoff
// replaces the oldest.
func (r *Revocations) LimitRevocations(ctx context.Context, user, clientID, id string) {
	r.limitEntries(ctx, id, limitedList{
		RecentList: store.RecentList{Store: r.durableStore, Key: store.Key("revocations", joinPair(user, clientID)), Max: maxRevocations, TTL: cutoffLifetime},
		cutoffKey:  revocationsCutoffKey(user, clientID), keyPrefix: revokedPrefix,
	})
}

// LimitEndedSessions adds the cutoff of an ended session to the user's list. Beyond the limit, one cutoff replaces the oldest.
func (r *Revocations) LimitEndedSessions(ctx context.Context, user, sid string) {
	r.limitEntries(ctx, sid, limitedList{
		RecentList: store.RecentList{Store: r.durableStore, Key: store.Key("ended-sessions", user), Max: maxEndedSessions, TTL: cutoffLifetime},
		cutoffKey:  endedSessionsCutoffKey(user), keyPrefix: SessionCutoffKey(""),
	})
}

// limitEntries adds an entry to a list. It only logs errors, because the entry itself has already been stored.
func (r *Revocations) limitEntries(ctx context.Context, id string, list limitedList) {
	dropped, err := list.Add(ctx, encodeListItem(r.Now().Add(r.cutoffMargin()), id))
	for _, item := range dropped {
		err = errors.Join(err, r.replaceWithCutoff(ctx, item, list))
	}
	if err != nil {
		r.logger.ErrorContext(ctx, "failed to limit stored revocations", "error", err)
	}
}

// replaceWithCutoff replaces the entry of a list item with the cutoff of the list.
func (r *Revocations) replaceWithCutoff(ctx context.Context, item string, list limitedList) error {
	nanoseconds, id, _ := strings.Cut(item, " ")
	at, err := strconv.ParseInt(nanoseconds, 10, 64)
	if err == nil {
		err = r.CutOffAt(ctx, time.Unix(0, at), RareCutoffMarker, list.cutoffKey)
	}
	if err != nil {
		return err
	}
	key := list.keyPrefix + strings.TrimRight(id, " ")
	err = r.nearStore.Delete(ctx, key)
	if r.durableStore != r.nearStore {
		err = errors.Join(err, r.durableStore.Delete(ctx, key))
	}
	return err
}

// encodeListItem encodes the time and id of an entry. All items have the length of an item with the longest id, a jti.
func encodeListItem(at time.Time, id string) string {
	return fmt.Sprintf("%019d %-55s", at.UnixNano(), id)
}
