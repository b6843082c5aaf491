// Package securityevents lets identity providers end sessions and accounts by pushing Security Event Tokens (RFC 8417, RFC
// 8935). It supports the events of CAEP 1.0 and RISC 1.0.
package securityevents

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"mime"
	"net/http"
	"net/url"
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
	types := slices.DeleteFunc(slices.Sorted(maps.Keys(token.Events)), func(name string) bool { return !isEffective(name, token.Events[name]) })
	if len(types) == 0 {
		return nil
	}
	subjects, err := eventSubjects(token)
	if err == nil {
		err = qualifySubjects(p, token.Issuer, subjects)
	}
	if err != nil {
		return err
	}
	ttl := time.Until(token.IssuedAt) + relyingparty.MaxEventAge + relyingparty.Leeway
	_, err = store.RunOnce(ctx, e.store, store.Key("security-event", p.Key+"\x00"+token.ID), ttl, func() error {
		for _, name := range types {
			for _, of := range subjects {
				if err := e.applyEvent(ctx, p, name, of); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return err
}

// qualifySubjects limits subjects to the tenant that issued the event. With several tenants, each subject must have a sub or an
// opaque id, because another tenant's person may have the same address or session ID. An opaque id that no account has is a sub.
func qualifySubjects(p *people.Provider, issuer string, all []subject) error {
	for i := range all {
		of := &all[i]
		sub := cmp.Or(of.sub, of.id)
		if len(p.Tenants) > 0 && sub == "" {
			return relyingparty.NewEventError("the subject must contain sub, because the provider has several tenants")
		}
		of.sub = p.Client.QualifySubject(issuer, sub)
	}
	return nil
}

// isEffective reports whether an event ends any access. A person who adds a credential keeps their access.
func isEffective(name string, event []byte) bool {
	var change struct {
		Type string `json:"change_type"`
	}
	_, isSupported := endsAccount[name]
	isAddition := strings.HasSuffix(name, "/credential-change") && json.Unmarshal(event, &change) == nil && change.Type == "create"
	return isSupported && !isAddition
}

// applyEvent applies an event. If the subject of an account event is only a session, it ends that session.
func (e *receiver) applyEvent(ctx context.Context, p *people.Provider, name string, of subject) error {
	reason := "security event from the identity provider: " + name[strings.LastIndexByte(name, '/')+1:]
	audit.RecordSessionEndReason(ctx, reason)
	of, err := e.resolveID(ctx, p, of)
	switch {
	case err != nil:
		return err
	case !endsAccount[name] || of.sub == "" && of.name == "":
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

// resolveID sets the sub of a subject with an opaque id. The id is the sub at the provider or the claim of the option sub. With
// several tenants, only accounts of the tenant in of.sub match.
func (e *receiver) resolveID(ctx context.Context, p *people.Provider, of subject) (subject, error) {
	if of.id == "" {
		return of, nil
	}
	accounts, err := e.deprovisioner.People.FindBySubject(ctx, p, of.sub)
	if len(accounts) > 0 || err != nil {
		return of, err
	}
	accounts, err = e.deprovisioner.People.FindByID(ctx, p, of.id)
	for _, account := range accounts {
		if p.HaveSameTenant(account.Subject, of.sub) {
			of.sub = account.Subject
			break
		}
	}
	return of, err
}

// endSessions ends all sessions of a subject. If the subject identifies a session, it ends only that session.
func (e *receiver) endSessions(ctx context.Context, p *people.Provider, of subject) error {
	if of.name == "" {
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
	if of.name != "" {
		return e.deprovisioner.People.FindByName(ctx, p, of.name)
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

// subject is the subject of an event: a person, a session, or a person's session. A person is identified by a sub at the
// provider, by a sub at the provider or the gateway (id), or by an email address or user name (name). After qualifySubjects, sub is
// also set if id is.
type subject struct{ sub, id, name, session string }

// identifier is a subject identifier (RFC 9493 §3).
type identifier struct {
	Format  string       `json:"format"`
	Issuer  string       `json:"iss"`
	Subject string       `json:"sub"`
	ID      string       `json:"id"`
	Email   string       `json:"email"`
	URI     string       `json:"uri"`
	Aliases []identifier `json:"identifiers"`
	User    *identifier  `json:"user"`
	Session *identifier  `json:"session"`
}

const (
	maxIdentifier = 255 // in bytes (OpenID Connect Core §2)
	maxAliases    = 20
)

// eventSubjects returns the subject of a provider's event, once for each of its aliases. If the subject is invalid, it returns a
// [relyingparty.EventError].
func eventSubjects(e *relyingparty.SecurityEvent) (all []subject, err error) {
	if len(e.SubjectID) == 0 {
		return (&identifier{Format: "iss_sub", Issuer: e.Issuer, Subject: e.Subject}).toSubjects(e.Issuer)
	}
	var id identifier
	if err := strictjson.Unmarshal(json.RawMessage(e.SubjectID), &id); err != nil {
		return nil, relyingparty.NewEventError("parsing sub_id: %w", err)
	}
	switch {
	case id.Format != "complex":
		return id.toSubjects(e.Issuer)
	case id.User == nil && id.Session == nil:
		return nil, relyingparty.NewEventError("sub_id contains neither user nor session")
	}
	if all = make([]subject, 1); id.User != nil {
		all, err = id.User.toSubjects(e.Issuer)
	}
	if id.Session != nil && err == nil {
		err = addSession(all, id.Session, e.Issuer)
	}
	return all, err
}

// addSession restricts subjects to a session.
func addSession(all []subject, session *identifier, issuer string) error {
	if session.Format != "opaque" {
		return relyingparty.NewEventError("unsupported format of the session in sub_id: %.100q", session.Format)
	}
	of, err := session.toSubject(issuer)
	for i := range all {
		all[i].session = of.id
	}
	return err
}

// toSubjects returns the subjects of a simple identifier or of its aliases (RFC 9493 §3.2.8). Aliases that are unsupported, or of
// another issuer, are skipped if the person has others. A sub is unique, unlike the other formats, and therefore sufficient.
func (id *identifier) toSubjects(issuer string) (all []subject, err error) {
	if id.Format != "aliases" {
		of, err := id.toSubject(issuer)
		return []subject{of}, err
	}
	if len(id.Aliases) == 0 || len(id.Aliases) > maxAliases {
		return nil, relyingparty.NewEventError("sub_id has %d identifiers", len(id.Aliases))
	}
	for _, alias := range id.Aliases {
		of, aliasErr := alias.toSubject(issuer)
		switch {
		case aliasErr != nil:
			err = aliasErr
		case of.sub != "":
			return []subject{of}, nil
		default:
			all = append(all, of)
		}
	}
	if len(all) > 0 {
		return all, nil
	}
	return nil, err
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
		of.id = id.ID
	case "email":
		of.name = id.Email
	case "account": // RFC 7565
		if name, ok := strings.CutPrefix(id.URI, "acct:"); ok {
			of.name, err = url.PathUnescape(name)
		}
	default:
		return of, relyingparty.NewEventError("unsupported sub_id format: %.100q", id.Format)
	}
	if value := of.sub + of.id + of.name; value == "" || len(value) > maxIdentifier || err != nil {
		return subject{}, relyingparty.NewEventError("the %s in the subject is missing, malformed or too long: %d bytes", id.Format, len(value))
	}
	return of, nil
}
