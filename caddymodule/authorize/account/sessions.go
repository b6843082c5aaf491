package account

import (
	"context"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/httporigin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fairqueue"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// sessions are where people are signed in.
type sessions struct {
	listing   session.Listing
	providers map[string]*people.Provider
	turns     *fairqueue.Queue // of people: to end all sessions is costly
}

// shown are a person's sessions as the page shows them.
func (ss *sessions) shown(ctx context.Context, signedIn *session.SignedIn) ([]page.AccountSession, error) {
	list, err := ss.listing.Own(ctx, signedIn.User.ID)
	shown := make([]page.AccountSession, len(list))
	for i, s := range list {
		shown[i] = page.AccountSession{
			ID: s.ID, Device: device(s.UserAgent), Since: ago(s.Since), Network: network(s.Address), Current: s.ID == signedIn.SID,
			By: ss.provider(s.Provider),
		}
	}
	return shown, err
}

// network is where a session began, as far as it tells somebody something: this machine does not.
func network(address string) string {
	if httporigin.IsLoopback(address) {
		return ""
	}
	return fairqueue.Network(address)
}

// provider is the name of an identity provider; empty for none.
func (ss *sessions) provider(key string) string {
	if p := ss.providers[key]; p != nil {
		return p.Name
	}
	return ""
}

// end ends the session that a form names.
func (ss *sessions) end(ctx context.Context, s *session.SignedIn, p oauth2.Parameters) error {
	audit.NoteSessionEndReason(ctx, "the person ended it from elsewhere")
	return ss.listing.EndOwn(ctx, s.User.ID, p.Get("target"))
}

// endOthers ends all sessions but this one.
func (ss *sessions) endOthers(ctx context.Context, s *session.SignedIn, _ oauth2.Parameters) error {
	leave, err := ss.turns.Enter(ctx, s.User.ID)
	if err != nil {
		return err
	}
	defer leave()
	audit.NoteSessionEndReason(ctx, "the person ended it from elsewhere")
	return ss.listing.EndOthers(ctx, s.User.ID, s.SID)
}
