package flow

import (
	"crypto/sha256"
	"encoding/base64"
	"html/template"
	"net/http"
)

// formPostPage is what pages/formpost.html shows: a form that a script submits, or without
// scripts a button.
type formPostPage struct {
	Address string
	heading
	Fields []formField
}

type formField struct{ Name, Value string }

// submitScript is the only script: the policy has its hash.
const submitScript = template.JS("document.forms[0].submit()")

var (
	submitHash    = sha256.Sum256([]byte(submitScript))
	formPostPages = parsePage("pages/formpost.html")
)

// showFormPost sends a response in the body of a POST (OAuth 2.0 Form Post Response Mode). The
// policy allows it to the redirect URI's origin alone.
func (ps *pages) showFormPost(w http.ResponseWriter, r *http.Request, req *authorizationRequest, parameters responseParameters) {
	page := formPostPage{Address: req.redirectURI, heading: ps.heading(req.client)}
	for _, p := range parameters {
		page.Fields = append(page.Fields, formField{p.name, p.value})
	}
	script := "; script-src 'sha256-" + base64.StdEncoding.EncodeToString(submitHash[:]) + "'"
	ps.show(w, r, http.StatusOK, formPostPages, origin(req.redirectURI)+script, page)
}
