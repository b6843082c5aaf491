package sandbox

import (
	"net/http"
	"net/url"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/factor"
)

// LaunchPage returns the endpoint.
func LaunchPage(c Config) http.Handler {
	lp := &launchPage{Config: c, sealer: &browser.Sealer{Keys: c.Keys}}
	return c.Handler(lp.serve, http.MethodGet, http.MethodPost)
}

func (lp *launchPage) serve(w http.ResponseWriter, r *http.Request) {
	signedIn, err := lp.Sessions.Current(r)
	lacking := false
	if err == nil && signedIn != nil {
		lacking, err = lp.Factors.Lacking(r.Context(), signedIn.User, factor.BySession(signedIn.SID, signedIn.ACR()))
	}
	switch {
	case err != nil:
		lp.showError(w, r, err)
	case signedIn == nil, lacking, signedIn.Renewable:
		endpoint.Redirect(w, http.StatusSeeOther, endpoint.Login+"?"+url.Values{"to": {launcher}, "app": {r.URL.Query().Get("app")}}.Encode())
	case r.Method == http.MethodPost:
		lp.submit(w, r, signedIn)
	default:
		lp.show(w, r, signedIn)
	}
}
