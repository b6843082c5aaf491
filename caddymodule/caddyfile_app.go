package caddymodule

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/totp"
)

func init() { httpcaddyfile.RegisterGlobalOption("fhir", parseApp) }

// parseApp makes the global option fhir into the app's configuration.
func parseApp(d *caddyfile.Dispenser, existing any) (any, error) {
	app := new(App)
	if existing != nil {
		d.Next() // so that the error names the line
		return nil, d.Err("the global option fhir is there a second time")
	}
	if err := app.UnmarshalCaddyfile(d); err != nil {
		return nil, err
	}
	return httpcaddyfile.App{Name: "fhir", Value: caddyconfig.JSON(app, nil)}, nil
}

// UnmarshalCaddyfile sets up the app from Caddyfile tokens. Syntax:
//
//	fhir {
//		issuer <url>
//		fhir_base <path>
//		user <name> { … }
//		idp <name> [oidc|google] { … }
//		client <id> { … }
//		registration { … }
//		access_token_lifetime <duration>
//		code_lifetime <duration>
//		session_lifetime <duration>
//		refresh_token_lifetime <duration>
//		refresh_token_idle_lifetime <duration>
//		refresh_token_grace <duration>|off
//		authorize_post
//		omit_issuer
//		lockout { … } | lockout off
//		store <module> { … }
//		durable_store <module> { … }
//	}
func (a *App) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // consume option name
	if d.NextArg() {
		return d.ArgErr()
	}
	err := subdirectives{
		"issuer":                word(&a.Issuer, authorize.CheckIssuer),
		"fhir_base":             word(&a.FHIRBase, checkFHIRBase),
		"user":                  a.parseUser,
		"idp":                   a.parseIdentityProvider,
		"client":                a.parseClient,
		"registration":          a.parseRegistration,
		"access_token_lifetime": lifetime("access_token_lifetime", &a.AccessTokenLifetime),
		"code_lifetime":         lifetime("code_lifetime", &a.CodeLifetime),
		"session_lifetime":      lifetime("session_lifetime", &a.SessionLifetime),
		"authorize_post":        bareword(&a.AuthorizePOST),
		"omit_issuer":           bareword(&a.OmitIssuer),
		"lockout":               a.Lockout.parse,
		"store":                 parseStore(&a.StoreRaw),
		"durable_store":         parseStore(&a.DurableRaw),

		"refresh_token_lifetime":      lifetime("refresh_token_lifetime", &a.RefreshTokenLifetime),
		"refresh_token_idle_lifetime": lifetime("refresh_token_idle_lifetime", &a.RefreshTokenIdleLifetime),
		"refresh_token_grace":         lifetimeOrOff("refresh_token_grace", &a.RefreshTokenGrace),
	}.parse(d, "user", "idp", "client")
	switch {
	case err != nil:
		return err
	case a.Issuer == "":
		return d.Err("fhir needs an issuer")
	}
	return a.checkParsed(d)
}

// checkParsed finds what one line of the block says against another.
func (a *App) checkParsed(d *caddyfile.Dispenser) error {
	for _, c := range a.Clients {
		for _, key := range c.IdentityProviders {
			if err := a.checkProviderNamed(key); err != nil {
				return c.idps.wrap(fmt.Errorf("client %q: %w", c.ID, err))
			}
		}
	}
	if _, err := authorize.New(a.unresolved()); err != nil {
		return d.WrapErr(err)
	}
	return nil
}

func (a *App) checkProviderNamed(key string) error {
	known := []string{people.Local}
	for _, p := range a.IdentityProviders {
		known = append(known, p.Key)
	}
	if slices.Contains(known, key) {
		return nil
	}
	return fmt.Errorf("there is no idp %q%s", key, didYouMean(key, known))
}

// unresolved is the configuration without what is not known before Provision.
func (a *App) unresolved() authorize.Config {
	c := a.settings()
	for _, u := range a.Users {
		c.Users = append(c.Users, u.withSecrets(u.PasswordHash, ""))
	}
	for _, client := range a.Clients {
		c.Clients = append(c.Clients, client.withSecret(client.Secret))
	}
	for _, p := range a.IdentityProviders {
		c.IdentityProviders = append(c.IdentityProviders, p.withCredentials(p.ClientID, p.ClientSecret))
	}
	return c
}

// checkName refuses a name that a user or a client has already, as it is the sub of
// their tokens.
func (a *App) checkName(kind, name string) error {
	for _, u := range a.Users {
		if u.Name == name {
			return takenError(kind, "user", name)
		}
	}
	for _, c := range a.Clients {
		if c.ID == name {
			return takenError(kind, "client", name)
		}
	}
	return nil
}

func takenError(kind, by, name string) error {
	if kind == by {
		return fmt.Errorf("%s %s is there a second time", kind, name)
	}
	return fmt.Errorf("%s %s has the name of a %s, and must not: tokens could not tell the two apart", kind, name, by)
}

