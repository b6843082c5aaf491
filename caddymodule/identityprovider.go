package caddymodule

import (
	"fmt"
	"maps"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/upstream"
)

// IdentityProvider is an upstream OpenID Connect provider by which people may sign in. It is contacted only when needed, so
// one that is down prevents neither loading the configuration nor signing in elsewhere.
type IdentityProvider struct {
	// The provider's name in URLs, in a client's list, and in a request's `identity_provider`: lower-case letters,
	// digits and hyphens. Required.
	Key string `json:"key,omitempty"`

	// The name that people see, with which error messages begin. Default: the key; for Google, `Google`.
	Name string `json:"name,omitempty"`

	// What sort of provider it is, which sets what is known of it unless an option says otherwise: `keycloak`, `entra`,
	// `okta`, `google` (which has a default issuer and its own error messages), `auth0`, `ping`, or `oidc` for any. Default: `oidc`.
	Kind string `json:"kind,omitempty"`

	// The provider's issuer: https, or http on loopback. Required, except for Google.
	Issuer string `json:"issuer,omitempty"`

	// The client_id at the provider, where the redirect URI is `{issuer}/oauth2/callback/{key}`. Required.
	// Placeholders are supported.
	ClientID string `json:"client_id,omitempty"`

	// The client secret at the provider. Placeholders are supported. Default: none.
	ClientSecret string `json:"client_secret,omitempty"`

	// The scopes to request beside `openid`. Default: `profile email`.
	Scopes []string `json:"scopes,omitempty"`

	option.TLS

	// The timeout of each request to the provider. Default: `10s`.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	// The e-mail domains of the provider's users. Whoever enters such an address on the sign-in page is sent there.
	// Default: none.
	Domains []string `json:"domains,omitempty"`

	// Which of the provider's claims is used for one of ours: those of OpenID Connect Core §5.1, `fhirUser`,
	// `patient` (the ids of those whom the person may choose among) and `groups`. `fhirUser` and `patient` are used only if they are mapped. Where `email` or `phone_number` is mapped, `email_verified`
	// or `phone_number_verified` counts only if it is mapped too. Default: the claim of the same name.
	Claims map[string]string `json:"claims,omitempty"`

	// The provider's claim that becomes the `sub` of its users here, so that apps that knew them by it still do. It must be
	// unique and never given to another person, and is refused if a user or client here, or another provider's user, has it.
	// Default: a hash of the provider's issuer and subject.
	Sub string `json:"sub,omitempty"`

	// The bearer token by which the provider says who has left (SCIM 2.0), at `{issuer}/oauth2/scim/{key}`. Placeholders
	// are supported. Default: none, it cannot.
	SCIM string `json:"scim,omitempty"`

	// Which class of sign-in here, `sfa` or `mfa`, the provider's `acr` values stand for. Their names are also how it is
	// asked for the class that an app requires. Where the `acr` is not named, two methods of different kinds in `amr` are
	// two factors. Default: by kind.
	ACRMap map[string]string `json:"acr_map,omitempty"`

	// The FHIR resources of the provider's users by `sub`, such as `Practitioner/alice`. Default: none.
	FHIRUsers map[string]string `json:"fhir_users,omitempty"`

	// How the FHIR resource of a person is found at the FHIR server at sign-in, in this order, if neither `fhir_users` nor
	// the mapped claim `fhirUser` has it. It counts only if there is exactly one. Default: it is not searched for.
	FHIRUserSearch []authorize.FHIRUserSearch `json:"fhir_user_search,omitempty"`

	// Further claims of the provider's to keep of a person, for `scope_limit` and for policies of `fhir_bearer`: theirs,
	// or paths such as `realm_access.roles`, by ours. At most 20. Default: none.
	TokenClaims map[string]string `json:"token_claims,omitempty"`

	// Who may sign in: anybody who matches a rule. A change also affects existing sessions at once. Default: everybody
	// whom the provider signs in.
	Allow []authorize.AllowRule `json:"allow,omitempty"`

	// Sign people in as the local user with the same e-mail address, if both sides have verified it. Whoever can set
	// addresses at the provider can then sign in as these users. Default: federated accounts, by issuer and subject.
	LinkEmail bool `json:"link_email,omitempty"`

	// Keep the provider's ID token with the session, so that signing out there needs no confirmation. Default: false.
	KeepUpstreamToken bool `json:"keep_upstream_token,omitempty"`

	// Ask the provider again, by its refresh token, whether people who signed in may still come. Default: every `5m`.
	Revalidate *Revalidation `json:"revalidate,omitempty"`
}

// Revalidation asks an identity provider again.
type Revalidation struct {
	// How old the provider's last yes may get until it is asked again, from `1m` to `1h`. Default: `5m`.
	Interval caddy.Duration `json:"interval,omitempty"`

	// How long people go on after the provider's last yes while it does not answer, from the interval to `7d`. Default: `8h`.
	Outage caddy.Duration `json:"outage,omitempty"`

	// Do not ask. Default: false.
	Off bool `json:"off,omitempty"`
}

func (r *Revalidation) settings() (s authorize.Revalidation) {
	switch {
	case r == nil:
	case r.Off:
		s.Interval = -1
	default:
		s = authorize.Revalidation{Interval: time.Duration(r.Interval), Outage: time.Duration(r.Outage)}
	}
	return s
}

