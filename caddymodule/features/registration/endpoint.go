package registration

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// clientInformation is the client information response (RFC 7591 §3.2.1, RFC 7592 §3). Secret is set only if the secret is new.
type clientInformation struct {
	ID              string `json:"client_id"`
	Secret          string `json:"client_secret,omitempty"`
	IssuedAt        int64  `json:"client_id_issued_at"`
	SecretExpiresAt *int64 `json:"client_secret_expires_at,omitempty"`
	AccessToken     string `json:"registration_access_token,omitempty"`
	URI             string `json:"registration_client_uri"`
	clientMetadata
}

// Path is the path of the client registration endpoint and the client configuration endpoint.
const Path = "/oauth2/register"

// registrationEndpoint is the client registration endpoint (RFC 7591) and the client configuration endpoint (RFC 7592).
type registrationEndpoint struct {
	*endpoint.Responder
	registration *Registration
	limiter      *lockout.Limiter // limits attempts with wrong tokens
}

func (e *registrationEndpoint) serve(w http.ResponseWriter, r *http.Request) {
	var err error
	switch r.Method {
	case http.MethodPost:
		err = e.register(w, r)
	case http.MethodGet:
		err = e.read(w, r)
	case http.MethodPut:
		err = e.update(w, r)
	default:
		err = e.deregister(w, r)
	}
	if err != nil {
		e.WriteError(w, r, err)
	}
}

// registrationToken returns the bearer token of a request (RFC 6750 §2.1); "" if the request has no bearer token.
func registrationToken(r *http.Request) string {
	headers := r.Header.Values("Authorization")
	scheme, token, _ := strings.Cut(strings.Join(headers, ", "), " ")
	if !strings.EqualFold(scheme, "Bearer") || len(headers) > 1 {
		return ""
	}
	return token
}

// checkToken checks the registration access token of the client clientID or, if clientID is empty, the initial access token. A
// request without a token is rejected but does not count as a failed attempt.
func (e *registrationEndpoint) checkToken(r *http.Request, clientID string, digest []byte, guessable bool) error {
	token := registrationToken(r)
	if token == "" {
		return errRegistrationToken
	}
	err := error(errRegistrationToken)
	if client.MatchesDigest(digest, token) {
		err = nil
	}
	return e.limiter.CountSecretAttempt(r, "registration "+clientID, err, guessable)
}

func (e *registrationEndpoint) register(w http.ResponseWriter, r *http.Request) error {
	initialToken := e.registration.InitialAccessToken
	if err := e.checkToken(r, "", client.DigestSecret(initialToken), client.IsGuessable(initialToken)); err != nil {
		return err
	}
	m, requested, err := e.registration.parseClientRequest(w, r)
	if err != nil {
		return err
	}
	created, secret, accessToken := newRegisteredClient(requested, m.AuthMethod)
	if err := e.registration.storeClient(r.Context(), created); err != nil {
		return err
	}
	e.Trail.Record(r.Context(), audit.Event{Kind: audit.KindRegistration, ClientID: created.Client.ID, Reason: created.Client.Name})
	info := e.newInformation(created)
	info.Secret, info.AccessToken = secret, accessToken
	e.WriteJSON(w, http.StatusCreated, info)
	return nil
}

func (e *registrationEndpoint) newInformation(c *registeredClient) clientInformation {
	info := clientInformation{
		ID: c.Client.ID, IssuedAt: c.IssuedAt.Unix(),
		URI: e.Responder.Issuer + Path + "?client_id=" + url.QueryEscape(c.Client.ID),
		clientMetadata: clientMetadata{
			RedirectURIs: c.Client.RedirectURIs, AuthMethod: c.AuthMethod, Name: c.Client.Name,
			AuthAlgorithm: c.Client.AssertionAlgorithm, JWKS: c.Client.JWKS, JWKSURI: c.Client.JWKSURI,
			GrantTypes: e.registration.grants.NamesForClient(&c.Client), ResponseTypes: []string{"code"},
			SubjectType: "public", IDTokenAlgorithm: string(keyring.IDTokenAlgorithm),
			Scope:                  strings.Join(slices.Concat(smart.ReservedScopes, c.Client.Scopes), " "),
			PostLogoutRedirectURIs: c.Client.PostLogoutRedirectURIs, RequirePushed: c.Client.RequirePushed,
			LogoURI: c.Client.Links.Logo, PolicyURI: c.Client.Links.Policy, TermsURI: c.Client.Links.Terms,
			RequestAlgorithm: c.Client.RequestObjects.Algorithm, RequestURIs: c.Client.RequestObjects.URIs,
			RequireRequestObject: c.Client.RequestObjects.Required,
			UserinfoAlgorithm:    c.Client.UserinfoAlgorithm, BackchannelLogoutURI: c.Client.BackchannelLogoutURI, BackchannelSession: c.Client.BackchannelSessionRequired,
		},
	}
	if c.Client.Native {
		info.ApplicationType = applicationNative
	}
	if c.SecretDigest != nil {
		info.SecretExpiresAt = new(int64) // 0: the secret never expires
	}
	return info
}

