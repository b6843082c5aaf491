package fhirapp

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/scopelimit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/namecheck"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/sharedkey"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores"
)

func init() { httpcaddyfile.RegisterGlobalOption("fhir", parseApp) }

// parseApp parses the global option fhir into the app's configuration.
func parseApp(d *caddyfile.Dispenser, existing any) (any, error) {
	if existing != nil {
		d.Next() // before parsing, so that errors contain the line
		return nil, d.Err("duplicate fhir global option")
	}
	app := new(App)
	if err := app.UnmarshalCaddyfile(d); err != nil {
		return nil, err
	}
	return httpcaddyfile.App{Name: "fhir", Value: caddyconfig.JSON(app, nil)}, nil
}

// UnmarshalCaddyfile parses the fhir global option. Syntax:
//
//	fhir {
//		issuer <url>
//		fhir_base <path>
//		user <name> { … }
//		idp <name> [oidc|google] { … }
//		client <id> { … }
//		scope_limit [idp <name>] group <name>|claim <name> <value>|any <scope...>
//		registration { … }
//		access_token_lifetime <duration>
//		session_lifetime <duration>
//		session_idle <duration>
//		refresh_token_lifetime <duration>
//		refresh_token_idle_lifetime <duration>
//		refresh_token_grace <duration>|off
//		authorize_post
//		launch_page
//		admin_page <scope>
//		frame_ancestors <origin...>
//		branding { … }
//		lockout <failures>|off
//		store <module> { … }
//		revocation_max_lag <duration>|off
//		store_key <secret> [<previous...>]
//		health <address>
//	}
func (a *App) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	reserved := reservedNames{}
	fields := option.Block{
		"issuer":                option.Word(&a.Issuer, authorize.CheckIssuer),
		"fhir_base":             option.Word(&a.FHIRBase, fhirbase.CheckBase),
		"user":                  appendTo(&a.Users, func(u *User) error { return u.parse(d, reserved.reserver("user")) }),
		"idp":                   appendTo(&a.IdentityProviders, func(p *IdentityProvider) error { return p.parse(d, a.checkNewProvider) }),
		"client":                appendTo(&a.Clients, func(c *Client) error { return c.parse(d, reserved.reserver("client")) }),
		"scope_limit":           appendTo(&a.ScopeLimits, func(l *scopelimit.Row) error { return parseScopeLimit(d, l) }),
		"access_token_lifetime": parseLifetime("access_token_lifetime", &a.AccessTokenLifetime),
		"session_lifetime":      parseLifetime("session_lifetime", &a.SessionLifetime),
		"session_idle":          parseLifetime("session_idle", &a.SessionIdle),
		"authorize_post":        option.Flag(&a.AuthorizePOST),
		"frame_ancestors":       option.Words(&a.FrameAncestors, page.CheckAncestor),
		"branding":              a.Branding.parse,
		"lockout":               a.Lockout.parse,
		"store":                 stores.ParseModule(&a.StoreRaw),
		"revocation_max_lag":    option.DurationOrOff(&a.RevocationMaxLag, option.Duration(&a.RevocationMaxLag)),
		"store_key":             sharedkey.Words("store_key", &a.StoreKeys),
		"health":                option.Word(&a.Health, checkHealthAddress),

		"refresh_token_lifetime":      parseLifetime("refresh_token_lifetime", &a.RefreshTokenLifetime),
		"refresh_token_idle_lifetime": parseLifetime("refresh_token_idle_lifetime", &a.RefreshTokenIdleLifetime),
		"refresh_token_grace":         parseLifetimeOrOff("refresh_token_grace", &a.RefreshTokenGrace),
	}
	configured := fields.Features(features)
	err := option.ParseDirective(d, fields, configured.Repeatable("user", "idp", "client", "scope_limit")...)
	a.FeaturesRaw = configured.Raw()
	switch {
	case err != nil:
		return err
	case a.Issuer == "":
		return d.Err("issuer is required in the fhir global option")
	}
	return a.checkSubdirectives(d, configured)
}

// appendTo returns a setter for a subdirective that appends a parsed value to a list.
func appendTo[T any](to *[]T, parse func(*T) error) option.Setter {
	return func(*caddyfile.Dispenser) error {
		var added T
		err := parse(&added)
		*to = append(*to, added)
		return err
	}
}

