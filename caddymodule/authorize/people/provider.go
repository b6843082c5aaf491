package people

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
)

// IdentityProvider configures an OpenID Connect provider at which people can sign in.
type IdentityProvider struct {
	// The provider's name in URLs, in a client's list and in the request parameter
	// `identity_provider`: lower-case letters, digits and hyphens. Required.
	Key string `json:"key,omitempty"`

	// The name on pages and at the start of error messages. Default: the key; for Google, `Google`.
	Name string `json:"name,omitempty"`

	// The provider's issuer: https, or http on loopback. Required, except for Google.
	Issuer string `json:"issuer,omitempty"`

	// The client_id at the provider. The redirect URI to register there is
	// `{issuer}/oauth2/callback/{key}`. Required. Caddy's placeholders are supported.
	ClientID string `json:"client_id,omitempty"`

	// The client secret at the provider. Caddy's placeholders are supported. Default: none.
	ClientSecret string `json:"client_secret,omitempty"`

	// The private key that signs a JWT for each request to the provider, which is sent as the client secret. Default: none.
	AssertionKey *relyingparty.AssertionKey `json:"assertion_key,omitempty"`

	// The IDs of the Entra ID tenants with people who may sign in. The issuer is then the shared issuer of `organizations` or
	// `common`, and subjects start with the tenant ID and a slash. Default: the provider has one issuer.
	Tenants []string `json:"tenants,omitempty"`

	// Additional parameters of authentication requests, by name. If the value is empty, the value in the app's authorization
	// request is forwarded. For Google, people must have the claim `hd` of a parameter `hd`, in which `*` means any value.
	// Default: none.
	RequestParameters map[string]string `json:"request_parameters,omitempty"`

	// How the provider returns the response: `form_post` for a form that the browser sends. Default: the provider's default for
	// `response_type=code`, which is the query.
	ResponseMode string `json:"response_mode,omitempty"`

	// Send no requests to the provider's userinfo endpoint. Default: false.
	SkipUserinfo bool `json:"skip_userinfo,omitempty"`

	// The base URL of Microsoft Graph. The groups of people in more than 200 groups, which do not fit into Entra ID's ID tokens,
	// are fetched from there. Default: none, and these people have no groups.
	GraphURL string `json:"graph_url,omitempty"`

	// The scopes to request in addition to `openid`. Default: `profile email`.
	Scopes []string `json:"scopes,omitempty"`

	// The signature algorithms accepted in the provider's ID tokens, logout tokens and security events, i.e. the value of the
	// provider's setting `id_token_signed_response_alg` for this client. Default: all algorithms for ID tokens in the
	// provider's discovery document, except HMAC and `none`.
	IDTokenAlgorithms []string `json:"id_token_algs,omitempty"`

	// The e-mail domains of the provider's users. Entering an e-mail address in one of these domains on
	// the sign-in page redirects to the provider. Default: none.
	Domains []string `json:"domains,omitempty"`

	// Maps claims of the gateway to claims of the provider. Keys: the claims of OpenID Connect Core §5.1, `fhirUser`, `patient`
	// (ids of the patients that the person may choose) and `groups`. `fhirUser` and `patient` are used only if mapped. If
	// `email` or `phone_number` is mapped, `email_verified` or `phone_number_verified` is ignored unless it is mapped too.
	// Default: the claim of the same name.
	Claims map[string]string `json:"claims,omitempty"`

	// The provider's claim to use as `sub`, so that apps recognize their existing users. It must be unique and never
	// reassigned. Sign-in fails if a local user, a client or another provider's user has the value. Default: a hash of the
	// provider's issuer and subject.
	Sub string `json:"sub,omitempty"`

	// The former issuer of a provider with a changed issuer. Users then keep their `sub`, consents and records. The operator
	// of the new issuer can act as any of these users. Default: the current issuer.
	SubIssuer string `json:"sub_issuer,omitempty"`

	// The authentication class, `sfa` or `mfa`, for each of the provider's `acr` values. The values are also used to request
	// the class that an app requires. For other `acr` values, the class is `mfa` if `amr` contains methods of two different
	// kinds. Default: only `amr` is used.
	ACRMap ACRMap `json:"acr_map,omitempty"`

	// The FHIR resources of the provider's users by `sub`, e.g. `Practitioner/alice`. Default: none.
	FHIRUsers map[string]string `json:"fhir_users,omitempty"`

	// Searches at sign-in for the person's FHIR resource, in this order, if neither `fhir_users` nor the mapped claim
	// `fhirUser` contains it. The result is used only if there is exactly one match. Default: no search.
	FHIRUserSearch []launch.PersonSearch `json:"fhir_user_search,omitempty"`

	// Additional claims to store for `scope_limit` and for policies of `fhir_bearer`. Keys: names at the gateway. Values:
	// claims of the provider, or paths such as `realm_access.roles`. At most 20. Default: none.
	TokenClaims map[string]string `json:"token_claims,omitempty"`

	// Rules for who may sign in. At least one rule must match. A change applies to existing sessions immediately, based on the
	// claims of their sign-in. Default: everyone whom the provider signs in.
	Allow []AllowRule `json:"allow,omitempty"`

	// Sign people in as the local user with the same e-mail address if both addresses are verified. Anyone who can
	// set addresses at the provider can then sign in as these users. Default: separate federated accounts by issuer
	// and subject.
	LinkEmail bool `json:"link_email,omitempty"`

	// Treat the provider's e-mail addresses as verified if `email_verified` is missing or the string `true`. Default: false.
	TrustEmail bool `json:"trust_email,omitempty"`

	// Store the provider's ID token with the session, so that logout at the provider does not need confirmation. Default:
	// false.
	KeepUpstreamToken bool `json:"keep_upstream_token,omitempty"`

	Timeout       time.Duration     `json:"-"` // timeout of each request to the provider; default 10s
	Transport     http.RoundTripper `json:"-"` // HTTP transport of these requests; default: see [relyingparty.Config]
	Google        bool              `json:"-"` // errors contain the provider's error code, and a configured hd is enforced
	ACRClaim      string            `json:"-"` // claim and parameter used instead of acr; default acr
	SelectAccount bool              `json:"-"` // the provider supports prompt=select_account, even if its discovery document omits it
	Revalidate    Revalidation      `json:"-"` // revalidation of sign-ins
}

