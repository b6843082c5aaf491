package deprovisioning

import (
	"context"
	"errors"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/upstream"
)

// endsAccount says of each type of event that has an effect whether it ends everything of an account, or sessions alone
// (CAEP 1.0 §3, RISC 1.0 §2).
var endsAccount = map[string]bool{
	"https://schemas.openid.net/secevent/caep/event-type/session-revoked":                    false,
	"https://schemas.openid.net/secevent/risc/event-type/sessions-revoked":                   false,
	"https://schemas.openid.net/secevent/caep/event-type/credential-change":                  true,
	"https://schemas.openid.net/secevent/risc/event-type/credential-compromise":              true,
	"https://schemas.openid.net/secevent/risc/event-type/account-credential-change-required": true,
	"https://schemas.openid.net/secevent/risc/event-type/account-disabled":                   true,
	"https://schemas.openid.net/secevent/risc/event-type/account-purged":                     true,
}

// Events receives Security Event Tokens.
type Events struct {
	Responder *endpoint.Responder // answers
	Durable   store.Store         // holds the used tokens
	Ending    *Ending             // what they say
}

// Serve is the endpoint for a provider's events (RFC 8935 §2). What has no effect here, such as the verification of a
// stream, is accepted.
func (e *Events) Serve(w http.ResponseWriter, r *http.Request, p *people.Provider) {
	if err := e.receive(w, r, p); err != nil {
		e.refuse(w, r, err)
		return
	}
	w.WriteHeader(http.StatusAccepted)
}

func (e *Events) receive(w http.ResponseWriter, r *http.Request, p *people.Provider) error {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/secevent+jwt" {
		return upstream.InvalidEvent("the body must be application/secevent+jwt")
	}
	body, err := oauth2.ReadBody(w, r)
	if err != nil {
		return upstream.InvalidEvent("%w", err)
	}
	token, err := p.Client.VerifySecurityEvent(r.Context(), string(body), e.Responder.Issuer+endpoint.SecurityEvents+p.Key)
	if err != nil {
		return err
	}
	audit.NoteAuthenticated(r.Context())
	return e.once(r.Context(), p, token)
}

// once acts upon a token, and then remembers it: what fails half-way can be sent again. One that was used is accepted
// without effect, as transmitters repeat those whose answer they missed (RFC 8935 §2).
func (e *Events) once(ctx context.Context, p *people.Provider, token *upstream.SecurityEvent) error {
	types := slices.DeleteFunc(slices.Sorted(maps.Keys(token.Events)), func(name string) bool { _, ok := endsAccount[name]; return !ok })
	if len(types) == 0 {
		return nil
	}
	of, err := subjectOf(token, p.Issuer)
	if err != nil {
		return err
	}
	lasting := time.Until(token.IssuedAt) + upstream.MaxEventAge + upstream.Leeway
	_, err = store.Once(ctx, e.Durable, store.Key("security-event", p.Key+"\x00"+token.ID), lasting, func() error {
		for _, name := range types {
			if err := e.act(ctx, p, name, of); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}

// act ends what an event says. One of an account that names a session alone ends that.
func (e *Events) act(ctx context.Context, p *people.Provider, name string, of subject) error {
	reason := "the identity provider says " + name[strings.LastIndexByte(name, '/')+1:]
	audit.NoteSessionEndReason(ctx, reason)
	if !endsAccount[name] || of.sub == "" && of.email == "" {
		return e.Ending.sessions(ctx, p, of)
	}
	if of.sub != "" { // who may be signing in for the first time
		if err := e.Ending.Sessions.NoteEnded(ctx, p, of.sub, ""); err != nil {
			return err
		}
	}
	found, err := e.Ending.known(ctx, p, of)
	if err != nil {
		return err
	}
	return e.Ending.accounts(ctx, p, found, reason, strings.HasSuffix(name, "/account-purged"))
}

var eventDescriptions = map[string]string{
	"invalid_request":  "the request, token or subject is malformed, too old or of a kind that is not understood",
	"invalid_key":      "the signature is not by a key of the provider",
	"invalid_issuer":   "iss is not the provider's issuer",
	"invalid_audience": "aud is neither our client_id nor this address",
}

// refuse answers a token that is at fault (RFC 8935 §2.4). After a failure here, the same one may be sent again.
func (e *Events) refuse(w http.ResponseWriter, r *http.Request, err error) {
	refused, ok := errors.AsType[*upstream.EventError](err)
	if !ok {
		e.Responder.Trail.RecordRefusal(r, audit.Event{Kind: audit.Revocation, Err: err})
		e.Responder.WriteError(w, r, err)
		return
	}
	description := eventDescriptions[refused.Code]
	e.Responder.Trail.RecordRefusal(r, audit.Event{Kind: audit.Revocation, Err: &oauth2.Error{Code: refused.Code, Description: description, Err: refused.Err}})
	w.Header().Set("Content-Language", "en")
	e.Responder.WriteJSON(w, http.StatusBadRequest, map[string]string{"err": refused.Code, "description": description})
}
