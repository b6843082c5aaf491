package relyingparty

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/strictjson"
)

// tenantPlaceholder is the tenant in the issuer of Entra ID's discovery documents for several tenants.
const tenantPlaceholder = "{tenantid}"

// tenantID matches the id of a tenant in the issuer of an ID token.
var tenantID = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// personalTenant contains all personal Microsoft accounts, which anyone can create.
const personalTenant = "9188040d-6c67-4c5b-b112-36a304b66dad"

// CheckTenant returns an error for an invalid tenant ID, and for the tenant of personal accounts.
func CheckTenant(id string) error {
	switch {
	case !tenantID.MatchString(id):
		return fmt.Errorf("invalid tenant %q: use the tenant ID in lower case, such as 11111111-2222-3333-4444-555555555555", id)
	case id == personalTenant:
		return fmt.Errorf("tenant %s contains all personal Microsoft accounts, which anyone can create", id)
	}
	return nil
}

// sharedIssuer matches the issuers that the tenants of Entra ID share.
var sharedIssuer = regexp.MustCompile(`/(common|organizations)/v2\.0$`)

// CheckSharedIssuer returns an error unless the tenants of Entra ID share the issuer.
func CheckSharedIssuer(issuer string) error {
	if !sharedIssuer.MatchString(issuer) {
		return fmt.Errorf("several tenants require the issuer https://login.microsoftonline.com/organizations/v2.0, not %s", issuer)
	}
	return nil
}

// TenantIssuer returns the issuer of one tenant, as in its ID tokens, for a shared issuer.
func TenantIssuer(shared, tenant string) string {
	return sharedIssuer.ReplaceAllLiteralString(shared, "/"+tenant+"/v2.0")
}

// SplitSubject returns the tenant and the sub of an [Identity.Subject] of a provider with several tenants.
func SplitSubject(subject string) (tenant, sub string) {
	tenant, sub, _ = strings.Cut(subject, "/")
	return tenant, sub
}

// QualifySubject returns the [Identity.Subject] for the iss and sub of a verified token.
func (p *Provider) QualifySubject(issuer, sub string) string { return p.config.subject(issuer, sub) }

// documentIssuer returns the issuer that the discovery document must contain.
func (c *Config) documentIssuer() string {
	if c.MultiTenant {
		return TenantIssuer(c.Issuer, tenantPlaceholder)
	}
	return c.Issuer
}

// tenant returns the tenant of a token's issuer, or "" if it is not an issuer of this provider.
func (c *Config) tenant(issuer string) string {
	before, after, _ := strings.Cut(c.documentIssuer(), tenantPlaceholder)
	id := strings.TrimSuffix(strings.TrimPrefix(issuer, before), after)
	if !tenantID.MatchString(id) || before+id+after != issuer {
		return ""
	}
	return id
}

// isIssuer reports whether tokens of this provider may contain the issuer.
func (c *Config) isIssuer(issuer string) bool {
	return !c.MultiTenant && issuer == c.Issuer || c.MultiTenant && c.tenant(issuer) != ""
}

// subject returns the [Identity.Subject] for the iss and sub of a token.
func (c *Config) subject(issuer, sub string) string {
	if !c.MultiTenant || sub == "" {
		return sub
	}
	return c.tenant(issuer) + "/" + sub
}

// account returns the iss and sub that tokens contain for an [Identity.Subject].
func (c *Config) account(subject string) (issuer, sub string) {
	if !c.MultiTenant {
		return c.Issuer, subject
	}
	tenant, sub := SplitSubject(subject)
	return TenantIssuer(c.Issuer, tenant), sub
}

// tokenIssuer returns the expected iss of a token. With several tenants, it is the token's own iss.
func (c *Config) tokenIssuer(raw string) (string, error) {
	if !c.MultiTenant {
		return c.Issuer, nil
	}
	jws, _, _, err := parseToken(raw)
	if err != nil {
		return "", err
	}
	issuer, err := issuerClaim(jws.UnsafePayloadWithoutVerification())
	if err == nil && !c.isIssuer(issuer) {
		err = fmt.Errorf("unexpected iss %.200q, expected %q with a tenant ID", issuer, c.documentIssuer())
	}
	return issuer, err
}

func issuerClaim(payload []byte) (string, error) {
	var c struct {
		Issuer string `json:"iss"`
	}
	err := strictjson.Unmarshal(payload, &c)
	return c.Issuer, err
}

// checkIssuer returns an error if the key is not for the token's issuer. The key set that tenants of Entra ID share contains
// the issuer of each key, because keys for personal accounts must not sign tokens of organizations.
func (k signingKey) checkIssuer(payload []byte) error {
	issuer, err := issuerClaim(payload)
	if before, after, isShared := strings.Cut(k.issuer, tenantPlaceholder); err == nil && k.issuer != issuer &&
		!(isShared && strings.HasPrefix(issuer, before) && strings.HasSuffix(issuer, after)) {
		err = fmt.Errorf("the key is for the issuer %.200q, not %.200q", k.issuer, issuer)
	}
	return err
}
