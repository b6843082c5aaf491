package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/e2e/replicas/history"
)

// historian is one client of a history: an app and a user's browser.
type historian struct {
	number   int
	record   *history.Record
	pool     *grantPool
	app      *app
	browser  *browser
	session  string // name of the browser's session; empty if the user is signed out
	sessions int
	random   *rand.Rand
}

// act makes random requests until ctx is canceled. It completes a request that is in progress.
func (h *historian) act(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := h.once(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		pause := time.NewTimer(time.Duration(h.random.IntN(40)) * time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
	}
	return nil
}

// once makes one random request. Most requests use tokens, as those of apps do.
func (h *historian) once(ctx context.Context) error {
	if h.session == "" {
		return h.signIn(ctx)
	}
	switch n := h.random.IntN(100); {
	case n < 1:
		return h.signIn(ctx) // sign in with another browser
	case n < 15:
		h.newGrant(ctx)
	case n < 40:
		h.refresh(ctx, false)
	case n < 42:
		h.refresh(ctx, true)
	case n < 45:
		h.revoke(ctx)
	default:
		h.access(ctx)
	}
	return nil
}

// tell adds an operation to the record. call is the start of the operation.
func (h *historian) tell(o history.Operation, call time.Duration, a answer) {
	o.Client, o.Call, o.Return = h.number, call, h.record.Now()
	if o.Result != history.OK {
		o.ResponseText = a.summary()
	}
	h.record.Add(o)
}

// signIn signs in with a new browser. If there is no response, the state of the session is unknown, so the next request uses
// another browser.
func (h *historian) signIn(ctx context.Context) error {
	var err error
	if h.browser, err = newBrowser(h.app.issuer, h.app.http, h.browser.user); err != nil {
		return err
	}
	h.sessions++
	name := fmt.Sprintf("session %d of client %d", h.sessions, h.number)
	call := h.record.Now()
	a := h.browser.signIn(ctx, newAuthorization(scope))
	o := history.Operation{Kind: history.SignIn, Subject: name, Result: history.Amiss}
	switch {
	case a.code() != "":
		o.Result = history.OK
		h.session = name
	case a.unknown() || a.leadsToFailure():
		o.Result = history.Unknown
		h.session = ""
	}
	h.tell(o, call, a)
	return nil
}

// newGrant gets a code and exchanges it. Occasionally it exchanges the code twice, like a client that got no response.
func (h *historian) newGrant(ctx context.Context) {
	request := newAuthorization(scope)
	call := h.record.Now()
	a := h.browser.authorize(ctx, request.query)
	o := history.Operation{Kind: history.Authorize, Subject: h.session, Result: history.Amiss}
	switch {
	case a.code() != "":
		o.Result = history.OK
	case a.unknown() || a.leadsToFailure():
		o.Result = history.Unknown
	case a.redirectsToSignIn():
		o.Result = history.Refused
		defer func() { h.session = "" }()
	}
	h.tell(o, call, a)
	if o.Result != history.OK {
		return
	}
	g := h.pool.add(h.session)
	h.exchange(ctx, g, a.code(), request.verifier)
	if h.random.IntN(20) == 0 {
		h.exchange(ctx, g, a.code(), request.verifier)
	}
}

func (h *historian) exchange(ctx context.Context, g *grant, code, verifier string) {
	call := h.record.Now()
	a := h.app.exchange(ctx, code, verifier)
	tokens := a.tokens()
	h.tell(history.Operation{Kind: history.Exchange, Subject: g.subject, Result: result(a), Next: tokens.Refresh}, call, a)
	g.learn(tokens)
}

// result classifies a response from the token endpoint.
func result(a answer) history.Result {
	switch {
	case a.unknown():
		return history.Unknown
	case a.status == http.StatusOK:
		return history.OK
	case a.oauthError() == "invalid_grant":
		return history.Refused
	}
	return history.Amiss
}

func (h *historian) refresh(ctx context.Context, stale bool) {
	g := h.pool.any()
	if g == nil {
		return
	}
	if token, _, ok := g.use(stale); ok {
		h.refreshWith(ctx, g, token)
	}
}

func (h *historian) refreshWith(ctx context.Context, g *grant, token string) {
	call := h.record.Now()
	a := h.app.refresh(ctx, token)
	tokens := a.tokens()
	h.tell(history.Operation{Kind: history.Refresh, Subject: g.subject, Token: token, Result: result(a), Next: tokens.Refresh}, call, a)
	g.learn(tokens)
}

func (h *historian) revoke(ctx context.Context) {
	g := h.pool.any()
	if g == nil {
		return
	}
	token, _, ok := g.use(false)
	if !ok {
		return
	}
	call := h.record.Now()
	a := h.app.revoke(ctx, token)
	h.tell(history.Operation{Kind: history.Revoke, Subject: g.subject, Token: token, Result: result(a)}, call, a)
}

// access uses an access token at the FHIR API or in an introspection request.
func (h *historian) access(ctx context.Context) {
	g := h.pool.any()
	if g == nil {
		return
	}
	if _, token, ok := g.use(false); ok {
		h.accessWith(ctx, g, token)
	}
}

func (h *historian) accessWith(ctx context.Context, g *grant, token string) {
	call := h.record.Now()
	o := history.Operation{Kind: history.Access, Subject: g.subject, Result: history.Amiss}
	var a answer
	if h.random.IntN(3) == 0 {
		a = h.app.introspect(ctx, token)
		o.Result = activity(a)
	} else {
		a = h.app.read(ctx, token)
		o.Result = admission(a)
	}
	h.tell(o, call, a)
}

// activity classifies an introspection response.
func activity(a answer) history.Result {
	switch {
	case a.unknown():
		return history.Unknown
	case a.status != http.StatusOK:
		return history.Amiss
	case strings.Contains(a.body, `"active":true`):
		return history.OK
	}
	return history.Refused
}

// admission classifies a response of the guard.
func admission(a answer) history.Result {
	switch {
	case a.unknown():
		return history.Unknown
	case a.status == http.StatusOK:
		return history.OK
	case a.status == http.StatusUnauthorized:
		return history.Refused
	}
	return history.Amiss
}
