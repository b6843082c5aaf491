package servertest

import (
	"maps"
	"net/url"
)

// ByProvider asks to sign in by a provider.
func ByProvider(idp string) url.Values { return url.Values{"identity_provider": {idp}} }

// Federate asks to sign in by the provider, goes there and back, and returns
// where the client is sent.
func (b *Browser) Federate(change url.Values) *url.URL {
	b.T.Helper()
	q := ByProvider("hospital")
	maps.Copy(q, change)
	return Location(b.T, b.Follow(b.Authorize(Request(q))))
}

// FederatedTokens are [Browser.Tokens] by the provider.
func (b *Browser) FederatedTokens(change url.Values) TokenResponse {
	b.T.Helper()
	return b.Redeem(b.Federate(change))
}

// ProviderAnswer goes to the provider and returns where it sends the browser.
func (b *Browser) ProviderAnswer() *url.URL {
	b.T.Helper()
	start := b.FollowOnce(b.Authorize(Request(ByProvider("hospital"))))
	back, err := b.FollowOnce(start).Location()
	if err != nil {
		b.T.Fatal(err)
	}
	return back
}
