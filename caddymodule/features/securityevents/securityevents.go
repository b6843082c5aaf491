// Package securityevents lets identity providers end sessions and accounts by pushing Security Event Tokens (RFC 8417, RFC
// 8935). It supports the events of CAEP 1.0 and RISC 1.0.
package securityevents

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/deprovisioning"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/strictjson"
)

// endsAccount contains the supported event types (CAEP 1.0 §3, RISC 1.0 §2). The value is true if the event ends the entire
// account and false if it ends only sessions.
var endsAccount = map[string]bool{
	"https://schemas.openid.net/secevent/caep/event-type/session-revoked":                    false,
	"https://schemas.openid.net/secevent/risc/event-type/sessions-revoked":                   false,
	"https://schemas.openid.net/secevent/caep/event-type/credential-change":                  true,
	"https://schemas.openid.net/secevent/risc/event-type/credential-compromise":              true,
	"https://schemas.openid.net/secevent/risc/event-type/account-credential-change-required": true,
	"https://schemas.openid.net/secevent/risc/event-type/account-disabled":                   true,
	"https://schemas.openid.net/secevent/risc/event-type/account-purged":                     true,
}

// pathPrefix is the path prefix of the endpoints, followed by the key of the identity provider.
const pathPrefix = "/oauth2/events/"

func init() {
	caddy.RegisterModule(new(Events))
	endpoint.Register("events")
}

// Events receives Security Event Tokens by push (RFC 8417, RFC 8935) at `/oauth2/events/{idp}`. With these tokens, an identity
// provider reports that sessions or accounts have ended. The feature is always on for each identity provider and has no
// options.
type Events struct{}

// CaddyModule returns the Caddy module information.
func (*Events) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir.features.security_events", New: func() caddy.Module { return new(Events) }}
}

// AlwaysOn implements [fhirapp.AlwaysOn].
func (*Events) AlwaysOn() {}

// Configure implements [fhirapp.Feature].
func (e *Events) Configure(_ *fhirapp.App, c *authorize.Config) error {
	c.Features = append(c.Features, e)
	return nil
}

// Extend implements [authorize.Feature].
func (*Events) Extend(core *authorize.Core) error {
	e := &receiver{Responder: core.Responder, store: core.Config.DurableStore, deprovisioner: core.Deprovisioner}
	for key, p := range core.Accounts.Providers {
		core.Handle(pathPrefix+key, p.Endpoint(e.serve), http.MethodPost)
	}
	return nil
}

// receiver serves the endpoints of all identity providers.
type receiver struct {
	*endpoint.Responder
	store         store.Store // store of the used tokens
	deprovisioner *deprovisioning.Deprovisioner
}

// serve handles a provider's events (RFC 8935 §2). It accepts events that have no effect at the gateway, such as the
// verification of a stream.
func (e *receiver) serve(w http.ResponseWriter, r *http.Request, p *people.Provider) {
	if err := e.receive(w, r, p); err != nil {
		e.writeError(w, r, err)
		return
	}
	w.WriteHeader(http.StatusAccepted)
}

func (e *receiver) receive(w http.ResponseWriter, r *http.Request, p *people.Provider) error {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/secevent+jwt" {
		return relyingparty.NewEventError("the Content-Type must be application/secevent+jwt")
	}
	body, err := oauth2.ReadBody(w, r)
	if err != nil {
		return relyingparty.NewEventError("%w", err)
	}
	token, err := p.Client.VerifySecurityEvent(r.Context(), string(body), e.Issuer+pathPrefix+p.Key)
	if err != nil {
		return err
	}
	audit.RecordAuthenticated(r.Context())
	return e.handleOnce(r.Context(), p, token)
}

