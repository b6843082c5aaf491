package signin

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// Request is a sign-in request of an app (an authorization request) or of a page of the gateway.
type Request struct {
	Destination Destination // destination of the sign-in
	Parameters  Parameters  // sign-in parameters
	Query       string      // source from which the request is recreated when the browser returns
	Purpose     Purpose     // continuation after the sign-in

	// SingleUse marks a value such as request_uri as used. It is executed with the response, so that earlier failures can be
	// retried. May be nil.
	SingleUse *SingleUseValue

	SignedIn *session.SignedInPerson // signed-in person, shown at the top of pages; nil before the sign-in

	FactorsRequested bool // all requested factors have been requested from the person
	SessionRenewed   bool // whether the session was renewed for this request; required pages have not been shown yet
	justSignedIn     bool // signed in with all enrolled factors

	// ChooseAccount shows the page on which the signed-in person continues or lets another person sign in. It is nil for pages of
	// the gateway.
	ChooseAccount func(w http.ResponseWriter, r *http.Request, signedIn *session.SignedInPerson)

	sid           string // session in which the sign-in page was opened; "" without a session
	byOtherPerson bool   // whether an identity provider must not sign in the previous person again
}

// MarkUsed executes the steps in before, then marks the single-use value as used in a separate step.
func (req *Request) MarkUsed(ctx context.Context, before ...store.Step) error {
	return req.SingleUse.use(ctx, before...)
}

// requiredACR returns the required authentication class, or "".
func (req *Request) requiredACR() string {
	if oauth2.MeetsACR(req.Destination.ACR, req.Parameters.EssentialACR) {
		return req.Destination.ACR
	}
	return req.Parameters.EssentialACR
}

// providerACR returns acr_values and the essential acr value for an identity provider. Mapped classes are replaced by the
// provider's acr values.
func (req *Request) providerACR(p *people.Provider) (values, essential string) {
	var words []string
	if required := req.requiredACR(); required != oauth2.ACRSingleFactor {
		words = p.ACRMap.ProviderACRs(required)
	}
	essential = strings.Join(words, " ")
	for word := range strings.FieldsSeq(req.Parameters.ACRValues) {
		providerValues := p.ACRMap.ProviderACRs(word)
		if len(providerValues) == 0 {
			providerValues = []string{word}
		}
		for _, word := range providerValues {
			if !slices.Contains(words, word) {
				words = append(words, word)
			}
		}
	}
	return strings.Join(words, " "), essential
}

// Destination is the app or page to which a person signs in.
type Destination struct {
	ClientID  string        // client_id of the app; "" for a page
	Title     string        // title shown on pages; may be ""
	Links     page.AppLinks // links of the app
	Providers []string      // sign-in methods, as in [people.Accounts.SignInMethods]
	ACR       string        // minimum authentication class; "" for any
	Address   string        // URL to which the sign-in finally redirects the browser; the pages' CSP form-action allows it

	NeedsFHIRUser bool // whether the app is useless without the person's FHIR resource
}

// Purpose continues a request after the sign-in.
type Purpose interface {
	// Continue continues with the signed-in person.
	Continue(w http.ResponseWriter, r *http.Request, signedIn *session.SignedInPerson)

	// Reject sends an error to the client or shows it on a page.
	Reject(w http.ResponseWriter, r *http.Request, err error)
}

// Parameters control the sign-in (OpenID Connect Core §3.1.2.1).
type Parameters struct {
	Subjects []string // permitted subs; nil for all

	// Parameters that select the sign-in method and are forwarded to an identity provider.
	IdentityProvider, LoginHint, Prompt, MaxAge, UILocales, ACRValues string

	EssentialACR      string // required authentication class; "" for any
	RequiresNewSignIn bool   // whether a new sign-in is required even if there is a session
}

// Parse parses the OpenID Connect parameters.
func (ps *Parameters) Parse(p oauth2.Parameters) error {
	ps.LoginHint, ps.Prompt = p.Get("login_hint"), p.Get("prompt")
	ps.MaxAge, ps.UILocales, ps.ACRValues = p.Get("max_age"), p.Get("ui_locales"), p.Get("acr_values")
	if _, err := strconv.ParseUint(ps.MaxAge, 10, 31); ps.MaxAge != "" && err != nil {
		return oauth2.InvalidRequest("max_age must be a number of seconds")
	}
	if ps.HasPrompt("none") && len(strings.Fields(ps.Prompt)) > 1 {
		return oauth2.InvalidRequest("prompt none cannot be combined with other values")
	}
	return nil
}

// HasPrompt reports whether prompt contains a word.
func (ps *Parameters) HasPrompt(word string) bool {
	return slices.Contains(strings.Fields(ps.Prompt), word)
}