// parseUser reads a user. Syntax:
//
//	user <name> {
//		password_hash <hash>
//		totp_secret <base32>
//		name <words>
//		email <address> [verified]
//		phone <number>
//		fhir_user <Type/id>
//		claim <name> <value>
//		disabled
//	}
func (a *App) parseUser(d *caddyfile.Dispenser) error {
	var u User
	if err := word(&u.Name, nil)(d); err != nil {
		return err
	}
	if err := a.checkName("user", u.Name); err != nil {
		return d.WrapErr(err)
	}
	err := subdirectives{
		"password_hash": word(&u.PasswordHash, literal(checkPasswordHash)),
		"totp_secret":   word(&u.TOTPSecret, literal(totp.CheckSecret)),
		"name":          word(&u.DisplayName, nil),
		"email":         u.parseEmail,
		"phone":         word(&u.Phone, nil),
		"fhir_user":     word(&u.FHIRUser, people.CheckFHIRUser),
		"claim":         pair(&u.Claims, people.CheckClaim),
		"disabled":      bareword(&u.Disabled),
	}.parse(d, "claim")
	if err == nil && u.PasswordHash == "" {
		err = d.Errf("user %s needs a password_hash", u.Name)
	}
	a.Users = append(a.Users, u)
	return err
}

func (u *User) parseEmail(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) == 0 || len(args) > 2 {
		return d.ArgErr()
	}
	u.Email, u.EmailVerified = args[0], len(args) == 2
	if err := people.CheckEmail(u.Email); err != nil {
		return d.WrapErr(err)
	}
	if u.EmailVerified && args[1] != "verified" {
		return d.Errf("%q: only the word verified may follow the address", args[1])
	}
	return nil
}

// checkAddress checks an address of a client, and says which option it is of.
func checkAddress(option string) func(uri string) error {
	return func(uri string) error {
		if err := client.CheckAnyRedirectURI(uri); err != nil {
			return fmt.Errorf("%s %w", option, err)
		}
		return nil
	}
}

// parseClient reads a client. Syntax:
//
//	client <id> {
//		name <words>
//		secret <secret>
//		redirect_uri <uri...>
//		native
//		scope <scope...>
//		response_type code|token|id_token|"id_token token"...
//		grant_type client_credentials
//		pkce required|optional
//		par required
//		consent required|skip
//		idp <name|local...>
//		post_logout_redirect_uri <uri...>
//		backchannel_logout_uri <uri>
//		introspect all
//		jwks <file|JSON>
//		jwks_uri <url>
//		tls_ca <file>
//		tls_client <certificate file> <key file>
//		id_token_alg RS256|ES256
//		id_token_claims
//	}
func (a *App) parseClient(d *caddyfile.Dispenser) error {
	var c Client
	if err := word(&c.ID, nil)(d); err != nil {
		return err
	}
	if err := a.checkName("client", c.ID); err != nil {
		return d.WrapErr(err)
	}
	fields := subdirectives{
		"name":            word(&c.Name, nil),
		"secret":          word(&c.Secret, checkPlaceholders),
		"redirect_uri":    words(&c.RedirectURIs, checkAddress("redirect_uri")),
		"native":          bareword(&c.Native),
		"scope":           scopes(&c.Scopes, client.CheckScope),
		"response_type":   words(&c.ResponseTypes, oneOf(client.ResponseTypes...)),
		"grant_type":      words(&c.GrantTypes, oneOf("authorization_code", "client_credentials")),
		"pkce":            word(&c.PKCE, oneOf(client.PKCERequired, client.PKCEOptional)),
		"par":             only("required", &c.RequirePushed),
		"consent":         word(&c.Consent, oneOf(client.ConsentRequired, client.ConsentSkip)),
		"idp":             c.parseProviders,
		"introspect":      only("all", &c.IntrospectAll),
		"jwks":            c.parseJWKS,
		"jwks_uri":        word(&c.JWKSURI, nil),
		"id_token_claims": bareword(&c.IDTokenClaims),
		"id_token_alg":    word(&c.IDTokenAlgorithm, oneOf("RS256", "ES256")),

		"post_logout_redirect_uri": words(&c.PostLogoutRedirectURIs, checkAddress("post_logout_redirect_uri")),
		"backchannel_logout_uri":   word(&c.BackchannelLogoutURI, client.CheckBackchannelLogoutURI),
	}
	maps.Copy(fields, c.TLS.subdirectives())
	if err := fields.parse(d); err != nil {
		return err
	}
	if core := c.withSecret(c.Secret); core.Complete() != nil {
		return d.WrapErr(core.Complete())
	}
	a.Clients = append(a.Clients, c)
	return nil
}

// parseProviders reads the names of providers, which may be told of further down.
func (c *Client) parseProviders(d *caddyfile.Dispenser) error {
	c.idps = positionOf(d)
	return words(&c.IdentityProviders, nil)(d)
}

// parseStore reads the name of a module in fhir.stores, and leaves the rest of
// the block to it.
func parseStore(to *json.RawMessage) setter {
	return func(d *caddyfile.Dispenser) error {
		if !d.NextArg() {
			return d.ArgErr()
		}
		name := d.Val()
		if _, err := caddy.GetModule(storeNamespace + "." + name); err != nil {
			return d.Errf("there is no module %s.%s%s", storeNamespace, name, didYouMean(name, storeNames()))
		}
		module, err := caddyfile.UnmarshalModule(d, storeNamespace+"."+name)
		if err != nil {
			return err
		}
		*to = caddyconfig.JSONModuleObject(module, "store", name, nil)
		return nil
	}
}

// storeNamespace is that of the modules that are stores.
const storeNamespace = "fhir.stores"

func storeNames() (names []string) {
	for _, module := range caddy.GetModules(storeNamespace) {
		names = append(names, module.ID.Name())
	}
	return names
}

var _ caddyfile.Unmarshaler = (*App)(nil)
