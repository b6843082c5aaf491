// Package tokenclaim finds claims that a site names, also nested ones, in what another server says of a person.
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

// MaxNames is how many further claims a site may name in one place.
const MaxNames = 20

var claimName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,63}$`)

// Check refuses what cannot be our name of a claim, or of theirs.
func Check(ours, theirs string) error {
	if !claimName.MatchString(ours) {
		return fmt.Errorf("claim %q: our name may have 64 letters, digits, hyphens and underscores", ours)
	}
	if theirs == "" || len(theirs) > 256 {
		return fmt.Errorf("claim %s: their name may have 256 characters", ours)
	}
	return nil
}

// CheckAll refuses names that [Check] refuses, and too many.
func CheckAll(names map[string]string) error {
	if len(names) > MaxNames {
		return fmt.Errorf("more than %d claims named", MaxNames)
	}
	for ours, theirs := range names {
		if err := Check(ours, theirs); err != nil {
			return err
		}
	}
	return nil
}

// Find returns a claim by its name or, where none has that name, by a path of nested ones, such as realm_access.roles.
// Names may have dots themselves.
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

// Read returns the values of a claim that [Find] finds. They are none, and not whole, if the claim has another form, or
// the provider says only where it is to be had, as Entra ID does with more than 200 groups: that is not to be in none.
func Read(claims map[string]any, path string) (values []string, whole bool) {
	if found := Find(claims, path); found != nil {
		return List(found)
	}
	elsewhere, _ := claims["_claim_names"].(map[string]any) // OpenID Connect Core §5.6.2
	top, _, _ := strings.Cut(path, ".")
	return nil, elsewhere[path] == nil && elsewhere[top] == nil && (path != Groups || claims["hasgroups"] != true)
}

// List reads a text, a number, a truth value, or a list of these. Of anything else it reads nothing, not even a part: that
// could mean more than all of it.
func List(claim any) (values []string, whole bool) {
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

// Local is the [Attributes].IDP of users here.
const Local = "local"

// ErrUnread says that something depends on claims that could not be read. What it wraps names them.
var ErrUnread = errors.New("claims could not be read whole")

// Attributes are what rules may ask about a person.
type Attributes struct {
	// IDP is who says so: the key of an identity provider, or [Local]. Empty for a client, and for another issuer's token.
	IDP string
	// Groups are those that the person is in.
	Groups []string
	// Claims are further claims, by our names.
	Claims map[string][]string
	// Unread are our names of what could not be read whole, and is left out: rules must not take it for none.
	Unread []string
}

// Names are the claims of a token that a site names. Nil names none.
type Names struct {
	theirs map[string]string // by our names
	text   string
}

// Groups is the claim that has the groups, unless a site names another one so.
const Groups = "groups"

// NewNames names claims, theirs by ours, and [Groups].
func NewNames(theirs map[string]string) *Names {
	n := &Names{theirs: map[string]string{Groups: Groups}}
	maps.Copy(n.theirs, theirs)
	n.text = fmt.Sprintf("%q", n.theirs) // sorted
	return n
}

// String differs for names that differ.
func (n *Names) String() string {
	if n == nil {
		return ""
	}
	return n.text
}

// Read takes the named claims from an object that is known to have one reading. One that is missing has no values.
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
	a.Claims = make(map[string][]string, len(n.theirs))
	for ours, theirs := range n.theirs {
		values, whole := Read(claims, theirs)
		if a.Claims[ours] = values; !whole {
			a.Unread = append(a.Unread, ours)
		}
	}
	a.Groups = a.Claims[Groups]
	return a, nil
}

// AccessToken holds the claims of a verified access token that decide whether its grant
// still stands.
type AccessToken struct {
	ID              string // the jti
	Subject         string // the sub
	ClientID        string // the client_id
	Scope           string // the scope
	Session         string // the sid: the session that the token ends with, if any
	CredentialHash  string // the credential_hash; of the password, or of the client secret, that it ends with
	Provider        string // the idp: the key of the identity provider; empty for a password here
	ProviderAccount string // the idp_account: the provider's account that is linked to a local user, if any
	ACR             string // the acr: the class of the sign-in; empty for a client of its own
}

// Holder is the person or client that an access token was issued to.
type Holder struct {
	FHIRUser string // the URL of the person's FHIR resource; empty without one, or for a client

	Attributes
}
