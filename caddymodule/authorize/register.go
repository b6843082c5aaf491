package authorize

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"
)

// clientMetadata is what an app says of itself (RFC 7591 §2, OpenID Connect
// Dynamic Client Registration §2). What is not here is ignored.
type clientMetadata struct {
	RedirectURIs           []string `json:"redirect_uris"`
	Method                 string   `json:"token_endpoint_auth_method"`
	GrantTypes             []string `json:"grant_types"`
	ResponseTypes          []string `json:"response_types"`
	Name                   string   `json:"client_name,omitempty"`
	Scope                  string   `json:"scope"`
	PostLogoutRedirectURIs []string `json:"post_logout_redirect_uris,omitempty"`
	RequirePushed          bool     `json:"require_pushed_authorization_requests,omitempty"`
	SubjectType            string   `json:"subject_type,omitempty"`
	IDTokenAlgorithm       string   `json:"id_token_signed_response_alg,omitempty"`
}

// clientInformation is the answer (RFC 7591 §3.2.1, RFC 7592 §3). The secret is
// told once.
type clientInformation struct {
	ID              string `json:"client_id"`
	Secret          string `json:"client_secret,omitempty"`
	IssuedAt        int64  `json:"client_id_issued_at"`
	SecretExpiresAt *int64 `json:"client_secret_expires_at,omitempty"`
	AccessToken     string `json:"registration_access_token,omitempty"`
	URI             string `json:"registration_client_uri"`
	clientMetadata
}

const (
	maxRedirectURIs = 20
	maxClientName   = 100 // characters
)

// registration is the client registration endpoint (RFC 7591), and that of a
// registered client's configuration (RFC 7592).
func (s *Server) registration(w http.ResponseWriter, r *http.Request) {
	var err error
	switch r.Method {
	case http.MethodPost:
		err = s.register(w, r)
	case http.MethodGet:
		err = s.showRegistered(w, r)
	default:
		err = s.unregister(w, r)
	}
	if errors.Is(err, errRegistrationToken) {
		w.Header().Set("WWW-Authenticate", fmt.Sprintf("Bearer realm=%q, error=%q", s.issuer, errRegistrationToken.Code))
	}
	if err != nil {
		s.writeError(w, r, err)
	}
}

var errRegistrationToken = &Error{
	Code: "invalid_token", Status: http.StatusUnauthorized,
	Description: "send the access token of the registration, as Authorization: Bearer",
}

// registrationToken is the token that came with a request (RFC 6750 §2.1).
func registrationToken(r *http.Request) string {
	headers := r.Header.Values("Authorization")
	scheme, token, _ := strings.Cut(strings.Join(headers, ", "), " ")
	if !strings.EqualFold(scheme, "Bearer") || len(headers) > 1 {
		return ""
	}
	return token
}

func (s *Server) register(w http.ResponseWriter, r *http.Request) error {
	if !sameDigest(digestOf(s.registrar.InitialAccessToken), registrationToken(r)) {
		return errRegistrationToken
	}
	m, err := readMetadata(w, r)
	if err != nil {
		return err
	}
	client, err := s.registrar.client(m)
	if err != nil {
		return err
	}
	made, secret, access := newRegistered(client, m.Method)
	if err := s.registrar.store(r.Context(), made); err != nil {
		return err
	}
	s.record(r.Context(), Event{Kind: EventRegistration, ClientID: made.Client.ID, Reason: made.Client.Name})
	info := s.information(made)
	info.Secret, info.AccessToken = secret, access
	s.writeJSON(w, http.StatusCreated, info)
	return nil
}

func readMetadata(w http.ResponseWriter, r *http.Request) (*clientMetadata, error) {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
		return nil, badMetadata("the body must be application/json")
	}
	m := new(clientMetadata)
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(m); err != nil {
		return nil, &Error{Code: "invalid_client_metadata", Description: "the body is no JSON object of client metadata, or larger than 64 KiB", Err: err}
	}
	if m.Method == "" {
		m.Method = "client_secret_basic"
	}
	return m, m.check()
}

func badMetadata(description string) *Error {
	return &Error{Code: "invalid_client_metadata", Description: description}
}

