package people

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
)

// identity is what a provider says of a person, in our claims.
type identity struct {
	issuer, subject string
	sub             string // the claim for ours, where the provider has one
	user            User
	groups          []string
	searches        []launch.PersonQuery
}

// Identity maps a provider's claims to ours. Claims of a wrong type are ignored: an
// email_verified of "true" or 1 verifies nothing (OpenID Connect Core §5.1).
func (p *Provider) Identity(from *relyingparty.Identity) identity {
	text := func(name string) string { return claimText(name, p.claim(from, name)) }
	verified, _ := p.claim(from, "email_verified").(bool)
	sub, _ := from.Claims[p.Sub].(string)
	id := identity{issuer: cmp.Or(p.SubIssuer, from.Issuer), subject: from.Subject, sub: sub}
	groups, whole := tokenclaim.Read(from.Claims, cmp.Or(p.Claims[tokenclaim.Groups], tokenclaim.Groups))
	id.groups = groups
	id.user = User{
		ID: accountID(id.issuer, from.Subject), Name: text("name"), username: text("preferred_username"),
		Email: text("email"), EmailVerified: verified && emailDomain(text("email")) != "", Phone: text("phone_number"),
		Claims: p.furtherClaims(from), Groups: id.groups, provider: p.Key,
	}
	id.user.TokenClaims, id.user.Unread = p.tokenClaims(from)
	if !whole {
		id.user.Unread = append(id.user.Unread, tokenclaim.Groups)
	}
	if p.Claims["fhirUser"] != "" {
		id.user.FHIRUser = text("fhirUser")
	}
	if p.Claims["patient"] != "" {
		ids, _ := tokenclaim.List(p.claim(from, "patient"))
		ids = slices.DeleteFunc(ids, func(id string) bool { return !launch.IsID(id) })
		id.user.Patients = ids[:min(len(ids), maxPatients)]
	}
	if id.user.FHIRUser == "" && p.FHIRUsers[from.Subject] == "" {
		id.searches = launch.Queries(p.FHIRUserSearch, from.Claims, id.verifiedEmail(), id.user.Claims["birthdate"])
	}
	return id
}

// Label is what pages call a provider's person, whether they may sign in or not.
func (p *Provider) Label(from *relyingparty.Identity) Label {
	id := p.Identity(from)
	return id.user.Label()
}

// claim is the provider's claim for one of ours. If email or phone_number is mapped to
// another claim, the provider's email_verified is not about that, and must be mapped too.
func (p *Provider) claim(from *relyingparty.Identity, name string) any {
	if mapped := p.Claims[name]; mapped != "" {
		return tokenclaim.Find(from.Claims, mapped)
	}
	about, verifies := strings.CutSuffix(name, "_verified")
	if taken := p.Claims[about]; verifies && taken != "" && taken != about {
		return nil
	}
	return from.Claims[name]
}

const (
	maxClaim    = 1 << 10 // bytes
	maxPatients = 50      // that one person may choose among
)

// claimText is a claim as a text; "" if it is too long, or not of its type in OpenID Connect
// Core §5.1.
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
		if name != "phone_number_verified" && name != "updated_at" && len(v) <= maxClaim {
			return v
		}
	}
	return ""
}

// furtherClaims returns the claims for [User].Claims.
func (p *Provider) furtherClaims(from *relyingparty.Identity) map[string]string {
	var claims map[string]string
	take := func(name string, claim any) {
		text := claimText(name, claim)
		if text == "" || CheckClaim(name, text) != nil {
			return
		}
		if claims == nil {
			claims = map[string]string{}
		}
		claims[name] = text
	}
	for _, name := range plainClaims {
		take(name, p.claim(from, name))
	}
	address, _ := p.claim(from, "address").(map[string]any)
	for member, v := range address {
		take("address."+member, v)
	}
	return claims
}

// Bounds of a claim of [IdentityProvider].TokenClaims, which is read for each request.
const (
	maxTokenClaim  = 4 << 10 // bytes
	maxClaimValues = 200
)

// tokenClaims are the further claims that are kept of a person. Those that are too long are left out
// as a whole: part of a list could mean more than all of it.
func (p *Provider) tokenClaims(from *relyingparty.Identity) (claims map[string][]string, unread []string) {
	for _, ours := range slices.Sorted(maps.Keys(p.TokenClaims)) {
		values, whole := tokenclaim.Read(from.Claims, p.TokenClaims[ours])
		switch {
		case !whole || len(values) > maxClaimValues || len(strings.Join(values, "")) > maxTokenClaim:
			unread = append(unread, ours)
		case len(values) > 0:
			if claims == nil {
				claims = map[string][]string{}
			}
			claims[ours] = values
		}
	}
	return claims, unread
}

// accountID is the sub of a federated person, a hash of issuer and subject (OpenID Connect
// Core §5.7). No local user or client can have it ([subject.IsHash]).
func accountID(issuer, subject string) string {
	sum := sha256.Sum256([]byte(issuer + "\x00" + subject))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

func (p *Provider) allows(id identity) bool {
	return len(p.Allow) == 0 || slices.ContainsFunc(p.Allow, id.matches)
}

func (id identity) matches(rule AllowRule) bool {
	if rule.isOnGroup() {
		return slices.Contains(id.groups, rule.Value)
	}
	address := id.verifiedEmail()
	if domain, all := strings.CutPrefix(rule.Value, "*@"); all {
		return address != "" && emailDomain(address) == lowered(domain)
	}
	return address != "" && lowered(address) == lowered(rule.Value)
}

// verifiedEmail is the person's address if it is verified, and has one domain, whoever reads it; else "".
func (id identity) verifiedEmail() string {
	if !id.user.EmailVerified || emailDomain(id.user.Email) == "" {
		return ""
	}
	return id.user.Email
}
