package caddymodule

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	jsonpatch "github.com/evanphx/json-patch/v5"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/roster"
)

const (
	adminClients = "/fhir/clients"
	adminUsers   = "/fhir/users"

	maxEntry = 64 << 10 // bytes of a client or person
)

// rosterRequest is a request about clients or people, or one of them.
type rosterRequest struct {
	app    *App
	kind   roster.Kind
	name   string
	action string // what is to be done with it; "" by the method
	http   *http.Request
}

// Roster calls a function with what a request below /fhir/clients or /fhir/users is about.
func (a *adminAPI) Roster(handle func(*rosterRequest) (any, error)) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		app, err := fhirapp.Find[*App](a.running())
		if err != nil {
			return nil, caddy.APIError{HTTPStatus: http.StatusNotFound, Err: err}
		}
		parts := append(strings.SplitN(strings.TrimPrefix(r.URL.EscapedPath(), "/fhir/"), "/", 3), "", "")
		name, err := url.PathUnescape(parts[1])
		if err != nil {
			return nil, badAdminRequest(err)
		}
		if parts[2] != "" && r.Method != http.MethodPost {
			return nil, notFound(nil, r)
		}
		answer, err := handle(&rosterRequest{app, roster.Kind(parts[0]), name, parts[2], r})
		return answer, rosterError(err)
	}
}

// rosterError has the status of a refusal.
func rosterError(err error) error {
	for cause, status := range map[error]int{
		roster.ErrUnknown: http.StatusNotFound, authorize.ErrNotRegistered: http.StatusNotFound,
		roster.ErrExists: http.StatusConflict, roster.ErrInvalid: http.StatusBadRequest,
	} {
		if errors.Is(err, cause) {
			return caddy.APIError{HTTPStatus: status, Err: err}
		}
	}
	return err
}

// addToRoster adds the client or person in the body. With ?secret=new, a client gets a secret.
func addToRoster(r *rosterRequest) (any, error) {
	config, err := r.body()
	if err != nil {
		return nil, err
	}
	added := rosterEntry{From: "store", Since: time.Now().UTC().Truncate(time.Second)}
	if added.Name, err = nameOf(r.kind, config); err != nil {
		return nil, badAdminRequest(err)
	}
	entry := roster.Entry{Config: config, Since: added.Since}
	if r.kind == roster.Clients && r.http.URL.Query().Get("secret") == "new" {
		added.Secret, entry.SecretSHA256 = newSecret()
	}
	return r.change(added, "added", func(record *roster.Record) error { return record.Add(r.kind, added.Name, entry) })
}

// editInRoster changes an entry by a JSON merge patch (RFC 7396).
func editInRoster(r *rosterRequest) (any, error) {
	patch, err := r.body()
	if err != nil {
		return nil, err
	}
	return r.change(rosterEntry{Name: r.name, From: "store"}, "changed", func(record *roster.Record) error {
		return record.Replace(r.kind, r.name, func(e roster.Entry) (roster.Entry, error) {
			patched, err := jsonpatch.MergePatch(e.Config, patch)
			if err != nil {
				return e, badAdminRequest(err)
			}
			e.Config = patched
			if name, err := nameOf(r.kind, patched); err != nil || name != r.name {
				return e, badAdminRequest(cmp.Or(err, errors.New("a name stays as it is: add another entry")))
			}
			return e, nil
		})
	})
}

// removeFromRoster removes an entry of the store, or a client that registered itself, and ends what it was given.
func removeFromRoster(r *rosterRequest) (any, error) {
	if err := r.endGrants(); err != nil {
		return nil, err
	}
	removed := rosterEntry{Name: r.name, From: "store"}
	_, err := r.change(removed, "removed", func(record *roster.Record) error { return record.Remove(r.kind, r.name) })
	if errors.Is(err, roster.ErrUnknown) && r.kind == roster.Clients {
		removed.From = "registration"
		err = r.registered("removed", func(ctx context.Context, id string) error {
			if _, err := r.app.Server().RevokeGrants(ctx, "", id); err != nil && !errors.Is(err, authorize.ErrUnknownHolder) {
				return err
			}
			return r.app.Server().Clients().Remove(ctx, id)
		})
	}
	return removed, err
}

