package authorize

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/factor"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revalidation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/crossorigin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/snapshotmap"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
)

// Server is the authorization server of one issuer. It serves the paths listed in the package
// comment and is safe for concurrent use.
type Server struct {
	routes       map[string]http.Handler
	pathPrefixes []string                       // routes that end with a slash (few)
	crossOrigins map[string]*crossorigin.Policy // CORS policies by path
	sessions     *session.Sessions
	revoker      *token.Revoker
	apps         *token.Apps
	revocations  *revocation.Revocations
	holders      *token.Holders
	people       people.Finder
	tokenClaims  map[string][]string
	factors      *factor.Factors
	clients      *client.Registry
	trail        *audit.Recorder
	notFound     http.Handler // response to requests for unknown paths
	registration string       // registration endpoint, or ""
	config       Config       // complete configuration
	entries      *localEntries
}

// New returns the Server for a configuration, or an error if it is invalid. New does no I/O.
func New(c Config) (*Server, error) {
	if err := c.applyDefaults(); err != nil {
		return nil, err
	}
	of, err := newEntries(&c)
	if err != nil {
		return nil, err
	}
	return newServer(c, of)
}

// newServer builds the Server from a complete configuration with its users and clients.
func newServer(c Config, of *localEntries) (*Server, error) {
	a, err := newCore(&c, of)
	if err != nil {
		return nil, err
	}
	a.addRoutes()
	prefixes := slices.DeleteFunc(slices.Collect(maps.Keys(a.routes)), func(path string) bool { return !strings.HasSuffix(path, "/") })
	return &Server{
		routes: a.routes, pathPrefixes: prefixes, crossOrigins: crossOriginPolicies(of.origins, a.routes, a.publicPaths),
		sessions: a.Sessions, revoker: a.Tokens.Revoker, apps: a.Tokens.Apps, revocations: a.Revocations, holders: a.Tokens.Holders,
		people: people.Finder{Accounts: a.Accounts}, factors: a.Factors, clients: a.Clients, trail: a.Trail, notFound: newNotFoundHandler(a.Pages), tokenClaims: tokenClaims(&c, of.directory),
		config: c, entries: of, registration: a.RegistrationEndpoint,
	}, nil
}

// Clients returns the client registry.
func (s *Server) Clients() *client.Registry { return s.clients }

// RegistrationEndpoint returns the URL of the client registration endpoint (RFC 7591 §3), or "" if clients cannot register.
func (s *Server) RegistrationEndpoint() string { return s.registration }

// CheckProvider returns an error if sign-in through an identity provider is impossible.
func (s *Server) CheckProvider(ctx context.Context, key string) error {
	return s.people.Accounts.Providers[key].Client.Check(ctx)
}

// ErrNotSuspended is returned for an identity provider that is not suspended.
var ErrNotSuspended = revalidation.ErrNotSuspended

// ErrUnknownProvider is returned for a key without an identity provider.
var ErrUnknownProvider = errors.New("no identity provider has this name")

// AcceptDenials makes the denials of a suspended identity provider take effect within its check interval. It returns
// [ErrUnknownProvider] for an unknown key, and [ErrNotSuspended] for a provider that is not suspended.
func (s *Server) AcceptDenials(ctx context.Context, provider string) error {
	if s.people.Accounts.Providers[provider] == nil {
		return fmt.Errorf("%q: %w", provider, ErrUnknownProvider)
	}
	return s.sessions.SignIns.AcceptDenials(ctx, provider)
}

// ProviderStates returns the states of the identity providers with revalidation.
func (s *Server) ProviderStates(ctx context.Context) ([]revalidation.ProviderState, error) {
	return s.sessions.SignIns.ProviderStates(ctx)
}

// Run revalidates sign-ins at identity providers until ctx is canceled. It returns after pending requests have completed.
func (s *Server) Run(ctx context.Context) { s.sessions.SignIns.Run(ctx) }

// Serves reports whether the server has an endpoint for a path.
func (s *Server) Serves(path string) bool { return s.handler(path) != nil }

// handler returns the handler of a path, or of the folder (with a trailing slash) that contains it, or nil.
func (s *Server) handler(path string) http.Handler {
	if h := s.routes[path]; h != nil {
		return h
	}
	for _, prefix := range s.pathPrefixes {
		if strings.HasPrefix(path+"/", prefix) {
			return s.routes[prefix]
		}
	}
	return nil
}

// ServeHTTP implements [http.Handler]. Unknown paths get 404, with a page for browsers.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := s.handler(r.URL.Path)
	if h == nil {
		s.notFound.ServeHTTP(w, r)
		return
	}
	w, handled := s.crossOrigins[r.URL.Path].HandlePreflight(w, r)
	if !handled {
		h.ServeHTTP(w, r)
	}
}

