package authorize

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// Values of [Client].Consent.
const (
	// ConsentRequired asks each person once for each set of scopes.
	ConsentRequired = "required"

	// ConsentSkip never asks, not even where the request wants it.
	ConsentSkip = "skip"
)

const (
	// consentLifetime is how long a person is not asked again.
	consentLifetime = 365 * 24 * time.Hour

	// maxConsentItems is how many items are remembered of a person and a client;
	// beyond, the latest approval alone is. A client may have a scope for each
	// search, and ask for another each time.
	maxConsentItems = 100
)

// consent is what a person let a client have, as the durable store keeps it. It
// speaks of items: scopes, and claims asked for by name as claim:<name>.
type consent struct {
	User     string    `json:"user"`
	ClientID string    `json:"client_id"`
	Seen     []string  `json:"seen"`    // what the person was asked for
	Granted  []string  `json:"granted"` // and what of it they allowed
	At       time.Time `json:"at"`
}

const claimItem = "claim:"

// items are what a request asks a person for.
func (req *authorizationRequest) items() []string {
	items := slices.Clone(req.scope)
	ofScope := claimsOfScope(req.scope)
	for _, name := range slices.Concat(req.userinfoClaims, req.idTokenClaims) {
		if item := claimItem + name; !slices.Contains(ofScope, name) && !slices.Contains(items, item) {
			items = append(items, item)
		}
	}
	return items
}

// limit takes from a request what the person did not allow (SMART App Launch 2.2
// leaves that to them). Nothing left is a refusal of all.
func (req *authorizationRequest) limit(granted []string) error {
	items := req.items()
	refused := func(item string) bool { return slices.Contains(items, item) && !slices.Contains(granted, item) }
	refusedClaim := func(name string) bool {
		return refused(claimItem+name) || refused(scopeOf(name))
	}
	req.userinfoClaims = slices.DeleteFunc(slices.Clone(req.userinfoClaims), refusedClaim)
	req.idTokenClaims = slices.DeleteFunc(slices.Clone(req.idTokenClaims), refusedClaim)
	if req.scope = slices.DeleteFunc(slices.Clone(req.scope), refused); len(req.scope) == 0 {
		return errDenied
	}
	return nil
}

var errDenied = &oauth2.Error{Code: "access_denied", Description: "the person did not allow it"}

// mustStay says whether an item cannot be taken out of a request without breaking
// it: who signs in, and which patient it is about.
func mustStay(item string) bool {
	return item == "openid" || item == "launch" || strings.HasPrefix(item, "launch/")
}

// consented says whether the person must be asked, and limits the request to
// what they allowed where they were asked before.
//
// The operator who writes a client into the configuration vouches for it, so
// people are asked only if the configuration says so, or for the one request
// that does.
func (an *answers) consented(ctx context.Context, req *authorizationRequest, user *User) (ask bool, err error) {
	switch {
	case req.client.Consent == ConsentSkip:
		return false, nil
	case req.prompts("consent"):
		return true, nil
	case req.client.Consent == "":
		return false, nil
	}
	earlier, err := an.consents.loadConsent(ctx, user.ID, req.client.ID)
	switch {
	case err != nil:
		return false, err
	case earlier == nil:
		return true, nil
	case slices.ContainsFunc(req.items(), func(item string) bool { return !slices.Contains(earlier.Seen, item) }):
		return true, nil
	}
	return req.limit(earlier.Granted) != nil, nil
}

func consentKey(user, clientID string) string { return storeKey("consent", user+"\x00"+clientID) }

// consents are what people let clients have, where they are asked.
type consents struct {
	durable     store.Store
	revocations *revocations
}

// loadConsent returns what a person let a client have, or nil if they were not asked.
func (cs *consents) loadConsent(ctx context.Context, user, clientID string) (*consent, error) {
	value, err := cs.durable.Get(ctx, consentKey(user, clientID))
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	c := new(consent)
	return c, json.Unmarshal(value, c)
}

// covers says whether a person still allows all of what they granted once: they
// may have been asked again since, and have taken something out.
func (c *consent) covers(g *grant) bool {
	return !slices.ContainsFunc(g.Scope, func(scope string) bool { return !slices.Contains(c.Granted, scope) })
}

