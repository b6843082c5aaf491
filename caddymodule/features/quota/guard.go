package quota

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/requester"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/bearer"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// admission counts the requests of one fhir_bearer. It does not count requests that this process sends.
type admission struct {
	set   *Set
	base  string // path of the FHIR API
	audit func(ctx context.Context, e audit.Event)
}

// AdmitAny implements [bearer.Admission]: it counts a request by its network, before the token is verified.
func (a *admission) AdmitAny(w http.ResponseWriter, r *http.Request) error {
	if !a.set.Counts(Network) || guard.TokenOf(r.Context()) != nil {
		return nil
	}
	err := a.set.Take(r.Context(), w.Header(), Network, requester.NetworkOf(r), WhatOf(r.URL.Path))
	return a.refuse(r, audit.Event{Anonymous: true}, err)
}

// Admit implements [bearer.Admission]: it counts a request by the client and the person of its token.
func (a *admission) Admit(w http.ResponseWriter, r *http.Request, t *guard.Token) error {
	if guard.TokenOf(r.Context()) != nil {
		return nil
	}
	what := WhatOf(r.URL.Path)
	err := a.set.Take(r.Context(), w.Header(), Client, clientOf(t), what)
	if person := personOf(t); err == nil && person != "" {
		err = a.set.Take(r.Context(), w.Header(), Person, person, what)
	}
	return a.refuse(r, audit.Event{User: t.Subject, ClientID: t.ClientID}, err)
}

// clientOf names the client of a token. Some issuers name none; then it is the subject of the token.
func clientOf(t *guard.Token) string { return Whose(t.Issuer, cmp.Or(t.ClientID, t.Subject)) }

// personOf names the person of a token; empty for one of a client that acts for itself (RFC 9068 §2.2).
func personOf(t *guard.Token) string {
	if t.Subject == "" || t.Subject == t.ClientID {
		return ""
	}
	return Whose(t.Issuer, t.Subject)
}

// refuse turns a refusal into an answer, and records it once a minute for each holder.
func (a *admission) refuse(r *http.Request, e audit.Event, err error) error {
	refusal, refused := errors.AsType[*Refusal](err)
	if !refused {
		return err
	}
	if refusal.First {
		e.Kind, e.Address = audit.Access, requester.Address(r)
		e.Err = &oauth2.Error{Code: "throttled", Description: refusal.Diagnostics()}
		a.audit(r.Context(), e)
	}
	return caddyhttp.Error(http.StatusTooManyRequests, refusal)
}

// Decided implements [bearer.Admission]: it counts entries of a batch or transaction, which came as one request.
func (a *admission) Decided(r *http.Request, b enforce.Bearer, d enforce.Decision) {
	isEntry := r.Method == http.MethodPost && (r.URL.Path == a.base || r.URL.Path == a.base+"/") && d.Interaction.Kind != interaction.Bundle
	if !isEntry || b.Token == nil || guard.TokenOf(r.Context()) != nil {
		return
	}
	what := cmp.Or(d.Interaction.Operation, Request)
	a.set.Charge(Network, requester.NetworkOf(r), what)
	a.set.Charge(Client, clientOf(b.Token), what)
	if person := personOf(b.Token); person != "" {
		a.set.Charge(Person, person, what)
	}
}

var _ bearer.Admission = (*admission)(nil)