// authenticate returns the client with the client_id in the query, if the request has the client's registration access token.
func (e *registrationEndpoint) authenticate(r *http.Request) (*registeredClient, error) {
	p, err := oauth2.ReadCheckedQuery(r.URL.RawQuery)
	if err != nil {
		return nil, err
	}
	c, err := e.registration.load(r.Context(), p.Get("client_id"))
	if err != nil {
		return nil, err
	}
	var digest []byte // nil for unknown clients, so that no token matches
	if c != nil {
		digest = c.AccessDigest
		audit.RecordClient(r.Context(), c.Client.ID)
	}
	if err := e.checkToken(r, p.Get("client_id"), digest, false); err != nil {
		return nil, err
	}
	return c, nil
}

func (e *registrationEndpoint) read(w http.ResponseWriter, r *http.Request) error {
	c, err := e.authenticate(r)
	if err == nil {
		e.writeInformation(w, r, c, "")
	}
	return err
}

// writeInformation sends the client information response (RFC 7592 §3). It contains the access token of the request and the new
// secret, if there is one.
func (e *registrationEndpoint) writeInformation(w http.ResponseWriter, r *http.Request, c *registeredClient, secret string) {
	info := e.newInformation(c)
	info.Secret, info.AccessToken = secret, registrationToken(r)
	e.WriteJSON(w, http.StatusOK, info)
}

// update replaces a client's metadata (RFC 7592 §2.2). Omitted members are reset to their defaults. The secret stays the same
// if the client still needs one.
func (e *registrationEndpoint) update(w http.ResponseWriter, r *http.Request) error {
	c, err := e.authenticate(r)
	if err != nil {
		return err
	}
	m, requested, err := e.registration.parseClientRequest(w, r)
	if err != nil {
		return err
	}
	var secret string
	changed, err := e.registration.changeClient(r.Context(), c.Client.ID, func(c *registeredClient) error {
		if err := m.checkIdentity(c); err != nil {
			return err
		}
		secret = c.replaceMetadata(requested, m.AuthMethod)
		return nil
	})
	if err != nil {
		return err
	}
	e.Trail.Record(r.Context(), audit.Event{Kind: audit.KindRegistration, ClientID: c.Client.ID, Reason: "changed"})
	e.writeInformation(w, r, changed, secret)
	return nil
}

// checkIdentity returns an error if an update contains another client_id or client_secret (RFC 7592 §2.2).
func (m *registrationRequest) checkIdentity(c *registeredClient) error {
	switch {
	case m.ID != c.Client.ID:
		return invalidMetadata("client_id does not match the registered client")
	case m.Secret != "" && (c.SecretDigest == nil || !client.MatchesDigest(c.SecretDigest, m.Secret)):
		return invalidMetadata("client_secret does not match the registered client: omit it or send the current secret")
	}
	return nil
}

// deregister deletes a client (RFC 7592 §2.3). This invalidates the client's tokens.
func (e *registrationEndpoint) deregister(w http.ResponseWriter, r *http.Request) error {
	c, err := e.authenticate(r)
	if err != nil {
		return err
	}
	if err := e.registration.clients.remove(r.Context(), c.Client.ID); err != nil {
		return err
	}
	e.Trail.Record(r.Context(), audit.Event{Kind: audit.KindRegistration, ClientID: c.Client.ID, Reason: "deleted"})
	w.WriteHeader(http.StatusNoContent)
	return nil
}
