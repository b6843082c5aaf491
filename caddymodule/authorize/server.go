package authorize

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/rs/cors"
)

// The endpoints below the issuer.
const (
	pathAuthorize  = "/oauth2/authorize"
	pathLogin      = "/oauth2/login"
	pathToken      = "/oauth2/token"
	pathRevoke     = "/oauth2/revoke"
	pathIntrospect = "/oauth2/introspect"
	pathUserinfo   = "/oauth2/userinfo"
	pathCallback   = "/oauth2/callback/" // and the provider's key
	pathLogout     = "/oauth2/logout"
	pathJWKS       = "/.well-known/jwks.json"

	pathBackchannelLogout = "/oauth2/backchannel_logout/" // and the provider's key

	pathSelectAccount = "/oauth2/select_account"
	pathConsent       = "/oauth2/consent"
	pathPush          = "/oauth2/par"
	pathRegister      = "/oauth2/register"
)

// Server is the authorization server of one issuer. It is safe for concurrent
// use and serves the paths named in the package comment.
type Server struct {
	issuer, fhirBase, host string

	clients      map[string]*Client
	origins      map[string]bool       // of the clients' redirect URIs
	cors         map[string]*cors.Cors // by path
	registrar    *registrar            // nil where nobody can register
	providers    map[string]*provider
	providerKeys []string
	directory    *directory
	keys         keySource
	store        store.Store
	durable      store.Store
	revocations  revocations
	remembered   tokenMemory
	returned     *store.Memory // states that came back from providers
	identified   *identities   // of those whose sign-in failed here after that
	pushed       *store.Memory // what this process keeps in store for pushed requests
	spentPushes  spentPushes
	codes        *recentCodes

	isHTTPS func(*http.Request) bool
	logger  *slog.Logger
	routes  map[string]http.Handler

	audit         func(context.Context, audit.Event)
	clientAddress func(*http.Request) string
	turnstile     *turnstile
	notices       *notices

	accessTokenLifetime, codeLifetime, sessionLifetime time.Duration
	refreshLifetime, refreshIdleLifetime, refreshGrace time.Duration
	authorizePOST, omitIssuer                          bool

	started func() time.Time // when this process began to serve
}

