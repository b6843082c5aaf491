// Package tokenclaim reads configured claims, including nested ones, from the data that another server returns about a person.
package tokenclaim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"
)

// MaxNames is the maximum number of additional claims that a site may configure in one option.
const MaxNames = 20

var claimName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,63}$`)

// Check returns an error if the local name of a claim, or its name at the other server, is invalid.
func Check(localName, remoteName string) error {
	if !claimName.MatchString(localName) {
		return fmt.Errorf("claim %q: the local name must have at most 64 letters, digits, hyphens and underscores", localName)
	}
	if remoteName == "" || len(remoteName) > 256 {
		return fmt.Errorf("claim %s: the provider's name must have at most 256 characters", localName)
	}
	return nil
}

// CheckAll returns an error if there are too many names or one of them is invalid.
func CheckAll(names map[string]string) error {
	if len(names) > MaxNames {
		return fmt.Errorf("too many claims: the maximum is %d", MaxNames)
	}
	for localName, remoteName := range names {
		if err := Check(localName, remoteName); err != nil {
			return err
		}
	}
	return nil
}

// Find returns the claim with the given name or, if there is none, the claim at a path of nested claims, such as
// realm_access.roles. Names may contain dots.
func Find(claims map[string]any, path string) any {
	if found := FindAll(claims, path); len(found) > 0 {
		return found[0]
	}
	return nil
}

// FindAll returns all claims that [Find] may return, in order of precedence. Claims with the value null are ignored.
func FindAll(claims map[string]any, path string) (found []any) {
	if value := claims[path]; value != nil {
		found = append(found, value)
	}
	for i := range len(path) {
		if nested, ok := claims[path[:i]].(map[string]any); ok && path[i] == '.' {
			found = append(found, FindAll(nested, path[i+1:])...)
		}
	}
	return found
}

// Read returns the values of the claim that [Find] returns. If the claim has an unsupported format, or if the provider returns
// only a reference, as Entra ID does for more than 200 groups, values is empty and complete is false. In this case, the caller
// must not assume that the person is in no group.
func Read(claims map[string]any, path string) (values []string, complete bool) {
	if found := Find(claims, path); found != nil {
		return List(found)
	}
	distributed, _ := claims["_claim_names"].(map[string]any) // see OpenID Connect Core §5.6.2
	top, _, _ := strings.Cut(path, ".")
	return nil, distributed[path] == nil && distributed[top] == nil && (path != DefaultGroupsClaim || claims["hasgroups"] != true)
}

// List returns the value of a string, number or boolean, or the values of a list of these. If any value has another type, it
// returns no values, because a part could grant more access than the entire list.
func List(claim any) (values []string, complete bool) {
	items, isList := claim.([]any)
	if !isList {
		items = []any{claim}
	}
	for _, item := range items {
		switch v := item.(type) {
		case nil:
		case string:
			values = append(values, v)
		case json.Number:
			values = append(values, v.String())
		case bool:
			values = append(values, strconv.FormatBool(v))
		default:
			return nil, false
		}
	}
	return values, true
}

// LocalIDP is the value of [Attributes].IDP for local users.
const LocalIDP = "local"

// ErrUnreadClaims is returned if a decision depends on claims that could not be read. The wrapping error contains their names.
var ErrUnreadClaims = errors.New("claims could not be read completely")

// Attributes contains the attributes of a person that rules can use.
type Attributes struct {
	// IDP is the key of the identity provider at which the person signed in, or [LocalIDP]. It is empty for a client without a
	// user and for a token of another issuer.
	IDP string
	// Groups are the groups of the person.
	Groups []string
	// Claims contains the values of additional claims by local name.
	Claims map[string][]string
	// UnreadClaims contains the local names of claims that could not be read completely. Rules must not treat them as empty.
	UnreadClaims []string
}

// Names contains the names of the configured claims. A nil Names has no claims.
type Names struct {
	remoteNames map[string]string // name at the other server by local name
	text        string
}

// DefaultGroupsClaim is the default name of the claim that contains the groups.
const DefaultGroupsClaim = "groups"

// NewNames returns the Names for [DefaultGroupsClaim] and for a map from local names to names at the other server.
func NewNames(remoteNames map[string]string) *Names {
	n := &Names{remoteNames: map[string]string{DefaultGroupsClaim: DefaultGroupsClaim}}
	maps.Copy(n.remoteNames, remoteNames)
	n.text = fmt.Sprintf("%q", n.remoteNames) // fmt sorts the keys
	return n
}

// String returns a text that is unique for the configured names.
func (n *Names) String() string {
	if n == nil {
		return ""
	}
	return n.text
}

// Read returns the configured claims in an object that strictjson has checked. A missing claim has no values.
func (n *Names) Read(object []byte) (a Attributes, err error) {
	if n == nil {
		return a, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(object))
	decoder.UseNumber()
	var claims map[string]any
	if err := decoder.Decode(&claims); err != nil {
		return a, fmt.Errorf("reading claims: %w", err)
	}
	a.Claims = make(map[string][]string, len(n.remoteNames))
	for localName, remoteName := range n.remoteNames {
		values, complete := Read(claims, remoteName)
		if a.Claims[localName] = values; !complete {
			a.UnreadClaims = append(a.UnreadClaims, localName)
		}
	}
	a.Groups = a.Claims[DefaultGroupsClaim]
	return a, nil
}

// AccessToken contains the claims of a verified access token that determine whether the token's grant is still valid.
type AccessToken struct {
	ID              string // jti
	Subject         string // sub
	ClientID        string // client_id
	Scope           string // scope
	Session         string // sid: session ID; if set, the token is valid only during this session
	CredentialHash  string // credential_hash: hash of the password or client secret; the token is invalid if they change
	Provider        string // idp: key of the identity provider; "" for a local password
	ProviderAccount string // idp_account: account at the provider that is linked to a local user, if any
	ACR             string // acr: authentication context class of the sign-in; "" for a client without a user
}

// Holder is the person or client to which an access token was issued.
type Holder struct {
	FHIRUser string // URL of the person's FHIR resource; "" for a client, or a person who has none

	Attributes
}