// Revalidation configures rechecking of sign-ins at the provider (package revalidation).
type Revalidation struct {
	// Interval is the maximum age of the provider's last confirmation before a recheck. Default: 5
	// min; from 1 min to 1 h. Negative: no rechecks.
	Interval time.Duration

	// MaxOutage is the time after the last confirmation during which access continues while the
	// provider is unreachable. Default: 8 h; from the interval to 7 days.
	MaxOutage time.Duration
}

const (
	defaultInterval, minInterval, maxInterval = 5 * time.Minute, time.Minute, time.Hour
	defaultOutage, maxOutage                  = 8 * time.Hour, 7 * 24 * time.Hour
)

// Check returns an error if a duration is out of range.
func (r Revalidation) Check() error {
	interval, outage := cmp.Or(r.Interval, defaultInterval), cmp.Or(r.MaxOutage, defaultOutage)
	switch {
	case interval < 0:
		return nil
	case interval < minInterval || interval > maxInterval:
		return fmt.Errorf("revalidate: interval %v must be between %v and %v", interval, minInterval, maxInterval)
	case outage < interval || outage > maxOutage:
		return fmt.Errorf("revalidate: outage %v must be between the interval (%v) and %v", outage, interval, maxOutage)
	}
	return nil
}

// AllowRule is one condition under which people may sign in.
type AllowRule struct {
	// The claim to match, `email` or `group`. Required.
	Claim string `json:"claim,omitempty"`

	// The group, the e-mail address, or `*@domain` for all addresses in a domain. Addresses must be verified by the provider.
	// Required.
	Value string `json:"value,omitempty"`
}

