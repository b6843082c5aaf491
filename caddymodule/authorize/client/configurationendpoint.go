package client

import (
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
)

// authenticate returns the client that a request names and has the token of.
func (e *RegistrationEndpoint) authenticate(r *http.Request) (*registered, error) {
	p, err := oauth2.QueryParameters(r.URL.RawQuery)
	if err != nil {
		return nil, err
	}
	c, err := e.Registrar.load(r.Context(), p.Get("client_id"))
	if err != nil {
		return nil, err
	}
	var digest []byte // of none that there is
	if c != nil {
		digest = c.AccessDigest
	}
	if err := e.checkToken(r, p.Get("client_id"), digest, false); err != nil {
		return nil, err
	}
	return c, nil
}

func (e *RegistrationEndpoint) read(w http.ResponseWriter, r *http.Request) error {
	c, err := e.authenticate(r)
	if err == nil {
		e.writeInformation(w, r, c, "")
	}
	return err
}

// writeInformation sends the registration, the token of the request, and a new secret if
// there is one (RFC 7592 §3).
func (e *RegistrationEndpoint) writeInformation(w http.ResponseWriter, r *http.Request, c *registered, secret string) {
	info := e.information(c)
	info.Secret, info.AccessToken = secret, registrationToken(r)
	e.WriteJSON(w, http.StatusOK, info)
}

// update replaces a client's metadata (RFC 7592 §2.2): omitted members get their defaults. A
// client that still needs a secret keeps it.
func (e *RegistrationEndpoint) update(w http.ResponseWriter, r *http.Request) error {
	c, err := e.authenticate(r)
	if err != nil {
		return err
	}
	m, client, err := e.Registrar.readClient(w, r)
	if err != nil {
		return err
	}
	var secret string
	changed, err := e.Registrar.change(r.Context(), c.Client.ID, func(c *registered) error {
		if err := m.checkIdentity(c); err != nil {
			return err
		}
		secret = c.replace(client, m.Method)
		return nil
	})
	if err != nil {
		return err
	}
	e.Trail.Record(r.Context(), audit.Event{Kind: audit.Registration, ClientID: c.Client.ID, Reason: "changed"})
	e.writeInformation(w, r, changed, secret)
	return nil
}

// checkIdentity refuses an update that names another client or secret (RFC 7592 §2.2).
func (m *registrationRequest) checkIdentity(c *registered) error {
	switch {
	case m.ID != c.Client.ID:
		return invalidMetadata("client_id must be that of the client")
	case m.Secret != "" && (c.SecretDigest == nil || !sameDigest(c.SecretDigest, m.Secret)):
		return invalidMetadata("client_secret must be that of the client, or left out")
	}
	return nil
}

// remove deletes a client (RFC 7592 §2.3). Its tokens end with it.
func (e *RegistrationEndpoint) remove(w http.ResponseWriter, r *http.Request) error {
	c, err := e.authenticate(r)
	if err != nil {
		return err
	}
	if err := e.Registrar.remove(r.Context(), c.Client.ID); err != nil {
		return err
	}
	e.Trail.Record(r.Context(), audit.Event{Kind: audit.Registration, ClientID: c.Client.ID, Reason: "deleted"})
	w.WriteHeader(http.StatusNoContent)
	return nil
}
