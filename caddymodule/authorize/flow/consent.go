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

// consentPage serves the page on which a person consents to a client's request.
type consentPage struct {
	renderer      *signin.Renderer
	responses     *responses
	authorizer    *authorizer
	patients      *launch.Patients
	offlineAccess offlineAccessChoice
	logger        *slog.Logger
}

func (cp *consentPage) show(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedInPerson, p oauth2.Parameters) {
	narrowed := *req
	ask, err := cp.authorizer.needsConsent(r.Context(), &narrowed, signedIn.User)
	var previous *consent.Approval
	if ask && err == nil {
		previous, err = cp.previousApproval(r, req, signedIn)
	}
	if err != nil {
		cp.responses.redirectError(w, r, req, err)
		return
	}
	data := page.Consent{
		Request: p.Get("request"), Client: req.client.DisplayName(), Person: page.Person(signedIn.User.Label()),
		SelfRegistered: req.client.SelfRegistered, Links: req.signIn.Destination.Links, Patient: cp.pagePatient(r.Context(), req, signedIn.User),
	}
	if to, err := url.Parse(req.target.redirectURI); err == nil {
		data.RedirectHost = cmp.Or(to.Host, to.Scheme)
	}
	if !ask { // consent was given in another tab, so the page only has a Continue button
		cp.renderer.Show(w, r, &req.signIn, page.View{Template: "continue", Data: data, Policy: page.Policy{Images: data.Links.Images()}})
		return
	}
	offer := consentContent{user: signedIn.User, previous: previous, offlineAccess: cp.offlineAccess}
	if r.Method == http.MethodPost {
		data.Contradictory, offer.submitted = true, p
	}
	for _, item := range req.items() {
		if isRequired(item) {
			data.RequiredItems = append(data.RequiredItems, Describe(item, signedIn.User))
		}
	}
	data.Groups = offer.groups(req.items(), data.Patient)
	cp.renderer.Show(w, r, &req.signIn, page.View{Template: "consent", Script: consentScript(data.Groups), Data: data, Policy: page.Policy{Images: data.Links.Images()}})
}

// pagePatient returns the patient shown on the page. If the FHIR server returns no name, the page shows the id.
func (cp *consentPage) pagePatient(ctx context.Context, req *authorizationRequest, user *people.User) page.ConsentPatient {
	subject := req.patientSubject(user)
	if subject.IsOnlyPatient || subject.Patient == "" {
		return page.ConsentPatient{}
	}
	shown := page.ConsentPatient{ID: subject.Patient}
	if subject.Patient == req.launch.choice.patient {
		shown.Name = req.launch.choice.name
	}
	found, err := cp.patients.FindChosen(ctx, user.Person(), subject.Patient)
	if err != nil {
		cp.logger.WarnContext(ctx, "patient name not read for consent page", "error", err)
		return shown
	}
	shown.Name, shown.BirthDate, shown.Identifier = found.Name, found.BirthDate, found.Identifier
	return shown
}

// previousApproval returns the person's previous approval if it is still valid, or nil.
func (cp *consentPage) previousApproval(r *http.Request, req *authorizationRequest, signedIn *session.SignedInPerson) (*consent.Approval, error) {
	if req.client.Consent == client.ConsentSkip {
		return nil, nil
	}
	all, err := cp.authorizer.consents.Load(r.Context(), signedIn.User.ID, req.client.ID)
	return all.ApprovalFor(req.patientSubject(signedIn.User)), err
}

func (cp *consentPage) submit(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedInPerson, p oauth2.Parameters) {
	switch {
	case p.Get("decision") != "allow":
		cp.renderer.ShowError(w, r, signin.WithRestart(errMissingDecision, req.signIn.Query))
	case p.Get("continue") != "":
		cp.continueFlow(w, r, req, signedIn)
	case isContradictory(req.items(), p):
		cp.show(w, r, req, signedIn, p)
	default:
		cp.allow(w, r, req, signedIn, p)
	}
}

// isContradictory reports whether a submitted form allows an item but none of its parts.
func isContradictory(items []string, p oauth2.Parameters) bool {
	return slices.ContainsFunc(items, func(item string) bool {
		choice := consent.NewChoice(item)
		return choice.IsContradictory(isTickedIn(p))
	})
}

// continueFlow handles the Continue page. If consent has become necessary since the page was shown, it shows the consent page.
func (cp *consentPage) continueFlow(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedInPerson) {
	ask, err := cp.authorizer.needsConsent(r.Context(), req, signedIn.User)
	switch {
	case err != nil:
		cp.responses.redirectError(w, r, req, err)
	case ask:
		redirectToPage(cp.renderer, w, r, endpoint.Consent, req, signedIn)
	default:
		cp.authorizer.respond(w, r, req, signedIn)
	}
}

// deny records the refusal and returns access_denied to the client. Because the refusal is recorded, the next request asks for
// consent again, even if the client does not need consent or already has it.
func (cp *consentPage) deny(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedInPerson, _ oauth2.Parameters) {
	narrowed := *req
	ask, err := cp.authorizer.needsConsent(r.Context(), &narrowed, signedIn.User)
	if err == nil && ask {
		err = cp.authorizer.consents.RecordDenial(r.Context(), signedIn.User.ID, req.client.ID, req.patientSubject(signedIn.User))
	}
	if err == nil {
		err = signin.ErrDenied
	}
	cp.responses.redirectError(w, r, req, err)
}