var providerKey = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// mappedClaims lists the claims that can be mapped from a provider's claims.
var mappedClaims = append([]string{
	"name", "preferred_username", "email", "email_verified", "phone_number", "fhirUser", "patient", "groups", "address",
}, topLevelClaims...)

// topLevelClaims are furtherClaims without the parts of an address.
var topLevelClaims = slices.DeleteFunc(slices.Clone(furtherClaims), func(name string) bool { return strings.Contains(name, ".") })

// Local represents the local users in a client's list of identity providers.
const Local = tokenclaim.LocalIDP

// CheckMappedClaim returns an error if a claim cannot be mapped.
func CheckMappedClaim(claim string) error {
	if !slices.Contains(mappedClaims, claim) {
		return fmt.Errorf("unsupported claim %q: use one of %q", claim, mappedClaims)
	}
	return nil
}

// reservedParameters lists the parameters of authentication requests that the gateway sets or must not send.
var reservedParameters = []string{
	"access_type", "acr_values", "claims", "client_assertion", "client_assertion_type", "client_id", "client_secret", "code", "code_challenge",
	"code_challenge_method", "code_verifier", "dpop_jkt", "grant_type", "id_token_hint", "identity_provider", "login_hint", "max_age", "nonce",
	"prompt", "redirect_uri", "registration", "request", "request_uri", "response_mode", "response_type", "scope", "state", "ui_locales",
}

