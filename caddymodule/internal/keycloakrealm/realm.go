package keycloakrealm

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// realm is what is read of a RealmRepresentation, as `kc.sh export` and the admin console write it.
type realm struct {
	Realm             string             `json:"realm"`
	Users             []user             `json:"users"`
	Clients           []client           `json:"clients"`
	IdentityProviders []identityProvider `json:"identityProviders"`

	// Algorithm, digits and period of authenticator apps, where a credential says nothing else.
	OTPAlgorithm string `json:"otpPolicyAlgorithm"`
}

// identityProvider is one that the realm's people sign in by.
type identityProvider struct {
	Alias string `json:"alias"`
}

// user is a person of the realm.
type user struct {
	Username      string              `json:"username"`
	Enabled       bool                `json:"enabled"`
	Email         string              `json:"email"`
	EmailVerified bool                `json:"emailVerified"`
	FirstName     string              `json:"firstName"`
	LastName      string              `json:"lastName"`
	Attributes    map[string][]string `json:"attributes"`
	Groups        []string            `json:"groups"`

	Required    []string     `json:"requiredActions"`
	Credentials []credential `json:"credentials"`
	Federated   []struct {
		Provider string `json:"identityProvider"`
	} `json:"federatedIdentities"`
	ServiceAccount string `json:"serviceAccountClientId"`
}

// credential is what somebody proves themselves by. Its two parts are JSON in a string.
type credential struct {
	Type           string `json:"type"`
	SecretData     string `json:"secretData"`
	CredentialData string `json:"credentialData"`
}

// secretData is the secret part of a password, an authenticator app or another credential.
type secretData struct {
	Value string `json:"value"`
	Salt  string `json:"salt"`
}

// credentialData is the public part.
type credentialData struct {
	Algorithm      string              `json:"algorithm"`
	HashIterations int                 `json:"hashIterations"`
	Parameters     map[string][]string `json:"additionalParameters"`
	SubType        string              `json:"subType"`
	Digits         int                 `json:"digits"`
	Period         int                 `json:"period"`
	Encoding       string              `json:"secretEncoding"`
}

func (c credential) decode() (secret secretData, data credentialData, err error) {
	return secret, data, errors.Join(json.Unmarshal([]byte(c.SecretData), &secret), json.Unmarshal([]byte(c.CredentialData), &data))
}

// client is an app of the realm.
type client struct {
	ClientID        string            `json:"clientId"`
	Name            string            `json:"name"`
	Protocol        string            `json:"protocol"`
	Enabled         *bool             `json:"enabled"`
	BearerOnly      bool              `json:"bearerOnly"`
	Public          bool              `json:"publicClient"`
	StandardFlow    *bool             `json:"standardFlowEnabled"`
	ImplicitFlow    bool              `json:"implicitFlowEnabled"`
	DirectGrants    bool              `json:"directAccessGrantsEnabled"`
	ServiceAccount  bool              `json:"serviceAccountsEnabled"`
	ConsentRequired bool              `json:"consentRequired"`
	Authenticator   string            `json:"clientAuthenticatorType"`
	Secret          string            `json:"secret"`
	RootURL         string            `json:"rootUrl"`
	RedirectURIs    []string          `json:"redirectUris"`
	Attributes      map[string]string `json:"attributes"`
	DefaultScopes   []string          `json:"defaultClientScopes"`
	OptionalScopes  []string          `json:"optionalClientScopes"`
	Mappers         []struct {
		Name string `json:"name"`
	} `json:"protocolMappers"`
}

// read decodes an export.
func read(export []byte) (*realm, error) {
	r := new(realm)
	if err := json.Unmarshal(export, r); err != nil {
		return nil, fmt.Errorf("this is no realm as Keycloak exports it: %w", err)
	}
	if r.Realm == "" {
		return nil, errors.New("this is no realm as Keycloak exports it: it has no member \"realm\"")
	}
	return r, nil
}

// groupPaths are the paths of the groups that somebody is in, by their names.
func (r *realm) groupPaths() map[string][]string {
	paths := map[string][]string{}
	for _, u := range r.Users {
		for _, path := range u.Groups {
			if name := groupName(path); !slices.Contains(paths[name], path) {
				paths[name] = append(paths[name], path)
			}
		}
	}
	return paths
}

func groupName(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }
