package authorize

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
)

// Server is the authorization server of one issuer. It is safe for concurrent
// use and serves the paths named in the package comment.
type Server struct {
	routes       map[string]http.Handler
	crossOrigins *crossOrigins
	sessions     *session.Sessions
	endings      *token.Revoker
	revocations  *revocation.Revocations
	holders      *token.Holders
}

// New checks the configuration and returns its Server. It does no I/O.
func New(c Config) (*Server, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	a, err := newAssembly(&c)
	if err != nil {
		return nil, err
	}
	routes, err := a.routes(&c)
	if err != nil {
		return nil, err
	}
	return &Server{
		routes: routes, crossOrigins: newCrossOrigins(c.Clients, routes),
		sessions: a.sessions, endings: a.tokens.Revoker, revocations: a.revocations, holders: a.tokens.Holders,
	}, nil
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

// Serves says whether a path is one of this server's.
func (s *Server) Serves(path string) bool { return s.routes[path] != nil }

// ServeHTTP implements http.Handler. Paths that it does not serve are 404.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := s.routes[r.URL.Path]
	if h == nil {
		http.NotFound(w, r)
		return
	}
	if !s.crossOrigins.answer(w, r) {
		h.ServeHTTP(w, r)
	}
}

// AllowsOrigin says whether an origin, as a browser writes it, is that of a redirect URI
// of a client.
func (s *Server) AllowsOrigin(origin string) bool { return s.crossOrigins.AllowsOrigin(origin) }

// Sessions lists the sessions of a user, or all where user is empty. Those that
// their user's configuration ended (see doc.go) are not among them. It takes time
// in proportion to all that the store holds.
func (s *Server) Sessions(ctx context.Context, user string) ([]session.Info, error) {
	return s.sessions.List(ctx, user)
}

// EndSession ends a session by its sid, and tells the clients that asked to be
// told (OpenID Connect Back-Channel Logout 1.0). It returns how many sessions it ended:
// that it ended before is no error.
func (s *Server) EndSession(ctx context.Context, sid string) (int, error) {
	return s.sessions.EndByID(ctx, sid)
}

// EndSessions ends all sessions of a user, as [Server.EndSession] does, and returns how
// many there were.
func (s *Server) EndSessions(ctx context.Context, user string) (int, error) {
	return s.sessions.EndByUser(ctx, user)
}

// RevokeGrants ends at once everything that a user let clients have, or that a client was
// given by anybody, or by this user where both are named: codes, access tokens and
// refresh tokens, and the consent that was remembered. A user's sessions end too where
// no client is named; otherwise people stay signed in, and the client is told that
// their sessions are over for it (OpenID Connect Back-Channel Logout 1.0). What is
// given later is good. Of what fails half-way, what was ended stays so; the call can be
// repeated.
func (s *Server) RevokeGrants(ctx context.Context, user, clientID string) (token.RevokedGrants, error) {
	return s.endings.RevokeGrants(ctx, user, clientID)
}

// Revoked says whether an access token of ours was revoked, by its jti: by
// itself or with its family.
func (s *Server) Revoked(ctx context.Context, tokenID string) (bool, error) {
	return s.revocations.Revoked(ctx, tokenID)
}

// Holder returns whom an access token stands for, or nil if the token has ended with
// what it rests on: a person who was removed or disabled or has another password, a
// client that is gone or may no longer have the scope, a session or a way to sign in
// that there is no more, all that somebody was given. Whether the token itself was
// revoked, [Server.Revoked] says.
func (s *Server) Holder(ctx context.Context, t token.AccessToken) (*token.Holder, error) {
	return s.holders.Find(ctx, t)
}
