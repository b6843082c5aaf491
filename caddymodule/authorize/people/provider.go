package people

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
)

// IdentityProvider configures an OpenID Connect provider by which people may sign in.
type IdentityProvider struct {
	// The provider's name in URLs, in a client's list, and in a request's `identity_provider`: lower-case letters,
	// digits and hyphens. Required.
	Key string `json:"key,omitempty"`

	// The name that people see, with which error messages begin. Default: the key; for Google, `Google`.
	Name string `json:"name,omitempty"`

	// The provider's issuer: https, or http on loopback. Required, except for Google.
	Issuer string `json:"issuer,omitempty"`

	// The client_id at the provider, where the redirect URI is `{issuer}/oauth2/callback/{key}`. Required.
	// Caddy's placeholders are supported.
	ClientID string `json:"client_id,omitempty"`

	// The client secret at the provider. Caddy's placeholders are supported. Default: none.
	ClientSecret string `json:"client_secret,omitempty"`

	// The scopes to request beside `openid`. Default: `profile email`.
	Scopes []string `json:"scopes,omitempty"`

	// The algorithms that sign the provider's ID tokens for this client, and so its logout tokens and security events: what is
	// set there as `id_token_signed_response_alg`. Others are refused. Default: all that the provider's discovery document
	// lists for ID tokens, except HMAC and `none`.
	IDTokenAlgorithms []string `json:"id_token_algs,omitempty"`

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

	// The issuer that the provider had when people first signed in, if it has another now: they keep their `sub`, consents and
	// records. Whoever runs the new issuer becomes these people. Default: the issuer.
	SubIssuer string `json:"sub_issuer,omitempty"`

	// Which class of sign-in here, `sfa` or `mfa`, the provider's `acr` values stand for. Their names are also how it is
	// asked for the class that an app requires. Where the `acr` is not named, two methods of different kinds in `amr` are
	// two factors. Default: by kind.
	ACRMap ACRMap `json:"acr_map,omitempty"`

	// The FHIR resources of the provider's users by `sub`, such as `Practitioner/alice`. Default: none.
	FHIRUsers map[string]string `json:"fhir_users,omitempty"`

	// How the FHIR resource of a person is found at the FHIR server at sign-in, in this order, if neither `fhir_users` nor
	// the mapped claim `fhirUser` has it. It counts only if there is exactly one. Default: it is not searched for.
	FHIRUserSearch []launch.PersonSearch `json:"fhir_user_search,omitempty"`

	// Further claims of the provider's to keep of a person, for `scope_limit` and for policies of `fhir_bearer`: theirs,
	// or paths such as `realm_access.roles`, by ours. At most 20. Default: none.
	TokenClaims map[string]string `json:"token_claims,omitempty"`

	// Who may sign in: anybody who matches a rule. A change also affects existing sessions at once, by what the provider
	// said of people when they signed in. Default: everybody whom the provider signs in.
	Allow []AllowRule `json:"allow,omitempty"`

	// Sign people in as the local user with the same e-mail address, if both sides have verified it. Whoever can set
	// addresses at the provider can then sign in as these users. Default: federated accounts, by issuer and subject.
	LinkEmail bool `json:"link_email,omitempty"`

	// Keep the provider's ID token with the session, so that signing out there needs no confirmation. Default: false.
	KeepUpstreamToken bool `json:"keep_upstream_token,omitempty"`

	Timeout       time.Duration     `json:"-"` // of each request to the provider. Default: 10s.
	Transport     http.RoundTripper `json:"-"` // makes these requests. Default: that of [relyingparty.Config].
	Google        bool              `json:"-"` // errors have the provider's error code in place of "error getting token"
	ACRClaim      string            `json:"-"` // what the provider says and takes in place of acr. Default: acr.
	SelectAccount bool              `json:"-"` // the provider knows prompt=select_account, even if its discovery does not say so
	Revalidate    Revalidation      `json:"-"` // how the provider is asked again whether people may still come
}

// Revalidation asks a provider again about people who signed in there (package revalidation).
type Revalidation struct {
	// Interval is how old the provider's last yes may get until it is asked again. Default: 5 min;
	// from 1 min to 1 h. Negative: it is not asked.
	Interval time.Duration

	// Outage is how long a person goes on after the provider's last yes while it does not answer.
	// Default: 8 h; from the interval to 7 days.
	Outage time.Duration
}

const (
	defaultInterval, minInterval, maxInterval = 5 * time.Minute, time.Minute, time.Hour
	defaultOutage, maxOutage                  = 8 * time.Hour, 7 * 24 * time.Hour
)

