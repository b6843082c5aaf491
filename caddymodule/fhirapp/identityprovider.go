package fhirapp

import (
	"cmp"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/scopeoption"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// IdentityProvider is an upstream OpenID Connect provider through which people can sign in. It is contacted only when needed,
// so that the configuration loads and other ways to sign in work during an outage of the provider.
type IdentityProvider struct {
	people.IdentityProvider

	// The product, which sets the defaults of other options: `keycloak`, `entra`, `okta`, `google` (which also has a default
	// issuer and specific error messages), `auth0`, `ping`, `adfs`, `apple` (with a default issuer), or `oidc` for other products.
	// Default: `oidc`.
	Kind string `json:"kind,omitempty"`

	option.TLS

	// The timeout of each request to the provider. Default: `10s`.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	// How often to check with the provider, through its refresh tokens, that people still have access. Default: every `5m`.
	Revalidate *Revalidation `json:"revalidate,omitempty"`

	// The features of this identity provider, by the names of their modules. Default: none.
	FeaturesRaw caddy.ModuleMap `json:"features,omitempty" caddy:"namespace=fhir.idp"`
}

// Revalidation configures how the gateway checks with an identity provider that people still have access.
type Revalidation struct {
	// The age of the provider's last confirmation at which the next check is due, from `1m` to `1h`. Default: `5m`.
	Interval caddy.Duration `json:"interval,omitempty"`

	// How long to trust the last confirmation during an outage of the provider, from the interval to `7d`. Default: `8h`.
	Outage caddy.Duration `json:"outage,omitempty"`

	// Disables the checks. Default: false.
	Off bool `json:"off,omitempty"`
}

func (r *Revalidation) settings() (s people.Revalidation) {
	switch {
	case r == nil:
	case r.Off:
		s.Interval = -1
	default:
		s = people.Revalidation{Interval: time.Duration(r.Interval), MaxOutage: time.Duration(r.Outage)}
	}
	return s
}

// parse parses the interval and an optional outage, or the word off.
func (r *Revalidation) parse(d *caddyfile.Dispenser) error {
	err := option.OrOff(&r.Off, option.OneOrTwoWords(option.ParseDuration(&r.Interval), option.ParseDuration(&r.Outage)))(d)
	if err != nil {
		return err
	}
	return option.WithLine(d, r.settings().Check())
}

// resolve returns the provider for package authorize and replaces placeholders in its credentials.
func (p *IdentityProvider) resolve() (zero people.IdentityProvider, err error) {
	if err := p.checkKind(); err != nil {
		return zero, fmt.Errorf("kind: %w", err)
	}
	if err := p.checkTenants(); err != nil {
		return zero, err
	}
	c := p.withDefaults()
	if err := option.ResolveSecrets(map[string]*string{"client_id": &c.ClientID, "client_secret": &c.ClientSecret}); err != nil {
		return zero, err
	}
	if c.AssertionKey != nil {
		if err := c.AssertionKey.Check(); err != nil {
			return zero, err
		}
	}
	config, err := p.TLS.ClientConfig()
	c.Transport = relyingparty.Transport(config)
	return c, err
}

// withDefaults returns the provider for package authorize, with the defaults of its kind.
func (p *IdentityProvider) withDefaults() people.IdentityProvider {
	c := p.IdentityProvider
	c.Google, c.Timeout, c.Revalidate = p.Kind == kindGoogle, time.Duration(p.Timeout), p.Revalidate.settings()
	providerKinds[p.Kind].applyDefaults(&c)
	return c
}

// parse parses an identity provider.
func (p *IdentityProvider) parse(d *caddyfile.Dispenser, checkKey func(string) error) error {
	var err error
	if p.Key, p.Kind, err = option.ParseOneOrTwo(d); err == nil {
		err = option.WithLine(d, cmp.Or(people.CheckProviderKey(p.Key), p.checkKind(), checkKey(p.Key)))
	}
	if err != nil {
		return err
	}
	fields := option.Block{
		"name":                option.Word(&p.Name, nil),
		"issuer":              option.Word(&p.Issuer, relyingparty.CheckIssuer),
		"client_id":           option.Word(&p.ClientID, option.CheckPlaceholders),
		"client_secret":       option.Word(&p.ClientSecret, option.CheckPlaceholders),
		"assertion_key":       p.parseAssertionKey,
		"tenants":             option.Words(&p.Tenants, relyingparty.CheckTenant),
		"request_parameter":   p.parseRequestParameter,
		"response_mode":       option.Word(&p.ResponseMode, option.OneOf("form_post")),
		"userinfo":            option.SingleValue("off", &p.SkipUserinfo),
		"graph_groups":        p.parseGraphGroups,
		"trust_email":         option.Flag(&p.TrustEmail),
		"scopes":              scopeoption.Words(&p.Scopes, smart.CheckScope),
		"id_token_alg":        option.Words(&p.IDTokenAlgorithms, option.OneOf(relyingparty.AlgorithmNames()...)),
		"timeout":             option.Duration(&p.Timeout),
		"domains":             option.Words(&p.Domains, people.CheckDomain),
		"claim":               option.Pair(&p.Claims, func(claim, _ string) error { return people.CheckMappedClaim(claim) }),
		"sub":                 option.Word(&p.Sub, nil),
		"sub_issuer":          option.Word(&p.SubIssuer, relyingparty.CheckIssuer),
		"acr_map":             option.Pair((*map[string]string)(&p.ACRMap), people.CheckMappedACR),
		"fhir_user":           option.Pair(&p.FHIRUsers, func(_, reference string) error { return people.CheckFHIRUser(reference) }),
		"allow":               p.parseAllow,
		"fhir_user_search":    p.parseSearch,
		"token_claim":         option.ClaimNames(&p.TokenClaims, tokenclaim.CheckAll),
		"link":                option.SingleValue("email", &p.LinkEmail),
		"keep_upstream_token": option.Flag(&p.KeepUpstreamToken),
		"revalidate":          p.parseRevalidate,
	}
	maps.Copy(fields, p.TLS.Subdirectives())
	configured := fields.Features(providerFeatures)
	err = fields.Parse(d, configured.Repeatable("claim", "acr_map", "fhir_user", "fhir_user_search", "token_claim", "allow", "request_parameter")...)
	p.FeaturesRaw = configured.Raw()
	switch {
	case err != nil:
		return err
	case p.ClientID == "":
		return d.Errf("idp %s: client_id is required", p.Key)
	case p.Issuer == "" && providerKinds[p.Kind].issuer == "":
		return d.Errf("idp %s: issuer is required", p.Key)
	}
	return nil
}

func (p *IdentityProvider) parseAssertionKey(d *caddyfile.Dispenser) error {
	p.AssertionKey = new(relyingparty.AssertionKey)
	args := d.RemainingArgs()
	if len(args) < 2 || len(args) > 3 {
		return d.Err("assertion_key requires a file and the key's ID, then the iss of the JWT if it is not the client_id")
	}
	p.AssertionKey.File, p.AssertionKey.KeyID, p.AssertionKey.Issuer = args[0], args[1], strings.Join(args[2:], "")
	return nil
}

func (p *IdentityProvider) parseRequestParameter(d *caddyfile.Dispenser) error {
	name, value, err := option.ParseOneOrTwo(d)
	if err != nil {
		return err
	}
	if _, ok := p.RequestParameters[name]; ok {
		return d.Errf("duplicate request_parameter %s", name)
	}
	if p.RequestParameters == nil {
		p.RequestParameters = map[string]string{}
	}
	p.RequestParameters[name] = value
	return option.WithLine(d, people.CheckRequestParameter(name, value))
}

// defaultGraph is the base URL of Microsoft Graph outside of the national clouds.
const defaultGraph = "https://graph.microsoft.com"

func (p *IdentityProvider) parseGraphGroups(d *caddyfile.Dispenser) error {
	p.GraphURL = defaultGraph
	if d.CountRemainingArgs() == 0 {
		return nil
	}
	return option.Word(&p.GraphURL, relyingparty.CheckIssuer)(d)
}

func (p *IdentityProvider) checkKind() error {
	if p.Kind == "" {
		return nil
	}
	return checkKind(p.Kind)
}

// checkTenants returns an error for a shared issuer of Entra ID without tenants: all ID tokens would have another issuer.
func (p *IdentityProvider) checkTenants() error {
	if p.Kind != kindEntra || len(p.Tenants) > 0 || relyingparty.CheckSharedIssuer(p.Issuer) != nil {
		return nil
	}
	return fmt.Errorf("the issuer %s requires the option tenants: list the IDs of the tenants, or use the issuer of a single tenant", p.Issuer)
}

func (p *IdentityProvider) parseRevalidate(d *caddyfile.Dispenser) error {
	p.Revalidate = new(Revalidation)
	return p.Revalidate.parse(d)
}

func (p *IdentityProvider) parseSearch(d *caddyfile.Dispenser) error {
	var s launch.PersonSearch
	switch args := d.RemainingArgs(); {
	case len(args) == 4 && args[1] == "identifier":
		s.Type, s.System, s.Claim = args[0], args[2], args[3]
	case len(args) == 2 && args[1] == "email":
		s.Type = args[0]
	default:
		return d.Err("fhir_user_search requires a resource type, then identifier <system> <claim> or email")
	}
	p.FHIRUserSearch = append(p.FHIRUserSearch, s)
	return option.WithLine(d, s.Check())
}

func (p *IdentityProvider) parseAllow(d *caddyfile.Dispenser) error {
	var rule people.AllowRule
	if err := option.TwoWords(&rule.Claim, &rule.Value)(d); err != nil {
		return err
	}
	p.Allow = append(p.Allow, rule)
	return option.WithLine(d, rule.Check())
}

const kindEntra, kindGoogle = "entra", "google"

// providerKind contains the defaults for identity providers of one kind. Configured options override them.
type providerKind struct {
	name, issuer          string            // name and issuer, for a kind with a single provider
	claims                map[string]string // upstream claim by gateway claim
	acrMap                map[string]string // gateway acr by upstream acr
	acrClaim              string            // name of the claim used instead of acr
	supportsSelectAccount bool              // whether prompt=select_account is supported, even if discovery does not list it

	scopes            []string // default scopes
	responseMode      string   // default response_mode
	skipsUserinfo     bool     // whether userinfo contains only sub
	trustsEmail       bool     // whether email_verified may be missing or a string
	skipsRevalidation bool     // whether rechecks are off, because the provider limits them
}

// providerKinds contains the defaults of each kind. Values that each site chooses, such as groups of Auth0 or policies of
// PingFederate, have no default.
var providerKinds = map[string]providerKind{
	"oidc": {},
	// These are the levels in the Keycloak guide. If no levels are configured, Keycloak returns acr 1 even after two factors.
	// Therefore, 1 is not mapped.
	"keycloak": {acrMap: map[string]string{"2": "mfa"}},
	// acrs contains authentication contexts of conditional access. Each site chooses the numbers.
	kindEntra:  {claims: map[string]string{"email_verified": "xms_edov"}, acrClaim: "acrs", supportsSelectAccount: true},
	"okta":     {acrMap: map[string]string{"urn:okta:loa:1fa:any": "sfa", "urn:okta:loa:2fa:any": "mfa"}},
	kindGoogle: {name: "Google", issuer: "https://accounts.google.com", supportsSelectAccount: true},
	"auth0":    {acrMap: map[string]string{"http://schemas.openid.net/pape/policies/2007/06/multi-factor": "mfa"}},
	// The userinfo endpoint returns only sub, and rejects access tokens for the Web API that resource selects. group is the name
	// of the claim type Group.
	"adfs": {claims: map[string]string{"preferred_username": "upn", "groups": "group"}, skipsUserinfo: true},
	// Apple requires form_post with any scope, sends email_verified as a string, and allows one refresh per day. The scope name is
	// not requested, because Apple sends names only in an additional form parameter of the first sign-in.
	"apple": {
		name: "Apple", issuer: "https://appleid.apple.com", scopes: []string{"email"}, responseMode: "form_post",
		trustsEmail: true, skipsRevalidation: true,
	},
	"ping": {acrMap: map[string]string{"Single_Factor": "sfa", "Multi_Factor": "mfa"}}, // predefined policies of PingOne
}

var checkKind = option.OneOf("oidc", "keycloak", kindEntra, "okta", kindGoogle, "auth0", "ping", "adfs", "apple")

// applyDefaults sets the options that are not configured to the defaults of the kind.
func (k providerKind) applyDefaults(c *people.IdentityProvider) {
	c.Issuer, c.Name = cmp.Or(c.Issuer, k.issuer), cmp.Or(c.Name, k.name)
	c.ACRClaim, c.SelectAccount = k.acrClaim, k.supportsSelectAccount
	c.ACRMap = mergeClaims(k.acrMap, c.ACRMap)
	c.ResponseMode = cmp.Or(c.ResponseMode, k.responseMode)
	c.SkipUserinfo, c.TrustEmail = c.SkipUserinfo || k.skipsUserinfo, c.TrustEmail || k.trustsEmail
	if len(c.Scopes) == 0 {
		c.Scopes = k.scopes
	}
	if k.skipsRevalidation && c.Revalidate == (people.Revalidation{}) {
		c.Revalidate.Interval = -1
	}
	claims := maps.Clone(k.claims)
	if c.Claims["email"] != "" { // the kind's email_verified applies only to the provider's own email claim
		delete(claims, "email_verified")
	}
	c.Claims = mergeClaims(claims, c.Claims)
}

// mergeClaims returns the default claims, overridden by the configured claims.
func mergeClaims(defaults, configured map[string]string) map[string]string {
	if defaults == nil {
		return configured
	}
	defaults = maps.Clone(defaults)
	maps.Copy(defaults, configured)
	return defaults
}