// checkSubdirectives returns an error if subdirectives of the block contradict each other or a required one is missing.
func (a *App) checkSubdirectives(d *caddyfile.Dispenser, configured *option.Features) error {
	idps := []string{people.Local}
	for _, p := range a.IdentityProviders {
		idps = append(idps, p.Key)
	}
	for _, c := range a.Clients {
		for _, key := range c.IdentityProviders {
			if !slices.Contains(idps, key) {
				return c.idpsPosition.Wrap(fmt.Errorf("client %q: idp %q is not configured%s", c.ID, key, option.DidYouMean(key, idps)))
			}
		}
	}
	for _, feature := range configured.Configured() {
		if checked, ok := feature.(CheckedFeature); ok {
			if err := checked.CheckParsed(a.Issuer, a.Issuer+cmp.Or(a.FHIRBase, fhirbase.DefaultBase)); err != nil {
				return err
			}
		}
	}
	c, err := a.literalConfig()
	if err == nil {
		_, err = authorize.New(c)
	}
	return option.WithLine(d, err)
}

// literalConfig returns the authorization server's configuration without the parts that Provision adds and with placeholders.
func (a *App) literalConfig() (authorize.Config, error) {
	c := a.settings()
	for _, u := range a.Users {
		c.Users = append(c.Users, u.WithSecrets(u.PasswordHash, ""))
	}
	for _, client := range a.Clients {
		core, err := client.Literal()
		if err != nil {
			return c, err
		}
		c.Clients = append(c.Clients, core)
	}
	for _, p := range a.IdentityProviders {
		c.IdentityProviders = append(c.IdentityProviders, p.withDefaults())
	}
	return c, nil
}

// reservedNames maps the names of users and clients to their kind, "user" or "client".
type reservedNames map[string]string

// reserver returns a function that reserves a name. The function returns an error if the name cannot be the sub of a token or
// if a user or client already has it.
func (t reservedNames) reserver(kind string) func(name string) error {
	return func(name string) error {
		if by := t[name]; by != "" {
			return nameTakenError(kind, by, name)
		}
		if err := namecheck.CheckConfigured(name); err != nil {
			return fmt.Errorf("%s %q: invalid name: it %w", kind, name, err)
		}
		t[name] = kind
		return nil
	}
}

func (a *App) checkNewProvider(key string) error {
	if slices.ContainsFunc(a.IdentityProviders, func(p IdentityProvider) bool { return p.Key == key }) {
		return fmt.Errorf("duplicate idp %s", key)
	}
	return nil
}

func nameTakenError(kind, by, name string) error {
	if kind == by {
		return fmt.Errorf("duplicate %s %s", kind, name)
	}
	return fmt.Errorf("%s %s: name already used by a %s; their tokens would have the same sub", kind, name, by)
}

var _ caddyfile.Unmarshaler = (*App)(nil)

// parseLifetime returns a setter that parses a duration within the limits for the named lifetime in [authorize.Config].
func parseLifetime(name string, to *caddy.Duration) option.Setter {
	return func(d *caddyfile.Dispenser) error {
		if err := option.Duration(to)(d); err != nil {
			return err
		}
		return option.WithLine(d, authorize.CheckLifetime(name, time.Duration(*to)))
	}
}

// parseLifetimeOrOff returns a setter that parses a lifetime, or the word off as -1.
func parseLifetimeOrOff(name string, to *caddy.Duration) option.Setter {
	return option.DurationOrOff(to, parseLifetime(name, to))
}

// parseScopeLimit parses a row of scope_limit.
func parseScopeLimit(d *caddyfile.Dispenser, l *scopelimit.Row) error {
	args := d.RemainingArgs()
	takeArgument := func(to *string) {
		if len(args) > 0 {
			*to, args = args[0], args[1:]
		}
	}
	if takeArgument(&l.MatchBy); l.MatchBy == "idp" {
		takeArgument(&l.IDP)
		takeArgument(&l.MatchBy)
	}
	if l.MatchBy == "claim" {
		takeArgument(&l.Claim)
	}
	if l.MatchBy != "any" {
		takeArgument(&l.Value)
	}
	l.Scopes = args
	return option.WithLine(d, l.Check())
}