var parameterName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,63}$`)

// CheckRequestParameter returns an error if an authentication request cannot contain an additional parameter.
func CheckRequestParameter(name, value string) error {
	switch {
	case !parameterName.MatchString(name) || len(value) > maxForwardedParameter:
		return fmt.Errorf("request_parameter %q: use at most 64 letters, digits, dots, hyphens and underscores, and a value of at most %d bytes", name, maxForwardedParameter)
	case slices.Contains(reservedParameters, name):
		return fmt.Errorf("request_parameter %s: the gateway sets this parameter itself", name)
	case value == "" && slices.Contains(appParameters, name):
		return fmt.Errorf("request_parameter %s: this parameter of apps is meant for the gateway: set a value instead of forwarding it", name)
	}
	return nil
}

// appParameters lists parameters of apps that are meant for the gateway although they are not reserved.
var appParameters = []string{"aud", "launch", "resource"}

// maxForwardedParameter is the maximum length of the value of an additional parameter in bytes. Longer values are not forwarded.
const maxForwardedParameter = 1 << 10

// ExtraParameters returns the additional parameters of an authentication request for an app's request.
func (p *Provider) ExtraParameters(of oauth2.Parameters) map[string]string {
	extra := make(map[string]string, len(p.RequestParameters))
	for name, value := range p.RequestParameters {
		if value = cmp.Or(value, of.Get(name)); value != "" && len(value) <= maxForwardedParameter {
			extra[name] = value
		}
	}
	return extra
}

// ForwardedParameters returns the names of the parameters that are forwarded to any provider.
func (a *Accounts) ForwardedParameters() (names []string) {
	for _, p := range a.Providers {
		for name, value := range p.RequestParameters {
			if value == "" {
				names = append(names, name)
			}
		}
	}
	return names
}

// CheckProviderKey returns an error for an invalid provider key.
func CheckProviderKey(key string) error {
	if !providerKey.MatchString(key) || key == Local {
		return fmt.Errorf("invalid idp name %q: use lower-case letters, digits and single hyphens; %s is reserved", key, Local)
	}
	return nil
}

// CheckDomain returns an error for an invalid e-mail domain.
func CheckDomain(domain string) error {
	if emailDomain("x@"+domain) != domain || !strings.Contains(domain, ".") {
		return fmt.Errorf("%q is not a lower-case domain such as hospital.example", domain)
	}
	return nil
}

// Check returns an error if a rule can never match. It also rejects addresses with two @, because parsers disagree about them.
func (r AllowRule) Check() error {
	switch {
	case r.matchesGroup() && r.Value != "":
		return nil
	case r.Claim != "email":
		return fmt.Errorf("allow: unknown rule %q: use email or group", r.Claim)
	}
	user, domain, ok := strings.Cut(r.Value, "@")
	if !ok || user == "" || domain == "" || strings.Contains(domain, "@") || strings.Contains(r.Value[1:], "*") {
		return fmt.Errorf("allow email: invalid value %q: use an e-mail address or *@domain", r.Value)
	}
	return nil
}

func (r AllowRule) matchesGroup() bool { return r.Claim == "group" }

// Provider is an identity provider and the HTTP client for it.
type Provider struct {
	IdentityProvider
	Client *relyingparty.Provider // sends requests to the provider
}

// subIssuer returns the issuer that namespaces the provider's accounts.
func (p *Provider) subIssuer() string { return cmp.Or(p.SubIssuer, p.Issuer) }

// issuersOfSubs returns the issuers from which [Provider.accountID] derives subs.
func (p *Provider) issuersOfSubs() (issuers []string) {
	for _, tenant := range p.Tenants {
		issuers = append(issuers, relyingparty.TenantIssuer(p.Issuer, tenant))
	}
	return append(issuers, p.subIssuer())
}

// Endpoint returns a handler that calls serve with p, and records p as the provider of the request's audit events.
func (p *Provider) Endpoint(serve func(http.ResponseWriter, *http.Request, *Provider)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		audit.FromContext(r.Context()).Provider = p.Key
		serve(w, r, p)
	}
}

func newProvider(c IdentityProvider, redirectURI string, logger *slog.Logger) (*Provider, error) {
	c.Name = cmp.Or(c.Name, c.Key)
	c.Revalidate = Revalidation{cmp.Or(c.Revalidate.Interval, defaultInterval), cmp.Or(c.Revalidate.MaxOutage, defaultOutage)}
	if err := checkProvider(&c); err != nil {
		return nil, err
	}
	client, err := relyingparty.New(relyingparty.Config{
		Issuer: c.Issuer, ClientID: c.ClientID, ClientSecret: c.ClientSecret, Scopes: c.Scopes,
		RedirectURI: redirectURI, SelectAccount: c.SelectAccount, Timeout: c.Timeout, Transport: c.Transport, Logger: logger,
		RequestOfflineAccess: c.Revalidate.Interval > 0, IsGoogle: c.Google, IDTokenAlgorithms: c.IDTokenAlgorithms,
		AssertionKey: c.AssertionKey, MultiTenant: len(c.Tenants) > 0, SkipUserinfo: c.SkipUserinfo, GraphURL: c.GraphURL, ResponseMode: c.ResponseMode,
	})
	if err != nil {
		return nil, fmt.Errorf("idp %q: %w", c.Key, err)
	}
	return &Provider{IdentityProvider: c, Client: client}, nil
}

func checkProvider(c *IdentityProvider) error {
	errs := []error{
		CheckProviderKey(c.Key), c.Revalidate.Check(), tokenclaim.CheckAll(c.TokenClaims),
		checkEach(slices.Values(c.FHIRUserSearch), launch.PersonSearch.Check), checkEach(maps.Keys(c.Claims), CheckMappedClaim),
		checkEach(slices.Values(c.Domains), CheckDomain), checkEach(maps.Values(c.FHIRUsers), CheckFHIRUser),
		checkEach(slices.Values(c.Allow), AllowRule.Check), checkEach(slices.Values(c.Tenants), relyingparty.CheckTenant),
		checkEach(maps.Keys(c.RequestParameters), func(name string) error { return CheckRequestParameter(name, c.RequestParameters[name]) }),
	}
	switch {
	case len(c.Tenants) == 0:
	case c.SubIssuer != "":
		errs = append(errs, fmt.Errorf("idp %q: sub_issuer cannot be combined with tenants: each person's sub is derived from the issuer of their tenant", c.Key))
	case c.TrustEmail:
		errs = append(errs, fmt.Errorf("idp %q: trust_email cannot be combined with tenants, because each tenant can set any address: add the claim xms_edov", c.Key))
	default:
		errs = append(errs, checkEach(maps.Keys(c.FHIRUsers), checkTenantSubject))
	}
	if c.ClientID == "" {
		errs = append(errs, fmt.Errorf("idp %q has no client_id", c.Key))
	}
	if c.SubIssuer != "" {
		errs = append(errs, relyingparty.CheckIssuer(c.SubIssuer))
	}
	for providerACR, class := range c.ACRMap {
		errs = append(errs, CheckMappedACR(providerACR, class))
	}
	return errors.Join(errs...)
}

// checkTenantSubject returns an error for a subject that no person of a tenant can have.
func checkTenantSubject(subject string) error {
	tenant, sub := relyingparty.SplitSubject(subject)
	if relyingparty.CheckTenant(tenant) != nil || sub == "" {
		return fmt.Errorf("fhir_user %q: with tenants, use the tenant ID, a slash and the person's sub", subject)
	}
	return nil
}

func checkEach[T any](of iter.Seq[T], check func(T) error) (err error) {
	for one := range of {
		err = errors.Join(err, check(one))
	}
	return err
}

// identity is a person's identity at a provider, mapped to the gateway's claims.
type identity struct {
	issuer, subject string
	sub             string // value of the configured sub claim, if any
	user            User
	groups          []string
	hostedDomain    string // Google's hd claim: the person's Workspace domain
	queries         []launch.PersonQuery
}

// Identity maps a provider's claims to the gateway's claims. It ignores claims of the wrong type, e.g. an email_verified of
// "true" or 1 (OpenID Connect Core §5.1).
func (p *Provider) Identity(from *relyingparty.Identity) identity {
	text := func(name string) string { return claimText(name, p.claim(from, name)) }
	verified := p.isEmailVerified(from)
	sub, _ := from.Claims[p.Sub].(string)
	id := identity{issuer: cmp.Or(p.SubIssuer, from.Issuer), subject: from.Subject, sub: sub}
	id.hostedDomain, _ = from.Claims[hostedDomain].(string)
	groups, complete := tokenclaim.Read(from.Claims, cmp.Or(p.Claims[tokenclaim.DefaultGroupsClaim], tokenclaim.DefaultGroupsClaim))
	id.groups = groups
	id.user = User{
		ID: p.accountID(from.Subject), Name: text("name"), username: text("preferred_username"),
		Email: text("email"), EmailVerified: verified && emailDomain(text("email")) != "", Phone: text("phone_number"),
		Claims: p.furtherClaims(from), Groups: id.groups, provider: p.Key,
	}
	id.user.TokenClaims, id.user.Unread = p.tokenClaims(from)
	if !complete {
		id.user.Unread = append(id.user.Unread, tokenclaim.DefaultGroupsClaim)
	}
	if p.Claims["fhirUser"] != "" {
		id.user.FHIRUser = claimText("fhirUser", firstOfOne(p.claim(from, "fhirUser")))
	}
	if p.Claims["patient"] != "" {
		ids, _ := tokenclaim.List(p.claim(from, "patient"))
		ids = slices.DeleteFunc(ids, func(id string) bool { return !launch.IsID(id) })
		id.user.Patients = ids[:min(len(ids), maxPersonPatients)]
	}
	if id.user.FHIRUser == "" && p.FHIRUsers[from.Subject] == "" {
		id.queries = launch.Queries(p.FHIRUserSearch, from.Claims, id.verifiedEmail(), id.user.Claims["birthdate"])
	}
	return id
}

// isEmailVerified reports whether the provider has verified the person's e-mail address.
func (p *Provider) isEmailVerified(from *relyingparty.Identity) bool {
	switch claim := p.claim(from, "email_verified"); claim {
	case nil, "true":
		return p.TrustEmail
	default:
		return claim == true
	}
}

// firstOfOne returns the element of a list with one element, because some providers return every attribute as a list.
func firstOfOne(claim any) any {
	if list, _ := claim.([]any); len(list) == 1 {
		return list[0]
	}
	return claim
}

// Label returns the display name of a provider's person, regardless of whether sign-in is permitted.
func (p *Provider) Label(from *relyingparty.Identity) Label {
	id := p.Identity(from)
	return id.user.Label()
}

// claim returns the provider's claim for the gateway's claim called name. If email or phone_number is mapped to another claim,
// the provider's claim with the suffix _verified does not refer to that claim, and is ignored unless it is mapped too.
func (p *Provider) claim(from *relyingparty.Identity, name string) any {
	if mapped := p.Claims[name]; mapped != "" {
		return tokenclaim.Find(from.Claims, mapped)
	}
	base, isVerification := strings.CutSuffix(name, "_verified")
	if mappedClaim := p.Claims[base]; isVerification && mappedClaim != "" && mappedClaim != base {
		return nil
	}
	return from.Claims[name]
}

const (
	maxClaimLength    = 1 << 10 // in bytes
	maxPersonPatients = 50      // patients that one person may choose
)

// claimText returns a claim as text, or "" if it is too long or not of the type defined in OpenID Connect Core §5.1.
func claimText(name string, claim any) (text string) {
	switch v := claim.(type) {
	case bool:
		if name == "phone_number_verified" {
			return strconv.FormatBool(v)
		}
	case json.Number:
		if seconds, err := v.Float64(); name == "updated_at" && err == nil {
			return strconv.FormatFloat(seconds, 'f', 0, 64)
		}
	case string:
		if name != "phone_number_verified" && name != "updated_at" && len(v) <= maxClaimLength {
			return v
		}
	}
	return ""
}

// furtherClaims returns the claims for [User].Claims.
func (p *Provider) furtherClaims(from *relyingparty.Identity) map[string]string {
	var claims map[string]string
	copyClaim := func(name string, claim any) {
		text := claimText(name, claim)
		if text == "" || CheckClaim(name, text) != nil {
			return
		}
		if claims == nil {
			claims = map[string]string{}
		}
		claims[name] = text
	}
	for _, name := range topLevelClaims {
		copyClaim(name, p.claim(from, name))
	}
	address, _ := p.claim(from, "address").(map[string]any)
	for member, v := range address {
		copyClaim("address."+member, v)
	}
	return claims
}

// Limits for a claim of [IdentityProvider].TokenClaims, which is read for each request.
const (
	maxTokenClaimLength = 4 << 10 // in bytes
	maxClaimValues      = 200
)

// tokenClaims returns the claims to store for [IdentityProvider].TokenClaims. A claim that exceeds a limit is omitted entirely,
// because a truncated list could grant more than the full list.
func (p *Provider) tokenClaims(from *relyingparty.Identity) (claims map[string][]string, unread []string) {
	for _, name := range slices.Sorted(maps.Keys(p.TokenClaims)) {
		values, complete := tokenclaim.Read(from.Claims, p.TokenClaims[name])
		switch {
		case !complete || len(values) > maxClaimValues || len(strings.Join(values, "")) > maxTokenClaimLength:
			unread = append(unread, name)
		case len(values) > 0:
			if claims == nil {
				claims = map[string][]string{}
			}
			claims[name] = values
		}
	}
	return claims, unread
}

// accountID returns the sub of a federated person, a hash of issuer and subject (OpenID Connect
// Core §5.7). Local users and clients cannot have such ids ([namecheck.IsDerivedSub]).
func accountID(issuer, subject string) string {
	sum := sha256.Sum256([]byte(issuer + "\x00" + subject))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// accountID returns the sub of a federated person. With several tenants, the person has the same sub as with the issuer of their
// tenant alone.
func (p *Provider) accountID(subject string) string {
	if len(p.Tenants) == 0 {
		return accountID(p.subIssuer(), subject)
	}
	tenant, sub := relyingparty.SplitSubject(subject)
	return accountID(relyingparty.TenantIssuer(p.Issuer, tenant), sub)
}

// allowsTenant reports whether people of a subject's tenant may sign in.
func (p *Provider) allowsTenant(subject string) bool {
	tenant, _ := relyingparty.SplitSubject(subject)
	return len(p.Tenants) == 0 || slices.Contains(p.Tenants, tenant)
}

// HaveSameTenant reports whether two subjects belong to the same tenant, or the provider has no tenants.
func (p *Provider) HaveSameTenant(subject, other string) bool {
	tenant, _ := relyingparty.SplitSubject(subject)
	otherTenant, _ := relyingparty.SplitSubject(other)
	return len(p.Tenants) == 0 || tenant == otherTenant
}

func (p *Provider) allowsSignIn(id identity) bool {
	if !p.allowsTenant(id.subject) {
		return false
	}
	return len(p.Allow) == 0 || slices.ContainsFunc(p.Allow, id.matches)
}

// hostedDomain is Google's parameter and claim for the Workspace domain.
const hostedDomain = "hd"

// allowsHostedDomain reports whether a person belongs to the configured Workspace domain. Google requires this check, because
// people can remove the parameter from the authentication request. The domain * stands for any Workspace domain.
func (p *Provider) allowsHostedDomain(id identity) bool {
	domain := p.RequestParameters[hostedDomain]
	if !p.Google || domain == "" {
		return true
	}
	return id.hostedDomain != "" && (domain == "*" || lowerASCII(id.hostedDomain) == lowerASCII(domain))
}

func (id identity) matches(rule AllowRule) bool {
	if rule.matchesGroup() {
		return slices.Contains(id.groups, rule.Value)
	}
	address := id.verifiedEmail()
	if domain, all := strings.CutPrefix(rule.Value, "*@"); all {
		return address != "" && emailDomain(address) == lowerASCII(domain)
	}
	return address != "" && lowerASCII(address) == lowerASCII(rule.Value)
}

// verifiedEmail returns the person's verified address if it has exactly one @, otherwise "".
func (id identity) verifiedEmail() string {
	if !id.user.EmailVerified || emailDomain(id.user.Email) == "" {
		return ""
	}
	return id.user.Email
}

// multiFactor is the amr value for multi-factor authentication (RFC 8176 §2).
const multiFactor = "mfa"

// factorKinds lists the amr values (RFC 8176 §2) by kind of factor. Two methods of the same kind are one factor. ngcmfa is
// Microsoft's name for mfa.
var factorKinds = map[string][]string{
	"knowledge":  {multiFactor, "ngcmfa", "pwd", "pin", "kba"},
	"possession": {multiFactor, "ngcmfa", "otp", "sms", "tel", "hwk", "swk", "sc"},
	"inherence":  {"face", "fpt", "iris", "retina", "vbm"},
}

// CheckMappedACR returns an error if a provider's acr cannot be mapped to a class. The
// phishing-resistant class is excluded, because the gateway has not verified the key.
func CheckMappedACR(providerACR, class string) error {
	if strings.ContainsFunc(providerACR, unicode.IsSpace) {
		return fmt.Errorf("acr_map: acr %q must not contain spaces", providerACR)
	}
	if class != oauth2.ACRSingleFactor && class != oauth2.ACRMultiFactor {
		return fmt.Errorf("acr_map %s: unknown class %q: use %s or %s", providerACR, class, oauth2.ACRSingleFactor, oauth2.ACRMultiFactor)
	}
	return nil
}

// ACRMap maps a provider's acr values to authentication classes.
type ACRMap map[string]string

// ProviderACRs returns the provider's acr values for a class, or nil.
func (m ACRMap) ProviderACRs(class string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(m)), func(providerACR string) bool { return m[providerACR] != class })
}

// AMR returns the authentication methods of a sign-in at the provider (RFC 8176). It contains mfa if and only if the sign-in
// had two factors. The map determines this for mapped acr values. For others, amr must contain methods of two kinds. acr is the
// name of the acr claim.
func (m ACRMap) AMR(claims map[string]any, acr string) []string {
	amr, _ := tokenclaim.List(claims["amr"])
	two := hasTwoFactors(amr)
	if class := m.class(claims[cmp.Or(acr, "acr")]); class != "" {
		two = class == oauth2.ACRMultiFactor
	}
	amr = slices.DeleteFunc(amr, func(method string) bool { return method == multiFactor && !two })
	if two && !slices.Contains(amr, multiFactor) {
		amr = append(amr, multiFactor)
	}
	return amr
}

// class returns the strongest class of the provider's acr values, or "".
func (m ACRMap) class(claim any) (class string) {
	values, _ := tokenclaim.List(claim)
	for _, providerACR := range values {
		if mappedClass := m[providerACR]; mappedClass != "" && oauth2.MeetsACR(mappedClass, class) {
			class = mappedClass
		}
	}
	return class
}

func hasTwoFactors(amr []string) bool {
	kinds := 0
	for _, methods := range factorKinds {
		if slices.ContainsFunc(amr, func(method string) bool { return slices.Contains(methods, method) }) {
			kinds++
		}
	}
	return kinds > 1
}

// CheckEmail returns an error for an invalid e-mail address.
func CheckEmail(address string) error {
	if emailDomain(address) == "" {
		return fmt.Errorf("%q is not an e-mail address", address)
	}
	return nil
}

// emailDomain returns the domain of an address in lower case, or "" if the address is invalid.
func emailDomain(address string) string {
	user, domain, _ := strings.Cut(address, "@")
	if user == "" || strings.ContainsAny(domain, "@ \t\r\n") {
		return ""
	}
	return lowerASCII(domain)
}

// lowerASCII converts only ASCII letters to lower case (RFC 4343 §3), because Unicode case mapping turns İ into i and equates ſ
// with s, which would confuse different domains or mailboxes.
func lowerASCII(address string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r - 'A' + 'a'
		}
		return r
	}, address)
}

// SignInMethods lists the sign-in methods of a client.
type SignInMethods struct {
	Local     bool        // password sign-in of local users
	Providers []*Provider // in the order of the client's list
}

// SignInMethods returns the sign-in methods for a client's list of keys. An empty list means all methods, in configuration
// order.
func (a *Accounts) SignInMethods(keys []string) SignInMethods {
	if len(keys) == 0 {
		keys = append([]string{Local}, a.ProviderKeys...)
	}
	var methods SignInMethods
	for _, key := range keys {
		if p := a.Providers[key]; p != nil {
			methods.Providers = append(methods.Providers, p)
		}
	}
	methods.Local = slices.Contains(keys, Local) && a.Directory.Len() > 0
	return methods
}

// Includes reports whether the provider with the key is a sign-in method. "" and [Local] mean password sign-in.
func (w SignInMethods) Includes(key string) bool {
	if key == "" || key == Local {
		return w.Local
	}
	return slices.ContainsFunc(w.Providers, func(p *Provider) bool { return p.Key == key })
}

// ByDomain returns the provider for the domain of an e-mail address, or nil.
func (w SignInMethods) ByDomain(address string) *Provider {
	domain := emailDomain(address)
	for _, p := range w.Providers {
		if domain != "" && slices.Contains(p.Domains, domain) {
			return p
		}
	}
	return nil
}

// Issuers returns the issuers of the identity providers in configuration order.
func (a *Accounts) Issuers() (issuers []string) {
	for _, key := range a.ProviderKeys {
		issuers = append(issuers, a.Providers[key].Issuer)
	}
	return issuers
}
