package flow

import (
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/consent"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
)

// answerTime is how long after signing in a person may take to answer, whatever
// max_age says: else one of a few seconds would have them sign in again for ever.
// Nobody who left the page open is taken for present (OpenID Connect Core §3.1.2.1).
const answerTime = 5 * time.Minute

// ask sends the browser to a page that asks the person who is signed in. The page
// gets the request sealed, as the sign-in page does, and bound to the session as
// well: what one person is asked, nobody who signs in later can answer.
func (an *answers) ask(w http.ResponseWriter, r *http.Request, page string, req *authorizationRequest, signedIn *session.SignedIn) {
	sealed, err := an.browsers.Keys.Seal(r.Context(), signedIn.SID+" "+req.query, page+" "+an.browsers.ID(w, r))
	if err != nil {
		an.responses.redirectError(w, r, req, err)
		return
	}
	if err := req.spent(r.Context()); err != nil {
		an.responses.redirectError(w, r, req, err)
		return
	}
	w.Header().Set("Location", page+"?request="+url.QueryEscape(sealed))
	w.WriteHeader(http.StatusFound)
}

// questions are the pages that ask somebody who is signed in.
type questions struct {
	*step
	accounts *people.Accounts
	sessions *session.Sessions
	consents *consent.Consents
	signIns  *signIns
	answers  *answers
	logger   *slog.Logger
}

// asked opens what ask sealed for a page, and checks it again from scratch: the
// person must still be signed in, and the request still be a good one.
func (q *questions) asked(r *http.Request, page, sealed string) (*authorizationRequest, *session.SignedIn, error) {
	text, err := q.openForBrowser(r, page, sealed)
	if err != nil {
		return nil, nil, err
	}
	sid, query, _ := strings.Cut(text, " ")
	signedIn, err := q.sessions.Current(r)
	if err != nil {
		return nil, nil, err
	}
	if signedIn == nil || signedIn.SID != sid {
		return nil, nil, errPageExpired
	}
	req, err := q.requests.authorizationRequest(r.Context(), query)
	if err == nil && !q.accounts.Ways(req.client.IdentityProviders).Has(signedIn.Provider) {
		err = people.ErrNotAllowed
	}
	return req, signedIn, err
}

// question serves a page that asks: GET shows it, POST takes the answer.
func (q *questions) question(page string, show, take func(http.ResponseWriter, *http.Request, *authorizationRequest, *session.SignedIn, oauth2.Parameters)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		p, err := loginParameters(w, r)
		if err != nil {
			q.responses.refuse(w, r, err)
			return
		}
		req, signedIn, err := q.asked(r, page, p.Get("request"))
		switch {
		case q.responses.failed(w, r, req, err):
		case r.Method == http.MethodPost && p.Get("decision") != "deny" && req.outlived(signedIn.At, answerTime):
			q.signIns.askToSignIn(w, r, req)
		case r.Method == http.MethodPost:
			take(w, r, req, signedIn, p)
		default:
			show(w, r, req, signedIn, p)
		}
	}
}