// rememberConsent adds to what is known of a person's mind.
func (cs *consents) rememberConsent(ctx context.Context, user, clientID string, items, granted []string) error {
	c, err := cs.loadConsent(ctx, user, clientID)
	if err != nil {
		return err
	}
	if c == nil {
		c = &consent{User: user, ClientID: clientID}
	}
	asked := func(item string) bool { return slices.Contains(items, item) }
	c.Seen = append(slices.DeleteFunc(c.Seen, asked), items...)
	c.Granted = append(slices.DeleteFunc(c.Granted, asked), granted...)
	if len(c.Seen) > maxConsentItems {
		c.Seen, c.Granted = items, granted
	}
	c.At = time.Now().UTC()
	value, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return cs.durable.Put(ctx, consentKey(user, clientID), value, consentLifetime)
}

// takeBack reports whether a person now refuses what they allowed before, and ends the
// client's access tokens if they do. Its codes and refresh tokens end where they go
// beyond what is still allowed (see stillConsented).
func (cs *consents) takeBack(ctx context.Context, client *Client, user string, items, granted []string) (bool, error) {
	if client.Consent != ConsentRequired {
		return false, nil
	}
	earlier, err := cs.loadConsent(ctx, user, client.ID)
	if earlier == nil || err != nil {
		return false, err
	}
	refused := func(item string) bool { return slices.Contains(items, item) && !slices.Contains(granted, item) }
	if !slices.ContainsFunc(earlier.Granted, refused) {
		return false, nil
	}
	return true, cs.revocations.cutOff(ctx, consentCutoff(user, client.ID))
}

// consentPage is what pages/consent.html shows.
type consentPage struct {
	Request  string // sealed, see question.go
	Client   string
	Host     string
	To       string // the host of the redirect URI
	Person   person
	Unknown  bool // the client registered itself
	Fixed    []string
	Optional []consentItem
}

type consentItem struct{ Name, Text string }

func (ps *pages) showConsent(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *signedIn, p oauth2.Parameters) {
	page := consentPage{
		Request: p.Get("request"), Client: req.client.Title(), Host: ps.host, Person: signedIn.user.person(),
		Unknown: req.client.registered,
	}
	if to, err := url.Parse(req.redirectURI); err == nil {
		page.To = cmp.Or(to.Host, to.Scheme)
	}
	for _, item := range req.items() {
		if text := describe(item, signedIn.user); mustStay(item) {
			page.Fixed = append(page.Fixed, text)
		} else {
			page.Optional = append(page.Optional, consentItem{mayField + item, text})
		}
	}
	w.Header().Set("Content-Security-Policy", contentPolicy+ps.formAction(req.redirectURI))
	ps.show(w, r, http.StatusOK, consentPages, page)
}

// mayField begins the name of an item's box.
const mayField = "may "

// takeConsent takes what the page sends. Sent twice, it is taken twice, with the
// same effect.
func (q *questions) takeConsent(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *signedIn, p oauth2.Parameters) {
	switch p.Get("decision") {
	case "allow":
		q.allow(w, r, req, signedIn, p)
	case "deny":
		q.responses.redirectError(w, r, req, errDenied)
	default:
		q.responses.refuse(w, r, errNoDecision)
	}
}

func (q *questions) allow(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *signedIn, p oauth2.Parameters) {
	items := req.items()
	granted := slices.DeleteFunc(slices.Clone(items), func(item string) bool {
		return !mustStay(item) && p.Get(mayField+item) == ""
	})
	if err := req.limit(granted); err != nil {
		q.responses.redirectError(w, r, req, err)
		return
	}
	takenBack, err := q.consents.takeBack(r.Context(), req.client, signedIn.user.ID, items, granted)
	if err == nil {
		err = q.consents.rememberConsent(r.Context(), signedIn.user.ID, req.client.ID, items, granted)
	}
	switch {
	case err != nil && takenBack: // the person must not believe that it is
		q.responses.redirectError(w, r, req, err)
		return
	case err != nil: // the person is asked again
		q.logger.ErrorContext(r.Context(), "consent not remembered", "client_id", req.client.ID, "error", err)
	}
	q.answers.give(w, r, req, signedIn)
}
