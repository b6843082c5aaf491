package flow

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/consent"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/signin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// consentPage asks a person to consent to a client's request.
type consentPage struct {
	frame      *signin.Frame
	responses  *responses
	authorizer *authorizer
	patients   *launch.Patients
	lasting    offlineAccessChoice
	logger     *slog.Logger
}

func (cp *consentPage) show(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedIn, p oauth2.Parameters) {
	asked := *req
	ask, err := cp.authorizer.needsConsent(r.Context(), &asked, signedIn.User)
	var earlier *consent.Approval
	if ask && err == nil {
		earlier, err = cp.previousApproval(r, req, signedIn)
	}
	if err != nil {
		cp.responses.redirectError(w, r, req, err)
		return
	}
	data := page.Consent{
		Request: p.Get("request"), Client: req.client.Title(), Person: page.Person(signedIn.User.Label()),
		Unknown: req.client.Registered, Links: req.signIn.Destination.Links, Patient: cp.patientOf(r.Context(), req, signedIn.User),
	}
	if to, err := url.Parse(req.target.redirectURI); err == nil {
		data.To = cmp.Or(to.Host, to.Scheme)
	}
	if !ask { // consent was given in another tab: only Continue is left
		cp.frame.Show(w, r, &req.signIn, page.View{Template: "continue", Data: data, Policy: page.Policy{Images: data.Links.Images()}})
		return
	}
	offer := consentOffer{user: signedIn.User, earlier: earlier, lasting: cp.lasting}
	for _, item := range req.items() {
		if isFixed(item) {
			data.Fixed = append(data.Fixed, Describe(item, signedIn.User))
		}
	}
	data.Groups = offer.groups(req.items(), data.Patient)
	cp.frame.Show(w, r, &req.signIn, page.View{Template: "consent", Script: consentScript(data.Groups), Data: data, Policy: page.Policy{Images: data.Links.Images()}})
}

// patientOf returns the patient that the page names, at least by id if the FHIR server returns no name.
func (cp *consentPage) patientOf(ctx context.Context, req *authorizationRequest, user *people.User) page.ConsentPatient {
	about := req.aboutPatient(user)
	if about.IsOnlyPatient || about.Patient == "" {
		return page.ConsentPatient{}
	}
	shown := page.ConsentPatient{ID: about.Patient}
	if about.Patient == req.launch.picked.patient {
		shown.Name = req.launch.picked.name
	}
	found, err := cp.patients.Named(ctx, user.Person(), about.Patient)
	if err != nil {
		cp.logger.WarnContext(ctx, "the consent page does not say the patient's name and birthday", "error", err)
		return shown
	}
	shown.Name, shown.BirthDate = found.Name, found.BirthDate
	return shown
}

// previousApproval returns the person's previous approval if it is still valid, or nil.
func (cp *consentPage) previousApproval(r *http.Request, req *authorizationRequest, signedIn *session.SignedIn) (*consent.Approval, error) {
	if req.client.Consent == client.ConsentSkip {
		return nil, nil
	}
	all, err := cp.authorizer.consents.Load(r.Context(), signedIn.User.ID, req.client.ID)
	return all.ApprovalFor(req.aboutPatient(signedIn.User)), err
}

func (cp *consentPage) submit(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedIn, p oauth2.Parameters) {
	switch {
	case p.Get("decision") != "allow":
		cp.frame.ShowError(w, r, errNoDecision)
	case p.Get("continue") != "":
		cp.continueFlow(w, r, req, signedIn)
	default:
		cp.allow(w, r, req, signedIn, p)
	}
}

// continueFlow handles the Continue page. If consent has become necessary since the page was shown, it shows the consent page.
func (cp *consentPage) continueFlow(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedIn) {
	ask, err := cp.authorizer.needsConsent(r.Context(), req, signedIn.User)
	switch {
	case err != nil:
		cp.responses.redirectError(w, r, req, err)
	case ask:
		redirectToPage(cp.frame, w, r, endpoint.Consent, req, signedIn)
	default:
		cp.authorizer.respond(w, r, req, signedIn)
	}
}

// deny records the refusal and returns access_denied to the client. The next request asks for consent
// again. Otherwise, a client that needs no consent or already has it would get access despite the refusal.
func (cp *consentPage) deny(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedIn, _ oauth2.Parameters) {
	asked := *req
	ask, err := cp.authorizer.needsConsent(r.Context(), &asked, signedIn.User)
	if err == nil && ask {
		err = cp.authorizer.consents.Decline(r.Context(), signedIn.User.ID, req.client.ID, req.aboutPatient(signedIn.User))
	}
	if err == nil {
		err = signin.ErrDenied
	}
	cp.responses.redirectError(w, r, req, err)
}