// parse reads the interval, and perhaps the outage; or off.
func (r *Revalidation) parse(d *caddyfile.Dispenser) error {
	err := option.OrOff(&r.Off, option.UpToTwo(option.ParseDuration(&r.Interval), option.ParseDuration(&r.Outage)))(d)
	if err != nil {
		return err
	}
	return option.WithLine(d, r.settings().Check())
}

// resolved is the provider for package authorize, with the placeholders of its credentials replaced.
func (p *IdentityProvider) resolved() (none authorize.IdentityProvider, err error) {
	if err := checkKind(p.Kind); p.Kind != "" && err != nil {
		return none, fmt.Errorf("kind: %w", err)
	}
	id, err := option.ResolveSecret("client_id", p.ClientID)
	if err != nil {
		return none, err
	}
	secret, err := option.ResolveSecret("client_secret", p.ClientSecret)
	if err != nil {
		return none, err
	}
	scim, err := option.ResolveSecret("scim", p.SCIM)
	if err != nil {
		return none, err
	}
	resolved := p.withCredentials(id, secret)
	resolved.SCIM = scim
	resolved.Transport, err = p.TLS.Transport()
	return resolved, err
}

func (p *IdentityProvider) withCredentials(id, secret string) authorize.IdentityProvider {
	c := authorize.IdentityProvider{
		Key: p.Key, Name: p.Name, Google: p.Kind == kindGoogle, Issuer: p.Issuer, ClientID: id, ClientSecret: secret,
		Scopes: p.Scopes, Timeout: time.Duration(p.Timeout), Domains: p.Domains, Claims: p.Claims, Sub: p.Sub, ACRMap: p.ACRMap,
		FHIRUsers: p.FHIRUsers, FHIRUserSearch: p.FHIRUserSearch, TokenClaims: p.TokenClaims, Allow: p.Allow,
		LinkEmail: p.LinkEmail, KeepUpstreamToken: p.KeepUpstreamToken, Revalidate: p.Revalidate.settings(),
	}
	providerKinds[p.Kind].complete(&c)
	return c
}

// parse reads an identity provider.
func (p *IdentityProvider) parse(d *caddyfile.Dispenser, checkKey func(string) error) error {
	err := option.UpToTwo(p.setKey, p.setKind)(d)
	if err == nil {
		err = option.WithLine(d, checkKey(p.Key))
	}
	if err != nil {
		return err
	}
	fields := option.Block{
		"name":                option.Word(&p.Name, nil),
		"issuer":              option.Word(&p.Issuer, upstream.CheckIssuer),
		"client_id":           option.Word(&p.ClientID, option.CheckPlaceholders),
		"client_secret":       option.Word(&p.ClientSecret, option.CheckPlaceholders),
		"scopes":              option.Scopes(&p.Scopes, authorize.CheckScope),
		"timeout":             option.Duration(&p.Timeout),
		"domains":             option.Words(&p.Domains, authorize.CheckDomain),
		"claim":               option.Pair(&p.Claims, func(ours, _ string) error { return authorize.CheckMappedClaim(ours) }),
		"sub":                 option.Word(&p.Sub, nil),
		"scim":                option.Word(&p.SCIM, option.CheckPlaceholders),
		"acr_map":             option.Pair(&p.ACRMap, authorize.CheckMappedACR),
		"fhir_user":           option.Pair(&p.FHIRUsers, func(_, reference string) error { return authorize.CheckFHIRUser(reference) }),
		"allow":               p.parseAllow,
		"fhir_user_search":    p.parseSearch,
		"token_claim":         option.ClaimNames(&p.TokenClaims),
		"link":                option.Only("email", &p.LinkEmail),
		"keep_upstream_token": option.Bareword(&p.KeepUpstreamToken),
		"revalidate":          p.parseRevalidate,
	}
	maps.Copy(fields, p.TLS.Subdirectives())
	err = fields.Parse(d, "claim", "acr_map", "fhir_user", "fhir_user_search", "token_claim", "allow")
	switch {
	case err != nil:
		return err
	case p.ClientID == "":
		return d.Errf("idp %s needs a client_id", p.Key)
	case p.Issuer == "" && providerKinds[p.Kind].issuer == "":
		return d.Errf("idp %s needs an issuer", p.Key)
	}
	return nil
}

func (p *IdentityProvider) setKey(w string) error {
	p.Key = w
	return authorize.CheckProviderKey(w)
}

func (p *IdentityProvider) setKind(w string) error {
	p.Kind = w
	return checkKind(w)
}

func (p *IdentityProvider) parseRevalidate(d *caddyfile.Dispenser) error {
	p.Revalidate = new(Revalidation)
	return p.Revalidate.parse(d)
}

func (p *IdentityProvider) parseSearch(d *caddyfile.Dispenser) error {
	var s authorize.FHIRUserSearch
	switch args := d.RemainingArgs(); {
	case len(args) == 4 && args[1] == "identifier":
		s = authorize.FHIRUserSearch{Type: args[0], System: args[2], Claim: args[3]}
	case len(args) == 2 && args[1] == "email":
		s.Type = args[0]
	default:
		return d.Err("fhir_user_search needs a type, and then identifier <system> <claim>, or email")
	}
	p.FHIRUserSearch = append(p.FHIRUserSearch, s)
	return option.WithLine(d, s.Check())
}

func (p *IdentityProvider) parseAllow(d *caddyfile.Dispenser) error {
	var rule authorize.AllowRule
	if err := option.Two(&rule.Claim, &rule.Value)(d); err != nil {
		return err
	}
	p.Allow = append(p.Allow, rule)
	return option.WithLine(d, rule.Check())
}