// newNotFoundHandler returns a handler that responds with 404, with a page for browsers.
func newNotFoundHandler(pages *page.Site) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !endpoint.WantsPage(r) {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		pages.ShowMessage(w, r, http.StatusNotFound, page.Message{
			Title: page.T("Page not found"), Text: page.T("Check the address, or go back to the app and start again."),
			Next: &page.Link{Address: endpoint.Account, Text: page.T("Your account")},
		})
	}
}

// AllowsOrigin reports whether an origin, in the form sent by browsers, is the origin of a client's redirect URI.
func (s *Server) AllowsOrigin(origin string) bool { return s.entries.origins.AllowsOrigin(origin) }

// withSub calls do with the sub for an operator's term ([people.Finder.ResolveSub]).
func withSub[T any](ctx context.Context, s *Server, term string, do func(ctx context.Context, sub string) (T, error)) (result T, err error) {
	sub, err := s.people.ResolveSub(ctx, term)
	if err != nil {
		return result, err
	}
	return do(ctx, sub)
}

// DescribePerson returns the provider, subject, user name and sub of the person for an operator's term
// ([people.Finder.ResolveOne]).
func (s *Server) DescribePerson(ctx context.Context, term string) (string, error) {
	if term == "" {
		return "", nil
	}
	person, err := s.people.ResolveOne(ctx, term)
	return person.String(), err
}

// Sessions returns the sessions of a user ([people.Finder.ResolveSub]), or all sessions if user is empty.
// Its run time is proportional to the size of the store.
func (s *Server) Sessions(ctx context.Context, user string) ([]session.Info, error) {
	return withSub(ctx, s, user, session.Listing{Sessions: s.sessions}.List)
}

// Grants calls [token.Apps.ListGrants] with an operator's term for the user ([people.Finder.ResolveSub]) in the filter.
func (s *Server) Grants(ctx context.Context, filter token.GrantFilter) ([]token.UserGrant, error) {
	return withSub(ctx, s, filter.User, func(ctx context.Context, sub string) ([]token.UserGrant, error) {
		filter.User = sub
		return s.apps.ListGrants(ctx, filter)
	})
}

// SessionGrants returns the apps that have access on behalf of the user of a session. It returns nil if the session has ended or
// its record is unreadable.
func (s *Server) SessionGrants(ctx context.Context, sid string) ([]token.UserGrant, error) {
	stored, err := s.sessions.Find(ctx, sid)
	switch {
	case errors.Is(err, session.ErrUnreadable):
		return nil, nil
	case stored == nil || err != nil:
		return nil, err
	}
	return s.apps.ListGrants(ctx, token.GrantFilter{User: stored.User})
}

// EndSession ends the session with a sid and notifies its clients (OpenID Connect Back-Channel Logout 1.0). It returns the
// number of ended sessions, or [ErrNoSession].
func (s *Server) EndSession(ctx context.Context, sid string) (int, error) {
	ended, err := s.sessions.EndByID(ctx, sid)
	if ended == 0 && err == nil {
		err = fmt.Errorf("sid %q: %w", sid, ErrNoSession)
	}
	return ended, err
}

// ErrNoSession means that a session to end does not exist, or that a user is unknown and has no sessions.
var ErrNoSession = errors.New("no session found")

// EndSessions ends all sessions of a user ([people.Finder.ResolveOne]) like [Server.EndSession] and returns their number, which
// may be 0 for a known user. The error for an unknown user is [ErrNoSession], because the name is probably misspelled.
func (s *Server) EndSessions(ctx context.Context, user string) (int, error) {
	person, err := s.people.ResolveOne(ctx, user)
	if err != nil {
		return 0, err
	}
	ended, err := s.sessions.EndByUser(ctx, person.User)
	if ended == 0 && err == nil && person.ID == "" {
		err = fmt.Errorf("unknown user %q: %w", user, ErrNoSession)
	}
	return ended, err
}

// RevokeGrants calls [token.Revoker.RevokeGrants] for a user ([people.Finder.ResolveSub]).
func (s *Server) RevokeGrants(ctx context.Context, user, clientID string) (token.RevokedGrants, error) {
	return withSub(ctx, s, user, func(ctx context.Context, sub string) (token.RevokedGrants, error) {
		return s.revoker.RevokeGrants(ctx, sub, clientID)
	})
}

// ReleaseSub makes the sub of a user ([people.Finder.ResolveSub]) that was assigned by `sub <claim>` available to other people.
// It reports whether the sub had an owner.
func (s *Server) ReleaseSub(ctx context.Context, user string) (bool, error) {
	return withSub(ctx, s, user, func(ctx context.Context, sub string) (bool, error) {
		return people.ReleaseSub(ctx, s.people.Accounts, sub)
	})
}