// check refuses what an app would otherwise take for granted and not get.
func (m *clientMetadata) check() error {
	only := func(values []string, known ...string) bool {
		return !slices.ContainsFunc(values, func(v string) bool { return !slices.Contains(known, v) })
	}
	switch {
	case !slices.Contains([]string{"none", "client_secret_basic", "client_secret_post"}, m.Method):
		return badMetadata("token_endpoint_auth_method must be none, client_secret_basic or client_secret_post")
	case !only(m.ResponseTypes, "code"):
		return badMetadata("response_types must be code")
	case !only(m.GrantTypes, "authorization_code", "refresh_token") || len(m.GrantTypes) > 0 && !slices.Contains(m.GrantTypes, "authorization_code"):
		return badMetadata("grant_types must be authorization_code")
	case m.SubjectType != "" && m.SubjectType != "public":
		return badMetadata("subject_type must be public")
	case m.IDTokenAlgorithm != "" && m.IDTokenAlgorithm != string(idTokenAlgorithm):
		return badMetadata("id_token_signed_response_alg must be " + string(idTokenAlgorithm))
	case len([]rune(m.Name)) > maxClientName || strings.ContainsFunc(m.Name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return badMetadata("client_name must be at most 100 printable characters")
	}
	return m.checkAddresses()
}

func (m *clientMetadata) checkAddresses() error {
	if len(m.RedirectURIs) == 0 || len(m.RedirectURIs) > maxRedirectURIs || len(m.PostLogoutRedirectURIs) > maxRedirectURIs {
		return &Error{Code: "invalid_redirect_uri", Description: "register 1 to 20 redirect_uris"}
	}
	for _, uri := range slices.Concat(m.RedirectURIs, m.PostLogoutRedirectURIs) {
		if err := CheckRedirectURI(uri); err != nil || len(uri) > maxParameter {
			return &Error{Code: "invalid_redirect_uri", Description: "an address is not https (or http://localhost), absolute and without a fragment", Err: err}
		}
	}
	return nil
}

// client makes metadata into a client. Scopes beyond those that are allowed are
// refused rather than left out, so that the app learns of it now.
func (r *registrar) client(m *clientMetadata) (Client, error) {
	c := Client{
		Name: m.Name, RedirectURIs: m.RedirectURIs, PostLogoutRedirectURIs: m.PostLogoutRedirectURIs,
		ResponseTypes: []string{"code"}, RequirePushed: m.RequirePushed, Scopes: r.Scopes,
	}
	if m.Scope == "" {
		return c, nil
	}
	c.Scopes = nil
	for _, scope := range strings.Fields(m.Scope) {
		switch {
		case slices.Contains(ReservedScopes, scope):
		case slices.Contains(r.Scopes, scope):
			c.Scopes = append(c.Scopes, scope)
		default:
			return c, badMetadata("scope holds more than clients that register may have")
		}
	}
	return c, nil
}

func (s *Server) information(c *registered) clientInformation {
	info := clientInformation{
		ID: c.Client.ID, IssuedAt: c.IssuedAt.Unix(),
		URI: s.issuer + pathRegister + "?client_id=" + url.QueryEscape(c.Client.ID),
		clientMetadata: clientMetadata{
			RedirectURIs: c.Client.RedirectURIs, Method: c.Method, Name: c.Client.Name,
			GrantTypes: []string{"authorization_code"}, ResponseTypes: []string{"code"},
			Scope:                  strings.Join(slices.Concat(ReservedScopes, c.Client.Scopes), " "),
			PostLogoutRedirectURIs: c.Client.PostLogoutRedirectURIs, RequirePushed: c.Client.RequirePushed,
		},
	}
	if c.Method != "none" {
		info.SecretExpiresAt = new(int64) // never
	}
	return info
}

// managed finds the client that a request is about, and whose token it carries.
func (s *Server) managed(r *http.Request) (*registered, error) {
	p, err := queryParameters(r.URL.RawQuery)
	if err != nil {
		return nil, err
	}
	c, err := s.registrar.load(r.Context(), p.get("client_id"))
	if err != nil {
		return nil, err
	}
	if c == nil || !sameDigest(c.AccessDigest, registrationToken(r)) {
		return nil, errRegistrationToken
	}
	return c, nil
}

func (s *Server) showRegistered(w http.ResponseWriter, r *http.Request) error {
	c, err := s.managed(r)
	if err != nil {
		return err
	}
	info := s.information(c)
	info.AccessToken = registrationToken(r) // required here too, and we keep but its digest
	s.writeJSON(w, http.StatusOK, info)
	return nil
}

// unregister deletes a client. What it was given ends with it: see Holder.
func (s *Server) unregister(w http.ResponseWriter, r *http.Request) error {
	c, err := s.managed(r)
	if err != nil {
		return err
	}
	if err := s.registrar.remove(r.Context(), c.Client.ID); err != nil {
		return err
	}
	s.record(r.Context(), Event{Kind: EventRegistration, ClientID: c.Client.ID, Reason: "deleted"})
	w.WriteHeader(http.StatusNoContent)
	return nil
}
