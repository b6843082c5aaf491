package caddymodule

import (
	"errors"
	"fmt"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
)

// TrustedIssuer is an authorization server other than ours, whose JWT access
// tokens are accepted (RFC 9068, and what Entra ID, Okta, Keycloak and Auth0 make
// of it). Its keys are fetched on first use, and kept over reloads, for as long as their
// `Cache-Control` says: to forget a key before that needs a restart.
type TrustedIssuer struct {
	// The `iss` of its tokens, to the letter: https, or http on loopback.
	// Required.
	Issuer string `json:"issuer,omitempty"`

	// What `aud` must hold. Default: the FHIR base URL; without the fhir app it
	// is required.
	Audience string `json:"audience,omitempty"`

	TLS
}

// Introspection is how tokens are verified that are no JWTs: by asking the server
// that issued them (RFC 7662). What is active is remembered for a minute at most.
type Introspection struct {
	// The introspection endpoint: https, or http on loopback. Required.
	Endpoint string `json:"endpoint,omitempty"`

	// Our client_id there. Required. Placeholders are supported.
	ClientID string `json:"client_id,omitempty"`

	// Our client secret there. Required. Placeholders are supported.
	ClientSecret string `json:"client_secret,omitempty"`

	// The `iss` that answers must have. Default: it is not looked at.
	Issuer string `json:"issuer,omitempty"`

	// What `aud` must hold, or `any` for servers that do not say. Default: the
	// FHIR base URL; without the fhir app it is required.
	Audience string `json:"audience,omitempty"`

	TLS
}

const anyAudience = "any"

var errNoAudience = errors.New("name the audience (after the issuer of trust, or as an option of introspect): there is no global option fhir to take the FHIR base URL from")

// newGuard puts together the verifiers of all the issuers that are configured.
func (h *Bearer) newGuard(ctx caddy.Context) (*guard.Guard, error) {
	memory := guard.NewMemory(guard.DefaultMemorySize)
	var own *guard.Verifier
	if h.app != nil {
		own = &guard.Verifier{
			Issuer: h.app.Issuer, Audience: h.app.fhirBaseURL(),
			Keys: guardKeys{h.app.keys}, Revoked: h.app.server.Revoked, Memory: memory,
		}
	}
	var trusted []*guard.Trusted
	for _, t := range h.Trust {
		verifier, err := h.newTrusted(ctx, t, memory)
		if err != nil {
			return nil, fmt.Errorf("trust %s: %w", t.Issuer, err)
		}
		trusted = append(trusted, verifier)
	}
	introspector, err := h.newIntrospector(memory)
	if err != nil {
		return nil, fmt.Errorf("introspect %s: %w", h.Introspection.Endpoint, err)
	}
	return guard.New(own, trusted, introspector)
}

func (h *Bearer) newTrusted(ctx caddy.Context, t TrustedIssuer, memory *guard.Memory) (*guard.Trusted, error) {
	audience, err := h.audience(t.Audience)
	if err != nil {
		return nil, err
	}
	keys, err := h.keysOf(ctx, &t)
	if err != nil {
		return nil, err
	}
	if h.app == nil && h.smart == nil { // the first issuer is the one that apps are told of
		h.smart = &smartConfiguration{path: h.FHIRBase + "/.well-known/smart-configuration", discovery: keys.discovery}
	}
	return &guard.Trusted{Issuer: t.Issuer, Audience: audience, Keys: keys, Memory: memory}, nil
}

func (h *Bearer) newIntrospector(memory *guard.Memory) (*guard.Introspector, error) {
	i := h.Introspection
	if i == nil {
		return nil, nil
	}
	repl := caddy.NewReplacer()
	id, err := resolveSecret(repl, i.ClientID)
	if err != nil {
		return nil, fmt.Errorf("client_id: %w", err)
	}
	secret, err := resolveSecret(repl, i.ClientSecret)
	if err != nil {
		return nil, fmt.Errorf("client_secret: %w", err)
	}
	transport, err := i.TLS.transport()
	if err != nil {
		return nil, err
	}
	asker := &guard.Introspector{
		Endpoint: i.Endpoint, ClientID: id, ClientSecret: secret, Issuer: i.Issuer,
		AnyAudience: i.Audience == anyAudience, Memory: memory, Network: clientNetwork, Transport: transport,
	}
	if !asker.AnyAudience {
		asker.Audience, err = h.audience(i.Audience)
	}
	return asker, err
}

func (h *Bearer) audience(told string) (string, error) {
	switch {
	case told != "":
		return told, nil
	case h.app == nil:
		return "", errNoAudience
	}
	return h.app.fhirBaseURL(), nil
}