// Lockout throttles attempts to guess passwords, second factors and client secrets. After the configured number of failures,
// each additional failure doubles the wait, from 1s to 15m. Accounts are never locked permanently. A browser that has signed in
// before has a separate counter for that account, so that others cannot lock it out.
//
// Failures are counted per client IP address as determined by Caddy. List proxies in `trusted_proxies`; otherwise, all clients
// behind a proxy share a counter.
type Lockout struct {
	// Disables throttling. Default: false.
	Off bool `json:"off,omitempty"`

	// The number of consecutive failures without a wait, per account, and per client secret and network. For an IP address
	// (IPv6: its /64), the number is ten times as high and covers all accounts and clients. Default: 10.
	Failures int `json:"failures,omitempty"`
}

func (l Lockout) settings() lockout.Policy { return lockout.Policy{Off: l.Off, Failures: l.Failures} }

// parse parses the number of failures, or the word off.
func (l *Lockout) parse(d *caddyfile.Dispenser) error {
	return option.OrOff(&l.Off, option.Number(&l.Failures))(d)
}

// Branding customizes the gateway's pages.
type Branding struct {
	// The site's name, which pages show in their header and title; at most 80 characters. Default: the issuer's host.
	Name string `json:"name,omitempty"`

	// The file of the image shown above the name: PNG, SVG or WebP, at most 256 KiB. It is read when the configuration loads
	// and served at `/oauth2/logo`. Scripts in it are not executed. Default: none.
	Logo string `json:"logo,omitempty"`

	// The color of buttons and links, such as `#0b5c8a`. If its contrast with the light or dark background is below the minimum
	// of WCAG 2.2, pages use a darker or lighter shade. Default: a shade of blue.
	Color string `json:"color,omitempty"`

	// The icons of the sign-in buttons: the keys of identity providers, and files like the logo's. Default: none.
	Icons map[string]string `json:"icons,omitempty"`

	// The URLs of the site's pages `help`, `privacy` and `imprint`, for the footer of every page, and `forgot_password`, for
	// the link below the password on the sign-in page. Each is an https URL, or a path at the issuer such as `/help`.
	// Default: no links.
	Links map[string]string `json:"links,omitempty"`
}

// resolve returns the branding for package authorize, with the images loaded.
func (b *Branding) resolve() (page.Branding, error) {
	resolved := page.Branding{Name: b.Name, Color: b.Color, Icons: map[string]*page.Logo{}, Links: b.Links}
	var err error
	if b.Logo != "" {
		resolved.Logo, err = loadImage(b.Logo)
	}
	for provider, file := range b.Icons {
		icon, failed := loadImage(file)
		resolved.Icons[provider], err = icon, cmp.Or(err, failed)
	}
	return resolved, err
}

func loadImage(file string) (*page.Logo, error) {
	image, err := readAtMost(file, page.MaxLogoSize)
	if err != nil {
		return nil, fmt.Errorf("branding: %s: %w", file, err)
	}
	logo, err := page.NewLogo(image)
	if err != nil {
		return nil, fmt.Errorf("branding: %s: %w", file, err)
	}
	return logo, nil
}

// readAtMost reads at most limit+1 bytes of a file, which is enough to detect that it is too large.
func readAtMost(name string, limit int64) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, limit+1))
}

// parse parses a branding block.
func (b *Branding) parse(d *caddyfile.Dispenser) error {
	if d.NextArg() {
		return d.ArgErr()
	}
	return option.Block{
		"name":  option.Word(&b.Name, page.CheckName),
		"logo":  option.Word(&b.Logo, nil),
		"color": b.parseColor,
		"icon":  option.Pair(&b.Icons, func(provider, _ string) error { return people.CheckProviderKey(provider) }),
		"link":  option.Pair(&b.Links, page.CheckLink),
	}.Parse(d, "icon", "link")
}

// parseColor parses a color. The value must be quoted, because # starts a comment in a Caddyfile.
func (b *Branding) parseColor(d *caddyfile.Dispenser) error {
	if d.CountRemainingArgs() == 0 {
		return d.Err(`color has no value: # starts a comment, so quote the color ("#0b5c8a") or omit the # (0b5c8a)`)
	}
	return option.Word(&b.Color, page.CheckColor)(d)
}
