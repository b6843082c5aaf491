package signin

import (
	"cmp"
	"net/http"
	"net/url"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

// maxRefusal bounds a refusal, in bytes: it is in our address.
const maxRefusal = 10 << 10

// refusalLifetime is how long the page can be used: its address has the person's ID token.
const refusalLifetime = 10 * time.Minute

// refusal is a sign-in at a provider of a person who may not sign in here. The browser keeps it,
// sealed; nothing is stored.
type refusal struct {
	Provider string       `json:"provider"`
	Person   people.Label `json:"person"`
	IDToken  string       `json:"id_token,omitempty"` // the hint for signing out there
	Query    string       `json:"query"`              // of the authorization request
}

// refusals tell people that they may not sign in here. Without that, the provider would sign the
// same person in again for whoever comes next to a browser.
type refusals struct {
	frame    *Frame
	requests *reopener
	accounts *people.Accounts
	other    *accountSwitch
}

// redirect sends the browser to the page. The app gets its error from there.
func (f *refusals) redirect(w http.ResponseWriter, r *http.Request, p *people.Provider, req *Request, identity *relyingparty.Identity) {
	refused := refusal{Provider: p.Key, Person: p.Label(identity), IDToken: identity.IDToken, Query: req.Query}
	if len(refused.IDToken)+len(refused.Query) > maxRefusal {
		refused.IDToken = ""
	}
	sealed, err := f.frame.Sealer.SealJSON(w, r, "refused", refused)
	f.frame.redirectSealed(w, r, req, http.StatusSeeOther, endpoint.Login+"?refused=", sealed, err)
}

func (f *refusals) serve(w http.ResponseWriter, r *http.Request, parameters oauth2.Parameters) {
	refused, err := f.read(r, parameters.Get("refused"))
	p := f.accounts.Providers[refused.Provider]
	if err == nil && p == nil {
		err = ErrPageExpired
	}
	if err != nil {
		f.frame.ShowError(w, r, err)
		return
	}
	audit.FromContext(r.Context()).Provider = p.Key
	audit.NoteAuthenticated(r.Context()) // by the provider
	req, err := f.requests.reopen(r.Context(), refused.Query)
	switch {
	case f.frame.Failed(w, r, req, err):
	case parameters.Get("decision") == "deny":
		req.Purpose.Refuse(w, r, people.ErrNotAllowed)
	case r.Method == http.MethodPost:
		f.signOut(w, r, p, req, refused)
	default:
		// If the provider cannot be asked now, it is asked again when the button is pressed.
		ends, _ := p.Client.EndSessionURL(r.Context(), "", "", "")
		f.frame.Show(w, r, req, page.View{Template: "refused", Status: http.StatusForbidden, Data: page.Refused{
			Client: req.To.Title, Refused: parameters.Get("refused"), Person: page.Person(refused.Person), Provider: p.Name, SignsOut: ends != "",
		}}, ends)
	}
}

func (f *refusals) read(r *http.Request, sealed string) (refused refusal, err error) {
	err = f.frame.Sealer.UnsealJSON(r, "refused", sealed, refusalLifetime, ErrPageExpired, &refused)
	return refused, err
}

// signOut signs the person out at the provider, and then has somebody sign in there. A provider that cannot sign people out is
// only asked for another account.
func (f *refusals) signOut(w http.ResponseWriter, r *http.Request, p *people.Provider, req *Request, refused refusal) {
	sealed, err := f.frame.Sealer.Seal(w, r, loginPurpose, req.Query)
	next := endpoint.Login + "/" + p.Key + "?" + url.Values{"request": {sealed}, otherAccount: {""}, "login_hint": {""}}.Encode()
	var target string
	if err == nil {
		target, err = f.other.signOut(w, r, p, refused.IDToken, next)
	}
	if err != nil {
		req.Purpose.Refuse(w, r, err)
		return
	}
	endpoint.Redirect(w, http.StatusSeeOther, cmp.Or(target, next))
}
