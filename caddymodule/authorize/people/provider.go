package people

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
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

// multiFactor is the amr of two factors (RFC 8176 §2).
const multiFactor = "mfa"

// factorKinds are the methods that an amr may name (RFC 8176 §2), by the kind of factor that each
// is. Two of one kind are one factor. ngcmfa is Microsoft's word for mfa.
var factorKinds = map[string][]string{
	"knowledge":  {multiFactor, "ngcmfa", "pwd", "pin", "kba"},
	"possession": {multiFactor, "ngcmfa", "otp", "sms", "tel", "hwk", "swk", "sc"},
	"inherence":  {"face", "fpt", "iris", "retina", "vbm"},
}

// CheckMappedACR returns an error if a provider's acr cannot stand for a class. None stands for a
// phishing-resistant sign-in: we did not see the key.
func CheckMappedACR(theirs, class string) error {
	if strings.ContainsFunc(theirs, unicode.IsSpace) {
		return fmt.Errorf("acr_map %q: an acr has no spaces", theirs)
	}
	if class != oauth2.ACRSingleFactor && class != oauth2.ACRMultiFactor {
		return fmt.Errorf("acr_map %s to %q: use %s or %s", theirs, class, oauth2.ACRSingleFactor, oauth2.ACRMultiFactor)
	}
	return nil
}

// ACRMap has the class of sign-in here for what a provider says in its acr.
type ACRMap map[string]string

// Words are the provider's words for a class, or nil.
func (m ACRMap) Words(class string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(m)), func(theirs string) bool { return m[theirs] != class })
}

// AMR is how a person signed in at the provider (RFC 8176), by its claims, of which one is its acr. It
// has mfa exactly if that were two factors: as the map says, or else by two methods of different kinds.
func (m ACRMap) AMR(claims map[string]any, acr string) []string {
	amr, _ := tokenclaim.List(claims["amr"])
	two := twoFactors(amr)
	if class := m.class(claims[cmp.Or(acr, "acr")]); class != "" {
		two = class == oauth2.ACRMultiFactor
	}
	amr = slices.DeleteFunc(amr, func(method string) bool { return method == multiFactor && !two })
	if two && !slices.Contains(amr, multiFactor) {
		amr = append(amr, multiFactor)
	}
	return amr
}

// class is the strongest class for what the provider says; "" for none.
func (m ACRMap) class(claim any) (class string) {
	values, _ := tokenclaim.List(claim)
	for _, theirs := range values {
		if ours := m[theirs]; ours != "" && oauth2.MeetsACR(ours, class) {
			class = ours
		}
	}
	return class
}

func twoFactors(amr []string) bool {
	kinds := 0
	for _, methods := range factorKinds {
		if slices.ContainsFunc(amr, func(method string) bool { return slices.Contains(methods, method) }) {
			kinds++
		}
	}
	return kinds > 1
}

// CheckEmail returns an error if a text is not an e-mail address.
func CheckEmail(address string) error {
	if emailDomain(address) == "" {
		return fmt.Errorf("%q is not an e-mail address", address)
	}
	return nil
}

// emailDomain is the domain of an address in lower case; "" if it is not valid.
func emailDomain(address string) string {
	user, domain, _ := strings.Cut(address, "@")
	if user == "" || strings.ContainsAny(domain, "@ \t\r\n") {
		return ""
	}
	return lowered(domain)
}

// lowered puts only ASCII letters into lower case (RFC 4343 §3): by Unicode's rules, İ would
// become i and ſ equal s, and somebody else's domain or mailbox pass for ours.
func lowered(address string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r - 'A' + 'a'
		}
		return r
	}, address)
}

// Ways are the ways to sign in for a client.
type Ways struct {
	Local     bool        // by a password here
	Providers []*Provider // in the order of the client's list
}

// Ways returns the ways in a client's list of keys. If the list is empty, it returns all, in
// the order of the configuration.
func (a *Accounts) Ways(keys []string) Ways {
	if len(keys) == 0 {
		keys = append([]string{Local}, a.ProviderKeys...)
	}
	var ways Ways
	for _, key := range keys {
		if p := a.Providers[key]; p != nil {
			ways.Providers = append(ways.Providers, p)
		}
	}
	ways.Local = slices.Contains(keys, Local) && a.Directory.Len() > 0
	return ways
}

// Has reports whether one can sign in by the provider with a key, or by a password here if
// the key is "" or [Local].
func (w Ways) Has(key string) bool {
	if key == "" || key == Local {
		return w.Local
	}
	return slices.ContainsFunc(w.Providers, func(p *Provider) bool { return p.Key == key })
}

// ByDomain returns the provider for the domain of an e-mail address, or nil.
func (w Ways) ByDomain(address string) *Provider {
	domain := emailDomain(address)
	for _, p := range w.Providers {
		if domain != "" && slices.Contains(p.Domains, domain) {
			return p
		}
	}
	return nil
}

// Issuers are those of the identity providers, in the order of the configuration.
func (a *Accounts) Issuers() (issuers []string) {
	for _, key := range a.ProviderKeys {
		issuers = append(issuers, a.Providers[key].Issuer)
	}
	return issuers
}