// RestrictTo restricts the sign-in to the given subs.
func (ps *Parameters) RestrictTo(subjects []any) error {
	var permitted []string
	for _, v := range subjects {
		if sub, ok := v.(string); ok && ps.PermitsSubject(sub) {
			permitted = append(permitted, sub)
		}
	}
	if ps.Subjects = permitted; len(permitted) == 0 {
		return &oauth2.Error{Code: "login_required", Description: "the requested sub does not match"}
	}
	return nil
}

// PermitsSubject reports whether the person with the sub may sign in.
func (ps *Parameters) PermitsSubject(subject string) bool {
	return ps.Subjects == nil || slices.Contains(ps.Subjects, subject)
}

// isRecentEnough reports whether a sign-in of the given age is recent enough.
func (ps *Parameters) isRecentEnough(age time.Duration) bool {
	return !ps.ExceedsMaxAge(age, 0) && !ps.HasPrompt("login") && !ps.RequiresNewSignIn
}

// ExceedsMaxAge reports whether the age of a sign-in exceeds both max_age and minimum.
func (ps *Parameters) ExceedsMaxAge(age, minimum time.Duration) bool {
	seconds, err := strconv.Atoi(ps.MaxAge)
	return err == nil && age > max(time.Duration(seconds)*time.Second, minimum)
}

// RequestACR handles a request for the acr claim (OpenID Connect Core §5.5.1.1). Essential values are required. Others are
// treated like acr_values.
func (ps *Parameters) RequestACR(values []any, essential bool) error {
	var words []string
	for _, v := range values {
		if word, ok := v.(string); ok {
			words = append(words, word)
		}
	}
	class := weakestACR(words)
	switch {
	case !essential:
		ps.ACRValues = strings.TrimSpace(ps.ACRValues + " " + class)
	case class == "" && values != nil:
		return &oauth2.Error{Code: "unmet_authentication_requirements", Description: "none of the requested acr values is supported"}
	default:
		ps.EssentialACR = class
	}
	return nil
}

// weakestACR returns the weakest of words that is a supported acr value, or "" if none of them is.
func weakestACR(words []string) string {
	i := slices.IndexFunc(oauth2.ACRValues, func(class string) bool { return slices.Contains(words, class) })
	if i < 0 {
		return ""
	}
	return oauth2.ACRValues[i]
}

// pageQueryPrefix is the prefix of Query for pages of the gateway. A client's query cannot contain it.
const pageQueryPrefix = "\x00account?"

// A Target is a page of the gateway that requires a sign-in. If there is no session, the browser is redirected to the sign-in
// page, with the target's name in the parameter "to".
type Target struct {
	Path               string // path of the page
	Title              string // title shown at the sign-in; default: the user's account
	PreservedParameter string // parameter of the page to preserve, or ""
	ACR                string // minimum authentication class of the page, or ""
}

// pageRequests handles sign-ins for pages of the gateway. Pending requests are sealed like those of apps, but have no
// redirect URI.
type pageRequests struct {
	renderer *Renderer
	stepUp   *StepUp
	targets  map[string]Target
}

// parse parses the request of a page, with max_age and acr_values as in an authorization request. The parameter "to" selects
// the page. Default: the account page, or its section in the parameter "part".
func (vs *pageRequests) parse(query string) (*Request, error) {
	p, err := oauth2.ReadCheckedQuery(query)
	if err != nil {
		return nil, err
	}
	target, ok := vs.targets[p.Get("to")]
	if !ok {
		target = Target{Path: endpoint.Account, PreservedParameter: "part"}
	}
	req := &Request{
		Destination: Destination{Title: target.Title, Address: pageURL(target.Path, target.PreservedParameter, p), ACR: target.ACR},
		Query:       pageQueryPrefix + p.EncodeSelected("acr_values", "login_hint", "max_age", "prompt", "to", "ui_locales", target.PreservedParameter),
	}
	err = req.Parameters.Parse(p)
	req.Parameters.Prompt = "" // prompt is ignored; max_age is sufficient
	req.Purpose = pageVisit{pageRequests: vs, request: req}
	return req, err
}

// pageURL returns the URL of a page, with one parameter unless its value is empty.
func pageURL(path, name string, p oauth2.Parameters) string {
	if value := p.Get(name); name != "" && value != "" {
		return path + "?" + url.Values{name: {value}}.Encode()
	}
	return path
}

// pageVisit opens a page after the sign-in.
type pageVisit struct {
	pageRequests *pageRequests
	request      *Request
}

// Continue implements [Purpose].
func (v pageVisit) Continue(w http.ResponseWriter, r *http.Request, signedIn *session.SignedInPerson) {
	if v.pageRequests.stepUp.RespondIfNeeded(w, r, v.request, signedIn) {
		return
	}
	if err := v.request.MarkUsed(r.Context()); err != nil {
		v.Reject(w, r, err)
		return
	}
	endpoint.Redirect(w, http.StatusSeeOther, v.request.Destination.Address)
}