// actOnClient approves a client that registered itself, or gives a client a new secret.
func actOnClient(r *rosterRequest) (any, error) {
	switch r.action {
	case "approve":
		return rosterEntry{Name: r.name, From: "registration"}, r.registered("approved", r.app.Server().Clients().Approve)
	case "secret":
		return r.rotateSecret()
	}
	return nil, caddy.APIError{HTTPStatus: http.StatusNotFound, Err: fmt.Errorf("%q: a client can be approved, or given a new secret", r.action)}
}

func (r *rosterRequest) rotateSecret() (any, error) {
	rotated := rosterEntry{Name: r.name, From: "store"}
	secret, digest := newSecret()
	answer, err := r.change(rosterEntry{Name: r.name, From: "store", Secret: secret}, "new secret", func(record *roster.Record) error {
		return record.Replace(r.kind, r.name, func(e roster.Entry) (roster.Entry, error) {
			if e.SecretSHA256 == nil {
				return e, badAdminRequest(errors.New("the client has no secret: it authenticates by keys, or not at all"))
			}
			e.SecretSHA256 = digest
			return e, nil
		})
	})
	if !errors.Is(err, roster.ErrUnknown) {
		return answer, err
	}
	rotated.From = "registration"
	err = r.registered("new secret", func(ctx context.Context, id string) (err error) {
		rotated.Secret, err = r.app.Server().Clients().RotateSecret(ctx, id)
		return err
	})
	return rotated, err
}

// endGrants ends what the client or person of the store was given, and a person's second factors: whoever gets the name
// later must not inherit them.
func (r *rosterRequest) endGrants() error {
	record, err := r.app.server.Record(r.http.Context())
	if err != nil {
		return err
	}
	if _, stored := record.Entries[r.kind][r.name]; !stored || r.isConfigured() {
		return nil
	}
	if r.kind == roster.Users {
		return r.app.Server().EndUser(r.http.Context(), r.name)
	}
	_, err = r.app.Server().RevokeGrants(r.http.Context(), "", r.name)
	if errors.Is(err, authorize.ErrUnknownHolder) { // it is not in force, and nothing was left
		return nil
	}
	return err
}

// isConfigured reports whether the configuration has the name, too. Then that one is in force.
func (r *rosterRequest) isConfigured() bool {
	return slices.ContainsFunc(r.app.configured(r.kind), func(e rosterEntry) bool { return e.Name == r.name })
}

// change changes the roster, and records that.
func (r *rosterRequest) change(about rosterEntry, reason string, alter func(*roster.Record) error) (any, error) {
	ctx := r.http.Context()
	if err := r.app.server.Change(ctx, r.kind, about.Name, alter); err != nil {
		return nil, err
	}
	r.record(about.Name, reason)
	return about, nil
}

// registered does something with a client that registered itself, and records that.
func (r *rosterRequest) registered(reason string, do func(context.Context, string) error) error {
	err := do(r.http.Context(), r.name)
	if err == nil {
		r.record(r.name, reason)
	}
	return err
}

func (r *rosterRequest) record(name, reason string) {
	e := audit.Event{Kind: audit.User, User: name, Reason: reason + " by the operator"}
	if r.kind == roster.Clients {
		e.Kind, e.User, e.ClientID = audit.Registration, "", name
	}
	r.app.Audit(r.http.Context(), e)
}

func (r *rosterRequest) body() ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r.http.Body, maxEntry+1))
	switch {
	case err != nil:
		return nil, badAdminRequest(err)
	case len(body) > maxEntry:
		return nil, badAdminRequest(errors.New("the body is too long"))
	case !json.Valid(body):
		return nil, badAdminRequest(errors.New("the body is not JSON"))
	}
	return body, nil
}

// nameOf is what an entry's configuration says of its name.
func nameOf(kind roster.Kind, config []byte) (string, error) {
	var named struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	}
	if err := json.Unmarshal(config, &named); err != nil {
		return "", err
	}
	if kind == roster.Clients {
		named.Name = named.ID
	}
	if named.Name == "" {
		return "", errors.New("a client needs an id, and a person a name")
	}
	return named.Name, nil
}

// newSecret makes a client's secret.
func newSecret() (secret string, digest []byte) {
	secret = oauth2.RandomToken()
	sum := sha256.Sum256([]byte(secret))
	return secret, sum[:]
}
