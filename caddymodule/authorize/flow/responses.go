package flow

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/signin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// responses redirects browsers to clients or shows errors on pages.
type responses struct {
	issuer   string
	renderer *signin.Renderer
}

// send redirects the browser to the client, with state and iss (RFC 9207) as the last parameters. A 302 turns
// the POST of the sign-in form into a GET, so that the client never receives the password (RFC 9700 §4.12).
func (rs *responses) send(w http.ResponseWriter, r *http.Request, req *authorizationRequest, mode string, p responseParameters) {
	p = rs.addStateAndIssuer(req, p)
	if mode == ModeFormPost {
		rs.showFormPost(w, r, req, p, nil)
		return
	}
	endpoint.Redirect(w, http.StatusFound, responseURL(req, mode, p))
}

func (rs *responses) addStateAndIssuer(req *authorizationRequest, p responseParameters) responseParameters {
	p.add("state", req.target.state)
	if !req.client.HasCompat(client.CompatOmitIssuer) {
		p.add("iss", rs.issuer)
	}
	return p
}

// responseURL returns the redirect URI with the parameters of a response.
func responseURL(req *authorizationRequest, mode string, p responseParameters) string {
	if mode == ModeFragment {
		return req.target.redirectURI + "#" + p.encode()
	}
	return appendQuery(req.target.redirectURI, p)
}

// appendQuery appends parameters to a URL that may already have a query.
func appendQuery(address string, p responseParameters) string {
	if strings.Contains(address, "?") {
		return address + "&" + p.encode()
	}
	return address + "?" + p.encode()
}

// isOpenRedirect reports whether following a link would make this server an open redirector (RFC 9700 §4.11.2). This is the
// case if the request is a top-level navigation and the client registered itself, so its redirect URI is unverified.
func isOpenRedirect(r *http.Request, c *client.Client) bool {
	return c != nil && c.SelfRegistered && r.Header.Get("Sec-Fetch-Dest") == "document"
}

// showConfirmation shows a page on which the person decides whether to send an error to the client.
func (rs *responses) showConfirmation(w http.ResponseWriter, r *http.Request, req *authorizationRequest, p responseParameters) {
	p = rs.addStateAndIssuer(req, p)
	title, to := req.client.DisplayName(), origin(req.target.redirectURI)
	text := page.T("You can’t sign in to %s right now. This app registered itself and hasn’t been verified. Continue only if you trust %s.", title, to)
	if req.target.errorMode == ModeFormPost {
		rs.showFormPost(w, r, req, p, text)
		return
	}
	rs.renderer.Site.ShowMessage(w, r, http.StatusBadRequest, page.Message{
		Title: page.T("Continue to %s?", title), Text: text,
		Next: &page.Link{Address: responseURL(req, req.target.errorMode, p), Text: page.T("Continue")},
	})
}

// redirectError redirects to the client with an error, in the request's response mode for errors. Only errors of identity
// providers have an error_description (docs/evidence/interface.md), unless the client has the compatibility option. Other
// errors are explained only in the audit log.
//
// The request is marked as used unless the error is internal. Reuse of a request_uri is reported on a page, because the
// response to its first use was already sent to the client.
func (rs *responses) redirectError(w http.ResponseWriter, r *http.Request, req *authorizationRequest, err error) {
	e := oauth2.AsError(err)
	switch {
	case errors.Is(err, errRequestURIUsed):
		rs.renderer.ShowError(w, r, signin.WithRestart(err, req.signIn.Query))
		return
	case e.HTTPStatus() < http.StatusInternalServerError:
		_ = req.signIn.MarkUsed(r.Context()) // the request is rejected regardless
	}
	rs.renderer.Trail.RecordRejection(r, audit.Event{Kind: audit.KindAuthorization, ClientID: req.client.ID, GrantType: req.target.responseType, Err: err})
	p := responseParameters{{"error", redirectErrorCode(e, err)}}
	if e.DescribeToClient || req.client.HasCompat(client.CompatErrorDescription) {
		p.add("error_description", replaceUnprintable(e.Description))
	}
	// prompt=none forbids pages, and RFC 9700 §4.11.2 exempts silent authentication.
	if r.URL.Path == endpoint.Authorize && !req.signIn.Parameters.HasPrompt("none") && isOpenRedirect(r, req.client) {
		rs.showConfirmation(w, r, req, p)
		return
	}
	rs.send(w, r, req, req.target.errorMode, p)
}

// redirectErrorCode returns the error code for a redirect. Because a redirect has no HTTP status, temporarily_unavailable
// replaces 503 (RFC 6749 §4.1.2.1) if the store is unreachable or full.
func redirectErrorCode(e *oauth2.Error, err error) string {
	if (errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrFull)) && e.Code == "server_error" {
		return "temporarily_unavailable"
	}
	return e.Code
}

// showFormPost sends a response as a form that the page submits (OAuth 2.0 Form Post Response Mode). The CSP permits only the
// redirect URI's origin. If there is a question, the person must click.
func (rs *responses) showFormPost(w http.ResponseWriter, r *http.Request, req *authorizationRequest, parameters responseParameters, question *page.Text) {
	data := page.FormPost{Address: req.target.redirectURI, Client: req.client.DisplayName(), Question: question}
	for _, p := range parameters {
		data.Fields = append(data.Fields, page.Field{Name: p.name, Value: p.value})
	}
	if question != nil {
		rs.renderer.Show(w, r, &req.signIn, page.View{Template: "formpost", Data: data}, req.target.redirectURI)
		return
	}
	rs.renderer.Site.Show(w, r, page.View{
		Template: "formpost", Locales: req.signIn.Parameters.UILocales, Policy: page.Policy{FormAction: origin(req.target.redirectURI), Ancestors: rs.renderer.Ancestors}, Script: "submit", Data: data,
	})
}

// origin returns the scheme and host of a redirect URI.
func origin(uri string) string {
	u, err := url.Parse(uri)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// replaceUnprintable replaces characters not allowed in error_description (RFC 6749 §5.2).
func replaceUnprintable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || r == '"' || r == '\\' {
			return '\''
		}
		return r
	}, text)
}

// responseParameters are the ordered parameters of an authorization response.
type responseParameters []struct{ name, value string }

// add adds a parameter unless its value is empty.
func (ps *responseParameters) add(name, value string) {
	if value != "" {
		*ps = append(*ps, struct{ name, value string }{name, value})
	}
}

// encode escapes spaces as %20, because some fragment decoders take + literally.
func (ps responseParameters) encode() string {
	var b strings.Builder
	for i, p := range ps {
		if i > 0 {
			b.WriteByte('&')
		}
		b.WriteString(p.name + "=" + strings.ReplaceAll(url.QueryEscape(p.value), "+", "%20"))
	}
	return b.String()
}
