package people

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/internal/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/upstream"
)

// IdentityProvider configures an OpenID Connect provider by which people may sign in.
type IdentityProvider struct {
	// Key names the provider in addresses, requests and clients' lists: lower-case letters,
	// digits and hyphens.
	Key string

	Name         string            // shown to people, and in errors (interface, §7). Default: the key.
	Google       bool              // errors have the provider's error code in place of "error getting token"
	Issuer       string            // https, or http on loopback
	ClientID     string            // ours at the provider
	ClientSecret string            // ours at the provider
	Scopes       []string          // requested beside openid. Default: profile and email.
	Timeout      time.Duration     // of each request to the provider. Default: 10s.
	Transport    http.RoundTripper // makes these requests. Default: that of [upstream.Config].
	Domains      []string          // of e-mail addresses whose owners sign in here

	// Claims maps claims of ours (those of OpenID Connect Core §5.1, fhirUser and groups) to
	// the provider's. Default: the same name. But fhirUser must be mapped, and if email or
	// phone_number is, so must email_verified or phone_number_verified.
	Claims map[string]string

	// Sub is the provider's claim that becomes the sub of its people. It must be unique and
	// stable, and no local user, client or other provider's person may have the same. Default:
	// a hash of issuer and subject.
	Sub string

	// SCIM is the bearer token by which the provider says who has left (RFC 7644). Default:
	// it cannot.
	SCIM string

	// ACRMap has the provider's words for classes of sign-in: values of its acr, by which it is also
	// asked for a class. Default: none.
	ACRMap ACRMap

	// ACRClaim is what the provider says and takes in place of acr. Default: acr.
	ACRClaim string

	// SelectAccount: the provider knows prompt=select_account, even if its discovery does not say so.
	SelectAccount bool

	// FHIRUsers maps the provider's subjects to FHIR resources, Type/id.
	FHIRUsers map[string]string

	// FHIRUserSearch finds the resources of those who have none by FHIRUsers or a mapped claim.
	FHIRUserSearch []launch.PersonSearch

	// TokenClaims are further claims to keep of a person, the provider's names or paths of names by ours.
	TokenClaims map[string]string

	// Allow lets in whoever matches one of the rules. Default: everybody. New rules also
	// apply to people who have signed in, by what the provider said of them then, which
	// includes groups only if there were rules on groups.
	Allow []AllowRule

	// LinkEmail signs people in as the local user with the same e-mail address, if both
	// sides have verified it.
	LinkEmail bool

	// KeepUpstreamToken keeps the provider's ID token with the session, so that the provider
	// asks nobody to confirm that they sign out.
	KeepUpstreamToken bool

	// Revalidate says how the provider is asked again whether people may still come.
	Revalidate Revalidation
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
	Client *upstream.Provider // sends the requests
}

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
	if err := c.check(); err != nil {
		return nil, err
	}
	client, err := upstream.New(upstream.Config{
		Issuer: c.Issuer, ClientID: c.ClientID, ClientSecret: c.ClientSecret, Scopes: c.Scopes,
		RedirectURI: redirectURI, SelectAccount: c.SelectAccount, Timeout: c.Timeout, Transport: c.Transport, Logger: logger,
		Offline: c.Revalidate.Interval > 0, Google: c.Google,
	})
	if err != nil {
		return nil, fmt.Errorf("idp %q: %w", c.Key, err)
	}
	return &Provider{IdentityProvider: c, Client: client}, nil
}

func (c *IdentityProvider) check() error {
	errs := []error{CheckProviderKey(c.Key), c.Revalidate.Check(), tokenclaim.CheckAll(c.TokenClaims)}
	for _, search := range c.FHIRUserSearch {
		errs = append(errs, search.Check())
	}
	if c.ClientID == "" {
		errs = append(errs, fmt.Errorf("idp %q needs a client_id", c.Key))
	}
	for claim := range c.Claims {
		errs = append(errs, CheckMappedClaim(claim))
	}
	for theirs, class := range c.ACRMap {
		errs = append(errs, CheckMappedACR(theirs, class))
	}
	for _, domain := range c.Domains {
		errs = append(errs, CheckDomain(domain))
	}
	for _, reference := range c.FHIRUsers {
		errs = append(errs, CheckFHIRUser(reference))
	}
	for _, rule := range c.Allow {
		errs = append(errs, rule.Check())
	}
	return errors.Join(errs...)
}
