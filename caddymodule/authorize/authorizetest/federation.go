package authorizetest

import (
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
)

// ByProvider asks to sign in by a provider.
func ByProvider(idp string) url.Values { return url.Values{"identity_provider": {idp}} }

// Federate asks to sign in by the provider, goes there and back, and returns
// where the client is sent, if need be from the page for people who may not sign in.
func Federate(b *Browser, change url.Values) *url.URL {
	b.T.Helper()
	q := ByProvider("hospital")
	maps.Copy(q, change)
	return Location(b.T, backFromRefusal(b, b.Follow(b.Authorize(Request(q)))))
}

// backFromRefusal goes back to the app from the page for people who may not sign in.
func backFromRefusal(b *Browser, r *http.Response) *http.Response {
	if r.StatusCode != http.StatusForbidden {
		return r
	}
	page := Body(b.T, r)
	r.Body = io.NopCloser(strings.NewReader(page))
	form := ReadForm(page).Action
	if !strings.Contains(form, "?refused=") {
		return r
	}
	return b.Get(form + "&decision=deny")
}

// FederatedTokens are [Browser.Tokens] by the provider.
func FederatedTokens(b *Browser, change url.Values) TokenResponse {
	b.T.Helper()
	return b.Redeem(Federate(b, change))
}

// ProviderAnswer goes to the provider and returns where it sends the browser.
func ProviderAnswer(b *Browser) *url.URL {
	b.T.Helper()
	start := FollowOnce(b, b.Authorize(Request(ByProvider("hospital"))))
	back, err := FollowOnce(b, start).Location()
	if err != nil {
		b.T.Fatal(err)
	}
	return back
}
