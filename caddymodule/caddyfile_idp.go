package caddymodule

import (
	"maps"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/upstream"
)

// parseIdentityProvider reads a provider. Syntax:
//
//	idp <name> [oidc|google] {
//		name <words>
//		issuer <url>
//		client_id <id>
//		client_secret <secret>
//		scopes <scope...>
//		timeout <duration>
//		tls_ca <file>
//		tls_client <certificate file> <key file>
//		domains <domain...>
//		claim <ours> <theirs>
//		fhir_user <subject> <Type/id>
//		allow email|group <value>
//		link email
//		keep_upstream_token
//	}
func (a *App) parseIdentityProvider(d *caddyfile.Dispenser) error {
	p, err := parseProviderName(d)
	if err != nil {
		return err
	}
	for _, other := range a.IdentityProviders {
		if other.Key == p.Key {
			return d.Errf("idp %s is there a second time", p.Key)
		}
	}
	fields := subdirectives{
		"name":                word(&p.Name, nil),
		"issuer":              word(&p.Issuer, upstream.CheckIssuer),
		"client_id":           word(&p.ClientID, checkPlaceholders),
		"client_secret":       word(&p.ClientSecret, checkPlaceholders),
		"scopes":              scopes(&p.Scopes, client.CheckScope),
		"timeout":             duration(&p.Timeout),
		"domains":             words(&p.Domains, people.CheckDomain),
		"claim":               pair(&p.Claims, func(ours, _ string) error { return people.CheckMappedClaim(ours) }),
		"fhir_user":           pair(&p.FHIRUsers, func(_, reference string) error { return people.CheckFHIRUser(reference) }),
		"allow":               p.parseAllow,
		"link":                only("email", &p.LinkEmail),
		"keep_upstream_token": bareword(&p.KeepUpstreamToken),
	}
	maps.Copy(fields, p.TLS.subdirectives())
	err = fields.parse(d, "claim", "fhir_user", "allow")
	switch {
	case err != nil:
		return err
	case p.ClientID == "":
		return d.Errf("idp %s needs a client_id", p.Key)
	case p.Issuer == "" && p.Kind != kindGoogle:
		return d.Errf("idp %s needs an issuer", p.Key)
	}
	a.IdentityProviders = append(a.IdentityProviders, *p)
	return nil
}

func parseProviderName(d *caddyfile.Dispenser) (*IdentityProvider, error) {
	args := d.RemainingArgs()
	if len(args) == 0 || len(args) > 2 {
		return nil, d.ArgErr()
	}
	p := &IdentityProvider{Key: args[0]}
	if err := people.CheckProviderKey(p.Key); err != nil {
		return nil, d.WrapErr(err)
	}
	if len(args) == 2 {
		p.Kind = args[1]
		if err := checkKind(p.Kind); err != nil {
			return nil, d.WrapErr(err)
		}
	}
	return p, nil
}

func (p *IdentityProvider) parseAllow(d *caddyfile.Dispenser) error {
	var rule AllowRule
	if !d.Args(&rule.Claim, &rule.Value) || d.NextArg() {
		return d.ArgErr()
	}
	if err := people.AllowRule(rule).Check(); err != nil {
		return d.WrapErr(err)
	}
	p.Allow = append(p.Allow, rule)
	return nil
}