// handleOnce handles a token and then marks it as used, so that the token can be resent after a failure. A used token is
// accepted but has no effect, because transmitters resend a token if the response was lost (RFC 8935 §2).
func (e *receiver) handleOnce(ctx context.Context, p *people.Provider, token *relyingparty.SecurityEvent) error {
	types := slices.DeleteFunc(slices.Sorted(maps.Keys(token.Events)), func(name string) bool { _, ok := endsAccount[name]; return !ok })
	if len(types) == 0 {
		return nil
	}
	of, err := eventSubject(token, token.Issuer)
	if err != nil {
		return err
	}
	if len(p.Tenants) > 0 && of.sub == "" { // another tenant's person may have the same address or session ID
		return relyingparty.NewEventError("the subject must contain sub, because the provider has several tenants")
	}
	of.sub = p.Client.QualifySubject(token.Issuer, of.sub)
	ttl := time.Until(token.IssuedAt) + relyingparty.MaxEventAge + relyingparty.Leeway
	_, err = store.RunOnce(ctx, e.store, store.Key("security-event", p.Key+"\x00"+token.ID), ttl, func() error {
		for _, name := range types {
			if err := e.applyEvent(ctx, p, name, of); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}

// applyEvent applies an event. If the subject of an account event is only a session, it ends that session.
func (e *receiver) applyEvent(ctx context.Context, p *people.Provider, name string, of subject) error {
	reason := "security event from the identity provider: " + name[strings.LastIndexByte(name, '/')+1:]
	audit.RecordSessionEndReason(ctx, reason)
	if !endsAccount[name] || of.sub == "" && of.email == "" {
		return e.endSessions(ctx, p, of)
	}
	if of.sub != "" { // also reject a first sign-in that is in progress
		if err := e.deprovisioner.Sessions.RecordUpstreamLogout(ctx, p, of.sub, ""); err != nil {
			return err
		}
	}
	accounts, err := e.findAccounts(ctx, p, of)
	if err != nil {
		return err
	}
	return e.deprovisioner.RevokeAccounts(ctx, p, accounts, reason, strings.HasSuffix(name, "/account-purged"))
}

// endSessions ends all sessions of a subject. If the subject identifies a session, it ends only that session.
func (e *receiver) endSessions(ctx context.Context, p *people.Provider, of subject) error {
	if of.email == "" {
		return e.deprovisioner.Sessions.EndUpstreamSessions(ctx, p, of.sub, of.session)
	}
	accounts, err := e.findAccounts(ctx, p, of)
	if err == nil && len(accounts) == 0 && of.session != "" {
		return e.deprovisioner.Sessions.EndUpstreamSessions(ctx, p, "", of.session)
	}
	for _, account := range accounts {
		if err == nil {
			err = e.deprovisioner.Sessions.EndUpstreamSessions(ctx, p, account.Subject, of.session)
		}
	}
	return err
}

func (e *receiver) findAccounts(ctx context.Context, p *people.Provider, of subject) ([]people.StoredPerson, error) {
	if of.email != "" {
		return e.deprovisioner.People.FindByName(ctx, p, of.email)
	}
	return e.deprovisioner.People.FindBySubject(ctx, p, of.sub)
}

var errorDescriptions = map[string]string{
	"invalid_request":  "the request, token or subject is malformed, too old or unsupported",
	"invalid_key":      "the signature does not match a key of the identity provider",
	"invalid_issuer":   "iss is not the identity provider's issuer",
	"invalid_audience": "aud is neither the gateway's client_id nor this endpoint's URL",
}

// writeError sends an error response (RFC 8935 §2.4). The transmitter may resend the token after a 5xx.
func (e *receiver) writeError(w http.ResponseWriter, r *http.Request, err error) {
	eventErr, ok := errors.AsType[*relyingparty.EventError](err)
	if !ok {
		e.Trail.RecordRejection(r, audit.Event{Kind: audit.KindRevocation, Err: err})
		e.WriteError(w, r, err)
		return
	}
	description := errorDescriptions[eventErr.Code]
	e.Trail.RecordRejection(r, audit.Event{Kind: audit.KindRevocation, Err: &oauth2.Error{Code: eventErr.Code, Description: description, Err: eventErr.Err}})
	w.Header().Set("Content-Language", "en")
	e.WriteJSON(w, http.StatusBadRequest, map[string]string{"err": eventErr.Code, "description": description})
}

// subject is the subject of an event: a sub or an email address, a session, or a person's session.
type subject struct{ sub, email, session string }

// identifier is a subject identifier (RFC 9493 §3).
type identifier struct {
	Format  string      `json:"format"`
	Issuer  string      `json:"iss"`
	Subject string      `json:"sub"`
	ID      string      `json:"id"`
	Email   string      `json:"email"`
	User    *identifier `json:"user"`
	Session *identifier `json:"session"`
}

const maxIdentifier = 255 // in bytes (OpenID Connect Core §2)

// eventSubject returns the subject of a provider's event. If the subject is invalid, it returns a [relyingparty.EventError].
func eventSubject(e *relyingparty.SecurityEvent, issuer string) (of subject, err error) {
	if len(e.SubjectID) == 0 {
		return (&identifier{Format: "opaque", ID: e.Subject}).toSubject(issuer)
	}
	var id identifier
	if err := strictjson.Unmarshal(json.RawMessage(e.SubjectID), &id); err != nil {
		return of, relyingparty.NewEventError("parsing sub_id: %w", err)
	}
	if id.Format != "complex" {
		return id.toSubject(issuer)
	}
	if id.User == nil && id.Session == nil {
		return of, relyingparty.NewEventError("sub_id contains neither user nor session")
	}
	if id.User != nil {
		of, err = id.User.toSubject(issuer)
	}
	if id.Session != nil && err == nil {
		var session subject
		session, err = id.Session.toSubject(issuer)
		if of.session = session.sub; err == nil && id.Session.Format != "opaque" {
			err = relyingparty.NewEventError("unsupported format of the session in sub_id: %.100q", id.Session.Format)
		}
	}
	return of, err
}

// toSubject returns the subject of a simple identifier. An identifier of another issuer is an error.
func (id *identifier) toSubject(issuer string) (of subject, err error) {
	switch id.Format {
	case "iss_sub":
		if id.Issuer != issuer {
			return of, relyingparty.NewEventError("unexpected iss in sub_id: %.200q", id.Issuer)
		}
		of.sub = id.Subject
	case "opaque":
		of.sub = id.ID
	case "email":
		of.email = id.Email
	default:
		return of, relyingparty.NewEventError("unsupported sub_id format: %.100q", id.Format)
	}
	if value := of.sub + of.email; value == "" || len(value) > maxIdentifier {
		return subject{}, relyingparty.NewEventError("invalid length of %s in the subject: %d bytes", id.Format, len(value))
	}
	return of, nil
}
