package signin

import (
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
)

// starter starts the sessions of people who proved who they are.
type starter struct {
	trail    *audit.Recorder
	sessions *session.Sessions
}

// session starts a session, and goes on.
func (s *starter) session(w http.ResponseWriter, r *http.Request, req *Request, user *people.User, begun session.Session) {
	signedIn, err := s.sessions.Start(w, r, user, begun)
	s.trail.Record(r.Context(), audit.Event{Kind: audit.SignIn, ClientID: req.To.ClientID, User: user.ID, Person: begun.Upstream(), Err: err})
	if err != nil {
		req.Purpose.Refuse(w, r, err)
		return
	}
	req.AskedFactor, req.justSignedIn = true, true
	req.Purpose.Continue(w, r, signedIn)
}