// New checks the configuration and returns its Server. It does no I/O.
func New(c Config) (*Server, error) {
	if err := CheckIssuer(c.Issuer); err != nil {
		return nil, err
	}
	s := &Server{
		issuer: c.Issuer, fhirBase: c.Issuer + c.FHIRBasePath, host: strings.TrimPrefix(c.Issuer, "https://"),
		clients: make(map[string]*Client, len(c.Clients)), providers: map[string]*provider{},
		keys: c.Keys, store: c.Store, returned: store.NewMemory(0, 0),
		identified: newIdentities(),
		pushed:     store.NewMemory(maxPushed, 0),
		durable:    c.Durable, audit: c.Audit, clientAddress: c.ClientAddress,
		isHTTPS: c.IsHTTPS, logger: c.Logger, started: c.Started, authorizePOST: c.AuthorizePOST, omitIssuer: c.OmitIssuer,
	}
	s.setDefaults()
	for _, step := range []func(Config) error{s.setLifetimes, s.setLockout, s.setProviders, s.setPeople, s.setRoutes, s.setOrigins} {
		if err := step(c); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// setDefaults fills in what a Config may leave out.
func (s *Server) setDefaults() {
	if s.logger == nil {
		s.logger = slog.New(slog.DiscardHandler)
	}
	if s.isHTTPS == nil {
		s.isHTTPS = func(r *http.Request) bool { return r.TLS != nil }
	}
	if s.durable == nil {
		s.durable = s.store
	}
	s.revocations.loaded.Store(s.durable == s.store) // then they need no second place
	if s.audit == nil {
		s.audit = audit.NewLog(s.logger).Record
	}
	if s.started == nil {
		s.started = func() time.Time { return time.Time{} }
	}
	if s.clientAddress == nil {
		s.clientAddress = remoteAddress
	}
}

// CheckIssuer says why an address cannot be an issuer, if it cannot. It has no
// path, because the endpoints' paths are fixed (RFC 8414 §2).
func CheckIssuer(issuer string) error {
	u, err := url.Parse(issuer)
	if err != nil || u.Scheme != "https" || u.Host == "" || issuer != "https://"+strings.ToLower(u.Host) {
		return fmt.Errorf("issuer %q must be https://host or https://host:port, in lower case and with nothing after it", issuer)
	}
	return nil
}

func (s *Server) setLifetimes(c Config) error {
	refresh := cmp.Or(c.RefreshTokenLifetime, DefaultRefreshTokenLifetime)
	for _, l := range []struct {
		name                string
		set                 *time.Duration
		value, normal, most time.Duration
	}{
		{"access_token_lifetime", &s.accessTokenLifetime, c.AccessTokenLifetime, DefaultAccessTokenLifetime, MaxAccessTokenLifetime},
		{"code_lifetime", &s.codeLifetime, c.CodeLifetime, DefaultCodeLifetime, MaxCodeLifetime},
		{"session_lifetime", &s.sessionLifetime, c.SessionLifetime, DefaultSessionLifetime, MaxSessionLifetime},
		{"refresh_token_lifetime", &s.refreshLifetime, refresh, refresh, MaxRefreshTokenLifetime},
		{"refresh_token_idle_lifetime", &s.refreshIdleLifetime, c.RefreshTokenIdleLifetime, refresh, refresh},
		{"refresh_token_grace", &s.refreshGrace, max(c.RefreshTokenGrace, 0), DefaultRefreshTokenGrace, MaxRefreshTokenGrace},
	} {
		if *l.set = cmp.Or(l.value, l.normal); l.value == 0 {
			continue
		}
		if err := checkLifetime(l.name, l.value, l.most); err != nil {
			return err
		}
	}
	if c.RefreshTokenGrace < 0 {
		s.refreshGrace = 0
	}
	s.codes = newRecentCodes(s.codeLifetime)
	return nil
}

func (s *Server) setLockout(c Config) error {
	s.turnstile = &turnstile{Lockout: c.Lockout, store: s.durable, logger: s.logger}
	s.notices = newNotices()
	return s.turnstile.setDefaults()
}

func (s *Server) setProviders(c Config) error {
	for _, idp := range c.IdentityProviders {
		if s.providers[idp.Key] != nil {
			return fmt.Errorf("idp %q is there twice", idp.Key)
		}
		p, err := s.newProvider(idp)
		if err != nil {
			return err
		}
		s.providers[idp.Key] = p
		s.providerKeys = append(s.providerKeys, idp.Key)
	}
	return nil
}

// setPeople registers clients and users. None of the two may share a name: it
// is the sub of their tokens, and one would pass for the other (RFC 9700 §4.15).
func (s *Server) setPeople(c Config) (err error) {
	if s.registrar, err = newRegistrar(c.Registration, s.logger); err != nil {
		return err
	}
	if s.directory, err = newDirectory(c.Users, c.Passwords); err != nil {
		return err
	}
	if err := s.checkLinks(); err != nil {
		return err
	}
	for _, client := range c.Clients {
		switch {
		case s.clients[client.ID] != nil:
			return fmt.Errorf("client %q is there twice", client.ID)
		case s.directory.users[client.ID] != nil:
			return fmt.Errorf("client %q and user %q must not have the same name", client.ID, client.ID)
		}
		if err := client.Complete(); err != nil {
			return err
		}
		client.keys, _ = client.newKeys(s.logger, client.Transport) // as Complete made them, and with a logger
		for _, key := range client.IdentityProviders {
			if key != Local && s.providers[key] == nil {
				return fmt.Errorf("client %q: there is no idp %q", client.ID, key)
			}
		}
		if client.guessable {
			s.logger.Warn("client secret has less than 128 bits, and could be guessed; make another with: "+secretCommand, "client_id", client.ID)
		}
		client.granted = new(grantedScopes)
		s.clients[client.ID] = &client
	}
	return nil
}

func (s *Server) setRoutes(c Config) error {
	openid, err1 := s.document(s.metadata())
	smart, err2 := s.document(s.smartConfiguration())
	authorize := []string{http.MethodGet}
	if c.AuthorizePOST {
		authorize = append(authorize, http.MethodPost)
	}
	read := []string{http.MethodGet, http.MethodHead}
	form := []string{http.MethodGet, http.MethodPost}
	s.routes = map[string]http.Handler{
		pathAuthorize:  s.endpoint(s.authorize, authorize...),
		pathLogin:      s.endpoint(s.login, form...),
		pathToken:      s.endpoint(s.token, http.MethodPost),
		pathRevoke:     s.endpoint(s.revocation, http.MethodPost),
		pathIntrospect: s.endpoint(s.introspect, http.MethodPost),
		pathUserinfo:   s.endpoint(s.userinfo, form...),
		pathLogout:     s.endpoint(s.logout, form...),
		pathJWKS:       s.endpoint(s.jwks, read...),

		pathSelectAccount: s.endpoint(s.question(pathSelectAccount, s.showSelectAccount, s.selectAccount), form...),
		pathPush:          s.endpoint(s.push, http.MethodPost),
		pathConsent:       s.endpoint(s.question(pathConsent, s.showConsent, s.takeConsent), form...),

		"/.well-known/openid-configuration":                 s.endpoint(openid, read...),
		"/.well-known/oauth-authorization-server":           s.endpoint(openid, read...),
		c.FHIRBasePath + "/.well-known/smart-configuration": s.endpoint(smart, read...),
	}
	if s.registrar != nil {
		s.routes[pathRegister] = s.endpoint(s.registration, http.MethodPost, http.MethodGet, http.MethodPut, http.MethodDelete)
	}
	for key, p := range s.providers {
		s.routes[pathLogin+"/"+key] = s.endpoint(s.leave(p), http.MethodGet)
		s.routes[pathCallback+key] = s.endpoint(s.comeBack(p), http.MethodGet)
		s.routes[pathBackchannelLogout+key] = s.endpoint(s.signedOutThere(p), http.MethodPost)
		s.routes[pathLogout+"/"+key] = s.endpoint(s.signedOutUpstream, http.MethodGet)
	}
	return errors.Join(err1, err2)
}

// Serves says whether a path is one of this server's.
func (s *Server) Serves(path string) bool { return s.routes[path] != nil }

// ServeHTTP implements http.Handler. Paths that it does not serve are 404.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := s.routes[r.URL.Path]
	if h == nil {
		http.NotFound(w, r)
		return
	}
	if !s.crossOrigin(w, r) {
		h.ServeHTTP(w, r)
	}
}

// plainHTTP says why a request does not count as one over https. A header says nothing
// that anybody might not have written, but who runs the proxy will want to know why it
// was not believed.
func plainHTTP(r *http.Request) string {
	const refusal = "this endpoint is for https alone"
	if r.Header.Get("X-Forwarded-Proto") == "" && r.Header.Get("Forwarded") == "" {
		return refusal
	}
	return refusal + "; a proxy in front says whether the browser used it by X-Forwarded-Proto, and is believed if the gateway's trusted_proxies name it"
}

// endpoint lets the named methods through, over HTTPS (RFC 6749 §3.1, §3.2).
// Nothing that passes here is kept by caches unless the endpoint says so.
func (s *Server) endpoint(serve http.HandlerFunc, methods ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = s.withTrail(r)
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Referrer-Policy", "no-referrer")
		switch {
		case !s.isHTTPS(r):
			s.writeError(w, r, oauth2.InvalidRequest(plainHTTP(r)))
		case !slices.Contains(methods, r.Method):
			w.Header().Set("Allow", strings.Join(methods, ", "))
			s.writeError(w, r, &oauth2.Error{
				Code: "invalid_request", Status: http.StatusMethodNotAllowed,
				Description: "use " + strings.Join(methods, " or "),
			})
		default:
			serve(w, r)
		}
	})
}
