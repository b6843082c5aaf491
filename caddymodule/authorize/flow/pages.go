package flow

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
)

//go:embed pages
var pageFiles embed.FS

// heading is what all pages for a client show.
type heading struct {
	Client string // its title
	Host   string // of the issuer
}

// signInPage is what pages/signin.html shows.
type signInPage struct {
	Request  string // sealed, see signin.go
	Username string
	Wrong    bool   // the last attempt was
	Wait     string // until the next attempt
	Down     string // the provider that cannot be reached
	Busy     string // until the next attempt, because there are too many others
	heading
	Local   bool
	ByEmail bool // an e-mail address may lead to a provider
	Ways    []signInWay
}

// signInWay is a link to an identity provider.
type signInWay struct{ Name, Address string }

// secondFactorPage is what pages/secondfactor.html shows.
type secondFactorPage struct {
	Factor string // see secondfactor.go
	Wrong  bool   // the last code was
	Wait   string // until the next attempt
	heading
}

// signOutPage is what pages/signout.html shows.
type signOutPage struct {
	Request string // sealed, see logout.go
	heading
}

// messagePage is what pages/message.html shows.
type messagePage struct {
	Title, Text string
	Detail      string // for the client's developer
	Host        string
}

var (
	style         = readStyle()
	styleHash     = sha256.Sum256([]byte(style))
	signOutPages  = parsePage("pages/signout.html")
	signInPages   = parsePage("pages/signin.html")
	messagePages  = parsePage("pages/message.html")
	factorPages   = parsePage("pages/secondfactor.html")
	consentPages  = parsePage("pages/consent.html")
	contentPolicy = "default-src 'none'; base-uri 'none'; frame-ancestors 'none'; style-src 'sha256-" +
		base64.StdEncoding.EncodeToString(styleHash[:]) + "'; form-action "
)

func readStyle() template.CSS {
	css, err := pageFiles.ReadFile("pages/style.css")
	if err != nil {
		panic(err) // embedded: cannot happen in a binary that was built
	}
	return template.CSS(css)
}

func parsePage(name string) *template.Template {
	own := template.FuncMap{
		"style":  func() template.CSS { return style },
		"script": func() template.JS { return submitScript },
	}
	return template.Must(template.New("layout.html").Funcs(own).ParseFS(pageFiles, "pages/layout.html", name))
}

// pages shows pages to people.
type pages struct {
	host     string // of the issuer
	accounts *people.Accounts
	logger   *slog.Logger
}

func (ps *pages) heading(c *client.Client) heading {
	if c == nil { // of a logout request that names none
		return heading{Host: ps.host}
	}
	return heading{c.Title(), ps.host}
}

func (ps *pages) showSignIn(w http.ResponseWriter, r *http.Request, status int, req *authorizationRequest, page signInPage) {
	page.heading = ps.heading(req.client)
	ways := ps.accounts.Ways(req.client.IdentityProviders)
	page.Local = ways.Local
	for _, p := range ways.Providers {
		page.Ways = append(page.Ways, signInWay{p.Name, endpoint.Login + "/" + p.Key + "?request=" + url.QueryEscape(page.Request)})
		page.ByEmail = page.ByEmail || len(p.Domains) > 0
	}
	ps.show(w, r, status, signInPages, ps.formAction(req.redirectURI), page)
}

func (ps *pages) showSecondFactor(w http.ResponseWriter, r *http.Request, status int, req *authorizationRequest, page secondFactorPage) {
	page.heading = ps.heading(req.client)
	ps.show(w, r, status, factorPages, ps.formAction(req.redirectURI), page)
}

// formAction is the policy for where forms may lead. Chromium applies it to every redirect
// that follows: to the client, to an identity provider, and on to any https address. Plain
// http is for loopback alone, and listed; a policy can name neither IPv6 addresses (CSP 3
// §2.3.1) nor hosts of private-use schemes.
func (ps *pages) formAction(redirectURI string) string {
	allowed, addresses := "'self' https:", []string{redirectURI}
	for _, key := range ps.accounts.ProviderKeys {
		addresses = append(addresses, ps.accounts.Providers[key].Issuer)
	}
	for _, address := range addresses {
		u, err := url.Parse(address)
		switch {
		case err != nil || u.Scheme == "https" || u.Scheme == "":
		case u.Scheme == "http" && !strings.HasPrefix(u.Host, "["):
			allowed += " http://" + u.Host
		default:
			allowed += " " + u.Scheme + ":"
		}
	}
	return allowed
}

func (ps *pages) showMessage(w http.ResponseWriter, r *http.Request, status int, page messagePage) {
	page.Host = ps.host
	ps.show(w, r, status, messagePages, "'none'", page)
}

// show writes a page that no other site may frame (RFC 9700 §4.16). Its forms may lead only
// where formAction says.
func (ps *pages) show(w http.ResponseWriter, r *http.Request, status int, t *template.Template, formAction string, page any) {
	w.Header().Set("Content-Security-Policy", contentPolicy+formAction)
	var body bytes.Buffer
	if err := t.Execute(&body, page); err != nil {
		ps.logger.ErrorContext(r.Context(), "page not rendered", "error", err)
		http.Error(w, "Something went wrong here.", http.StatusServiceUnavailable)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("X-Frame-Options", "DENY")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	if _, err := body.WriteTo(w); err != nil {
		ps.logger.DebugContext(r.Context(), "answer not written", "error", err)
	}
}
