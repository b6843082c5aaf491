package registration

import (
	"cmp"
	"encoding/json"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/strictjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// clientMetadata is the client metadata of RFC 7591 §2 and OpenID Connect Dynamic Client Registration §2. Other members are
// ignored.
type clientMetadata struct {
	RedirectURIs           []string        `json:"redirect_uris"`
	ApplicationType        string          `json:"application_type,omitempty"`
	AuthMethod             string          `json:"token_endpoint_auth_method"`
	AuthAlgorithm          string          `json:"token_endpoint_auth_signing_alg,omitempty"`
	JWKS                   json.RawMessage `json:"jwks,omitempty"`
	JWKSURI                string          `json:"jwks_uri,omitempty"`
	GrantTypes             []string        `json:"grant_types"`
	ResponseTypes          []string        `json:"response_types"`
	Name                   string          `json:"client_name,omitempty"`
	LogoURI                string          `json:"logo_uri,omitempty"`
	PolicyURI              string          `json:"policy_uri,omitempty"`
	TermsURI               string          `json:"tos_uri,omitempty"`
	Scope                  string          `json:"scope"`
	PostLogoutRedirectURIs []string        `json:"post_logout_redirect_uris,omitempty"`
	RequirePushed          bool            `json:"require_pushed_authorization_requests,omitempty"`
	SubjectType            string          `json:"subject_type,omitempty"`
	IDTokenAlgorithm       string          `json:"id_token_signed_response_alg,omitempty"`
	UserinfoAlgorithm      string          `json:"userinfo_signed_response_alg,omitempty"`
	RequestAlgorithm       string          `json:"request_object_signing_alg,omitempty"`
	RequestURIs            []string        `json:"request_uris,omitempty"`
	RequireRequestObject   bool            `json:"require_signed_request_object,omitempty"` // RFC 9101 §10.5
	BackchannelLogoutURI   string          `json:"backchannel_logout_uri,omitempty"`
	BackchannelSession     bool            `json:"backchannel_logout_session_required,omitempty"`
}

const (
	maxRedirectURIs   = 20
	maxClientName     = 100 // in characters
	applicationNative = "native"
)

// registrationRequest is the body of a request. ID and Secret are used in updates (RFC 7592 §2.2).
type registrationRequest struct {
	ID     string `json:"client_id"`
	Secret string `json:"client_secret"`
	clientMetadata
}

// parseClientRequest parses the body of a request. It returns the metadata and the client that the metadata describes.
func (r *Registration) parseClientRequest(w http.ResponseWriter, request *http.Request) (*registrationRequest, client.Client, error) {
	m, err := r.readMetadata(w, request)
	if err != nil {
		return nil, client.Client{}, err
	}
	requested, err := r.newClient(&m.clientMetadata)
	if err == nil {
		err = r.rejectLocalURIs(m.RedirectURIs, m.PostLogoutRedirectURIs, []string{m.BackchannelLogoutURI})
	}
	return m, requested, err
}

// rejectLocalURIs returns an error if a URI is an address of this server. A response or logout token sent to this server could
// be mistaken for another message.
func (r *Registration) rejectLocalURIs(lists ...[]string) error {
	issuer, err := url.Parse(r.issuer)
	if err != nil {
		return err
	}
	for _, uri := range slices.Concat(lists...) {
		u, err := url.Parse(uri)
		if err == nil && u.Scheme == issuer.Scheme && strings.EqualFold(hostWithPort(u), hostWithPort(issuer)) {
			return &oauth2.Error{Code: "invalid_redirect_uri", Description: "redirect and logout URIs must not be URIs of this server"}
		}
	}
	return nil
}

func hostWithPort(u *url.URL) string {
	return strings.TrimSuffix(u.Hostname(), ".") + ":" + cmp.Or(u.Port(), "443")
}

func (r *Registration) readMetadata(w http.ResponseWriter, request *http.Request) (*registrationRequest, error) {
	if kind, _, _ := mime.ParseMediaType(request.Header.Get("Content-Type")); kind != "application/json" {
		return nil, invalidMetadata("the body must be application/json")
	}
	body, err := oauth2.ReadBody(w, request)
	if err != nil {
		return nil, err
	}
	m := new(registrationRequest)
	if err := strictjson.Unmarshal(body, m); err != nil {
		return nil, &oauth2.Error{Code: "invalid_client_metadata", Description: "the body is not a JSON object with client metadata", Err: err}
	}
	if m.AuthMethod == "" {
		m.AuthMethod = "client_secret_basic"
	}
	if string(m.JWKS) == "null" {
		m.JWKS = nil
	}
	return m, m.check(r.grants.RegistrableNames())
}

func invalidMetadata(description string) *oauth2.Error {
	return &oauth2.Error{Code: "invalid_client_metadata", Description: description}
}

// check returns an error if the metadata requests features that the client would not get, such as other grant types.
func (m *clientMetadata) check(grantTypes []string) error {
	onlyContains := func(values []string, allowed ...string) bool {
		return !slices.ContainsFunc(values, func(v string) bool { return !slices.Contains(allowed, v) })
	}
	switch {
	case !slices.Contains([]string{"none", "client_secret_basic", "client_secret_post", client.PrivateKeyJWT}, m.AuthMethod):
		return invalidMetadata("token_endpoint_auth_method must be none, client_secret_basic, client_secret_post or private_key_jwt")
	case m.AuthAlgorithm != "" && !slices.Contains(client.AssertionAlgorithms, jose.SignatureAlgorithm(m.AuthAlgorithm)):
		return invalidMetadata("token_endpoint_auth_signing_alg must be one of token_endpoint_auth_signing_alg_values_supported")
	case !onlyContains(m.ResponseTypes, "code"):
		return invalidMetadata("response_types must be code")
	case !onlyContains(m.GrantTypes, grantTypes...) || len(m.GrantTypes) > 0 && !slices.Contains(m.GrantTypes, client.GrantTypeAuthorizationCode):
		return invalidMetadata("grant_types must be authorization_code")
	case m.ApplicationType != "" && m.ApplicationType != "web" && m.ApplicationType != applicationNative:
		return invalidMetadata("application_type must be web or native")
	case m.SubjectType != "" && m.SubjectType != "public":
		return invalidMetadata("subject_type must be public")
	case m.IDTokenAlgorithm != "" && m.IDTokenAlgorithm != string(keyring.IDTokenAlgorithm):
		return invalidMetadata("id_token_signed_response_alg must be " + string(keyring.IDTokenAlgorithm))
	case m.UserinfoAlgorithm != "" && !slices.Contains(keyring.IDTokenAlgorithms, jose.SignatureAlgorithm(m.UserinfoAlgorithm)):
		return invalidMetadata("userinfo_signed_response_alg must be one of userinfo_signing_alg_values_supported")
	case m.RequestAlgorithm != "" && !slices.Contains(client.RequestObjectAlgorithms(), m.RequestAlgorithm):
		return invalidMetadata("request_object_signing_alg must be one of request_object_signing_alg_values_supported")
	case m.RequireRequestObject && m.RequestAlgorithm == client.AlgorithmNone:
		return invalidMetadata("require_signed_request_object cannot be combined with request_object_signing_alg none")
	case len(m.RequestURIs) > maxRedirectURIs || slices.ContainsFunc(m.RequestURIs, func(uri string) bool { uri, _, _ = strings.Cut(uri, "#"); return !isFetchable(uri) }):
		return invalidMetadata("request_uris must be at most 20 absolute https URIs")
	case m.BackchannelLogoutURI != "" && !isFetchable(m.BackchannelLogoutURI):
		return invalidMetadata("backchannel_logout_uri must be an absolute https URI without a fragment")
	case m.Name != "" && strings.TrimSpace(m.Name) == "":
		return invalidMetadata("client_name must not be blank")
	case len([]rune(m.Name)) > maxClientName || strings.ContainsFunc(m.Name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return invalidMetadata("client_name must be at most 100 printable characters")
	}
	if err := m.checkKeys(); err != nil {
		return err
	}
	return m.checkURIs()
}

// usesKeys reports whether the client authenticates or signs request objects with keys. Otherwise, its keys are ignored.
func (m *clientMetadata) usesKeys() bool {
	return m.AuthMethod == client.PrivateKeyJWT || m.RequireRequestObject || m.RequestAlgorithm != "" && m.RequestAlgorithm != client.AlgorithmNone
}

// checkKeys returns an error if the client's keys cannot be used.
func (m *clientMetadata) checkKeys() error {
	switch {
	case m.JWKS != nil && m.JWKSURI != "":
		return invalidMetadata("jwks and jwks_uri must not be used together")
	case !m.usesKeys():
		return nil
	case m.JWKSURI != "":
		if !isFetchable(m.JWKSURI) {
			return invalidMetadata("jwks_uri must be an absolute https URI without a fragment")
		}
	case m.JWKS == nil:
		return invalidMetadata("private_key_jwt and signed request objects require jwks or jwks_uri")
	case client.ContainsPrivateKey(m.JWKS):
		return invalidMetadata("jwks contains a private key: register only the public key, and generate a new key pair")
	default:
		if _, err := relyingparty.NewInlineKeySet(m.JWKS); err != nil {
			return invalidMetadata("jwks must be a JWK Set with a public signing key")
		}
	}
	return nil
}

// isFetchable reports whether this server may send requests to a registered address. [Registration].Transport determines which
// hosts are reachable.
func isFetchable(uri string) bool {
	return client.CheckRedirectURI(uri) == nil && strings.HasPrefix(uri, "https://") && len(uri) <= oauth2.MaxParameterSize
}

func (m *clientMetadata) checkURIs() error {
	if len(m.RedirectURIs) == 0 || len(m.RedirectURIs) > maxRedirectURIs || len(m.PostLogoutRedirectURIs) > maxRedirectURIs {
		return &oauth2.Error{Code: "invalid_redirect_uri", Description: "redirect_uris must have 1 to 20 URIs, and post_logout_redirect_uris at most 20"}
	}
	check := client.CheckRedirectURI
	if m.ApplicationType == applicationNative {
		check = client.CheckNativeRedirectURI
	}
	for name, uri := range map[string]string{"logo_uri": m.LogoURI, "policy_uri": m.PolicyURI, "tos_uri": m.TermsURI} {
		if uri, _, _ := strings.Cut(uri, "#"); uri != "" && !isFetchable(uri) {
			return invalidMetadata(name + " must be an absolute https URI")
		}
	}
	for _, uri := range slices.Concat(m.RedirectURIs, m.PostLogoutRedirectURIs) {
		if err := check(uri); err != nil || len(uri) > oauth2.MaxParameterSize {
			return &oauth2.Error{Code: "invalid_redirect_uri", Description: "redirect URIs must be absolute https (or http://localhost) URIs without a fragment", Err: err}
		}
	}
	return nil
}

// newClient creates a client from its metadata. Scopes that are not allowed are an error; they are not silently dropped.
func (r *Registration) newClient(m *clientMetadata) (client.Client, error) {
	c := client.Client{
		Name: m.Name, Native: m.ApplicationType == applicationNative, RedirectURIs: m.RedirectURIs, PostLogoutRedirectURIs: m.PostLogoutRedirectURIs,
		ResponseTypes: []string{"code"}, RequirePushed: m.RequirePushed, Scopes: r.Scopes, UserinfoAlgorithm: m.UserinfoAlgorithm,
		Links:                client.Links{Logo: m.LogoURI, Policy: m.PolicyURI, Terms: m.TermsURI},
		BackchannelLogoutURI: m.BackchannelLogoutURI, BackchannelSessionRequired: m.BackchannelSession,
	}
	switch {
	case r.RequestObjects:
		c.RequestObjects = client.RequestObjects{
			Algorithm: m.RequestAlgorithm, URIs: m.RequestURIs, KeysOnly: m.AuthMethod != client.PrivateKeyJWT, Required: m.RequireRequestObject,
		}
	case m.RequireRequestObject:
		return c, invalidMetadata("require_signed_request_object is not supported for self-registered clients")
	}
	if m.AuthMethod == client.PrivateKeyJWT || r.RequestObjects && m.usesKeys() {
		c.JWKS, c.JWKSURI, c.AssertionAlgorithm = m.JWKS, m.JWKSURI, m.AuthAlgorithm
	}
	if m.Scope == "" {
		return c, nil
	}
	c.Scopes = nil
	for scope := range strings.FieldsSeq(m.Scope) {
		switch {
		case slices.Contains(smart.ReservedScopes, scope):
		case slices.Contains(r.Scopes, scope):
			c.Scopes = append(c.Scopes, scope)
		default:
			return c, invalidMetadata("scope contains a scope that self-registered clients cannot be granted")
		}
	}
	return c, nil
}

// keySetCache contains the key sets of registered clients. It is independent of the cache of clients, so that keys are not
// fetched more often than [relyingparty.KeySet] allows.
type keySetCache struct {
	transport http.RoundTripper
	logger    *slog.Logger
	max       int // maximum number of key sets

	mu   sync.Mutex
	sets map[string]cachedKeySet // key sets by client_id
}

// cachedKeySet is a key set. It is valid until the client's jwks_uri or jwks changes.
type cachedKeySet struct {
	source string
	keys   *relyingparty.KeySet
}

// get returns the key set of a client, or nil if the client has no keys.
func (r *keySetCache) get(c *client.Client) (*relyingparty.KeySet, error) {
	source := c.JWKSURI + string(c.JWKS)
	if source == "" {
		return nil, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if cached := r.sets[c.ID]; cached.source == source {
		return cached.keys, nil
	}
	keys, err := c.NewKeys(r.logger, r.transport)
	if err != nil {
		return nil, err
	}
	if r.sets == nil || len(r.sets) >= r.max { // full: some key sets may belong to deleted clients
		r.sets = map[string]cachedKeySet{}
	}
	r.sets[c.ID] = cachedKeySet{source, keys}
	return keys, nil
}
