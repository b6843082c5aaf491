package registration

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/httporigin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/namecheck"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/scopeoption"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// Registration lets clients register themselves at `/oauth2/register` (RFC 7591), and read, update and delete their
// registrations (RFC 7592). Registered clients use the authorization code flow, with PKCE unless `pkce` is optional, and always
// require the user's consent. They are stored in Caddy's storage or, if there are store keys, in the durable store that all
// gateways share.
type Registration struct {
	// The initial access token, which clients send as a bearer token to register (RFC 7591 §3). Without it, anyone could fill
	// the storage. Caddy's placeholders are supported. Required.
	InitialAccessToken string `json:"initial_access_token,omitempty"`

	// The scopes that registered clients may be granted, in addition to openid, email, phone and profile. Removing a scope here
	// also revokes it from registered clients. Default: none.
	Scopes []string `json:"scopes,omitempty"`

	// Whether authorization requests require a `code_challenge` (RFC 7636): `required`, or `optional` for confidential clients,
	// which can check the nonce of the ID token instead (RFC 9700 §2.1.1). It is always required for public clients. Default:
	// `required`.
	PKCE string `json:"pkce,omitempty"`

	// Whether authorization requests may use request objects (OpenID Connect Core §6), either by value, or by reference to
	// registered addresses, which this server fetches. Default: request objects are rejected.
	RequestObjects bool `json:"request_objects,omitempty"`

	// Whether the operator must approve each client (`caddy fhir-client approve`) before it can be used, and again after each
	// change to its registration. Default: false.
	Approval bool `json:"approval,omitempty"`

	MaxClients int     `json:"-"` // maximum number of registered clients. Default: [DefaultMaxClients].
	Storage    Storage `json:"-"` // Caddy's storage. Required.
	Folder     string  `json:"-"` // folder in Storage, without a trailing slash. Required.

	// Store is a store that gateways share, used instead of Storage. Clients in Storage are copied to it once. Default: none.
	Store store.Store `json:"-"`

	// Transport sends requests to registered addresses, such as jwks_uri and backchannel_logout_uri, which may contain any
	// host. Default: [relyingparty.PublicTransport].
	Transport http.RoundTripper `json:"-"`

	issuer  string // clients may not register addresses of this issuer; empty before initialize
	grants  client.GrantTypes
	clients clientStore
	keys    keySetCache // key sets of registered clients
}

// registeredClient is a client as stored. Its secrets are random, so their digests require neither salt nor a slow hash.
type registeredClient struct {
	Client client.Client `json:"-"`

	Stored       storedClient `json:"client"` // stored form of Client
	AuthMethod   string       `json:"token_endpoint_auth_method"`
	SecretDigest []byte       `json:"secret_sha256,omitempty"`
	AccessDigest []byte       `json:"registration_access_token_sha256"`
	IssuedAt     time.Time    `json:"issued_at"`
	Approved     bool         `json:"approved,omitempty"` // whether the operator has approved the current registration
}

// storedClient is the registration of a client. Its JSON names must not change, because gateways with other versions read them.
type storedClient struct {
	ID, Name, JWKSURI, AssertionAlgorithm, BackchannelLogoutURI string

	JWKS                                                        []byte
	Native, RequirePushed                                       bool
	RedirectURIs, PostLogoutRedirectURIs, ResponseTypes, Scopes []string

	BackchannelSession bool                  `json:",omitempty"`
	UserinfoAlgorithm  string                `json:",omitempty"`
	Links              client.Links          `json:",omitzero"`
	RequestObjects     client.RequestObjects `json:",omitzero"`
}

var registeredIDPattern = regexp.MustCompile("^" + namecheck.SelfRegisteredPrefix + "[0-9a-f]{32}$")

var errRegistrationToken = &oauth2.Error{
	Code: "invalid_token", Status: http.StatusUnauthorized,
	Description: "the registration or initial access token is missing or invalid: send it as a bearer token",
}

// CheckScope returns an error if registered clients cannot be granted the scope.
func CheckScope(scope string) error {
	if client.IsSystemScope(scope) {
		return fmt.Errorf("scope %s is for backend services, which must be configured by an administrator", scope)
	}
	return smart.CheckScope(scope)
}

// Extend implements [authorize.Feature].
func (r *Registration) Extend(core *authorize.Core) error {
	if r.issuer == "" {
		if err := r.initialize(core.Config.Issuer, core.Clients.GrantTypes, core.Config.Logger); err != nil {
			return fmt.Errorf("registration: %w", err)
		}
	}
	core.Clients.Sources = append(core.Clients.Sources, r)
	core.Responder.AuditKinds[Path] = audit.KindRegistration
	e := &registrationEndpoint{Responder: core.Responder, registration: r, limiter: core.Limiter}
	core.HandlePublic(Path, e.serve, http.MethodPost, http.MethodGet, http.MethodPut, http.MethodDelete)
	core.RegistrationEndpoint = core.Config.Issuer + Path
	core.ExtendMetadata(func(m *authorize.Metadata) {
		m.UserinfoAlgorithms = client.AlgorithmNames(keyring.IDTokenAlgorithms)
		supported := r.RequestObjects && core.OpenRequest != nil // per request: OpenRequest may be set later
		m.RequestURIParameter, m.RequestURIsRegistered = supported, supported
	})
	return nil
}

// initialize sets defaults. It returns an error if the configuration is invalid.
func (r *Registration) initialize(issuer string, grants client.GrantTypes, logger *slog.Logger) error {
	if r.InitialAccessToken == "" || r.Storage == nil {
		return errors.New("initial_access_token and storage are required")
	}
	if !slices.Contains([]string{"", client.PKCERequired, client.PKCEOptional}, r.PKCE) {
		return fmt.Errorf("unknown pkce value %q: use %s or %s", r.PKCE, client.PKCERequired, client.PKCEOptional)
	}
	for _, scope := range r.Scopes {
		if err := CheckScope(scope); err != nil {
			return err
		}
	}
	if client.IsGuessable(r.InitialAccessToken) {
		logger.Warn("initial_access_token is guessable (less than 128 bits); generate a new one with: " + client.SecretCommand)
	}
	caddyClients := newCaddyStore(r.Storage, r.Folder)
	if r.clients = caddyClients; r.Store != nil {
		r.clients = newSharedStore(r.Store, caddyClients)
	}
	r.MaxClients = cmp.Or(r.MaxClients, DefaultMaxClients)
	if r.Transport == nil {
		r.Transport = relyingparty.PublicTransport()
	}
	r.keys = keySetCache{transport: r.Transport, logger: logger, max: r.MaxClients}
	r.issuer, r.grants = issuer, grants
	return nil
}

// MostPermissive implements [client.Source].
func (r *Registration) MostPermissive() *client.Client {
	return &client.Client{ResponseTypes: []string{"code"}, Scopes: r.Scopes, RequestObjects: client.RequestObjects{Allowed: r.RequestObjects}}
}

// IDs implements [client.Source].
func (r *Registration) IDs(ctx context.Context) ([]string, error) { return r.clients.ids(ctx) }

func parseClient(value []byte) (*registeredClient, error) {
	c := new(registeredClient)
	if err := json.Unmarshal(value, c); err != nil {
		return nil, err
	}
	s := c.Stored
	c.Client = client.Client{
		ID: s.ID, Name: s.Name, JWKS: s.JWKS, JWKSURI: s.JWKSURI, AssertionAlgorithm: s.AssertionAlgorithm, BackchannelLogoutURI: s.BackchannelLogoutURI,
		Native: s.Native, RequirePushed: s.RequirePushed, RedirectURIs: s.RedirectURIs, PostLogoutRedirectURIs: s.PostLogoutRedirectURIs,
		ResponseTypes: s.ResponseTypes, Scopes: s.Scopes, BackchannelSessionRequired: s.BackchannelSession, UserinfoAlgorithm: s.UserinfoAlgorithm,
		Links: s.Links, RequestObjects: s.RequestObjects,
	}
	return c, nil
}

// encode returns the stored form of a client.
func (c *registeredClient) encode() ([]byte, error) {
	s := &c.Client
	c.Stored = storedClient{
		ID: s.ID, Name: s.Name, JWKS: s.JWKS, JWKSURI: s.JWKSURI, AssertionAlgorithm: s.AssertionAlgorithm, BackchannelLogoutURI: s.BackchannelLogoutURI,
		Native: s.Native, RequirePushed: s.RequirePushed, RedirectURIs: s.RedirectURIs, PostLogoutRedirectURIs: s.PostLogoutRedirectURIs,
		ResponseTypes: s.ResponseTypes, Scopes: s.Scopes, BackchannelSession: s.BackchannelSessionRequired, UserinfoAlgorithm: s.UserinfoAlgorithm,
		Links: s.Links, RequestObjects: s.RequestObjects,
	}
	return json.Marshal(c)
}