// ResetFactors removes all second factors and passkeys that a user ([people.Finder.ResolveSub]) has enrolled, e.g. after losing
// them, and ends the user's sessions. It returns whether factors existed and the number of ended sessions.
func (s *Server) ResetFactors(ctx context.Context, user string) (had bool, sessions int, err error) {
	if user, err = s.people.ResolveSub(ctx, user); err != nil {
		return false, 0, err
	}
	had, err = s.factors.Enrollments.Reset(ctx, user)
	if had || err != nil {
		s.trail.Record(ctx, audit.Event{Kind: audit.KindFactor, User: user, Reason: "second factors reset by the operator", Err: err})
	}
	if had && err == nil {
		sessions, err = s.sessions.EndByUser(ctx, user)
	}
	return had, sessions, err
}

// RevokeUser revokes all grants of the user with a sub, including deleted users, and removes enrolled
// factors, so that a later user with the sub does not inherit them.
func (s *Server) RevokeUser(ctx context.Context, sub string) error {
	if err := s.revoker.RevokeUserGrants(ctx, sub, "user removed by the operator"); err != nil {
		return err
	}
	_, err := s.factors.Enrollments.Reset(ctx, sub)
	return err
}

// Person returns the identity at the identity provider of the user with a sub. It is empty for local users.
func (s *Server) Person(ctx context.Context, sub string) audit.Person {
	return s.people.Describe(ctx, sub)
}

// IsRevoked reports whether the access token with the given jti, or its family, was revoked.
func (s *Server) IsRevoked(ctx context.Context, tokenID string) (bool, error) {
	return s.revocations.IsTokenRevoked(ctx, tokenID)
}

// Holder calls [token.Holders.Find]. It does not check revocation of the token itself; see [Server.IsRevoked].
func (s *Server) Holder(ctx context.Context, t tokenclaim.AccessToken) (*tokenclaim.Holder, error) {
	return s.holders.Find(ctx, t)
}

// TokenClaims returns the names of the additional claims that are stored with users, by source: identity provider keys and
// [people.Local], if configured.
func (s *Server) TokenClaims() map[string][]string { return s.tokenClaims }

// clientEndpoints are called by clients with a secret, code or token. CORS is restricted to the
// origins of client redirect URIs.
var clientEndpoints = []string{
	endpoint.PushedAuthorization, endpoint.Token, endpoint.Revoke, endpoint.Introspect, endpoint.Userinfo,
}

// crossOriginPolicies returns the CORS policy of each path with CORS. Paths to which browsers navigate, such as authorize, rely
// on cookies and have no policy.
func crossOriginPolicies(of *origins, routes map[string]http.Handler, public []string) map[string]*crossorigin.Policy {
	policies := map[string]*crossorigin.Policy{}
	ofClients := crossorigin.NewRestricted(of.AllowsOrigin)
	for path := range routes {
		switch {
		case slices.Contains(clientEndpoints, path):
			policies[path] = ofClients
		case slices.Contains(public, path):
			policies[path] = crossorigin.Public
		}
	}
	return policies
}

// origins contains the origins of clients. A clone can be changed. The original must not be changed afterwards.
type origins struct {
	redirectCounts  *snapshotmap.Map[int] // number of redirect URIs by origin
	loopbackClients int                   // number of clients that may have any loopback origin
}

func (o *origins) clone() *origins { return &origins{o.redirectCounts.Clone(), o.loopbackClients} }

// add adds n to the counts of a client's origins. n is 1 to add the client and -1 to remove it.
func (o *origins) add(c *client.Client, n int) {
	for _, uri := range c.RedirectURIs {
		origin := originOf(uri)
		if origin == "" {
			continue
		}
		if remaining := o.redirectCounts.Get(origin) + n; remaining > 0 {
			o.redirectCounts.Set(origin, remaining)
		} else {
			o.redirectCounts.Delete(origin)
		}
	}
	if c.AllowsLocalRedirects {
		o.loopbackClients += n
	}
}

// AllowsOrigin implements [Server.AllowsOrigin].
func (o *origins) AllowsOrigin(origin string) bool {
	return o.redirectCounts.Get(origin) > 0 || o.loopbackClients > 0 && client.IsLocal(origin)
}

// originOf returns the origin of a URL in the form sent by browsers (RFC 6454 §6.2), i.e. in lower case and without the default
// port. It returns "" for schemes other than http and https, because their origin is "null", which any site can send.
func originOf(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return ""
	}
	host := strings.ToLower(u.Host)
	port := map[string]string{"https": ":443", "http": ":80"}[u.Scheme]
	return u.Scheme + "://" + strings.TrimSuffix(host, port)
}
