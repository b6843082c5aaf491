package flow

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/consent"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
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

// limit leaves of the request what the person gives, as SMART App Launch 2.2 permits. Its
// error means that nothing is left.
func (req *authorizationRequest) limit(a consent.Answer) error {
	items := req.items()
	refused := func(item string) bool { return slices.Contains(items, item) && len(a.Of(item)) == 0 }
	refusedClaim := func(name string) bool {
		return refused(claimItem+name) || refused(people.ScopeOf(name))
	}
	req.userinfoClaims = slices.DeleteFunc(slices.Clone(req.userinfoClaims), refusedClaim)
	req.idTokenClaims = slices.DeleteFunc(slices.Clone(req.idTokenClaims), refusedClaim)
	req.scope, req.until = givenScope(req.scope, a), a.Until
	if len(req.scope) == 0 {
		return errDenied
	}
	return nil
}

// givenScope is what was given of a scope, each once.
func givenScope(scope []string, a consent.Answer) (given []string) {
	for _, item := range scope {
		for _, s := range a.Of(item) {
			if !slices.Contains(given, s) {
				given = append(given, s)
			}
		}
	}
	return given
}

var errDenied = &oauth2.Error{Code: "access_denied", Description: "the person did not allow it"}

// isFixed reports whether a request makes no sense without an item: who signs in, and which
// patient it is about.
func isFixed(item string) bool {
	return item == "openid" || item == "launch" || strings.HasPrefix(item, "launch/")
}

// needsConsent reports whether the person must be asked, and otherwise limits the request to
// what they allowed. The operator vouches for configured clients, so people are asked only if
// the configuration or the request says so, or if they refused the last time. What they
// unticked they do not give, whoever asked.
func (a *authorizer) needsConsent(ctx context.Context, req *authorizationRequest, user *people.User) (ask bool, err error) {
	switch {
	case req.client.Consent == client.ConsentSkip:
		return false, nil
	case req.prompts("consent"):
		return true, nil
	}
	required := req.client.RequiresConsent()
	all, err := a.consents.Load(ctx, user.ID, req.client.ID)
	req.about = req.aboutPatient(user)
	earlier := all.About(req.about)
	switch {
	case err != nil:
		return true, err
	case earlier == nil:
		return required, nil
	}
	answer, asked := earlier.Answer(req.items(), !required)
	return earlier.Declined || !asked || req.limit(answer) != nil, nil
}

// aboutPatient is what a person's answer counts for.
func (req *authorizationRequest) aboutPatient(user *people.User) consent.About {
	person := user.Person()
	patient := req.patient(person)
	return consent.About{Patient: patient, Own: patient != "" && person.Own() == patient}
}

func (ps *signedInPages) submitConsent(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedIn, p oauth2.Parameters) {
	switch {
	case p.Get("decision") != "allow":
		ps.responses.showError(w, r, errNoDecision)
	case p.Get("continue") != "":
		ps.goOn(w, r, req, signedIn)
	default:
		ps.allow(w, r, req, signedIn, p)
	}
}

// goOn handles the page that only asks to continue. Meanwhile there may be more to ask.
func (ps *signedInPages) goOn(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedIn) {
	ask, err := ps.authorizer.needsConsent(r.Context(), req, signedIn.User)
	switch {
	case err != nil:
		ps.responses.redirectError(w, r, req, err)
	case ask:
		ps.redirectToSignedInPage(w, r, endpoint.Consent, req, signedIn)
	default:
		ps.authorizer.respond(w, r, req, signedIn)
	}
}

// deny refuses a request for the person. On the consent page they refuse what they were asked
// for, and are asked again the next time: without that, a client that needs no consent, or had
// it before, would get it all the same.
func (ps *signedInPages) deny(w http.ResponseWriter, r *http.Request, path string, req *authorizationRequest, signedIn *session.SignedIn) {
	var err error = errDenied
	if path == endpoint.Consent {
		asked := *req
		ask, failed := ps.authorizer.needsConsent(r.Context(), &asked, signedIn.User)
		if failed == nil && ask {
			failed = ps.consents.Decline(r.Context(), signedIn.User.ID, req.client.ID, req.aboutPatient(signedIn.User))
		}
		if failed != nil {
			err = failed
		}
	}
	ps.responses.redirectError(w, r, req, err)
}

func (ps *signedInPages) allow(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedIn, p oauth2.Parameters) {
	answer, err := ps.answer(req, p)
	if err != nil {
		ps.responses.showError(w, r, err)
		return
	}
	req.about = req.aboutPatient(signedIn.User)
	asked := *req
	if err := req.limit(answer); err != nil {
		ps.deny(w, r, endpoint.Consent, &asked, signedIn)
		return
	}
	withdrawn, err := ps.consents.Withdraw(r.Context(), req.client, signedIn.User.ID, req.about, answer)
	if err == nil {
		err = ps.consents.Remember(r.Context(), signedIn.User.ID, req.client.ID, req.about, answer)
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

// answer reads the page's form.
func (ps *signedInPages) answer(req *authorizationRequest, p oauth2.Parameters) (a consent.Answer, err error) {
	ticked := func(name string) bool { return p.Get(itemField+name) != "" }
	for _, item := range req.items() {
		given := consent.Given{Item: item}
		if choice := consent.ChoiceOf(item); isFixed(item) {
			given.Scopes = []string{item}
		} else {
			given.Scopes = choice.Given(ticked)
		}
		a.Given = append(a.Given, given)
	}
	if len(a.Of(client.OfflineAccess)) > 0 {
		a.Until, err = ps.lasting.until(p.Get(lastingField))
	}
	return a, err
}
