package signin

import (
	"context"
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
	How         Parameters  // sign-in parameters
	Query       string      // source from which the request is recreated when the browser returns
	Purpose     Purpose     // continuation after the sign-in

	// Once is the single use of a value such as request_uri. It is used up with the response, so
	// that earlier failures can be retried. May be nil.
	Once *SingleUseValue

	FactorRequested bool // all requested factors have been requested from the person
	Renewed         bool // the session was renewed for this request; required pages have not been shown yet
	justSignedIn    bool // signed in with all enrolled factors
}

// MarkUsed uses up the single-use value, in one step after the steps before it.
func (req *Request) MarkUsed(ctx context.Context, before ...store.Step) error {
	return req.Once.use(ctx, before...)
}

// requiredACR returns the required authentication class, or "".
func (req *Request) requiredACR() string {
	if oauth2.MeetsACR(req.Destination.ACR, req.How.EssentialACR) {
		return req.Destination.ACR
	}
	return req.How.EssentialACR
}

// acrAt returns the parameters for an identity provider, in its own acr values if mapped:
// acr_values, and the essential value.
func (req *Request) acrAt(p *people.Provider) (values, essential string) {
	var words []string
	if required := req.requiredACR(); required != oauth2.ACRSingleFactor {
		words = p.ACRMap.ProviderACRs(required)
	}
	essential = strings.Join(words, " ")
	for word := range strings.FieldsSeq(req.How.ACRValues) {
		theirs := p.ACRMap.ProviderACRs(word)
		if len(theirs) == 0 {
			theirs = []string{word}
		}
		for _, word := range theirs {
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
	Address   string        // final URL of the browser, to which forms may lead

	NeedsFHIRUser bool // useless without the person's FHIR resource
}

// Purpose continues a request after the sign-in.
type Purpose interface {
	// Continue continues with the signed-in person.
	Continue(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn)

	// Reject sends an error to the client or shows it on a page.
	Reject(w http.ResponseWriter, r *http.Request, err error)
}

// Parameters control the sign-in (OpenID Connect Core §3.1.2.1).
type Parameters struct {
	Subjects []string // permitted subs; nil for all

	// Parameters that select the sign-in method and are forwarded to an identity provider.
	IdentityProvider, LoginHint, Prompt, MaxAge, UILocales, ACRValues string

	EssentialACR string // required authentication class; "" for any
	Anew         bool   // a new sign-in is required even with a session
}

// Read parses the OpenID Connect parameters.
func (ps *Parameters) Read(p oauth2.Parameters) error {
	ps.LoginHint, ps.Prompt = p.Get("login_hint"), p.Get("prompt")
	ps.MaxAge, ps.UILocales, ps.ACRValues = p.Get("max_age"), p.Get("ui_locales"), p.Get("acr_values")
	if _, err := strconv.ParseUint(ps.MaxAge, 10, 31); ps.MaxAge != "" && err != nil {
		return oauth2.InvalidRequest("max_age must be a number of seconds")
	}
	if ps.Prompts("none") && len(strings.Fields(ps.Prompt)) > 1 {
		return oauth2.InvalidRequest("prompt none cannot have another beside it")
	}
	return nil
}

// Prompts reports whether prompt contains a word.
func (ps *Parameters) Prompts(word string) bool {
	return slices.Contains(strings.Fields(ps.Prompt), word)
}

// RestrictTo restricts the sign-in to the given subs.
func (ps *Parameters) RestrictTo(subjects []any) error {
	var both []string
	for _, v := range subjects {
		if sub, ok := v.(string); ok && ps.IsFor(sub) {
			both = append(both, sub)
		}
	}
	if ps.Subjects = both; len(both) == 0 {
		return &oauth2.Error{Code: "login_required", Description: "no person has the sub that is asked for"}
	}
	return nil
}

// IsFor reports whether the person with the sub may sign in.
func (ps *Parameters) IsFor(subject string) bool {
	return ps.Subjects == nil || slices.Contains(ps.Subjects, subject)
}

// freshEnough reports whether a sign-in of the given age is recent enough.
func (ps *Parameters) freshEnough(age time.Duration) bool {
	return !ps.TooOld(age, 0) && !ps.Prompts("login") && !ps.Anew
}

// TooOld reports whether the age of a sign-in exceeds both max_age and least.
func (ps *Parameters) TooOld(age, least time.Duration) bool {
	seconds, err := strconv.Atoi(ps.MaxAge)
	return err == nil && age > max(time.Duration(seconds)*time.Second, least)
}

// WantACR handles a request for the claim acr (OpenID Connect Core §5.5.1.1): essential values are
// required, others are treated like acr_values.
func (ps *Parameters) WantACR(values []any, essential bool) error {
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
		return &oauth2.Error{Code: "unmet_authentication_requirements", Description: "no acr that is asked for is known here"}
	default:
		ps.EssentialACR = class
	}
	return nil
}

// weakestACR returns the weakest known class, or "".
func weakestACR(words []string) string {
	i := slices.IndexFunc(oauth2.ACRValues, func(class string) bool { return slices.Contains(words, class) })
	if i < 0 {
		return ""
	}
	return oauth2.ACRValues[i]
}

// visitPrefix is the prefix of Query for pages of the gateway. A client's query cannot contain it.
const visitPrefix = "\x00account?"

// A Target is a page of the gateway that requires a sign-in. Without a session the browser is
// redirected to the sign-in page, with the target's name as the parameter to.
type Target struct {
	Path  string // path of the page
	Title string // title shown at the sign-in; default: the user's account
	Keep  string // parameter of the page to preserve, or ""
	ACR   string // minimum authentication class of the page, or ""
}

// visits handles sign-ins for pages of the gateway. Pending requests are sealed like those of apps, but have no
// redirect URI.
type visits struct {
	frame   *Frame
	stepUp  *StepUp
	targets map[string]Target
}

// read parses the request of a page, with max_age and acr_values as in an authorization request.
// The parameter "to" selects the page. Default: the account page, or the section of it in the parameter "part".
func (vs *visits) read(query string) (*Request, error) {
	p, err := oauth2.QueryParameters(query)
	if err != nil {
		return nil, err
	}
	target, ok := vs.targets[p.Get("to")]
	if !ok {
		target = Target{Path: endpoint.Account, Keep: "part"}
	}
	req := &Request{
		Destination: Destination{Title: target.Title, Address: address(target.Path, target.Keep, p), ACR: target.ACR},
		Query:       visitPrefix + p.EncodeOnly("acr_values", "login_hint", "max_age", "prompt", "to", "ui_locales", target.Keep),
	}
	err = req.How.Read(p)
	req.How.Prompt = "" // prompt is ignored; max_age is sufficient
	req.Purpose = visit{visits: vs, request: req}
	return req, err
}

// address returns the URL of a page, with one parameter unless its value is empty.
func address(path, name string, p oauth2.Parameters) string {
	if value := p.Get(name); name != "" && value != "" {
		return path + "?" + url.Values{name: {value}}.Encode()
	}
	return path
}

// visit opens a page after the sign-in.
type visit struct {
	visits  *visits
	request *Request
}

// Continue implements [Purpose].
func (v visit) Continue(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn) {
	if v.visits.stepUp.RespondIfNeeded(w, r, v.request, signedIn) {
		return
	}
	if err := v.request.MarkUsed(r.Context()); err != nil {
		v.Reject(w, r, err)
		return
	}
	endpoint.Redirect(w, http.StatusSeeOther, v.request.Destination.Address)
}

// Reject implements [Purpose]. It shows the error on a page, because no app is involved.
func (v visit) Reject(w http.ResponseWriter, r *http.Request, err error) {
	e := oauth2.AsError(err)
	if e.IsUserCorrectable || e.Code == "server_error" {
		v.visits.frame.ShowError(w, r, err)
		return
	}
	v.visits.frame.Trail.RecordRejection(r, audit.Event{Kind: audit.SignIn, Err: err})
	v.visits.frame.Site.ShowMessage(w, r, e.HTTPStatus(), page.Message{
		Title: page.T("Sign-in failed"), Text: page.T("Try again, or contact your organization’s IT help desk."),
	})
}

// reopener recreates requests stored by browsers, because the configuration may have changed.
type reopener struct {
	frame  *Frame
	visits *visits
	apps   func(ctx context.Context, query string) (*Request, error)
}

func (o *reopener) reopen(ctx context.Context, text string) (*Request, error) {
	if query, ok := strings.CutPrefix(text, visitPrefix); ok {
		return o.visits.read(query)
	}
	return o.apps(ctx, text)
}

// unseal opens the request of a sign-in page.
func (o *reopener) unseal(r *http.Request, sealed string) (*Request, error) {
	query, err := o.frame.Unseal(r, loginPurpose, sealed)
	if err != nil {
		return nil, err
	}
	return o.reopen(r.Context(), query)
}

// provider returns the provider to use without asking the person: the requested one, the one of the
// hinted address, or the only sign-in method. It returns nil if the person has to choose.
func (req *Request) provider(ways people.SignInMethods) *people.Provider {
	if req.How.IdentityProvider == people.Local {
		return nil
	}
	for _, p := range ways.Providers {
		if p.Key == req.How.IdentityProvider {
			return p
		}
	}
	if p := ways.ByDomain(req.How.LoginHint); p != nil {
		return p
	}
	if !ways.Local && len(ways.Providers) == 1 {
		return ways.Providers[0]
	}
	return nil
}

// hasOther reports whether client and request permit a sign-in method other than the provider.
func (req *Request) hasOther(ways people.SignInMethods, p *people.Provider) bool {
	other := slices.ContainsFunc(ways.Providers, func(other *people.Provider) bool { return other != p })
	return req.How.IdentityProvider == "" && !req.How.Prompts("none") && (ways.Local || other)
}

// checkWays returns an error if sign-in is impossible: no sign-in method exists, or the request
// forbids pages and determines no provider.
func (req *Request) checkWays(ways people.SignInMethods, p *people.Provider) error {
	switch {
	case !ways.Local && len(ways.Providers) == 0:
		return &oauth2.Error{Code: "access_denied", Description: "there is no user, and no idp, to sign in by"}
	case p == nil && req.How.Prompts("none"):
		return &oauth2.Error{Code: "login_required", Description: "the person must sign in on a page, and prompt is none"}
	}
	return nil
}

// accepts reports whether a session satisfies the request: its method, person, provider and age.
func (req *Request) accepts(ways people.SignInMethods, signedIn *session.SignedIn) bool {
	return req.permits(ways, signedIn) && req.How.freshEnough(signedIn.Age) && req.How.IsFor(signedIn.User.ID)
}

// permits reports whether client and request permit the session's sign-in method.
func (req *Request) permits(ways people.SignInMethods, signedIn *session.SignedIn) bool {
	return ways.Has(signedIn.Provider) && (req.How.IdentityProvider == "" || req.How.IdentityProvider == signedIn.ProviderKey())
}
