package people

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/totp"
)

// User is a local user or a federated person.
type User struct {
	ID           string // sign-in name and sub of tokens ([namecheck.CheckConfigured])
	PasswordHash string // hash in a format of the [PasswordComparer]

	// TOTPSecret is the key of the user's authenticator app (RFC 6238) in base32; see
	// [totp.CheckSecret]. A code is required after the password, and after sign-in through a linked
	// identity provider. Default: no second factor.
	TOTPSecret string

	Name          string // name claim
	Email         string // email claim
	EmailVerified bool   // email_verified claim
	Phone         string // phone_number claim in E.164 form

	// FHIRUser is the user's own FHIR resource, as Type/id relative to the FHIR base (SMART App
	// Launch 2.2, scopes for requesting identity data).
	FHIRUser string

	// Patients are the ids of additional patients that the user may choose when starting an app, besides those related to
	// FHIRUser. Default: none.
	Patients []string `json:",omitempty"`

	// Claims are additional claims of OpenID Connect Core §5.1 by name. Parts of an address have names such as
	// address.locality. See [CheckClaim].
	Claims map[string]string

	// Disabled prevents the user from signing in, also through a linked identity provider, and invalidates the user's sessions
	// and tokens.
	Disabled bool

	Groups []string `json:"-"` // groups from the configuration or from the provider

	// Generation distinguishes a local user from deleted users with the same ID. Default: 0, no deleted users.
	Generation oauth2.Generation `json:"-"`

	// TokenClaims are additional claims of the provider by their names at the gateway; see [IdentityProvider].
	TokenClaims map[string][]string `json:",omitempty"`

	// Unread lists groups and TokenClaims that the provider sent but that could not be read completely.
	Unread []string `json:",omitempty"`

	provider     string // provider key; "" for local users
	username     string // preferred_username, which is a local user's ID or the provider's claim
	TokenBinding string `json:"-"` // hash of a local user's credential, to which tokens are bound
}

// check validates the optional fields.
func (u *User) check() error {
	if err := CheckFHIRUser(u.FHIRUser); err != nil && u.FHIRUser != "" {
		return fmt.Errorf("fhir_user %w", err)
	}
	if u.TOTPSecret != "" {
		if err := totp.CheckSecret(u.TOTPSecret); err != nil {
			return err
		}
	}
	for _, id := range u.Patients {
		if !launch.IsID(id) {
			return fmt.Errorf("patient %q is not a valid Patient id", id)
		}
	}
	for name, value := range u.Claims {
		if err := CheckClaim(name, value); err != nil {
			return err
		}
	}
	if u.Email == "" {
		return nil
	}
	return CheckEmail(u.Email)
}

// CheckFHIRUser returns an error unless a reference consists of a type of resource that represents a person (SMART App Launch
// 2.2) and an id of FHIR R4 §2.24.0.1.
func CheckFHIRUser(reference string) error {
	if !fhirUserPattern.MatchString(reference) {
		return fmt.Errorf("%q must be Patient, Practitioner, PractitionerRole, RelatedPerson or Person, followed by / and a FHIR id", reference)
	}
	return nil
}

var fhirUserPattern = regexp.MustCompile(`^(Patient|Practitioner|PractitionerRole|RelatedPerson|Person)/[A-Za-z0-9.-]{1,64}$`)

// Credential returns a digest that changes with the user's password or second factor, which invalidates sessions. It differs
// between users of the same name, even if they have the same password.
func (u *User) Credential() [sha256.Size]byte {
	secrets := u.PasswordHash + "\x00" + u.TOTPSecret
	if u.Generation != 0 {
		secrets += "\x00" + strconv.FormatInt(int64(u.Generation), 10)
	}
	return sha256.Sum256([]byte(secrets))
}

// credentialHash returns the left half of the credential's digest, like an at_hash. Clients can
// read it in access tokens. It does not reveal the password, because password hashes are salted.
func (u *User) credentialHash() string {
	sum := u.Credential()
	return base64.RawURLEncoding.EncodeToString(sum[:sha256.Size/2])
}

// Label is a person's name on pages.
type Label struct {
	Name   string // best available name
	Detail string // distinguishes people with the same name, e.g. by e-mail address; may be ""
}

// Label returns the user's name for pages.
func (u *User) Label() Label {
	known := slices.DeleteFunc([]string{u.Name, u.username, u.Email}, func(word string) bool { return word == "" })
	known = append(known, "", "") // ensures at least two elements
	return Label{cmp.Or(known[0], "your account"), known[1]}
}

// ProviderName returns the user's name or e-mail address at the identity provider, or "" for local users.
func (u *User) ProviderName() string {
	if u.provider == "" {
		return ""
	}
	return cmp.Or(u.username, u.Email)
}

// MatchesLoginHint reports whether a login_hint (OpenID Connect Core §3.1.2.1) is the user's sub, user name or e-mail address,
// verified or not. ASCII case is ignored.
func (u *User) MatchesLoginHint(hint string) bool {
	return isIndexable(hint) && slices.ContainsFunc([]string{u.ID, u.username, u.Email}, func(name string) bool { return lowerASCII(name) == lowerASCII(hint) })
}

// MayChoosePatient reports whether the user may choose a patient according to the configuration and the identity provider. It
// returns true for "".
func (u *User) MayChoosePatient(patient string) bool {
	return patient == "" || u.Person().MayChoosePatient(patient)
}

