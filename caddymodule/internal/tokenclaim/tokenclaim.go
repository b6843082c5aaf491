// Package tokenclaim finds configured claims, including nested ones, in the data that another server returns about a person.
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

// MaxNames is the maximum number of additional claims that a site may configure in one place.
const MaxNames = 20

var claimName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,63}$`)

// Check rejects invalid names of a claim: the local name, and that of the other server.
func Check(localName, remoteName string) error {
	if !claimName.MatchString(localName) {
		return fmt.Errorf("claim %q: the local name must have at most 64 letters, digits, hyphens and underscores", localName)
	}
	if remoteName == "" || len(remoteName) > 256 {
		return fmt.Errorf("claim %s: the provider's name must have at most 256 characters", localName)
	}
	return nil
}

// CheckAll rejects invalid names, and too many names.
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

// Find returns a claim by its name or, if no claim has that name, by a path of nested claims, such as
// realm_access.roles. Names may themselves contain dots.
func Find(claims map[string]any, path string) any {
	if value, ok := claims[path]; ok {
		return value
	}
	for i := range len(path) {
		if path[i] != '.' {
			continue
		}
		if nested, ok := claims[path[:i]].(map[string]any); ok {
			if value := Find(nested, path[i+1:]); value != nil {
				return value
			}
		}
	}
	return nil
}

// Read returns the values of a claim that [Find] finds. The values are empty, and complete is false, if the claim has an
// unsupported form, or if the provider returns only a reference, as Entra ID does for more than 200 groups. This must not be
// treated as membership in no group.
func Read(claims map[string]any, path string) (values []string, complete bool) {
	if found := Find(claims, path); found != nil {
		return List(found)
	}
	distributed, _ := claims["_claim_names"].(map[string]any) // OpenID Connect Core §5.6.2
	top, _, _ := strings.Cut(path, ".")
	return nil, distributed[path] == nil && distributed[top] == nil && (path != DefaultGroupsClaim || claims["hasgroups"] != true)
}

// List returns the values of a string, a number, a boolean, or a list of these. For any other value it returns no
// values, not even some, because a part could grant more than the whole.
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

// LocalIDP is the [Attributes].IDP of local users.
const LocalIDP = "local"

// ErrUnreadClaims is returned if a decision depends on claims that could not be read. The wrapping error names the claims.
var ErrUnreadClaims = errors.New("claims could not be read completely")

// Attributes are the attributes of a person that rules can use.
type Attributes struct {
	// IDP is the source: the key of an identity provider, or [LocalIDP]. Empty for a client, and for another issuer's token.
	IDP string
	// Groups are the groups of the person.
	Groups []string
	// Claims are additional claims, by local name.
	Claims map[string][]string
	// UnreadClaims are the local names of claims that could not be read completely and are omitted. Rules must not treat them
	// as empty.
	UnreadClaims []string
}

// Names are the configured claims of a token. A nil Names is empty.
type Names struct {
	remoteNames map[string]string // name of the other server by local name
	text        string
}

// DefaultGroupsClaim is the default name of the claim that contains the groups.
const DefaultGroupsClaim = "groups"

// NewNames returns the Names of a map from local names to those of the other server, and [DefaultGroupsClaim].
func NewNames(remoteNames map[string]string) *Names {
	n := &Names{remoteNames: map[string]string{DefaultGroupsClaim: DefaultGroupsClaim}}
	maps.Copy(n.remoteNames, remoteNames)
	n.text = fmt.Sprintf("%q", n.remoteNames) // sorted
	return n
}

// String returns a text that is unique to the names.
func (n *Names) String() string {
	if n == nil {
		return ""
	}
	return n.text
}

// Read returns the configured claims of an object that has been checked by strictjson. A missing claim has no values.
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

// AccessToken contains the claims of a verified access token that determine whether its grant is still valid.
type AccessToken struct {
	ID              string // the jti
	Subject         string // the sub
	ClientID        string // the client_id
	Scope           string // the scope
	Session         string // the sid: the session with which the token ends, if any
	CredentialHash  string // the credential_hash of the password or client secret; changing it invalidates the token
	Provider        string // the idp: the key of the identity provider; empty for a local password
	ProviderAccount string // the idp_account: the provider's account that is linked to a local user, if any
	ACR             string // the acr: the class of the sign-in; empty for a client without a user
}

// Holder is the person or client to which an access token was issued.
type Holder struct {
	FHIRUser string // the URL of the person's FHIR resource; empty for a client or a person without one

	Attributes
}
