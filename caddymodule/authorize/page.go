package authorize

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"html/template"
	"net/http"
	"net/url"
)

//go:embed pages
var pages embed.FS

// signInPage is what pages/signin.html shows.
type signInPage struct {
	Request  string // sealed, see login.go
	Username string
	Wrong    bool // the last try was
	Client   string
	Action   string
	Host     string
}

// errorPage is what pages/error.html shows.
type errorPage struct {
	Title, Text string
	Host        string
}

var (
	style         = readStyle()
	styleHash     = sha256.Sum256([]byte(style))
	signInPages   = parsePage("pages/signin.html")
	errorPages    = parsePage("pages/error.html")
	contentPolicy = "default-src 'none'; base-uri 'none'; frame-ancestors 'none'; style-src 'sha256-" +
		base64.StdEncoding.EncodeToString(styleHash[:]) + "'; form-action "
)

func readStyle() template.CSS {
	css, err := pages.ReadFile("pages/style.css")
	if err != nil {
		panic(err) // embedded: cannot happen in a binary that was built
	}
	return template.CSS(css) //nolint:gosec // our own file
}

func parsePage(name string) *template.Template {
	own := template.FuncMap{"style": func() template.CSS { return style }}
	return template.Must(template.New("layout.html").Funcs(own).ParseFS(pages, "pages/layout.html", name))
}

func (s *Server) showSignIn(w http.ResponseWriter, r *http.Request, status int, req *authorizationRequest, page signInPage) {
	page.Client, page.Action, page.Host = req.client.Title(), pathLogin, s.host
	w.Header().Set("Content-Security-Policy", contentPolicy+formAction(req.redirectURI))
	s.show(w, r, status, signInPages, page)
}

// formAction allows what the form's answer may redirect to, because Chromium
// holds every redirect that follows a form against this policy: the client, and
// whatever https address the client goes on to from there.
func formAction(redirectURI string) string {
	u, err := url.Parse(redirectURI)
	if err == nil && u.Scheme == "http" {
		return "'self' https: http://" + u.Host
	}
	return "'self' https:"
}

func (s *Server) showError(w http.ResponseWriter, r *http.Request, status int, page errorPage) {
	page.Host = s.host
	w.Header().Set("Content-Security-Policy", contentPolicy+"'none'")
	s.show(w, r, status, errorPages, page)
}

// show writes a page that no other site may frame, no cache keeps, and no link
// on it tells the next site about (RFC 9700 §4.16).
func (s *Server) show(w http.ResponseWriter, r *http.Request, status int, t *template.Template, page any) {
	var body bytes.Buffer
	if err := t.Execute(&body, page); err != nil {
		s.logger.ErrorContext(r.Context(), "page not rendered", "error", err)
		http.Error(w, "Something went wrong here.", http.StatusServiceUnavailable)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("X-Frame-Options", "DENY")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	if _, err := body.WriteTo(w); err != nil {
		s.logger.DebugContext(r.Context(), "answer not written", "error", err)
	}
}
