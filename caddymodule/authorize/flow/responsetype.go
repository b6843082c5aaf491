package flow

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// The response modes (OAuth 2.0 Multiple Response Type Encoding Practices §2.1,
// OAuth 2.0 Form Post Response Mode §2).
const (
	ModeQuery    = "query"
	ModeFragment = "fragment"
	ModeFormPost = "form_post"
)

// responseTarget is where the response goes, and how.
type responseTarget struct {
	redirectURI, responseType, state string
	mode, errorMode                  string // response modes
}

// readResponseType sorts the words of a response_type, whose order has no meaning (RFC 6749
// §3.1.1).
func readResponseType(asked string) string {
	words := strings.Split(asked, " ")
	slices.Sort(words)
	return strings.Join(words, " ")
}

func defaultMode(responseType string) string {
	if responseType == "code" {
		return ModeQuery
	}
	return ModeFragment
}

// chooseModes chooses the modes of the response and of errors. The interface wants errors in
// the query for both code and token. If the request names a response_mode, or the response
// type is not the interface's, they go where the response would (OpenID Connect Core
// §3.2.2.6).
func (t *responseTarget) chooseModes(c *client.Client, p oauth2.Parameters) {
	asked, responseType := p.Get("response_mode"), readResponseType(p.Get("response_type"))
	t.errorMode, t.mode = ModeQuery, defaultMode(responseType)
	if len(p["response_mode"]) == 1 && asked == ModeFormPost && !client.IsPrivateUse(t.redirectURI) {
		t.mode, t.errorMode = ModeFormPost, ModeFormPost
		return
	}
	known := slices.Contains(client.ResponseTypes, responseType)
	own := strings.Contains(responseType, "id_token") && c.AllowsResponseType(responseType)
	if known && t.mode == ModeFragment && (asked == ModeFragment || own) {
		t.errorMode = ModeFragment
	}
}

func (t *responseTarget) checkType(c *client.Client, p oauth2.Parameters) error {
	asked := readResponseType(p.Get("response_type"))
	switch {
	case asked == "":
		return oauth2.InvalidRequest("response_type is missing")
	case c.AllowsResponseType(asked):
		t.responseType = asked
		return nil
	case asked == "code" || asked == "token":
		return &oauth2.Error{Code: "unauthorized_client", Description: "the client may not use this response_type"}
	}
	return &oauth2.Error{Code: "unsupported_response_type", Description: "response_type must be one that the client may use"}
}

// checkMode refuses a mode that would reveal tokens to servers and logs, or a code to
// scripts (OpenID Connect Core §3.2.2.5, RFC 9700 §4.3).
func (t *responseTarget) checkMode(p oauth2.Parameters) error {
	usual := defaultMode(t.responseType)
	switch asked := p.Get("response_mode"); asked {
	case "", usual:
		return nil
	case ModeFormPost:
		if client.IsPrivateUse(t.redirectURI) {
			return oauth2.InvalidRequest("form_post cannot reach a redirect_uri of a private-use scheme")
		}
		if !utf8.ValidString(t.state) || strings.ContainsFunc(t.state, unicode.IsControl) { // a form would change it
			return oauth2.InvalidRequest("state cannot be returned by form_post: it must be UTF-8 without control characters")
		}
		return nil
	}
	return oauth2.InvalidRequest("response_mode must be " + usual + " or form_post for this response_type")
}

// responds reports whether the response type has a word.
func (t *responseTarget) responds(word string) bool {
	return slices.Contains(strings.Fields(t.responseType), word)
}
