package flow

import (
	"crypto/sha256"
	"encoding/base64"
	"html/template"
	"net/http"
)

// formPostPage is what pages/formpost.html shows: a form that sends itself, or by
// its button where scripts are off.
type formPostPage struct {
	Address string
	Client  string
	Host    string
	Fields  []formField
}

type formField struct{ Name, Value string }

// submitScript is the one script there is. The policy names its hash, so that no
// other runs.
const submitScript = template.JS("document.forms[0].submit()")

var (
	submitHash    = sha256.Sum256([]byte(submitScript))
	formPostPages = parsePage("pages/formpost.html")
)

// postForm sends an answer through the browser in the body of a POST (OAuth 2.0
// Form Post Response Mode), to the redirect URI's origin and to no other.
func (ps *pages) postForm(w http.ResponseWriter, r *http.Request, req *authorizationRequest, a answerParameters) {
	page := formPostPage{Address: req.redirectURI, Client: req.client.Title(), Host: ps.host}
	for _, p := range a {
		page.Fields = append(page.Fields, formField{p.name, p.value})
	}
	script := "; script-src 'sha256-" + base64.StdEncoding.EncodeToString(submitHash[:]) + "'"
	w.Header().Set("Content-Security-Policy", contentPolicy+origin(req.redirectURI)+script)
	ps.show(w, r, http.StatusOK, formPostPages, page)
}
