package flow

import (
	"net/http"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/signin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// redirectToPage sends the browser to a page for the person who is signed in. The page
// is bound to the session too, so that nobody who signs in later can answer for them.
func redirectToPage(frame *signin.Frame, w http.ResponseWriter, r *http.Request, page string, req *authorizationRequest, signedIn *session.SignedIn) {
	frame.RedirectToPage(w, r, &req.signIn, page, page, signedIn.SID+" "+req.launch.picked.encode()+" "+req.signIn.Query)
}

// waiting is what a page for a person who is signed in brings back.
type waiting struct {
	sid    string // of the session that it was shown in
	picked picked
	query  string // of the request
}

// readWaiting opens what [redirectToPage] sealed.
func readWaiting(frame *signin.Frame, r *http.Request, page, sealed string) (waiting, error) {
	text, err := frame.Unseal(r, page, sealed)
	if err != nil {
		return waiting{}, err
	}
	sid, text, _ := strings.Cut(text, " ")
	picked, query, _ := strings.Cut(text, " ")
	return waiting{sid, readPicked(picked), query}, nil
}

// errNoDecision says that a page's form was not sent by one of its buttons.
var errNoDecision = oauth2.StartAgain("Use the buttons of the page. Go back to the app and start from there again.")
