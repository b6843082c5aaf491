package signin

import (
	"context"
	"net/http"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

// Lasting asks a provider for a refresh token that outlives the person's session there, before an app gets offline_access. Keycloak
// gives one only for the asking, and without it what the app gets would end with that session.
type Lasting struct {
	frame    *Frame
	accounts *people.Accounts
	sessions *session.Sessions
}

// Needed reports whether the provider of a session must be asked, and then sends the browser there. It comes back with an answer,
// without a page where the person has a session there; whatever the answer, it is asked once in a session.
func (l *Lasting) Needed(w http.ResponseWriter, r *http.Request, req *Request, signedIn *session.SignedIn) bool {
	p := l.accounts.Providers[signedIn.Provider]
	if p == nil {
		return false
	}
	brief, err := l.sessions.SignIns.IsBrief(r.Context(), signedIn.SID, p.Key)
	if err != nil {
		req.Purpose.Refuse(w, r, err)
		return true
	}
	return brief && l.redirect(w, r, p, req, signedIn.SID)
}

// redirect sends the browser to the provider, and reports whether that can be had.
func (l *Lasting) redirect(w http.ResponseWriter, r *http.Request, p *people.Provider, req *Request, sid string) bool {
	pending := newPending(p, req.Query)
	pending.SID, pending.Request.UILocales, pending.Request.Lasting = sid, req.How.UILocales, true
	if req.How.Prompts("none") {
		pending.Request.Prompt = "none"
	}
	return pending.redirect(l.frame.Sealer, w, r, p, req)
}

// returned goes on with the session for which the provider was asked, if this browser still has it and nobody else came back,
// and reports whether it does.
func (l *Lasting) returned(w http.ResponseWriter, r *http.Request, p *people.Provider, req *Request, sid string, identity *relyingparty.Identity, failed error) bool {
	signedIn, err := l.sessions.Current(r)
	switch {
	case err != nil, signedIn == nil, signedIn.SID != sid, signedIn.Provider != p.Key, !l.accounts.Ways(req.To.Providers).Has(p.Key):
		return false
	case failed == nil && signedIn.Subject != identity.Subject:
		return false
	}
	var held relyingparty.Held
	if failed == nil && identity.RefreshToken != "" {
		held = identity.Held
	}
	if failed != nil {
		l.frame.Trail.Record(r.Context(), audit.Event{Kind: audit.SignIn, ClientID: req.To.ClientID, User: signedIn.User.ID, Person: audit.Person{Provider: p.Key, Subject: signedIn.Subject}, Err: failed})
	}
	if err := l.sessions.SignIns.Renew(r.Context(), signedIn.SID, p.Key, held); err != nil {
		req.Purpose.Refuse(w, r, err)
		return true
	}
	req.AskedFactor = true
	req.Purpose.Continue(w, r, signedIn)
	return true
}

// Limit removes offline_access from a scope (RFC 6749 §3.3) if the person's provider cannot be asked about them after the
// session: the grant would survive the person's removal at the provider.
func (l *Lasting) Limit(ctx context.Context, scope []string, signedIn *session.SignedIn) ([]string, error) {
	at := slices.Index(scope, client.OfflineAccess)
	if at < 0 {
		return scope, nil
	}
	if outlives, err := l.sessions.SignIns.Outlives(ctx, signedIn.SID, signedIn.Provider); err != nil || outlives {
		return scope, err
	}
	if scope = slices.Delete(slices.Clone(scope), at, at+1); len(scope) == 0 {
		return nil, &oauth2.Error{Code: "invalid_scope", Description: "the person's identity provider issued no refresh token, so the only scope, offline_access, cannot be granted"}
	}
	return scope, nil
}