// load returns a client, or nil if it is unknown. It checks the id first, because the id becomes part of a file name.
func (r *Registration) load(ctx context.Context, id string) (*registeredClient, error) {
	if !registeredIDPattern.MatchString(id) {
		return nil, nil
	}
	value, err := r.clients.load(ctx, id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var c *registeredClient
	if err == nil {
		c, err = parseClient(value)
	}
	switch {
	case err != nil:
		return nil, r.loadError(id, err)
	case c.Client.ID != id:
		return nil, nil
	}
	return c, r.loadError(id, r.applyConfig(c))
}

// Find implements [client.Source].
func (r *Registration) Find(ctx context.Context, id string) (*client.Client, error) {
	c, err := r.load(ctx, id)
	if c == nil || err != nil {
		return nil, err
	}
	c.Client.PendingApproval = r.Approval && !c.Approved
	return &c.Client, nil
}

// loadError adds the location of the client to an error, for the operator.
func (r *Registration) loadError(id string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", r.clients.location(id), err)
}

// applyConfig sets the fields of a client that the current configuration determines.
func (r *Registration) applyConfig(c *registeredClient) (err error) {
	c.Client.SecretSHA256 = c.SecretDigest
	c.Client.SelfRegistered, c.Client.Compat = true, []string{client.CompatErrorDescription}
	c.Client.PKCE, c.Client.Consent, c.Client.Transport = client.PKCERequired, client.ConsentRequired, r.Transport
	c.Client.RequestObjects.Allowed = r.RequestObjects
	if r.PKCE == client.PKCEOptional && !c.Client.IsPublic() {
		c.Client.PKCE = client.PKCEOptional
	}
	c.Client.Scopes = slices.DeleteFunc(c.Client.Scopes, func(scope string) bool { return !slices.Contains(r.Scopes, scope) })
	if c.Client.Keys, err = r.keys.get(&c.Client); err != nil {
		return err
	}
	return c.Client.Complete(r.grants)
}

// storeClient stores a new client. If the limit is reached, it returns temporarily_unavailable.
func (r *Registration) storeClient(ctx context.Context, c *registeredClient) error {
	value, err := c.encode()
	if err != nil {
		return err
	}
	if err := r.clients.add(ctx, c.Client.ID, value, r.MaxClients); err != nil {
		return fmt.Errorf("storing the registered client: %w", err)
	}
	return nil
}

func (r *Registration) changeClient(ctx context.Context, id string, alter func(*registeredClient) error) (changed *registeredClient, err error) {
	err = r.clients.update(ctx, id, func(value []byte) ([]byte, error) {
		if changed, err = parseClient(value); err != nil {
			return nil, r.loadError(id, err)
		}
		if err := alter(changed); err != nil {
			return nil, err
		}
		return changed.encode()
	})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errRegistrationToken
	case err != nil:
		return nil, err
	}
	return changed, nil
}

// newRegisteredClient creates a client with credentials. secret is empty if the client does not use one.
func newRegisteredClient(c client.Client, method string) (created *registeredClient, secret, accessToken string) {
	accessToken = oauth2.RandomToken()
	created = &registeredClient{IssuedAt: time.Now().UTC().Truncate(time.Second), AccessDigest: client.DigestSecret(accessToken)}
	created.Client.ID = namecheck.SelfRegisteredPrefix + hex.EncodeToString(oauth2.RandomBytes(16))
	return created, created.replaceMetadata(c, method), accessToken
}

// replaceMetadata replaces the metadata of a client. It returns the new secret; "" if the client has no secret.
func (c *registeredClient) replaceMetadata(metadata client.Client, method string) (secret string) {
	metadata.ID = c.Client.ID
	c.Client, c.AuthMethod, c.Approved = metadata, method, false
	switch {
	case method == "none" || method == client.PrivateKeyJWT:
		c.SecretDigest = nil
	case c.SecretDigest == nil:
		secret = oauth2.RandomToken()
		c.SecretDigest = client.DigestSecret(secret)
	}
	return secret
}

func init() {
	caddy.RegisterModule(new(Registration))
	endpoint.Register("register")
}

// CaddyModule returns the Caddy module information.
func (*Registration) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir.features.registration", New: func() caddy.Module { return new(Registration) }}
}

