package client

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/upstream"
)

// DefaultMaxClients is the default limit of clients that register themselves.
const DefaultMaxClients = 1000

// Storage keeps clients that registered themselves. It is part of certmagic's Storage. Load
// and List return fs.ErrNotExist for a missing key.
type Storage interface {
	Load(ctx context.Context, key string) ([]byte, error)                             // returns a value
	Store(ctx context.Context, key string, value []byte) error                        // stores or replaces it
	Delete(ctx context.Context, key string) error                                     // removes it
	List(ctx context.Context, path string, recursive bool) (keys []string, err error) // below a path
}

// Registration lets apps register themselves (RFC 7591), and read, update and delete their
// registration (RFC 7592). They can use the authorization code flow with PKCE, and need
// people's consent.
type Registration struct {
	// InitialAccessToken authorizes registration (RFC 7591 §3). Required: without it,
	// anybody could fill the storage.
	InitialAccessToken string

	// Scopes are open to registered apps beside [ReservedScopes]. Apps lose a scope that is
	// removed from this list.
	Scopes []string

	// Transport fetches keys from apps' jwks_uri, which may name any host. Default:
	// [upstream.PublicTransport].
	Transport http.RoundTripper

	MaxClients int     // the limit of registered apps. Default: [DefaultMaxClients].
	Storage    Storage // keeps them. Required.
	Folder     string  // in Storage, without a slash at the end. Required.
}

// registered is a client as stored. Its secrets are random, so their digests need no salt
// and no slow hash.
type registered struct {
	Client       Client    `json:"client"`
	Method       string    `json:"token_endpoint_auth_method"`
	SecretDigest []byte    `json:"secret_sha256,omitempty"`
	AccessDigest []byte    `json:"registration_access_token_sha256"`
	IssuedAt     time.Time `json:"issued_at"`
}

type registrar struct {
	Registration
	mu     sync.Mutex     // held while a client is counted, changed or removed
	cached *store.Memory  // copies of what is stored
	keys   registeredKeys // of the clients that have some
}

// cacheTTL is how long a copy is used, and thus a client deleted at another gateway stays
// valid here.
const cacheTTL = time.Minute

var registeredID = regexp.MustCompile(`^registered-[0-9a-f]{32}$`)

// CheckRegistrationScope refuses a scope that apps cannot have by registration.
func CheckRegistrationScope(scope string) error {
	if IsSystemScope(scope) {
		return fmt.Errorf("scope %s is for clients that act for themselves, which must be configured", scope)
	}
	return CheckScope(scope)
}

func newRegistrar(c *Registration, logger *slog.Logger) (*registrar, error) {
	if c == nil {
		return nil, nil
	}
	r := &registrar{Registration: *c, cached: store.NewMemory(DefaultMaxClients, 0)}
	r.MaxClients = cmp.Or(r.MaxClients, DefaultMaxClients)
	if r.Transport == nil {
		r.Transport = upstream.PublicTransport()
	}
	r.keys = registeredKeys{transport: r.Transport, logger: logger, max: r.MaxClients}
	if r.InitialAccessToken == "" || r.Storage == nil {
		return nil, errors.New("registration needs an initial_access_token and a storage")
	}
	if IsGuessable(r.InitialAccessToken) {
		logger.Warn("initial_access_token has less than 128 bits, and could be guessed; make another with: " + secretCommand)
	}
	for _, scope := range r.Scopes {
		if err := CheckRegistrationScope(scope); err != nil {
			return nil, fmt.Errorf("registration: %w", err)
		}
	}
	return r, nil
}

func (r *registrar) key(id string) string { return r.Folder + "/" + id + ".json" }

// load returns a client, or nil. It checks the id first, which becomes part of a file name.
func (r *registrar) load(ctx context.Context, id string) (*registered, error) {
	if !registeredID.MatchString(id) {
		return nil, nil
	}
	value, err := r.cached.Get(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		if value, err = r.Storage.Load(ctx, r.key(id)); err == nil {
			_ = r.cached.Put(ctx, id, value, cacheTTL) // the cache may be full
		}
	}
	c, err := r.decode(id, value, err)
	if c == nil || err != nil || c.Client.ID != id {
		return nil, err
	}
	return c, r.loadError(id, r.complete(c))
}

// decode returns a client that was loaded, or nil if it does not exist.
func (r *registrar) decode(id string, value []byte, err error) (*registered, error) {
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	c := new(registered)
	if err == nil {
		err = json.Unmarshal(value, c)
	}
	return c, r.loadError(id, err)
}

// loadError names the file of a bad entry for the operator.
func (r *registrar) loadError(id string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s in storage: %w", r.key(id), err)
}

// complete applies the present configuration to a client.
func (r *registrar) complete(c *registered) (err error) {
	c.Client.secretDigest = c.SecretDigest
	c.Client.Registered = true
	c.Client.PKCE, c.Client.Consent = PKCERequired, ConsentRequired
	c.Client.Scopes = slices.DeleteFunc(c.Client.Scopes, func(scope string) bool { return !slices.Contains(r.Scopes, scope) })
	if c.Client.keys, err = r.keys.get(&c.Client); err != nil {
		return err
	}
	return c.Client.Complete()
}

// store keeps a new client, or returns temporarily_unavailable if there are too many.
func (r *registrar) store(ctx context.Context, c *registered) error {
	value, err := json.Marshal(c)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	others, err := r.Storage.List(ctx, r.Folder, false)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("counting the registered clients: %w", err)
	case len(others) >= r.MaxClients:
		return &oauth2.Error{Code: "temporarily_unavailable", Status: http.StatusServiceUnavailable, Description: "as many clients as may be are registered"}
	}
	return r.Storage.Store(ctx, r.key(c.Client.ID), value)
}

// change alters a client as stored, not as cached: another gateway may have changed or
// removed it.
func (r *registrar) change(ctx context.Context, id string, alter func(*registered) error) (*registered, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	value, err := r.Storage.Load(ctx, r.key(id))
	c, err := r.decode(id, value, err)
	switch {
	case err != nil:
		return nil, err
	case c == nil:
		return nil, errRegistrationToken
	}
	if err = alter(c); err == nil {
		value, err = json.Marshal(c)
	}
	if err == nil {
		err = r.Storage.Store(ctx, r.key(id), value)
	}
	if err != nil {
		return nil, err
	}
	return c, r.cached.Delete(ctx, id)
}

func (r *registrar) remove(ctx context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.Storage.Delete(ctx, r.key(id)); err != nil {
		return err
	}
	return r.cached.Delete(ctx, id)
}

// newRegistered makes a client and its credentials. The secret may be empty.
func newRegistered(c Client, method string) (made *registered, secret, access string) {
	access = oauth2.RandomToken()
	made = &registered{IssuedAt: time.Now().UTC().Truncate(time.Second), AccessDigest: digestOf(access)}
	made.Client.ID = "registered-" + hex.EncodeToString(oauth2.RandomBytes(16))
	return made, made.replace(c, method), access
}

// replace replaces the metadata of a client, and returns its new secret, if any.
func (c *registered) replace(client Client, method string) (secret string) {
	client.ID = c.Client.ID
	c.Client, c.Method = client, method
	switch {
	case method == "none" || method == PrivateKeyJWT:
		c.SecretDigest = nil
	case c.SecretDigest == nil:
		secret = oauth2.RandomToken()
		c.SecretDigest = digestOf(secret)
	}
	return secret
}

func digestOf(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

// sameDigest compares a secret with a digest in constant time.
func sameDigest(digest []byte, secret string) bool {
	return subtle.ConstantTimeCompare(digest, digestOf(secret)) == 1
}