func (cp *consentPage) allow(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedInPerson, p oauth2.Parameters) {
	answer, err := cp.readDecision(req, p)
	if err != nil {
		cp.renderer.ShowError(w, r, signin.WithRestart(err, req.signIn.Query))
		return
	}
	req.approvalSubject = req.patientSubject(signedIn.User)
	original := *req
	if err := req.limit(answer); err != nil {
		cp.deny(w, r, &original, signedIn, p)
		return
	}
	withdrawn, err := cp.authorizer.consents.RevokeIfNarrowed(r.Context(), req.client, signedIn.User.ID, req.approvalSubject, answer)
	if err == nil {
		err = cp.authorizer.consents.SaveDecision(r.Context(), signedIn.User.ID, req.client.ID, req.approvalSubject, answer)
	}
	switch {
	case err != nil && withdrawn: // the page must report that the withdrawal failed
		cp.responses.redirectError(w, r, req, err)
		return
	case err != nil: // not fatal: the next request asks for consent again
		cp.logger.ErrorContext(r.Context(), "consent not stored", "client_id", req.client.ID, "error", err)
	}
	cp.authorizer.respond(w, r, req, signedIn)
}

// readDecision reads the submitted consent form.
func (cp *consentPage) readDecision(req *authorizationRequest, p oauth2.Parameters) (a consent.Decision, err error) {
	for _, item := range req.items() {
		granted := consent.GrantedItem{Item: item}
		if choice := consent.NewChoice(item); isRequired(item) {
			granted.Scopes = []string{item}
		} else {
			granted.Scopes = choice.GrantedScopes(isTickedIn(p))
		}
		a.Items = append(a.Items, granted)
	}
	if len(a.ScopesFor(client.OfflineAccess)) > 0 {
		a.OfflineAccessUntil, err = cp.offlineAccess.parseExpiry(p.Get(offlineAccessField))
	}
	return a, err
}

// needsConsent reports whether the consent page is needed. If not, it narrows the request to the approved items. Operators
// vouch for configured clients, so the page is shown only if the configuration or the request requires consent, or after a
// refusal. Unticked items are always denied.
func (a *authorizer) needsConsent(ctx context.Context, req *authorizationRequest, user *people.User) (ask bool, err error) {
	switch {
	case req.client.Consent == client.ConsentSkip:
		return false, nil
	case req.signIn.Parameters.HasPrompt("consent"):
		return true, nil
	}
	required := req.client.RequiresConsent()
	all, err := a.consents.Load(ctx, user.ID, req.client.ID)
	req.approvalSubject = req.patientSubject(user)
	previous := all.ApprovalFor(req.approvalSubject)
	switch {
	case err != nil:
		return true, err
	case previous == nil:
		return required, nil
	}
	answer, wasAsked := previous.Decision(req.items(), !required)
	return previous.DeniedSince || !wasAsked || req.limit(answer) != nil, nil
}

// willAskConsent reports whether the consent page will follow the choice of a patient, which is already in the request.
func (a *authorizer) willAskConsent(ctx context.Context, req authorizationRequest, signedIn *session.SignedInPerson) bool {
	scope, err := a.offlineAccess.LimitScope(ctx, req.scope, signedIn)
	if err != nil {
		return true // the next step reports the error
	}
	req.scope = scope
	req.dropUnmetScopes(signedIn.User.Person())
	ask, err := a.needsConsent(ctx, &req, signedIn.User)
	return ask || err != nil
}

// patientSubject returns the patient to whom the person's consent applies.
func (req *authorizationRequest) patientSubject(user *people.User) consent.PatientContext {
	person := user.Person()
	patient := req.patient(person)
	return consent.PatientContext{Patient: patient, IsOnlyPatient: patient != "" && person.DefaultPatientID() == patient}
}

const (
	claimItemPrefix = "claim:" // prefix of items that are claims
	itemFieldPrefix = "may "   // prefix of the names of checkboxes
)

// items returns the items that a person can allow, which are scopes and claims requested by name.
func (req *authorizationRequest) items() []string {
	items := slices.Clone(req.scope)
	scopeClaims := people.ClaimsOfScope(req.scope)
	for _, name := range slices.Concat(req.claims.userinfo, req.claims.idToken) {
		if item := claimItemPrefix + name; !slices.Contains(scopeClaims, name) && !slices.Contains(items, item) {
			items = append(items, item)
		}
	}
	return items
}

// limit narrows the request to the items that the person allowed, as SMART App Launch 2.2 permits.
// It returns an error if no scope remains.
func (req *authorizationRequest) limit(a consent.Decision) error {
	items := req.items()
	isRefused := func(item string) bool { return slices.Contains(items, item) && len(a.ScopesFor(item)) == 0 }
	isRefusedClaim := func(name string) bool {
		return isRefused(claimItemPrefix+name) || isRefused(people.ScopeOf(name))
	}
	req.claims.userinfo = slices.DeleteFunc(slices.Clone(req.claims.userinfo), isRefusedClaim)
	req.claims.idToken = slices.DeleteFunc(slices.Clone(req.claims.idToken), isRefusedClaim)
	req.scope, req.offlineExpiry = grantedScope(req.scope, a), a.OfflineAccessUntil
	if len(req.scope) == 0 {
		return signin.ErrDenied
	}
	return nil
}

// grantedScope returns the granted part of a scope without duplicates.
func grantedScope(scope []string, a consent.Decision) (granted []string) {
	for _, item := range scope {
		for _, s := range a.ScopesFor(item) {
			if !slices.Contains(granted, s) {
				granted = append(granted, s)
			}
		}
	}
	return granted
}

// isRequired reports whether an item cannot be unticked. The sign-in itself and the launch context are required.
func isRequired(item string) bool {
	return item == "openid" || item == "launch" || strings.HasPrefix(item, "launch/")
}