func (cp *consentPage) allow(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedIn, p oauth2.Parameters) {
	answer, err := cp.answer(req, p)
	if err != nil {
		cp.frame.ShowError(w, r, err)
		return
	}
	req.about = req.aboutPatient(signedIn.User)
	asked := *req
	if err := req.limit(answer); err != nil {
		cp.deny(w, r, &asked, signedIn, p)
		return
	}
	withdrawn, err := cp.authorizer.consents.Withdraw(r.Context(), req.client, signedIn.User.ID, req.about, answer)
	if err == nil {
		err = cp.authorizer.consents.Remember(r.Context(), signedIn.User.ID, req.client.ID, req.about, answer)
	}
	switch {
	case err != nil && withdrawn: // the page must report that the withdrawal failed
		cp.responses.redirectError(w, r, req, err)
		return
	case err != nil: // not fatal: the next request asks again
		cp.logger.ErrorContext(r.Context(), "consent not remembered", "client_id", req.client.ID, "error", err)
	}
	cp.authorizer.respond(w, r, req, signedIn)
}

// answer reads the submitted consent form.
func (cp *consentPage) answer(req *authorizationRequest, p oauth2.Parameters) (a consent.Decision, err error) {
	ticked := func(name string) bool { return p.Get(itemField+name) != "" }
	for _, item := range req.items() {
		given := consent.GrantedItem{Item: item}
		if choice := consent.ChoiceOf(item); isFixed(item) {
			given.Scopes = []string{item}
		} else {
			given.Scopes = choice.GrantedScopes(ticked)
		}
		a.Items = append(a.Items, given)
	}
	if len(a.ScopesFor(client.OfflineAccess)) > 0 {
		a.Until, err = cp.lasting.until(p.Get(lastingField))
	}
	return a, err
}

// needsConsent reports whether the consent page is needed, and otherwise narrows the request to the approved
// items. The operator vouches for configured clients, so the page is shown only if the configuration or the
// request requires consent, or after a refusal. Unticked items stay denied in any case.
func (a *authorizer) needsConsent(ctx context.Context, req *authorizationRequest, user *people.User) (ask bool, err error) {
	switch {
	case req.client.Consent == client.ConsentSkip:
		return false, nil
	case req.signIn.How.Prompts("consent"):
		return true, nil
	}
	required := req.client.RequiresConsent()
	all, err := a.consents.Load(ctx, user.ID, req.client.ID)
	req.about = req.aboutPatient(user)
	earlier := all.ApprovalFor(req.about)
	switch {
	case err != nil:
		return true, err
	case earlier == nil:
		return required, nil
	}
	answer, asked := earlier.Decision(req.items(), !required)
	return earlier.Declined || !asked || req.limit(answer) != nil, nil
}

// aboutPatient returns the patient for whom the person's answer is valid.
func (req *authorizationRequest) aboutPatient(user *people.User) consent.Subject {
	person := user.Person()
	patient := req.patient(person)
	return consent.Subject{Patient: patient, IsOnlyPatient: patient != "" && person.OwnPatientID() == patient}
}

const (
	claimItem = "claim:" // prefix of items that are claims
	itemField = "may "   // prefix of the names of checkboxes
)

// items returns the items that a person can allow: scopes, and claims requested by name.
func (req *authorizationRequest) items() []string {
	items := slices.Clone(req.scope)
	ofScope := people.ClaimsOfScope(req.scope)
	for _, name := range slices.Concat(req.claims.userinfo, req.claims.idToken) {
		if item := claimItem + name; !slices.Contains(ofScope, name) && !slices.Contains(items, item) {
			items = append(items, item)
		}
	}
	return items
}

// limit narrows the request to the items that the person allowed, as SMART App Launch 2.2 permits.
// It returns an error if no scope remains.
func (req *authorizationRequest) limit(a consent.Decision) error {
	items := req.items()
	refused := func(item string) bool { return slices.Contains(items, item) && len(a.ScopesFor(item)) == 0 }
	refusedClaim := func(name string) bool {
		return refused(claimItem+name) || refused(people.ScopeOf(name))
	}
	req.claims.userinfo = slices.DeleteFunc(slices.Clone(req.claims.userinfo), refusedClaim)
	req.claims.idToken = slices.DeleteFunc(slices.Clone(req.claims.idToken), refusedClaim)
	req.scope, req.offlineExpiry = givenScope(req.scope, a), a.Until
	if len(req.scope) == 0 {
		return signin.ErrDenied
	}
	return nil
}

// givenScope returns the granted part of a scope without duplicates.
func givenScope(scope []string, a consent.Decision) (given []string) {
	for _, item := range scope {
		for _, s := range a.ScopesFor(item) {
			if !slices.Contains(given, s) {
				given = append(given, s)
			}
		}
	}
	return given
}

// isFixed reports whether an item cannot be unticked because the request is meaningless without it:
// the sign-in itself and the launch context.
func isFixed(item string) bool {
	return item == "openid" || item == "launch" || strings.HasPrefix(item, "launch/")
}