// Check returns an error if a duration is out of bounds.
func (r Revalidation) Check() error {
	interval, outage := cmp.Or(r.Interval, defaultInterval), cmp.Or(r.Outage, defaultOutage)
	switch {
	case interval < 0:
		return nil
	case interval < minInterval || interval > maxInterval:
		return fmt.Errorf("revalidate: the interval %v is not from %v to %v", interval, minInterval, maxInterval)
	case outage < interval || outage > maxOutage:
		return fmt.Errorf("revalidate: the outage %v is not from the interval, %v, to %v", outage, interval, maxOutage)
	}
	return nil
}

// AllowRule is one way to be allowed in.
type AllowRule struct {
	// `email` or `group`. Required.
	Claim string `json:"claim,omitempty"`

	// A group; or an e-mail address, or `*@domain` for a whole domain. Addresses count only if the provider has
	// verified them. Required.
	Value string `json:"value,omitempty"`
}

var providerKey = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// mappedClaims are the claims that can be mapped to a provider's.
var mappedClaims = append([]string{
	"name", "preferred_username", "email", "email_verified", "phone_number", "fhirUser", "patient", "groups", "address",
}, plainClaims...)

// plainClaims are the furtherClaims without the parts of an address.
var plainClaims = slices.DeleteFunc(slices.Clone(furtherClaims), func(name string) bool { return strings.Contains(name, ".") })

// Local names the users of this server in a client's list of identity providers.
const Local = tokenclaim.Local

// CheckMappedClaim returns an error if a claim cannot be mapped.
func CheckMappedClaim(claim string) error {
	if !slices.Contains(mappedClaims, claim) {
		return fmt.Errorf("claim %q is not one of %q", claim, mappedClaims)
	}
	return nil
}

// CheckProviderKey returns an error if a text cannot be a provider's key.
func CheckProviderKey(key string) error {
	if !providerKey.MatchString(key) || key == Local {
		return fmt.Errorf("invalid idp name %q: use lower-case letters, digits and single hyphens, and not %s", key, Local)
	}
	return nil
}

// CheckDomain returns an error if a text is not a domain of e-mail addresses.
func CheckDomain(domain string) error {
	if emailDomain("x@"+domain) != domain || !strings.Contains(domain, ".") {
		return fmt.Errorf("%q is not a domain in lower case, such as hospital.example", domain)
	}
	return nil
}

// Check returns an error if a rule can never match, or not what it seems to: not everybody
// reads an address with two @ alike.
func (r AllowRule) Check() error {
	switch {
	case r.isOnGroup() && r.Value != "":
		return nil
	case r.Claim != "email":
		return fmt.Errorf("allow %q: use email or group", r.Claim)
	}
	user, domain, ok := strings.Cut(r.Value, "@")
	if !ok || user == "" || domain == "" || strings.Contains(domain, "@") || strings.Contains(r.Value[1:], "*") {
		return fmt.Errorf("allow email %q: use an address, or *@domain", r.Value)
	}
	return nil
}

func (r AllowRule) isOnGroup() bool { return r.Claim == "group" }

// Provider is an identity provider, and our client of it.
type Provider struct {
	IdentityProvider
	Client *relyingparty.Provider // sends the requests
}

// subIssuer is the issuer by which accounts are told apart from those of other providers.
func (p *Provider) subIssuer() string { return cmp.Or(p.SubIssuer, p.Issuer) }

// Endpoint is one of this provider's.
func (p *Provider) Endpoint(serve func(http.ResponseWriter, *http.Request, *Provider)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		audit.FromContext(r.Context()).Provider = p.Key
		serve(w, r, p)
	}
}

func newProvider(c IdentityProvider, redirectURI string, logger *slog.Logger) (*Provider, error) {
	c.Name = cmp.Or(c.Name, c.Key)
	c.Revalidate = Revalidation{cmp.Or(c.Revalidate.Interval, defaultInterval), cmp.Or(c.Revalidate.Outage, defaultOutage)}
	if err := checkProvider(&c); err != nil {
		return nil, err
	}
	client, err := relyingparty.New(relyingparty.Config{
		Issuer: c.Issuer, ClientID: c.ClientID, ClientSecret: c.ClientSecret, Scopes: c.Scopes,
		RedirectURI: redirectURI, SelectAccount: c.SelectAccount, Timeout: c.Timeout, Transport: c.Transport, Logger: logger,
		Offline: c.Revalidate.Interval > 0, Google: c.Google, IDTokenAlgorithms: c.IDTokenAlgorithms,
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
		checkEach(slices.Values(c.Allow), AllowRule.Check),
	}
	if c.ClientID == "" {
		errs = append(errs, fmt.Errorf("idp %q needs a client_id", c.Key))
	}
	if c.SubIssuer != "" {
		errs = append(errs, relyingparty.CheckIssuer(c.SubIssuer))
	}
	for theirs, class := range c.ACRMap {
		errs = append(errs, CheckMappedACR(theirs, class))
	}
	return errors.Join(errs...)
}

func checkEach[T any](of iter.Seq[T], check func(T) error) (err error) {
	for one := range of {
		err = errors.Join(err, check(one))
	}
	return err
}
