package conformance

import (
	"net/http"
	"net/url"
	"slices"
)

// coreModules are those that the plans for the code flow, the implicit flow and
// form_post take theirs from, in the order of the basic plan.
var coreModules = []testModule{
	{id: "oidcc-server", checks: "sign-in: state, iss, entropy of the code, ID token, at_hash, userinfo, the same sub", run: moduleServer},
	{id: "oidcc-response-type-missing", checks: "`invalid_request`, by the redirect URI", run: moduleResponseTypeMissing},
	{id: "oidcc-idtoken-signature", checks: "RS256, by the one published key with the token's kid", registered: true, run: moduleIDTokenSignature},
	{id: "oidcc-idtoken-unsigned", checks: "ID tokens with alg `none`; discovery does not offer them, so the module ends there", registered: true, run: moduleIDTokenUnsigned},
	{id: "oidcc-userinfo-get", checks: "userinfo by GET", run: moduleUserinfo(http.MethodGet, true)},
	{id: "oidcc-userinfo-post-header", checks: "userinfo by POST, token in the header", run: moduleUserinfo(http.MethodPost, true)},
	{id: "oidcc-userinfo-post-body", checks: "userinfo by POST, token in the form", run: moduleUserinfo(http.MethodPost, false)},
	{id: "oidcc-ensure-request-without-nonce-succeeds-for-code-flow", checks: "no nonce sent, none in the ID token", run: moduleWithoutNonce},
	{id: "oidcc-ensure-request-without-nonce-fails", checks: "`invalid_request`", run: moduleWithoutNonceFails},
	{id: "oidcc-scope-profile", checks: "all claims of the scope, of the right types, and no others", run: moduleScopes("profile")},
	{id: "oidcc-scope-email", checks: "likewise", run: moduleScopes("email")},
	{id: "oidcc-scope-address", checks: "likewise", run: moduleScopes("address")},
	{id: "oidcc-scope-phone", checks: "likewise", run: moduleScopes("phone")},
	{id: "oidcc-scope-all", checks: "likewise, all four at once", run: moduleScopes("profile", "email", "address", "phone")},
	{id: "oidcc-alternate-happy-flow", checks: "`openid` last in the scope, parameters in another order", run: moduleAlternateOrder},
	{id: "oidcc-display-page", checks: "is no error", run: moduleHarmless(url.Values{"display": {"page"}})},
	{id: "oidcc-display-popup", checks: "is no error", run: moduleHarmless(url.Values{"display": {"popup"}})},
	{id: "oidcc-prompt-login", checks: "the person signs in again, `auth_time` is a new one", waits: true, run: modulePromptLogin},
	{id: "oidcc-prompt-none-not-logged-in", checks: "`login_required`, without a page", run: modulePromptNoneNotLoggedIn},
	{id: "oidcc-prompt-none-logged-in", checks: "no page; the same `sub` and `auth_time`", run: modulePromptNoneLoggedIn},
	{id: "oidcc-max-age-1", checks: "2 s later: the person signs in again, `auth_time` is later and recent", waits: true, run: moduleMaxAge1},
	{id: "oidcc-max-age-10000", checks: "no page; the same `sub` and `auth_time`", waits: true, run: moduleMaxAge10000},
	{id: "oidcc-ensure-request-with-unknown-parameter-succeeds", checks: "is ignored", run: moduleHarmless(url.Values{"extra": {"foobar"}})},
	{id: "oidcc-id-token-hint", checks: "with `prompt=none`: no page; the same `sub` and `auth_time`", run: moduleIDTokenHint},
	{id: "oidcc-login-hint", checks: "is on the sign-in page", run: moduleLoginHint},
	{id: "oidcc-ui-locales", checks: "is no error", run: moduleHarmless(url.Values{"ui_locales": {"se fr-CA"}})},
	{id: "oidcc-claims-locales", checks: "is no error", run: moduleHarmless(url.Values{"claims_locales": {"se"}})},
	{id: "oidcc-ensure-request-with-acr-values-succeeds", checks: "all that discovery lists: is no error, and `acr` is one of them", run: moduleACRValues},
	{id: "oidcc-codereuse", checks: "the code once more, at once: `invalid_grant`", run: moduleCodeReuse},
	{id: "oidcc-codereuse-30seconds", checks: "30 s later: `invalid_grant`, and the first access token is dead", waits: true, run: moduleCodeReuseLater},
	{id: "oidcc-ensure-registered-redirect-uri", checks: "another redirect URI: a page, no redirect", run: moduleRegisteredRedirectURI},
	{id: "oidcc-ensure-post-request-succeeds", checks: "the request by POST (with `authorize_post`)", run: modulePostedRequest},
	{id: "oidcc-server-client-secret-post", checks: "as `oidcc-server`, the secret in the form", run: moduleSecretPost},
	{id: "oidcc-request-uri-unsigned-supported-correctly-or-rejected-as-unsupported", checks: "a registered address of one is fetched and answered", registered: true, run: moduleRequestURIUnsigned},
	{id: "oidcc-unsigned-request-object-supported-correctly-or-rejected-as-unsupported", checks: "answered, or `request_not_supported` as the object asks", run: moduleRequestObject},
	{id: "oidcc-claims-essential", checks: "`name` asked for by the parameter `claims`: is there, and only where it was asked for", run: moduleClaimsEssential},
	{id: "oidcc-ensure-request-object-with-redirect-uri", checks: "a request object beside another redirect URI: the object's, or a page", run: moduleRequestObjectRedirectURI},
	{id: "oidcc-refresh-token", checks: "other tokens, the same person; not for another client", waits: true, run: moduleRefreshToken},
	{id: "oidcc-ensure-request-with-valid-pkce-succeeds", checks: "S256", run: modulePKCE},
}

// coreModulesWithout are the core modules but for some.
func coreModulesWithout(ids ...string) []testModule {
	return slices.DeleteFunc(slices.Clone(coreModules), func(m testModule) bool { return slices.Contains(ids, m.id) })
}

func coreModulesOnly(ids ...string) []testModule {
	return slices.DeleteFunc(slices.Clone(coreModules), func(m testModule) bool { return !slices.Contains(ids, m.id) })
}

func basicPlan() testPlan {
	return testPlan{
		name:    "oidcc-basic-certification-test-plan",
		text:    "`response_type=code`, `client_secret_basic`. Errors come in the query.",
		modules: coreModulesWithout("oidcc-ensure-request-without-nonce-fails"), variants: both(func(*relyingParty) {}),
	}
}
