package conformance

import (
	"math"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// parameters returns the parameters of an authorization response that must use the
// given response mode. The other modes must carry nothing: no code, token or error
// (OpenID Connect Core §3.3.2.5, Multiple Response Types §5, Form Post Response Mode §2).
func (p *relyingParty) parameters(a *authorizationResponse, mode string) url.Values {
	p.t.Helper()
	ways := map[string]url.Values{"query": a.query, "fragment": a.fragment, "form_post": a.form}
	for way, values := range ways {
		if way != mode && len(values) > 0 {
			p.t.Errorf("%v came by %s", values, way)
		}
	}
	if len(ways[mode]) == 0 {
		p.t.Fatalf("nothing came by %s: status %d, %s", mode, a.status, a.page)
	}
	for name, values := range ways[mode] {
		if len(values) > 1 {
			p.t.Errorf("%s came %d times", name, len(values))
		}
	}
	return ways[mode]
}

// mode is the response mode of both success and error.
func (p *relyingParty) mode() string {
	switch {
	case p.responseMode != "":
		return p.responseMode
	case p.responseType == "code":
		return "query"
	}
	return "fragment"
}

// granted checks the authorization response to a request that must succeed.
func (p *relyingParty) granted(q url.Values, a *authorizationResponse) url.Values {
	p.t.Helper()
	got := p.parameters(a, p.mode())
	p.checkStateAndIssuer(q, got)
	if got.Get("error") != "" {
		p.t.Fatalf("refused: %v", got)
	}
	words := strings.Fields(p.responseType)
	want := map[string]bool{
		"code": slices.Contains(words, "code"), "access_token": slices.Contains(words, "token"),
		"token_type": slices.Contains(words, "token"), "expires_in": slices.Contains(words, "token"), "id_token": slices.Contains(words, "id_token"),
	}
	for name, wanted := range want {
		if got.Has(name) != wanted {
			p.t.Errorf("%s in the answer: %t", name, !wanted)
		}
	}
	if code := got.Get("code"); want["code"] && (bitsOf(code) < 128 || !unescaped.MatchString(code)) {
		p.t.Errorf("code %q: %.0f bits", code, bitsOf(code))
	}
	return got
}

func (p *relyingParty) checkStateAndIssuer(q, got url.Values) {
	p.t.Helper()
	if got.Get("state") != q.Get("state") || got.Has("state") != q.Has("state") {
		p.t.Errorf("state %q, sent %q", got["state"], q["state"])
	}
	if got.Get("iss") != issuer {
		p.t.Errorf("iss %q", got["iss"])
	}
}

// unescaped matches what some clients put into a form without escaping it.
var unescaped = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// bitsOf estimates the entropy of a text by how often its characters occur in it.
func bitsOf(text string) (bits float64) {
	counts := map[rune]float64{}
	for _, r := range text {
		counts[r]++
	}
	for _, n := range counts {
		bits -= n * math.Log2(n/float64(len(text)))
	}
	return bits
}

var errorText = regexp.MustCompile(`^[\x20-\x21\x23-\x5b\x5d-\x7e]*$`)

// refused checks the authorization response to a request that must fail with one of
// the given errors (RFC 6749 §4.1.2.1, OpenID Connect Core §3.1.2.6).
func (p *relyingParty) refused(q url.Values, a *authorizationResponse, mode string, codes ...string) {
	p.t.Helper()
	got := p.parameters(a, mode)
	p.checkStateAndIssuer(q, got)
	if !slices.Contains(codes, got.Get("error")) {
		p.t.Errorf("error %q, not one of %q", got.Get("error"), codes)
	}
	if !errorText.MatchString(got.Get("error_description")) {
		p.t.Errorf("error_description %q", got.Get("error_description"))
	}
	for name := range got {
		if !slices.Contains([]string{"error", "error_description", "error_uri", "state", "iss"}, name) {
			p.t.Errorf("%s beside the error", name)
		}
	}
}

// shownError checks that a request ends at an error page, without a redirect.
func (p *relyingParty) shownError(a *authorizationResponse) {
	p.t.Helper()
	if a.status != http.StatusBadRequest || !strings.Contains(a.page, "This link does not work") || a.query != nil || a.form != nil {
		p.t.Errorf("status %d, query %v, form %v: %s", a.status, a.query, a.form, a.page)
	}
}