// Subdirectives implements [option.Feature]. Syntax:
//
//	registration {
//		initial_access_token <token>
//		scope <scope...>
//		pkce required|optional
//		approval required
//		request_objects
//	}
func (r *Registration) Subdirectives() (fields option.Block, repeatable []string) {
	return option.Block{"registration": r.parse}, nil
}

func (r *Registration) parse(d *caddyfile.Dispenser) error {
	if d.NextArg() {
		return d.ArgErr()
	}
	err := option.Block{
		"initial_access_token": option.Word(&r.InitialAccessToken, option.CheckPlaceholders),
		"scope":                scopeoption.Words(&r.Scopes, CheckScope),
		"pkce":                 option.Word(&r.PKCE, option.OneOf(client.PKCERequired, client.PKCEOptional)),
		"approval":             option.SingleValue("required", &r.Approval),
		"request_objects":      option.Flag(&r.RequestObjects),
	}.Parse(d)
	if err == nil && r.InitialAccessToken == "" {
		err = d.Err("registration: the option initial_access_token is required")
	}
	return err
}

// newTransport returns the transport for requests to registered addresses (jwks_uri, request_uris, logo_uri,
// backchannel_logout_uri). Only public addresses are allowed; otherwise, any registered client could make this server send
// requests to its own network. If the issuer is on loopback, for evaluation, clients may be on loopback, too. A nil transport
// is the default.
func newTransport(issuer string) http.RoundTripper {
	if u, err := url.Parse(issuer); err == nil && httporigin.IsLoopback(u.Hostname()) {
		return http.DefaultTransport
	}
	return nil
}

// Configure implements [fhirapp.Feature].
func (r *Registration) Configure(app *fhirapp.App, c *authorize.Config) (err error) {
	if r.InitialAccessToken, err = option.ResolveSecret("initial_access_token", r.InitialAccessToken); err != nil {
		return err
	}
	r.Storage, r.Folder, r.Store = app.Storage(), "fhir/clients/"+fhirbase.StorageName(app.Issuer), app.SharedStore()
	r.Transport = newTransport(app.Issuer)
	c.Features = append(c.Features, r)
	return nil
}

var (
	_ option.Feature       = (*Registration)(nil)
	_ fhirapp.Feature      = (*Registration)(nil)
	_ fhirapp.ClientSource = (*Registration)(nil)
	_ authorize.Feature    = (*Registration)(nil)
	_ client.Source        = (*Registration)(nil)
)

var errNoSecret = errors.New("the client has no secret: it is public or authenticates with keys")

// ListClients returns the registered clients. If some cannot be read, it also returns an error.
func (r *Registration) ListClients(ctx context.Context) (found []client.RegisteredClient, err error) {
	ids, err := r.clients.ids(ctx)
	for _, id := range ids {
		c, loadErr := r.load(ctx, id)
		if err = errors.Join(err, loadErr); c == nil || loadErr != nil {
			continue
		}
		found = append(found, client.RegisteredClient{Client: c.Client, IssuedAt: c.IssuedAt, PendingApproval: r.Approval && !c.Approved, HasSecret: c.SecretDigest != nil})
	}
	return found, err
}

// Approve approves the current registration of a client.
func (r *Registration) Approve(ctx context.Context, id string) error {
	return r.updateRegisteredClient(ctx, id, func(c *registeredClient) error {
		c.Approved = true
		return nil
	})
}

// RotateSecret replaces the secret of a registered client. The old secret becomes invalid.
func (r *Registration) RotateSecret(ctx context.Context, id string) (secret string, err error) {
	secret = oauth2.RandomToken()
	return secret, r.updateRegisteredClient(ctx, id, func(c *registeredClient) error {
		if c.SecretDigest == nil {
			return errNoSecret
		}
		c.SecretDigest = client.DigestSecret(secret)
		return nil
	})
}

// Remove deletes a registered client. This invalidates its tokens.
func (r *Registration) Remove(ctx context.Context, id string) error {
	if err := r.updateRegisteredClient(ctx, id, func(*registeredClient) error { return nil }); err != nil {
		return err
	}
	return r.clients.remove(ctx, id)
}

func (r *Registration) updateRegisteredClient(ctx context.Context, id string, alter func(*registeredClient) error) error {
	if !registeredIDPattern.MatchString(id) {
		return client.ErrNotRegistered
	}
	_, err := r.changeClient(ctx, id, alter)
	if errors.Is(err, errRegistrationToken) || errors.Is(err, fs.ErrNotExist) {
		return client.ErrNotRegistered
	}
	return err
}
