package flow

import (
	"net/http"
	"net/url"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
)

// pages shows pages that belong to an authorization request, or to a logout request.
type pages struct {
	*page.Site
	accounts  *people.Accounts
	ancestors string // who may frame the pages of an authorization request
}

// showMessage shows a message in place of a page of an authorization request.
func (ps *pages) showMessage(w http.ResponseWriter, r *http.Request, status int, message page.Message) {
	ps.Show(w, r, page.View{Template: "message", Status: status, Data: message, Policy: page.Policy{Ancestors: ps.ancestors}})
}

func (ps *pages) showSignIn(w http.ResponseWriter, r *http.Request, status int, req *authorizationRequest, data page.SignIn) {
	data.Client, data.Links = req.client.Title(), appLinks(req.client)
	ways := ps.accounts.Ways(req.client.IdentityProviders)
	data.Local = ways.Local
	for _, p := range ways.Providers {
		data.Ways = append(data.Ways, page.SignInWay{Name: p.Name, Address: endpoint.Login + "/" + p.Key + "?request=" + url.QueryEscape(data.Request)})
		data.ByEmail = data.ByEmail || len(p.Domains) > 0
	}
	ps.show(w, r, req, page.View{
		Template: "signin", Status: status, Script: passkeyScript(data.Passkey), Data: data, Policy: page.Policy{Images: data.Links.Images()},
	})
}

func (ps *pages) showSecondFactor(w http.ResponseWriter, r *http.Request, status int, req *authorizationRequest, data page.SecondFactor) {
	data.Client = req.client.Title()
	ps.show(w, r, req, page.View{
		Template: "secondfactor", Status: status, Script: passkeyScript(data.Passkey), Data: data,
	})
}

// passkeyScript is the script of a page with a challenge.
func passkeyScript(challenge *page.Passkey) string {
	if challenge == nil {
		return ""
	}
	return "passkey"
}

// show shows a page for a request. Its forms may lead on to the client or to a provider.
func (ps *pages) show(w http.ResponseWriter, r *http.Request, req *authorizationRequest, v page.View) {
	v.Locales, v.Policy.FormAction, v.Policy.Ancestors = req.uiLocales, ps.formAction(req.redirectURI), ps.ancestors
	ps.Show(w, r, v)
}

func (ps *pages) formAction(redirectURI string) string {
	addresses := []string{redirectURI}
	for _, key := range ps.accounts.ProviderKeys {
		addresses = append(addresses, ps.accounts.Providers[key].Issuer)
	}
	return page.FormAction(addresses...)
}
