package fhirapp

import (
	"log/slog"
	"net/url"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/scopelimit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/httporigin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/scopeoption"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
)

// warnAboutClients logs client settings that are allowed but not recommended. There are fewer warnings for an issuer on a
// loopback address, which is used for evaluation with publicly known secrets.
func warnAboutClients(logger *slog.Logger, issuerURL string, clients []client.Client) {
	issuer, err := url.Parse(issuerURL)
	isLocal := err == nil && httporigin.IsLoopback(issuer.Hostname())
	for _, c := range clients {
		for _, scope := range c.Scopes {
			if suggestion := scopeoption.Suggest(scope); suggestion != "" {
				logger.Warn("possible typo in a client's scope", "client_id", c.ID, "scope", scope, "did_you_mean", suggestion)
			}
		}
		if c.Secret != "" && client.IsGuessable(c.Secret) && !isLocal {
			logger.Warn("client secret has less than 128 bits and could be guessed; create a new one with: "+client.SecretCommand, "client_id", c.ID)
		}
		if c.IsPublic() && len(c.RedirectURIs) > 0 && c.PKCE == client.PKCEOptional && !isLocal {
			logger.Warn("PKCE is optional for a public client, so stolen authorization codes can be redeemed; remove 'pkce optional' once the app sends a code_challenge (RFC 9700 §2.1.1)", "client_id", c.ID)
		}
	}
}

// warnNoClients logs a warning if no client can request tokens. Clients that an updater adds are not loaded yet.
func warnNoClients(logger *slog.Logger, updater ServerUpdater, c *authorize.Config) {
	if len(c.Clients)+len(clientSources(c)) > 0 {
		return
	}
	hint := "client in the Caddyfile"
	if updater != nil {
		hint += ", or " + updater.Hint()
	}
	logger.Warn("no client configured: apps cannot request tokens until you add one (" + hint + ")")
}

// warnAboutPeople logs settings that give people less or more access than intended.
func warnAboutPeople(logger *slog.Logger, a *App, c *authorize.Config) {
	warnAmbiguousAccess(logger, a)
	warnUnmatchedUsers(logger, a)
	warnMissingFHIRUser(logger, a, c)
}

// warnUnmatchedUsers logs a warning about users who get almost no scopes, because no row of scope_limit matches them.
func warnUnmatchedUsers(logger *slog.Logger, a *App) {
	var unmatched []string
	for _, u := range a.Users {
		attributes := tokenclaim.Attributes{IDP: tokenclaim.LocalIDP, Groups: u.Groups}
		if !u.Disabled && !slices.ContainsFunc(a.ScopeLimits, func(row scopelimit.Row) bool { return row.Matches(attributes) }) {
			unmatched = append(unmatched, u.Name)
		}
	}
	if len(a.ScopeLimits) > 0 && len(unmatched) > 0 {
		logger.Warn("no scope_limit matches these users, so they get no patient/, user/ or custom scopes: add them to a group, or add scope_limit any",
			"users", unmatched[:min(len(unmatched), 20)], "count", len(unmatched))
	}
}

// warnMissingFHIRUser logs a warning about people without a FHIR resource, because tokens with user/ scopes might not permit
// any read.
func warnMissingFHIRUser(logger *slog.Logger, a *App, c *authorize.Config) {
	if !mayGrantUserScopes(a, c) {
		return
	}
	for _, p := range a.IdentityProviders {
		if p.Claims["fhirUser"] == "" && len(p.FHIRUsers) == 0 && len(p.FHIRUserSearch) == 0 && !p.LinkEmail {
			logger.Warn("people of this idp have no fhirUser, so tokens with user/ scopes may grant no access: "+
				"map a claim (claim fhirUser <claim>), assign resources (fhir_user <subject> Practitioner/<id>), "+
				"or search for them (fhir_user_search Practitioner email)", "idp", p.Key)
		}
	}
	if len(a.Users) > 0 && !slices.ContainsFunc(a.Users, func(u User) bool { return u.FHIRUser != "" }) {
		logger.Warn("no user has a fhir_user, so tokens with user/ scopes may grant no access; assign one to each user (fhir_user Practitioner/<id>)")
	}
}

// warnAmbiguousAccess logs settings that could give one person the access of another person.
func warnAmbiguousAccess(logger *slog.Logger, a *App) {
	for _, p := range a.IdentityProviders {
		for _, s := range p.FHIRUserSearch {
			if s.System == "" && s.Type != "Practitioner" {
				logger.Warn("patients are matched by e-mail address, so a parent or partner with the same address could see their records; match by an identifier if the idp has one", "idp", p.Key, "type", s.Type)
			}
		}
	}
	for _, l := range a.ScopeLimits {
		claimIssuers := 0
		if l.MatchBy == "group" {
			claimIssuers = len(a.IdentityProviders) + min(len(a.Users), 1)
		}
		for _, p := range a.IdentityProviders {
			if _, has := p.TokenClaims[l.Claim]; has && l.MatchBy == "claim" {
				claimIssuers++
			}
		}
		if l.IDP == "" && claimIssuers > 1 {
			logger.Warn("scope_limit matches users of every provider with this group or claim; name the provider (scope_limit idp <name>|local …)", "by", l.MatchBy, "claim", l.Claim, "value", l.Value)
		}
	}
}

// mayGrantUserScopes reports whether any client may be granted a user/ scope or fhirUser.
func mayGrantUserScopes(a *App, c *authorize.Config) bool {
	isUserScope := func(scope string) bool { return scope == "fhirUser" || strings.HasPrefix(scope, "user/") }
	return mayBeGranted(a, c, isUserScope)
}
