package servertest

import (
	"maps"
	"net/url"
)

// ByProvider asks to sign in by a provider.
func ByProvider(idp string) url.Values { return url.Values{"identity_provider": {idp}} }

// Federate asks to sign in by the provider, goes there and back, and returns
// where the client is sent.
func Federate(b *Browser, change url.Values) *url.URL {
	b.T.Helper()
	q := ByProvider("hospital")
	maps.Copy(q, change)
	return Location(b.T, b.Follow(b.Authorize(Request(q))))
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