// Reject implements [Purpose]. It shows the error on a page, because no app is involved.
func (v pageVisit) Reject(w http.ResponseWriter, r *http.Request, err error) {
	e, renderer := oauth2.AsError(err), v.pageRequests.renderer
	if errors.Is(err, ErrDenied) {
		endpoint.Redirect(w, http.StatusSeeOther, "/")
		return
	}
	if e.IsUserCorrectable || e.Code == "server_error" {
		renderer.ShowError(w, r, WithRestart(err, v.request.Query))
		return
	}
	renderer.Trail.RecordRejection(r, audit.Event{Kind: audit.KindSignIn, Err: err})
	message := page.Message{Title: page.T("Sign-in failed"), Text: page.T("Try again, or contact your organization’s IT help desk.")}
	signedIn := v.request.SignedIn // signed in by this request, which has no session cookie yet
	if signedIn == nil {
		signedIn = renderer.Header.person(r)
	}
	message.Next, _, _ = renderer.restartLinks(w, r, signedIn, sealedRequest{byOtherPerson: v.request.byOtherPerson, query: v.request.Query})
	status := e.HTTPStatus()
	if errors.Is(err, errMissingFactor) {
		message, status = SecondFactorMessage(), http.StatusForbidden
	}
	renderer.Site.Show(w, r, page.View{
		Template: "message", Status: status, Data: message, SignedIn: renderer.Header.For(w, r, signedIn, v.request.Query), Policy: page.Policy{FormAction: renderer.FormAction()},
	})
}

// SecondFactorMessage returns the message for a signed-in person who has no second factor but opens a page that requires one.
func SecondFactorMessage() page.Message {
	return page.Message{
		Title: page.T("You need a second factor"), Text: page.T("Set one up in your account, then open this page again."),
		Next: &page.Link{Address: endpoint.Account, Text: page.T("Your account")},
	}
}

// requestRestorer recreates requests that browsers have stored, because the configuration may have changed.
type requestRestorer struct {
	renderer          *Renderer
	pageRequests      *pageRequests
	restoreAppRequest func(ctx context.Context, query string) (*Request, error)
}

func (o *requestRestorer) restore(ctx context.Context, text string) (*Request, error) {
	if query, ok := strings.CutPrefix(text, pageQueryPrefix); ok {
		return o.pageRequests.parse(query)
	}
	return o.restoreAppRequest(ctx, text)
}

// unseal unseals the request of a sign-in page.
func (o *requestRestorer) unseal(r *http.Request, text string) (*Request, error) {
	text, err := o.renderer.UnsealOrRecover(r, loginPurpose, text)
	sealed := decodeRequest(text)
	if err != nil {
		return nil, withRestart(err, sealed)
	}
	req, err := o.restore(r.Context(), sealed.query)
	if req != nil {
		req.sid, req.byOtherPerson = sealed.sid, sealed.byOtherPerson
	}
	return req, err
}

// provider returns the provider to use if the person does not have to choose, or nil. It is the requested provider, the
// provider of the hinted address, or the only sign-in method.
func (req *Request) provider(methods people.SignInMethods) *people.Provider {
	if req.Parameters.IdentityProvider == people.Local {
		return nil
	}
	for _, p := range methods.Providers {
		if p.Key == req.Parameters.IdentityProvider {
			return p
		}
	}
	if p := methods.ByDomain(req.Parameters.LoginHint); p != nil {
		return p
	}
	if !methods.Local && len(methods.Providers) == 1 {
		return methods.Providers[0]
	}
	return nil
}

// hasOtherMethod reports whether the client permits a sign-in method other than the provider.
func (req *Request) hasOtherMethod(methods people.SignInMethods, p *people.Provider) bool {
	other := slices.ContainsFunc(methods.Providers, func(other *people.Provider) bool { return other != p })
	return methods.Local || other
}

// checkMethods returns an error if sign-in is impossible, because there is no sign-in method, or because the request forbids
// pages and does not determine a provider.
func (req *Request) checkMethods(methods people.SignInMethods, p *people.Provider) error {
	switch {
	case !methods.Local && len(methods.Providers) == 0:
		return &oauth2.Error{Code: "access_denied", Description: "no sign-in method is available: add a user or an idp"}
	case p == nil && req.Parameters.HasPrompt("none"):
		return &oauth2.Error{Code: "login_required", Description: "the user must sign in, but prompt=none does not allow a sign-in page"}
	}
	return nil
}

// acceptsSession reports whether the sign-in method, person, provider and age of a session satisfy the request.
func (req *Request) acceptsSession(methods people.SignInMethods, signedIn *session.SignedInPerson) bool {
	return req.permitsSession(methods, signedIn) && req.Parameters.isRecentEnough(signedIn.SignInAge) && req.Parameters.PermitsSubject(signedIn.User.ID)
}

// permitsSession reports whether client and request permit the session's sign-in method.
func (req *Request) permitsSession(methods people.SignInMethods, signedIn *session.SignedInPerson) bool {
	return methods.Includes(signedIn.Provider) && (req.Parameters.IdentityProvider == "" || req.Parameters.IdentityProvider == signedIn.ProviderKey())
}
