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

// Request is a request to sign in: of an app, by its authorization request, or of a page of the
// gateway.
type Request struct {
	To      Destination // what somebody signs in to
	How     Parameters  // how
	Query   string      // what it is made of again when the browser returns
	Purpose Purpose     // what follows

	// Once is what may be used only once, such as a request_uri. It is used when the response is
	// ready, so that earlier failures can be tried again. May be nil.
	Once *Once

	AskedFactor  bool // the person was asked already for all factors that the request asks for
	Renewed      bool // the session was renewed for this request; pages that the request asks for were not shown yet
	justSignedIn bool // with each factor that they have
}

// MarkUsed uses up what may be used only once, in the same step as what comes before it.
func (req *Request) MarkUsed(ctx context.Context, before ...store.Step) error {
	return req.Once.use(ctx, before...)
}

// requiredACR is the class of sign-in that must be met, or "".
func (req *Request) requiredACR() string {
	if oauth2.MeetsACR(req.To.ACR, req.How.EssentialACR) {
		return req.To.ACR
	}
	return req.How.EssentialACR
}

// acrAt is what to ask of an identity provider, in its words where it has any: acr_values, and what
// must be met.
func (req *Request) acrAt(p *people.Provider) (values, essential string) {
	var words []string
	if required := req.requiredACR(); required != oauth2.ACRSingleFactor {
		words = p.ACRMap.Words(required)
	}
	essential = strings.Join(words, " ")
	for word := range strings.FieldsSeq(req.How.ACRValues) {
		theirs := p.ACRMap.Words(word)
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

// Destination is what somebody signs in to: an app, or a page of the gateway.
type Destination struct {
	ClientID  string        // of the app; "" for a page
	Title     string        // to show to people; may be ""
	Links     page.AppLinks // of the app
	Providers []string      // the ways to sign in, as in [people.Accounts.Ways]
	ACR       string        // the least class of sign-in; "" for any
	Address   string        // where the browser goes in the end, so that forms may lead there

	NeedsFHIRUser bool // without the person's own FHIR resource it is of no use
}

// Purpose is what somebody signs in for.
type Purpose interface {
	// Continue goes on with the person who has signed in.
	Continue(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn)

	// Refuse sends an error to whom it concerns.
	Refuse(w http.ResponseWriter, r *http.Request, err error)
}

// Parameters say how the person is to sign in (OpenID Connect Core §3.1.2.1).
type Parameters struct {
	Subjects []string // who may sign in, by sub; nil for everybody

	// These choose the way to sign in, and are passed on to an identity provider.
	IdentityProvider, LoginHint, Prompt, MaxAge, UILocales, ACRValues string

	EssentialACR string // the class of sign-in that must be met; "" for any
	Anew         bool   // even who is signed in must sign in again
}

// Read reads the parameters of OpenID Connect.
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

// Prompts reports whether prompt has a word.
func (ps *Parameters) Prompts(word string) bool {
	return slices.Contains(strings.Fields(ps.Prompt), word)
}

// RestrictTo lets only people with these subs sign in.
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

// IsFor reports whether a person may sign in.
func (ps *Parameters) IsFor(subject string) bool {
	return ps.Subjects == nil || slices.Contains(ps.Subjects, subject)
}

// freshEnough reports whether a sign-in of an age is recent enough for the client.
func (ps *Parameters) freshEnough(age time.Duration) bool {
	return !ps.TooOld(age, 0) && !ps.Prompts("login") && !ps.Anew
}

// TooOld reports whether a sign-in of an age is older than max_age and than least.
func (ps *Parameters) TooOld(age, least time.Duration) bool {
	seconds, err := strconv.Atoi(ps.MaxAge)
	return err == nil && age > max(time.Duration(seconds)*time.Second, least)
}

// WantACR reads a request for the claim acr (OpenID Connect Core §5.5.1.1) by its values: an
// essential one must be met, any other is as good as acr_values.
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

// weakestACR returns the weakest class of those that are known, or "".
func weakestACR(words []string) string {
	i := slices.IndexFunc(oauth2.ACRValues, func(class string) bool { return slices.Contains(words, class) })
	if i < 0 {
		return ""
	}
	return oauth2.ACRValues[i]
}

// visitPrefix begins the Query of a sign-in for a page of the gateway. No query of a client's can
// hold it.
const visitPrefix = "\x00account?"

// A Target is a page of the gateway for people who are signed in. Others are redirected to the sign-in page, with the name of
// the target as the parameter to.
type Target struct {
	Path  string // of the page
	Title string // of the page, shown at the sign-in. Default: the person's account.
	Keep  string // parameter of the page that outlives the sign-in, or ""
	ACR   string // the least authentication context class that the page requires, or ""
}

// visits are sign-ins for pages of the gateway. They wait, sealed, where those of apps do; there is no redirect URI to answer to.
type visits struct {
	frame   *Frame
	stepUp  *StepUp
	targets map[string]Target
}

// read makes the request of a page, with max_age and acr_values as in an authorization request. It
// is for the page that the parameter to names, or else for the account page or a part of it.
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
		To:    Destination{Title: target.Title, Address: address(target.Path, target.Keep, p), ACR: target.ACR},
		Query: visitPrefix + p.Keep("acr_values", "login_hint", "max_age", "prompt", "to", "ui_locales", target.Keep),
	}
	err = req.How.Read(p)
	req.How.Prompt = "" // max_age says all
	req.Purpose = visit{visits: vs, request: req}
	return req, err
}

