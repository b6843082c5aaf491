package bearer

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
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/quota"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/quotaoption"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/requester"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// quotas bound how much clients, people and networks may ask for.
type quotas struct {
	set   *quota.Set // nil if nothing does
	audit func(ctx context.Context, e audit.Event)
}

var errQuotasOfApp = errors.New("quota: with the fhir app it is an option of the app, in its block fhir { … }")

// newQuotas are those of the app or, without it, those set here, which count in this process and write to a trail.
func (h *Bearer) newQuotas(at address, app App, trail *audit.Log) (q quotas, err error) {
	switch {
	case app != nil && len(h.Quotas) > 0:
		return q, errQuotasOfApp
	case app != nil:
		return quotas{app.QuotaSet(), app.Audit}, nil
	}
	if h.counts, err = quotaoption.New(h.Quotas, "fhir_bearer "+at.url+at.path, nil, nil); err != nil || h.counts == nil {
		return q, err
	}
	return quotas{h.counts.Set, trail.Record}, nil
}

// countNetwork counts a request by its network, whoever sends it. What this process asks itself is not counted.
func (q quotas) countNetwork(w http.ResponseWriter, r *http.Request) error {
	if !q.set.Counts(quota.Network) || guard.TokenOf(r.Context()) != nil {
		return nil
	}
	err := q.set.Take(r.Context(), w.Header(), quota.Network, requester.NetworkOf(r), quota.WhatOf(r.URL.Path))
	return q.refuse(r, audit.Event{Anonymous: true}, err)
}

// countToken counts a request by the client and the person of its token.
func (q quotas) countToken(w http.ResponseWriter, r *http.Request, t *guard.Token) error {
	if q.set == nil || guard.TokenOf(r.Context()) != nil {
		return nil
	}
	what := quota.WhatOf(r.URL.Path)
	err := q.set.Take(r.Context(), w.Header(), quota.Client, clientOf(t), what)
	if person := personOf(t); err == nil && person != "" {
		err = q.set.Take(r.Context(), w.Header(), quota.Person, person, what)
	}
	return q.refuse(r, audit.Event{User: t.Subject, ClientID: t.ClientID}, err)
}

// clientOf names the client of a token. Some issuers name none; then it is whoever the token stands for.
func clientOf(t *guard.Token) string { return quota.Whose(t.Issuer, cmp.Or(t.ClientID, t.Subject)) }

// personOf names the person of a token; empty for one of a client that acts for itself (RFC 9068 §2.2).
func personOf(t *guard.Token) string {
	if t.Subject == "" || t.Subject == t.ClientID {
		return ""
	}
	return quota.Whose(t.Issuer, t.Subject)
}

// refuse turns a refusal into an answer, and notes it once a minute for each holder.
func (q quotas) refuse(r *http.Request, e audit.Event, err error) error {
	refusal, refused := errors.AsType[*quota.Refusal](err)
	if !refused {
		return err
	}
	decided(decisionThrottled)
	if refusal.First {
		e.Kind, e.Address = audit.Access, requester.Address(r)
		e.Err = &oauth2.Error{Code: "throttled", Description: refusal.Diagnostics()}
		q.audit(r.Context(), e)
	}
	return caddyhttp.Error(http.StatusTooManyRequests, refusal)
}

// charging is what gets decisions, and counts those about entries of a batch or transaction, which came as one request.
func (q quotas) charging(base string, record func(*http.Request, enforce.Bearer, enforce.Decision)) func(*http.Request, enforce.Bearer, enforce.Decision) {
	if q.set == nil {
		return record
	}
	return func(r *http.Request, b enforce.Bearer, d enforce.Decision) {
		record(r, b, d)
		q.charge(r, b, d, base)
	}
}

func (q quotas) charge(r *http.Request, b enforce.Bearer, d enforce.Decision, base string) {
	isEntry := r.Method == http.MethodPost && (r.URL.Path == base || r.URL.Path == base+"/") && d.Interaction.Kind != interaction.Bundle
	if !isEntry || b.Token == nil || guard.TokenOf(r.Context()) != nil {
		return
	}
	what := cmp.Or(d.Interaction.Operation, quota.Request)
	q.set.Charge(quota.Network, requester.NetworkOf(r), what)
	q.set.Charge(quota.Client, clientOf(b.Token), what)
	if person := personOf(b.Token); person != "" {
		q.set.Charge(quota.Person, person, what)
	}
}
