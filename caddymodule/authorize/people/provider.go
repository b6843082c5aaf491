package people

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/upstream"
)

// IdentityProvider is an upstream OpenID Connect provider by which people may
// sign in.
type IdentityProvider struct {
	// Key names the provider in addresses, requests and clients' lists:
	// lower-case letters, digits and hyphens.
	Key string

	// Name is shown to people, and in the errors of the interface's §7.
	// Default: the key.
	Name string

	// Google says that the provider's error code is to be told in place of
	// "error getting token".
	Google bool

	// Issuer is the provider's issuer: https, or http on loopback.
	Issuer string

	// ClientID and ClientSecret are ours at the provider.
	ClientID, ClientSecret string

	// Scopes are asked for, beside openid. Default: profile and email.
	Scopes []string

	// Timeout bounds each request to the provider. Default: 10s.
	Timeout time.Duration

	// Transport makes the requests to the provider. Default: that of
	// [upstream.Config].
	Transport http.RoundTripper

	// Domains are those of e-mail addresses whose owners sign in here.
	Domains []string

	// Claims maps claims of ours (those of OpenID Connect Core §5.1, fhirUser
	// and groups) to the provider's. Default: the same name, but fhirUser is
	// not taken unless it is mapped, nor email_verified where email is, nor
	// phone_number_verified where phone_number is.
	Claims map[string]string

	// FHIRUsers maps the provider's subjects to FHIR resources, Type/id.
	FHIRUsers map[string]string

	// Allow says who may sign in: whoever one of the rules names. Default:
	// everybody whom the provider signs in. Those who did under other rules are
	// held to these too, by what the provider said of them then; of groups that is
	// known where there were rules on groups.
	Allow []AllowRule

	// LinkEmail signs people in as the local user with the same e-mail address,
	// where both sides have verified it.
	LinkEmail bool

	// KeepUpstreamToken keeps the provider's ID token with the session, so that
	// signing out at the provider needs no confirmation there.
	KeepUpstreamToken bool
}

// AllowRule is one way to be allowed in.
type AllowRule struct {
	// Claim is "email" or "group".
	Claim string

	// Value is a group; or an e-mail address, or *@domain for all of a domain.
	// Addresses count only where the provider has verified them.
	Value string
}

var providerKey = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// mappedClaims are the claims that can come from a provider.
var mappedClaims = append([]string{
	"name", "preferred_username", "email", "email_verified", "phone_number", "fhirUser", "groups", "address",
}, plainClaims...)

// plainClaims are those of furtherClaims that are no part of another.
var plainClaims = slices.DeleteFunc(slices.Clone(furtherClaims), func(name string) bool { return strings.Contains(name, ".") })

// CheckMappedClaim says why a claim cannot be mapped, if it cannot.
func CheckMappedClaim(claim string) error {
	if !slices.Contains(mappedClaims, claim) {
		return fmt.Errorf("claim %q is not one of %q", claim, mappedClaims)
	}
	return nil
}

// CheckProviderKey says why a name cannot be a provider's key, if it cannot.
func CheckProviderKey(key string) error {
	if !providerKey.MatchString(key) || key == Local {
		return fmt.Errorf("idp %q must be named in lower-case letters, digits and single hyphens, and not %s", key, Local)
	}
	return nil
}

// CheckDomain says why a word is not the domain of e-mail addresses, if it is not.
func CheckDomain(domain string) error {
	if emailDomain("x@"+domain) != domain || !strings.Contains(domain, ".") {
		return fmt.Errorf("%q is not a domain in lower case, such as hospital.example", domain)
	}
	return nil
}

// Check says why a rule can never be met or means another thing than it says, if
// so. A pattern with two @ or none would be read differently by others.
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

// Provider is an IdentityProvider at work.
type Provider struct {
	IdentityProvider
	Client *upstream.Provider // asks it
}

// AddProvider has people sign in by a provider, which sends them back to a redirect URI.
func (a *Accounts) AddProvider(c IdentityProvider, redirectURI string) error {
	if a.Providers[c.Key] != nil {
		return fmt.Errorf("idp %q is there twice", c.Key)
	}
	p, err := newProvider(c, redirectURI, a.Logger)
	if err != nil {
		return err
	}
	a.Providers[c.Key] = p
	a.ProviderKeys = append(a.ProviderKeys, c.Key)
	return nil
}

func newProvider(c IdentityProvider, redirectURI string, logger *slog.Logger) (*Provider, error) {
	if c.Name == "" {
		c.Name = c.Key
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	client, err := upstream.New(upstream.Config{
		Issuer: c.Issuer, ClientID: c.ClientID, ClientSecret: c.ClientSecret, Scopes: c.Scopes,
		RedirectURI: redirectURI, Timeout: c.Timeout, Transport: c.Transport, Logger: logger,
	})
	if err != nil {
		return nil, fmt.Errorf("idp %q: %w", c.Key, err)
	}
	return &Provider{IdentityProvider: c, Client: client}, nil
}

func (c *IdentityProvider) check() error {
	errs := []error{CheckProviderKey(c.Key)}
	if c.ClientID == "" {
		errs = append(errs, fmt.Errorf("idp %q needs a client_id", c.Key))
	}
	for claim := range c.Claims {
		errs = append(errs, CheckMappedClaim(claim))
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

// Local names the users of this server in a client's list of identity providers.
const Local = "local"
