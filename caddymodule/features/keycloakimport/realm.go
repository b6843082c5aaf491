package keycloakimport

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// realm is the parsed part of a RealmRepresentation, the format in which `kc.sh export` and the admin console export a realm.
type realm struct {
	Realm             string           `json:"realm"`
	Users             []user           `json:"users"`
	Clients           []keycloakClient `json:"clients"`
	IdentityProviders []struct {
		Alias string `json:"alias"`
	} `json:"identityProviders"`
	Groups       []group `json:"groups"`
	OTPAlgorithm string  `json:"otpPolicyAlgorithm"` // default hash algorithm of authenticator apps
	VerifyEmail  bool    `json:"verifyEmail"`        // users must verify their email address before sign-in

	roleMappings
	lifespans lifespans // top-level members that are parsed separately

	BrowserFlow string `json:"browserFlow"`
	Flows       flows  `json:"authenticationFlows"`

	ClientPolicies struct {
		Policies []clientPolicy `json:"policies"`
	} `json:"clientPolicies"`
}

// clientPolicy applies profiles, such as required PKCE, to the clients that meet its conditions.
type clientPolicy struct {
	Name     string   `json:"name"`
	Enabled  bool     `json:"enabled"`
	Profiles []string `json:"profiles"`
}

type group struct {
	Path        string              `json:"path"`
	RealmRoles  []string            `json:"realmRoles"`
	ClientRoles map[string][]string `json:"clientRoles"`
	SubGroups   []group             `json:"subGroups"`
}

type user struct {
	Username        string              `json:"username"`
	Enabled         bool                `json:"enabled"`
	Email           string              `json:"email"`
	EmailVerified   bool                `json:"emailVerified"`
	FirstName       string              `json:"firstName"`
	LastName        string              `json:"lastName"`
	Attributes      map[string][]string `json:"attributes"`
	Groups          []string            `json:"groups"` // group paths
	RequiredActions []string            `json:"requiredActions"`
	Credentials     []credential        `json:"credentials"`
	IdentityLinks   []struct {
		Provider string `json:"identityProvider"`
	} `json:"federatedIdentities"`
	ServiceAccount string              `json:"serviceAccountClientId"`
	FederationLink string              `json:"federationLink"` // source of the user, such as an LDAP directory
	RealmRoles     []string            `json:"realmRoles"`
	ClientRoles    map[string][]string `json:"clientRoles"`
}

// credential is a credential of a user. SecretData and CredentialData are JSON.
type credential struct {
	Type           string `json:"type"`
	SecretData     string `json:"secretData"`
	CredentialData string `json:"credentialData"`
}

// credentialData is the content of SecretData and CredentialData.
type credentialData struct {
	Value          string              `json:"value"`
	Salt           string              `json:"salt"`
	Algorithm      string              `json:"algorithm"`
	HashIterations int                 `json:"hashIterations"`
	Parameters     map[string][]string `json:"additionalParameters"`
	SubType        string              `json:"subType"`
	Digits         int                 `json:"digits"`
	Period         int                 `json:"period"`
	Encoding       string              `json:"secretEncoding"`
}

func (c credential) decode() (*credentialData, error) {
	data := new(credentialData)
	return data, errors.Join(json.Unmarshal([]byte(c.SecretData), data), json.Unmarshal([]byte(c.CredentialData), data))
}

type keycloakClient struct {
	ClientID        string            `json:"clientId"`
	Name            string            `json:"name"`
	Protocol        string            `json:"protocol"`
	Enabled         *bool             `json:"enabled"`
	BearerOnly      bool              `json:"bearerOnly"`
	IsPublic        bool              `json:"publicClient"`
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
	FlowOverrides   map[string]string `json:"authenticationFlowBindingOverrides"`
	Authorization   bool              `json:"authorizationServicesEnabled"`
	DefaultScopes   []string          `json:"defaultClientScopes"`
	OptionalScopes  []string          `json:"optionalClientScopes"`
	Mappers         []struct {
		Name string `json:"name"`
	} `json:"protocolMappers"`
}

func parseRealm(export []byte) (*realm, error) {
	r := new(realm)
	err := errors.Join(json.Unmarshal(export, r), json.Unmarshal(export, &r.lifespans))
	if err == nil && r.Realm == "" {
		err = errors.New("member \"realm\" is missing")
	}
	if err != nil {
		return nil, fmt.Errorf("not a Keycloak realm export: %w", err)
	}
	return r, nil
}

// ambiguousGroups returns the names that several groups with members have in common.
func (r *realm) ambiguousGroups() map[string]bool {
	paths, ambiguous := map[string]string{}, map[string]bool{}
	for _, u := range r.Users {
		for _, path := range u.Groups {
			name := groupName(path)
			ambiguous[name] = ambiguous[name] || cmp.Or(paths[name], path) != path
			paths[name] = path
		}
	}
	return ambiguous
}

func groupName(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }
