package people_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

func byOID(idp *people.IdentityProvider, _ *authorize.Config) { idp.Sub = "oid" }

// A claimed sub is the person's, unless it is or may be somebody else's.
func TestSubClaim(t *testing.T) {
	t.Parallel()
	const denied = "access_denied"
	for _, tt := range []struct {
		name string
		oid  any
		want string
	}{
		{"a UUID", "0b1c2d3e-0000-4000-8000-123456789abc", "0b1c2d3e-0000-4000-8000-123456789abc"},
		{"another", "Ann", "Ann"},
		{"255 characters", strings.Repeat("x", 255), strings.Repeat("x", 255)},
		{"none", nil, denied},
		{"an empty one", "", denied},
		{"a number", 42, denied},
		{"a list", []string{"x"}, denied},
		{"256 characters", strings.Repeat("x", 256), denied},
		{"with a space", "a b", denied},
		{"with a line end", "a\n", denied},
		{"not ASCII", "ü", denied},
		{"a local user", "bob", denied},
		{"a client", "app", denied},
		{"another person's hash", strings.Repeat("A", 43), denied},
		{"another person's", "taken", denied},
		{"another idp's person's", "taken elsewhere", denied},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, other := providertest.Start(t), providertest.Start(t)
			kept := store.NewMemory(0, 0)
			s := authorizetest.NewFederated(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
				byOID(idp, c)
				clinic := authorizetest.Hospital(other)
				clinic.Key, clinic.Sub = "clinic", "oid"
				c.IdentityProviders, c.Store = append(c.IdentityProviders, clinic), kept
			})
			signInAs(t, s, p, personAt("first", "oid", "taken"))
			other.Change(func(s *providertest.Settings) {
				s.People = []providertest.Person{personAt("first", "oid", "taken-elsewhere")}
			})
			authorizetest.FederatedTokens(authorizetest.NewBrowser(t, s), authorizetest.ByProvider("clinic"))
			oid := tt.oid
			if oid == "taken elsewhere" {
				oid = "taken-elsewhere"
			}
			if got := signInAs(t, s, p, personAt("second", "oid", oid)); got != tt.want {
				t.Errorf("signed in as %q", got)
			}
			if got := signInAs(t, s, p, personAt("first", "oid", "taken")); got != "taken" {
				t.Errorf("the first, again: %q", got)
			}
			keys, err := kept.List(t.Context(), "kept-account:")
			if want := map[bool]int{true: 2, false: 3}[tt.want == denied]; len(keys) != want || err != nil {
				t.Errorf("accounts: %q, %v", keys, err)
			}
		})
	}
}

// Who lost their account, as they were refused or it expired, keeps the sub.
func TestSubStaysItsOwners(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	s := authorizetest.NewFederated(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
		byOID(idp, c)
		allowing("group", "clinicians")(idp, c)
	})
	b := authorizetest.NewBrowser(t, s)
	is := func(subject, group string) {
		p.Change(func(s *providertest.Settings) {
			s.People = []providertest.Person{personAt(subject, "oid", "0b1", "groups", group)}
		})
	}
	is("ann", "clinicians")
	token := authorizetest.FederatedTokens(b, nil).AccessToken
	is("ann", "visitors")
	if got := subjectOf(t, s); got != "access_denied" || b.TokenWorks(token) {
		t.Errorf("refused: %q, the token works: %v", got, b.TokenWorks(token))
	}
	is("ben", "clinicians")
	if got := subjectOf(t, s); got != "access_denied" {
		t.Errorf("another: %q", got)
	}
	is("ann", "clinicians")
	if got := subjectOf(t, s); got != "0b1" {
		t.Errorf("again: %q", got)
	}
}

// transport answers for a provider without a network.
type transport struct{ http.Handler }

// RoundTrip implements [http.RoundTripper].
func (h transport) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result(), nil
}

// A sub that the operator releases is another person's later, who gets nothing that was given under it; unless its owner
// came back before.
func TestSubIsReleased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := providertest.New("https://login.hospital.example")
		s := authorizetest.NewFederated(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
			authorizetest.Refreshing(c)
			byOID(idp, c)
			idp.Transport, idp.Revalidate.Interval = transport{p}, -1
		})
		signIn := func(subject string) (*authorizetest.Browser, authorizetest.TokenResponse) {
			p.Change(func(s *providertest.Settings) { s.People = []providertest.Person{personAt(subject, "oid", "0b1")} })
			b := authorizetest.NewBrowser(t, s)
			there := authorizetest.Location(t, authorizetest.FollowOnce(b, b.Authorize(authorizetest.Request(authorizetest.OfflineAccess(authorizetest.ByProvider("hospital"))))))
			back := b.Get("/oauth2/callback/hospital?" + p.Authorize(t, there.String()).Encode())
			if at, err := back.Location(); err == nil && at.Query().Has("code") {
				return b, b.Redeem(at)
			}
			return nil, authorizetest.TokenResponse{}
		}
		release := func() {
			if owned, err := s.ReleaseSub(t.Context(), "0b1"); !owned || err != nil {
				t.Errorf("%v, %v", owned, err)
			}
		}
		ann, tokens := signIn("ann")
		release()
		if b, _ := signIn("ben"); b != nil {
			t.Error("another person has it at once")
		}
		time.Sleep(6 * time.Minute)
		ben, bens := signIn("ben")
		if ben == nil || ben.Claims(bens.AccessToken)["sub"] != "0b1" || !ben.TokenWorks(bens.AccessToken) {
			t.Fatal("nobody else gets it")
		}
		if ann.SignedIn() {
			t.Error("the session of before goes on")
		}
		authorizetest.CheckDead(ann, tokens.Refresh, tokens.AccessToken)
		if b, _ := signIn("ann"); b != nil {
			t.Error("it is of two")
		}
		release()
		signIn("ben")
		time.Sleep(6 * time.Minute)
		if b, _ := signIn("ann"); b != nil || !ben.TokenWorks(bens.AccessToken) {
			t.Error("it is no longer its owner's, who came back")
		}
	})
	if owned, err := authorizetest.New(t, nil).ReleaseSub(t.Context(), "alice"); owned || err != nil {
		t.Errorf("of a local user: %v, %v", owned, err)
	}
}

