package upstream

import "time"

// Identity is who signed in. Only Issuer and Subject together identify the person
// (OpenID Connect Core §5.7).
type Identity struct {
	Issuer  string // as configured
	Subject string // the sub: up to 255 characters, unique at the issuer

	// Claims are those of the ID token and, where it lacks one, of userinfo. They have the
	// types that were sent, with numbers as json.Number: an email_verified of "true" is
	// still a string.
	Claims map[string]any

	Asked    time.Time // when the provider was asked: what it tells later is about this sign-in too
	IDToken  string    // verified: the hint for [Provider.EndSessionURL]
	AuthTime time.Time // the auth_time, or zero

	RefreshToken string // the latest, for [Provider.Refresh]; "" if the provider gave none
	Brief        bool   // it ends with the person's session there; another can be had by [AuthenticationRequest].Lasting

	AccessToken string    // for [Provider.Introspect], where there is no refresh token
	Expires     time.Time // when AccessToken does
}
