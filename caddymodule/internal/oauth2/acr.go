package oauth2

import "slices"

// The authentication context classes (acr) of this server, each of which includes those
// before it.
const (
	ACRSingleFactor = "sfa" // one factor
	ACRMultiFactor  = "mfa" // two factors, here or as an identity provider says
	ACRPhishing     = "phr" // phishing-resistant: a passkey here (OpenID Connect EAP ACR Values 1.0)
)

// ACRValues are all classes, the weakest first.
var ACRValues = []string{ACRSingleFactor, ACRMultiFactor, ACRPhishing}

// ACR returns the class of a sign-in by its amr (RFC 8176). What an identity provider says of
// its keys does not make a sign-in phishing-resistant: we did not see them.
func ACR(amr []string, provider string) string {
	key := slices.Contains(amr, "hwk") || slices.Contains(amr, "swk")
	switch {
	case !slices.Contains(amr, "mfa"):
		return ACRSingleFactor
	case key && provider == "":
		return ACRPhishing
	}
	return ACRMultiFactor
}

// MeetsACR reports whether a class includes another, which is one of [ACRValues], or "" for any.
func MeetsACR(class, wanted string) bool {
	return slices.Index(ACRValues, class) >= slices.Index(ACRValues, wanted)
}
