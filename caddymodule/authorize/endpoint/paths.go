package endpoint

// The endpoints below the issuer.
const (
	Authorize  = "/oauth2/authorize"
	Login      = "/oauth2/login"
	Token      = "/oauth2/token"
	Revoke     = "/oauth2/revoke"
	Introspect = "/oauth2/introspect"
	Userinfo   = "/oauth2/userinfo"
	Callback   = "/oauth2/callback/" // and the provider's key
	Logout     = "/oauth2/logout"
	JWKS       = "/.well-known/jwks.json"

	BackchannelLogout = "/oauth2/backchannel_logout/" // and the provider's key

	SelectAccount       = "/oauth2/select_account"
	SelectPatient       = "/oauth2/select_patient"
	SelectEncounter     = "/oauth2/select_encounter"
	Consent             = "/oauth2/consent"
	Logo                = "/oauth2/logo"
	ClientLogo          = "/oauth2/client_logo" // ?client_id=
	Launch              = "/oauth2/launch"
	SMARTStyle          = "/oauth2/style.json"
	Account             = "/oauth2/account"
	PushedAuthorization = "/oauth2/par"
)