// Attributes returns the attributes that rules can match.
func (u *User) Attributes() tokenclaim.Attributes {
	return tokenclaim.Attributes{IDP: cmp.Or(u.provider, tokenclaim.LocalIDP), Groups: u.Groups, Claims: u.TokenClaims, UnreadClaims: u.Unread}
}

// Person returns the user as a person who can choose patients.
func (u *User) Person() launch.Person {
	return launch.Person{Subject: u.ID, FHIRUser: u.FHIRUser, Patients: u.Patients, Attributes: u.Attributes()}
}

// furtherClaims lists the claims that have no field in [User]. For parts of an address, see OpenID Connect Core §5.1.1.
var furtherClaims = []string{
	"family_name", "given_name", "middle_name", "nickname", "profile", "picture", "website", "gender",
	"birthdate", "zoneinfo", "locale", "updated_at", "phone_number_verified",
	"address.formatted", "address.street_address", "address.locality", "address.region",
	"address.postal_code", "address.country",
}

// CheckClaim returns an error if a user cannot have a claim with this value, because [User] has a field for the claim, or
// because OpenID Connect Core §5.1 does not define the claim or defines another format.
func CheckClaim(name, value string) error {
	ok, form := true, ""
	switch name {
	case "updated_at":
		_, err := strconv.ParseInt(value, 10, 64)
		ok, form = err == nil, "a number of seconds since 1970"
	case "phone_number_verified":
		ok, form = value == "true" || value == "false", "true or false"
	case "birthdate":
		ok, form = isBirthdate(value), "a date in the form YYYY-MM-DD (year 0000 if unknown) or YYYY"
	case "profile", "picture", "website":
		u, err := url.Parse(value)
		ok, form = err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http"), "an http or https URL"
	}
	switch {
	case !slices.Contains(furtherClaims, name):
		return fmt.Errorf("unsupported claim %q: use one of %q", name, furtherClaims)
	case !ok:
		return fmt.Errorf("claim %s: value %q is not %s", name, value, form)
	}
	return nil
}

// isBirthdate reports whether text is a date or a year (OpenID Connect Core §5.1).
func isBirthdate(text string) bool {
	_, day := time.Parse(time.DateOnly, text)
	_, year := time.Parse("2006", text)
	return day == nil || year == nil
}

// scopeClaims lists the claims of each scope (OpenID Connect Core §5.4; SMART App Launch 2.2 for
// fhirUser) in the standard's order.
var scopeClaims = []struct {
	scope  string
	claims []string
}{
	{"profile", []string{
		"name", "family_name", "given_name", "middle_name", "nickname", "preferred_username", "profile",
		"picture", "website", "gender", "birthdate", "zoneinfo", "locale", "updated_at",
	}},
	{"email", []string{"email", "email_verified"}},
	{"phone", []string{"phone_number", "phone_number_verified"}},
	{"address", []string{"address"}},
	{"fhirUser", []string{"fhirUser"}},
	{"groups", []string{"groups"}}, // not standardized, but common
}

// ClaimsOfScope returns the claims of a scope.
func ClaimsOfScope(scope []string) (names []string) {
	for _, s := range scopeClaims {
		if slices.Contains(scope, s.scope) {
			names = append(names, s.claims...)
		}
	}
	return names
}

// ClaimsOfAllScopes returns the claims of all scopes.
func ClaimsOfAllScopes() (names []string) {
	for _, s := range scopeClaims {
		names = append(names, s.claims...)
	}
	return names
}

// ScopeOf returns the scope that includes a claim, or "".
func ScopeOf(claim string) string {
	for _, s := range scopeClaims {
		if slices.Contains(s.claims, claim) {
			return s.scope
		}
	}
	return ""
}

// Claims returns the user's values of the claims in names.
func (a *Accounts) Claims(user *User, names []string) map[string]any {
	all := map[string]any{}
	for name, value := range user.Claims {
		addClaim(all, name, value)
	}
	for name, value := range map[string]string{
		"name": user.Name, "preferred_username": user.username, "email": user.Email,
		"phone_number": user.Phone, "fhirUser": a.FHIRUser(user),
	} {
		if value != "" {
			all[name] = value
		}
	}
	if user.Email != "" {
		all["email_verified"] = user.EmailVerified
	}
	if len(user.Groups) > 0 {
		all["groups"] = user.Groups
	}
	if user.Phone == "" {
		delete(all, "phone_number_verified")
	}
	maps.DeleteFunc(all, func(name string, _ any) bool { return !slices.Contains(names, name) })
	return all
}

// addClaim adds a claim in its standard type: a number for updated_at, a boolean for
// phone_number_verified, an object for address.
func addClaim(all map[string]any, name, value string) {
	switch object, member, nested := strings.Cut(name, "."); {
	case nested:
		address, ok := all[object].(map[string]string)
		if !ok {
			address = map[string]string{}
			all[object] = address
		}
		address[member] = value
	case name == "updated_at":
		if seconds, err := strconv.ParseInt(value, 10, 64); err == nil {
			all[name] = seconds
		}
	case name == "phone_number_verified":
		all[name] = value == "true"
	default:
		all[name] = value
	}
}

// FHIRUser returns the absolute URL of the user's FHIR resource.
func (a *Accounts) FHIRUser(user *User) string {
	if user.FHIRUser == "" {
		return ""
	}
	return a.FHIRBase + "/" + user.FHIRUser
}