// What was given under another sub before goes on until it ends, and ends with the person.
func TestSubClaimIsSetLater(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t, func(s *providertest.Settings) {
		s.People = []providertest.Person{personAt("ann", "oid", "0b1", "groups", "clinicians")}
	})
	kept, inFlight := store.NewMemory(0, 0), store.NewMemory(0, 0)
	config := func(sub string) func(*people.IdentityProvider, *authorize.Config) {
		return func(idp *people.IdentityProvider, c *authorize.Config) {
			authorizetest.Refreshing(c)
			allowing("group", "clinicians")(idp, c)
			idp.Sub, c.Durable, c.Store = sub, kept, inFlight
		}
	}
	old := authorizetest.NewBrowser(t, authorizetest.NewFederated(t, p, config("")))
	before := authorizetest.FederatedTokens(old, authorizetest.OfflineAccess(authorizetest.ByProvider("hospital")))
	inFlight = store.NewMemory(0, 0) // as after a restart
	old.Server = authorizetest.NewFederated(t, p, config("oid"))
	b := authorizetest.NewBrowser(t, old.Server)
	after := authorizetest.FederatedTokens(b, authorizetest.OfflineAccess(authorizetest.ByProvider("hospital")))
	if sub := b.Claims(after.AccessToken)["sub"]; sub != "0b1" {
		t.Fatalf("sub %v", sub)
	}
	inFlight = store.NewMemory(0, 0)
	s := authorizetest.NewFederated(t, p, config("oid"))
	old.Server, b.Server = s, s
	before, after = old.Refresh(before.Refresh, nil), b.Refresh(after.Refresh, nil)
	if !old.TokenWorks(before.AccessToken) || !b.TokenWorks(after.AccessToken) {
		t.Error("one of them ended")
	}
	p.Change(func(s *providertest.Settings) { s.People = []providertest.Person{personAt("ann", "oid", "0b1")} })
	if got := subjectOf(t, s); got != "access_denied" {
		t.Errorf("signed in as %q", got)
	}
	if old.TokenWorks(before.AccessToken) || b.TokenWorks(after.AccessToken) {
		t.Error("one of them goes on")
	}
}

// A client that gets the name of somebody's sub takes it: nothing given to the one passes for the other's.
func TestClientNamedLikeSub(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t, func(s *providertest.Settings) { s.People = []providertest.Person{personAt("ann", "oid", "new-app")} })
	kept := store.NewMemory(0, 0)
	config := func(idp *people.IdentityProvider, c *authorize.Config) { idp.Sub, c.Store = "oid", kept }
	b := authorizetest.NewBrowser(t, authorizetest.NewFederated(t, p, config))
	token := authorizetest.FederatedTokens(b, nil).AccessToken
	b.Server = authorizetest.NewFederated(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
		config(idp, c)
		c.Clients = append(c.Clients, client.Client{ID: "new-app", RedirectURIs: []string{authorizetest.Callback}})
	})
	if r := b.Userinfo(token); r.StatusCode != http.StatusUnauthorized || b.SignedIn() {
		t.Errorf("userinfo: %d, signed in: %v", r.StatusCode, b.SignedIn())
	}
}

// A linked user stays who they are here.
func TestSubClaimOfLinkedUser(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	s := authorizetest.NewFederated(t, p, func(idp *people.IdentityProvider, c *authorize.Config) { byOID(idp, c); linking(idp, c) })
	if got := signInAs(t, s, p, personAt("ann", "email", "alice@example.org", "email_verified", true)); got != "alice" {
		t.Errorf("signed in as %q", got)
	}
}

// An account by a claimed sub, and what it is found by, last as long as the refresh token.
func TestClaimedAccountIsKept(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t, func(s *providertest.Settings) {
		s.People = []providertest.Person{personAt("ann", "oid", "0b1", "preferred_username", "Ann")}
	})
	kept := store.NewMemory(0, 0)
	s := authorizetest.NewFederated(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
		authorizetest.Refreshing(c)
		idp.Sub, c.Durable, c.Store = "oid", kept, store.NewMemory(0, 0)
	})
	authorizetest.FederatedTokens(authorizetest.NewBrowser(t, s), authorizetest.OfflineAccess(nil))
	for kind, want := range map[string]int{"kept-account:": 1, "person:": 2, "sub-owner:": 1} {
		keys, err := kept.List(t.Context(), kind)
		if len(keys) != want || err != nil {
			t.Errorf("%s: %q, %v", kind, keys, err)
		}
		for _, key := range keys {
			entry, err := store.GetJSON[struct{ Until time.Time }](t.Context(), kept, key)
			if err != nil || time.Until(entry.Until) < 80*24*time.Hour {
				t.Errorf("%s: %+v, %v", key, entry, err)
			}
		}
	}
}
