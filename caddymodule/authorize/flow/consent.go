package flow

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
)

const claimItem = "claim:"

// items are what a request asks a person for.
func (req *authorizationRequest) items() []string {
	items := slices.Clone(req.scope)
	ofScope := people.ClaimsOfScope(req.scope)
	for _, name := range slices.Concat(req.userinfoClaims, req.idTokenClaims) {
		if item := claimItem + name; !slices.Contains(ofScope, name) && !slices.Contains(items, item) {
			items = append(items, item)
		}
	}
	return items
}

// limit takes from a request what the person did not allow (SMART App Launch 2.2
// leaves that to them). Nothing left is a refusal of all.
func (req *authorizationRequest) limit(granted []string) error {
	items := req.items()
	refused := func(item string) bool { return slices.Contains(items, item) && !slices.Contains(granted, item) }
	refusedClaim := func(name string) bool {
		return refused(claimItem+name) || refused(people.ScopeOf(name))
	}
	req.userinfoClaims = slices.DeleteFunc(slices.Clone(req.userinfoClaims), refusedClaim)
	req.idTokenClaims = slices.DeleteFunc(slices.Clone(req.idTokenClaims), refusedClaim)
	if req.scope = slices.DeleteFunc(slices.Clone(req.scope), refused); len(req.scope) == 0 {
		return errDenied
	}
	return nil
}

var errDenied = &oauth2.Error{Code: "access_denied", Description: "the person did not allow it"}

// mustStay says whether an item cannot be taken out of a request without breaking
// it: who signs in, and which patient it is about.
func mustStay(item string) bool {
	return item == "openid" || item == "launch" || strings.HasPrefix(item, "launch/")
}

// consented says whether the person must be asked, and limits the request to
// what they allowed where they were asked before.
//
// The operator who writes a client into the configuration vouches for it, so
// people are asked only if the configuration says so, or for the one request
// that does.
func (an *answers) consented(ctx context.Context, req *authorizationRequest, user *people.User) (ask bool, err error) {
	switch {
	case req.client.Consent == client.ConsentSkip:
		return false, nil
	case req.prompts("consent"):
		return true, nil
	case req.client.Consent == "":
		return false, nil
	}
	earlier, err := an.consents.Load(ctx, user.ID, req.client.ID)
	switch {
	case err != nil:
		return false, err
	case earlier == nil:
		return true, nil
	case slices.ContainsFunc(req.items(), func(item string) bool { return !slices.Contains(earlier.Seen, item) }):
		return true, nil
	}
	return req.limit(earlier.Granted) != nil, nil
}

// consentPage is what pages/consent.html shows.
type consentPage struct {
	Request  string // sealed, see question.go
	Client   string
	Host     string
	To       string // the host of the redirect URI
	Person   people.Label
	Unknown  bool // the client registered itself
	Fixed    []string
	Optional []consentItem
}

type consentItem struct{ Name, Text string }

func (ps *pages) showConsent(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedIn, p oauth2.Parameters) {
	page := consentPage{
		Request: p.Get("request"), Client: req.client.Title(), Host: ps.host, Person: signedIn.User.Label(),
		Unknown: req.client.Registered,
	}
	if to, err := url.Parse(req.redirectURI); err == nil {
		page.To = cmp.Or(to.Host, to.Scheme)
	}
	for _, item := range req.items() {
		if text := describe(item, signedIn.User); mustStay(item) {
			page.Fixed = append(page.Fixed, text)
		} else {
			page.Optional = append(page.Optional, consentItem{mayField + item, text})
		}
	}
	w.Header().Set("Content-Security-Policy", contentPolicy+ps.formAction(req.redirectURI))
	ps.show(w, r, http.StatusOK, consentPages, page)
}

// mayField begins the name of an item's box.
const mayField = "may "

// takeConsent takes what the page sends. Sent twice, it is taken twice, with the
// same effect.
func (q *questions) takeConsent(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedIn, p oauth2.Parameters) {
	switch p.Get("decision") {
	case "allow":
		q.allow(w, r, req, signedIn, p)
	case "deny":
		q.responses.redirectError(w, r, req, errDenied)
	default:
		q.responses.refuse(w, r, errNoDecision)
	}
}

func (q *questions) allow(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedIn, p oauth2.Parameters) {
	items := req.items()
	granted := slices.DeleteFunc(slices.Clone(items), func(item string) bool {
		return !mustStay(item) && p.Get(mayField+item) == ""
	})
	if err := req.limit(granted); err != nil {
		q.responses.redirectError(w, r, req, err)
		return
	}
	takenBack, err := q.consents.TakeBack(r.Context(), req.client, signedIn.User.ID, items, granted)
	if err == nil {
		err = q.consents.Remember(r.Context(), signedIn.User.ID, req.client.ID, items, granted)
	}
	switch {
	case err != nil && takenBack: // the person must not believe that it is
		q.responses.redirectError(w, r, req, err)
		return
	case err != nil: // the person is asked again
		q.logger.ErrorContext(r.Context(), "consent not remembered", "client_id", req.client.ID, "error", err)
	}
	q.answers.give(w, r, req, signedIn)
}
