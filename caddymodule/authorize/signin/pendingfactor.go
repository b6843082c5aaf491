package signin

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

const (
	// secondFactorLifetime is how long the page for the second factor can be used.
	secondFactorLifetime = 5 * time.Minute

	// maxUsedFactors is how many completed sign-ins of one person are remembered.
	maxUsedFactors = 200

	// maxPendingFactor bounds a pending second factor in bytes, which are in an address.
	maxPendingFactor = 10 << 10
)

var errCodeTooLate = oauth2.StartAgain("This sign-in took too long, was started in another browser, or is already over. Go back to the app and sign in from there again.")

// pendingSecondFactor is a sign-in after its first factor. It is no session, and no other
// endpoint knows it. The browser keeps it, sealed, so that one that is never completed takes no
// memory here.
type pendingSecondFactor struct {
	ID          string          `json:"id"`
	Session     session.Session `json:"session"`       // to be started
	SID         string          `json:"sid,omitempty"` // of the session to step up instead, if there is one already
	PasskeyOnly bool            `json:"passkey_only"`  // a code will not do
	Query       string          `json:"query"`         // of the authorization request

	sealed string
	user   *people.User
	req    *Request
}

// usedKey is the key of the entry that says that a sign-in was completed.
func (p *pendingSecondFactor) usedKey() string { return store.Key("factor-used", p.ID) }

// pendingFactors seals pending second factors, and remembers the completed ones.
type pendingFactors struct {
	frame *Frame
	store store.Store
	used  *store.Latest
}

// redirect sends the browser to the page for the second factor. It drops the provider's ID token if that would make the
// address too long: it is only a hint for signing out there.
func (ps *pendingFactors) redirect(w http.ResponseWriter, r *http.Request, req *Request, pending pendingSecondFactor) {
	pending.ID = oauth2.RandomToken()
	if len(pending.Session.UpstreamIDToken)+len(pending.Session.RefreshToken)+len(pending.Session.AccessToken)+len(pending.Query) > maxPendingFactor {
		pending.Session.UpstreamIDToken = ""
	}
	sealed, err := ps.frame.Sealer.SealJSON(w, r, "factor", pending)
	ps.frame.redirectSealed(w, r, req, http.StatusSeeOther, endpoint.Login+"?factor=", sealed, err)
}

// open opens what redirect sealed for this browser, unless it was completed.
func (ps *pendingFactors) open(r *http.Request, sealed string) (*pendingSecondFactor, error) {
	pending := &pendingSecondFactor{sealed: sealed}
	if err := ps.frame.Sealer.UnsealJSON(r, "factor", sealed, secondFactorLifetime, errCodeTooLate, pending); err != nil {
		return nil, err
	}
	switch _, err := ps.store.Get(r.Context(), pending.usedKey()); {
	case err == nil:
		return nil, errCodeTooLate
	case !errors.Is(err, store.ErrNotFound):
		return nil, fmt.Errorf("reading a sign-in: %w", err)
	}
	return pending, nil
}

// completing returns what completes a sign-in.
func (ps *pendingFactors) completing(pending *pendingSecondFactor, after func() error) *Once {
	return &Once{
		Store: ps.store, Before: ps.used.Adding(pending.user.ID, pending.usedKey()), After: after,
		Call: &store.Call{Op: store.Put, Key: pending.usedKey(), TTL: secondFactorLifetime},
	}
}
