package authorize_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
)

var errListed = errors.New("the whole store was looked through")

// onePerson is an operation about one person, and what it must end of theirs.
type onePerson struct {
	name    string
	do      func(ctx context.Context, s *authorize.Server) error
	session bool // ends the session
	refresh bool // ends the refresh token
}

var onePersonOperations = []onePerson{
	{"revoke everything", func(ctx context.Context, s *authorize.Server) error {
		ended, err := s.RevokeGrants(ctx, "alice", "")
		if err == nil && (ended != token.RevokedGrants{Sessions: 1, RefreshTokens: 1, Consents: 1}) {
			err = errors.New("not everything is counted")
		}
		return err
	}, true, true},
	{"revoke an app", func(ctx context.Context, s *authorize.Server) error {
		ended, err := s.RevokeGrants(ctx, "alice", "app")
		if err == nil && (ended != token.RevokedGrants{RefreshTokens: 1, Consents: 1}) {
			err = errors.New("not everything is counted")
		}
		return err
	}, false, true},
	{"remove a user", func(ctx context.Context, s *authorize.Server) error { return s.EndUser(ctx, "alice") }, true, true},
	{"end sessions", func(ctx context.Context, s *authorize.Server) error {
		ended, err := s.EndSessions(ctx, "alice")
		if err == nil && ended != 1 {
			err = errors.New("not one session ended")
		}
		return err
	}, true, false},
	{"list sessions", func(ctx context.Context, s *authorize.Server) error {
		list, err := s.Sessions(ctx, "alice")
		if err == nil && len(list) != 1 {
			err = errors.New("not one session")
		}
		return err
	}, false, false},
}

// withConsent has the client app ask for consent.
func withConsent(c *authorize.Config) {
	authorizetest.Refreshing(c)
	c.Clients[0].Consent = "required"
}

// What is done about one person looks at the entries of that person alone, however many others there are.
func TestOnePersonIsFoundByLists(t *testing.T) {
	t.Parallel()
	for _, op := range onePersonOperations {
		t.Run(op.name, func(t *testing.T) {
			t.Parallel()
			listed := true
			s := storetest.NewIntercepted(func(method, _ string) error {
				if method == "List" && !listed {
					return errListed
				}
				return nil
			})
			checkOnePerson(t, s, op, func(*authorize.Server) { listed = false })
		})
	}
}

// checkOnePerson has alice and bob sign in, prepares the store, and checks that an operation ends what it must of alice's, and
// nothing of bob's.
func checkOnePerson(t *testing.T, s store.Store, op onePerson, prepare func(*authorize.Server)) {
	t.Helper()
	server := authorizetest.New(t, func(c *authorize.Config) {
		withConsent(c)
		c.Store, c.Durable = s, s
	})
	var browsers []*authorizetest.Browser
	var tokens []authorizetest.TokenResponse
	for user, password := range map[string]string{"alice": "right", "bob": "other"} {
		b := authorizetest.NewBrowser(t, server)
		got := b.Redeem(b.Allow(b.SignIn(authorizetest.Request(authorizetest.OfflineAccess(nil)), user, password), "*"))
		if got.Refresh == "" {
			t.Fatalf("%s got no refresh token: %+v", user, got)
		}
		if user == "alice" {
			browsers, tokens = slices.Insert(browsers, 0, b), slices.Insert(tokens, 0, got)
			continue
		}
		browsers, tokens = append(browsers, b), append(tokens, got)
	}
	prepare(server)
	authorizetest.NoError(t, op.do(t.Context(), server))
	// The client app would have to ask for consent again.
	signedIn := func(b *authorizetest.Browser) bool {
		r := b.Authorize(authorizetest.Request(url.Values{"client_id": {"confidential"}, "redirect_uri": {authorizetest.Callback + "?tenant=1"}}))
		return authorizetest.Location(t, r).Query().Get("code") != ""
	}
	if signedIn(browsers[0]) == op.session || !signedIn(browsers[1]) {
		t.Errorf("alice is signed in: %v, bob: %v", signedIn(browsers[0]), signedIn(browsers[1]))
	}
	if works := browsers[0].Refresh(tokens[0].Refresh, nil).AccessToken != ""; works == op.refresh {
		t.Errorf("the refresh token of alice works: %v", works)
	}
	if browsers[1].Refresh(tokens[1].Refresh, nil).AccessToken == "" {
		t.Error("the refresh token of bob ended")
	}
}

// A session that a new sign-in prolongs stays listed for as long as it lasts.
func TestProlongedSessionStaysListed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := storetest.NewIntercepted(func(method, _ string) error {
			if method == "List" {
				return errListed
			}
			return nil
		})
		server := authorizetest.New(t, func(c *authorize.Config) { c.Store, c.Durable = s, s })
		b := authorizetest.NewBrowser(t, server)
		b.Answer(authorizetest.Request(nil))
		for range 2 {
			time.Sleep(7 * time.Hour)
			b.SignIn(authorizetest.Request(url.Values{"prompt": {"login"}}), "alice", "right")
		}
		time.Sleep(7 * time.Hour)
		if ended, err := server.EndSessions(t.Context(), "alice"); ended != 1 || err != nil || b.SignedIn() {
			t.Errorf("ended %d: %v", ended, err)
		}
	})
}

// What a provider says of one subject ends that person's sessions, without a look at others.
func TestProviderEndsByLists(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	s := storetest.NewIntercepted(func(method, prefix string) error {
		if method == "List" && strings.HasPrefix(prefix, "session") {
			return errListed
		}
		return nil
	})
	server := authorizetest.NewFederated(t, p, func(_ *people.IdentityProvider, c *authorize.Config) { c.Store, c.Durable = s, s })
	b := authorizetest.NewBrowser(t, server)
	authorizetest.Federate(b, nil)
	if r := authorizetest.NotifyBackchannelLogout(t, server, p.LogoutToken()); r.StatusCode != http.StatusOK || b.SignedIn() {
		t.Errorf("%d, signed in: %v", r.StatusCode, b.SignedIn())
	}
}
