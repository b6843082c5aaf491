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
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
)

const (
	claimItem = "claim:" // begins an item that is a claim
	itemField = "may "   // begins the name of an item's checkbox
)

// items are what a person can allow: scopes, and claims requested by name.
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

// limit removes what the person did not allow, as SMART App Launch 2.2 permits. Its error
// means that nothing is left.
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

// isFixed reports whether a request makes no sense without an item: who signs in, and which
// patient it is about.
func isFixed(item string) bool {
	return item == "openid" || item == "launch" || strings.HasPrefix(item, "launch/")
}

// needsConsent reports whether the person must be asked, and otherwise limits the request to
// what they allowed. The operator vouches for configured clients, so people are asked only if
// the configuration or the request says so.
func (a *authorizer) needsConsent(ctx context.Context, req *authorizationRequest, user *people.User) (ask bool, err error) {
	switch {
	case req.client.Consent == client.ConsentSkip:
		return false, nil
	case req.prompts("consent"):
		return true, nil
	case req.client.Consent == "":
		return false, nil
	}
	earlier, err := a.consents.Load(ctx, user.ID, req.client.ID)
	switch {
	case err != nil:
		return false, err
	case earlier == nil, slices.ContainsFunc(req.items(), func(item string) bool { return !slices.Contains(earlier.Seen, item) }):
		return true, nil
	}
	return req.limit(earlier.Granted) != nil, nil
}

func (ps *pages) showConsent(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedIn, p oauth2.Parameters) {
	data := page.Consent{
		Request: p.Get("request"), Client: req.client.Title(), Person: page.Person(signedIn.User.Label()),
		Unknown: req.client.Registered,
	}
	if to, err := url.Parse(req.redirectURI); err == nil {
		data.To = cmp.Or(to.Host, to.Scheme)
	}
	for _, item := range req.items() {
		if text := Describe(item, signedIn.User); isFixed(item) {
			data.Fixed = append(data.Fixed, text)
		} else {
			data.Optional = append(data.Optional, page.ConsentItem{Name: itemField + item, Text: text})
		}
	}
	ps.show(w, r, req, page.View{Template: "consent", Data: data})
}

func (ps *signedInPages) submitConsent(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedIn, p oauth2.Parameters) {
	switch p.Get("decision") {
	case "allow":
		ps.allow(w, r, req, signedIn, p)
	default:
		ps.responses.showError(w, r, errNoDecision)
	}
}

func (ps *signedInPages) allow(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedIn, p oauth2.Parameters) {
	items := req.items()
	refused := func(item string) bool { return !isFixed(item) && p.Get(itemField+item) == "" }
	granted := slices.DeleteFunc(slices.Clone(items), refused)
	if err := req.limit(granted); err != nil {
		ps.responses.redirectError(w, r, req, err)
		return
	}
	withdrawn, err := ps.consents.Withdraw(r.Context(), req.client, signedIn.User.ID, items, granted)
	if err == nil {
		err = ps.consents.Remember(r.Context(), signedIn.User.ID, req.client.ID, items, granted)
	}
	switch {
	case err != nil && withdrawn: // the person must learn that it failed
		ps.responses.redirectError(w, r, req, err)
		return
	case err != nil: // the person will be asked again
		ps.logger.ErrorContext(r.Context(), "consent not remembered", "client_id", req.client.ID, "error", err)
	}
	ps.authorizer.respond(w, r, req, signedIn)
}