// address is that of a page, with one parameter if that has a value.
func address(path, name string, p oauth2.Parameters) string {
	if value := p.Get(name); name != "" && value != "" {
		return path + "?" + url.Values{name: {value}}.Encode()
	}
	return path
}

// visit opens a page for who has signed in.
type visit struct {
	visits  *visits
	request *Request
}

// Continue implements [Purpose].
func (v visit) Continue(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn) {
	if v.visits.stepUp.Needed(w, r, v.request, signedIn) {
		return
	}
	if err := v.request.MarkUsed(r.Context()); err != nil {
		v.Refuse(w, r, err)
		return
	}
	endpoint.Redirect(w, http.StatusSeeOther, v.request.To.Address)
}

// Refuse implements [Purpose]: there is no app that made a mistake.
func (v visit) Refuse(w http.ResponseWriter, r *http.Request, err error) {
	e := oauth2.AsError(err)
	if e.Personal || e.Code == "server_error" {
		v.visits.frame.ShowError(w, r, err)
		return
	}
	v.visits.frame.Trail.RecordRefusal(r, audit.Event{Kind: audit.SignIn, Err: err})
	v.visits.frame.Site.ShowMessage(w, r, e.HTTPStatus(), page.Message{
		Title: page.T("You are not signed in"), Text: page.T("That did not work. Try again, or ask the people who run this site."),
	})
}

// reopener makes requests again of what browsers kept: the configuration may have changed since.
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

// provider returns the provider to use without asking the person: the one that the request
// names, that of the hinted address, or the only way to sign in. It returns nil if the person
// has to choose.
func (req *Request) provider(ways people.Ways) *people.Provider {
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

// hasOther reports whether the client and the request allow another way than a provider.
func (req *Request) hasOther(ways people.Ways, p *people.Provider) bool {
	other := slices.ContainsFunc(ways.Providers, func(other *people.Provider) bool { return other != p })
	return req.How.IdentityProvider == "" && !req.How.Prompts("none") && (ways.Local || other)
}

// checkWays returns an error if nobody can sign in: there is no way to, or the client allows
// no page and there is no provider to go to.
func (req *Request) checkWays(ways people.Ways, p *people.Provider) error {
	switch {
	case !ways.Local && len(ways.Providers) == 0:
		return &oauth2.Error{Code: "access_denied", Description: "there is no user, and no idp, to sign in by"}
	case p == nil && req.How.Prompts("none"):
		return &oauth2.Error{Code: "login_required", Description: "the person must sign in on a page, and prompt is none"}
	}
	return nil
}

// accepts reports whether a sign-in satisfies the request: the client allows its way, and
// person, provider and time are as requested.
func (req *Request) accepts(ways people.Ways, signedIn *session.SignedIn) bool {
	return req.permits(ways, signedIn) && req.How.freshEnough(signedIn.Age) && req.How.IsFor(signedIn.User.ID)
}

// permits reports whether client and request allow the way that somebody signed in.
func (req *Request) permits(ways people.Ways, signedIn *session.SignedIn) bool {
	return ways.Has(signedIn.Provider) && (req.How.IdentityProvider == "" || req.How.IdentityProvider == signedIn.Way())
}
