package flow

import (
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
)

// showFormPost sends a response in the body of a POST (OAuth 2.0 Form Post Response Mode). The
// policy allows it to the redirect URI's origin alone.
func (ps *pages) showFormPost(w http.ResponseWriter, r *http.Request, req *authorizationRequest, parameters responseParameters) {
	data := page.FormPost{Address: req.redirectURI, Client: req.client.Title()}
	for _, p := range parameters {
		data.Fields = append(data.Fields, page.Field{Name: p.name, Value: p.value})
	}
	ps.Show(w, r, page.View{
		Template: "formpost", Locales: req.uiLocales, Policy: page.Policy{FormAction: origin(req.redirectURI), Ancestors: ps.ancestors}, Script: "submit", Data: data,
	})
}
