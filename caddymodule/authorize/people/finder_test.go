package people_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// personAt returns a person at the provider.
func personAt(subject string, claims ...any) providertest.Person {
	p := providertest.Person{Subject: subject, Claims: map[string]any{}}
	for pair := range slices.Chunk(claims, 2) {
		p.Claims[pair[0].(string)] = pair[1]
	}
	return p
}

// signInAs signs a person in through the provider in a new browser and returns the sub.
func signInAs(t *testing.T, s *authorize.Server, p *providertest.Provider, person providertest.Person) string {
	t.Helper()
	p.Change(func(s *providertest.Settings) { s.People = []providertest.Person{person} })
	return subjectOf(t, s)
}

// An operator can revoke a person's grants by any unambiguous identifier.
func TestOperatorNamesPerson(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	memory := store.NewMemory(0, 0)
	s := authorizetest.NewFederatedServer(t, p, func(_ *people.IdentityProvider, c *authorize.Config) {
		c.Store = memory
		c.Users[1].Email = "bob@home.example"
	})
	ward := "ward@hospital.example"
	subs := map[string]string{"alice": "alice", "bob": "bob"}
	for _, person := range []providertest.Person{
		personAt("Ann", "preferred_username", "Ann.Lee", "email", ward, "email_verified", true),
		personAt("ben", "preferred_username", "ben", "email", ward, "email_verified", true),
		personAt("cho", "email", "ann.lee", "email_verified", true, "preferred_username", "cho"),
		personAt("dan", "preferred_username", "alice", "email", "dan@hospital.example"),
		personAt("eve", "preferred_username", "BOB"),
	} {
		subs[person.Subject] = signInAs(t, s, p, person)
	}
	signInAs(t, s, p, personAt("ben", "preferred_username", "Benjamin", "email", ward, "email_verified", true)) // ben has been renamed
	for _, tt := range []struct{ term, want string }{
		{"hospital:Ann", "Ann"}, {"hospital:ann", ""}, {"hospital:", ""}, {"clinic:Ann", ""},
		{"Ann.Lee", "Ann"}, {"ANN.LEE", "Ann"}, {"Ann.Le", ""}, {"Ann", ""},
		{"benjamin", "ben"}, {"ben", ""}, {ward, "Ann ben"}, {"WARD@hospital.example", "Ann ben"},
		{"dan@hospital.example", ""}, // unverified
		{"alice", "alice"}, {"Alice", "alice dan"}, {"local:alice", "alice"}, {"hospital:dan", "dan"}, {"local:Alice", ""}, {"bob@home.example", "bob"}, {"Bob", "bob eve"},
		{subs["Ann"], "Ann"}, {strings.ToUpper(subs["Ann"]), ""},
	} {
		for _, user := range []string{"Ann", "ben", "dan", "eve"} {
			if list, err := s.Sessions(t.Context(), subs[user]); err != nil || len(list) == 0 {
				t.Fatalf("%s has no session: %v", user, err)
			}
		}
		found, err := s.Sessions(t.Context(), tt.term)
		var got []string
		for _, session := range found {
			got = append(got, session.User)
		}
		want := []string{}
		for name := range strings.FieldsSeq(tt.want) {
			want = append(want, subs[name])
		}
		slices.Sort(want)
		switch {
		case len(want) > 1:
			if !errors.Is(err, people.ErrAmbiguous) || len(lines(err)) != len(want)+1 {
				t.Errorf("%s: %v, want %q", tt.term, err, want)
			}
			for _, line := range lines(err)[1:] {
				if term, _, _ := strings.Cut(line, ","); !slices.ContainsFunc(want, func(sub string) bool { return strings.HasSuffix(line, ", sub "+sub) }) || !matchesOnePerson(t, s, term) {
					t.Errorf("%s: %q", tt.term, line)
				}
			}
		case err != nil, len(want) == 1 && want[0] != "alice" && want[0] != "bob" && !slices.Contains(got, want[0]), len(want) == 0 && len(got) > 0:
			t.Errorf("%s: %q, %v, want %q", tt.term, got, err, want)
		}
	}
	if n, err := s.EndSessions(t.Context(), "hospital:Ann"); n != 1 || err != nil {
		t.Errorf("%d ended, %v", n, err)
	}
	if ended, err := s.RevokeGrants(t.Context(), "Benjamin", ""); ended.Sessions != 2 || err != nil {
		t.Errorf("%+v, %v", ended, err)
	}
	if _, _, err := s.ResetFactors(t.Context(), ward); !errors.Is(err, people.ErrAmbiguous) {
		t.Errorf("%v", err)
	}
}

func lines(err error) []string { return strings.Split(fmt.Sprint(err), "\n") }

// matchesOnePerson reports whether a term matches exactly one known person.
func matchesOnePerson(t *testing.T, s *authorize.Server, term string) bool {
	t.Helper()
	person, err := s.DescribePerson(t.Context(), term)
	return err == nil && strings.HasPrefix(person, term+", ")
}

// A person at a provider can choose a local user's name. The exact name is the local user, as its sub. For another spelling, the
// operator sees both people and can revoke the grants of either.
func TestRevokeOfNamesakes(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	s := authorizetest.NewFederatedServer(t, p, nil)
	sub := signInAs(t, s, p, personAt("4711", "preferred_username", "alice"))
	_, err := s.RevokeGrants(t.Context(), "ALICE", "")
	want := []string{"hospital:4711, user name \"alice\", sub " + sub, "local:alice, sub alice"}
	got := lines(err)[1:]
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("%v, want %q", err, want)
	}
	if person, err := s.DescribePerson(t.Context(), "alice"); person != "local:alice, sub alice" || err != nil {
		t.Errorf("%q, %v", person, err)
	}
	if ended, err := s.RevokeGrants(t.Context(), "hospital:4711", ""); ended.Sessions == 0 || err != nil {
		t.Errorf("%+v, %v", ended, err)
	}
}

// A search by name finds all people with that name, regardless of their number.
func TestNamesakes(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	s := authorizetest.NewFederatedServer(t, p, nil)
	subs := map[string]bool{}
	for i := range 25 {
		subs[signInAs(t, s, p, personAt(fmt.Sprint(i), "preferred_username", "ward"))] = true
	}
	_, err := s.Sessions(t.Context(), "ward")
	for sub := range subs {
		if !errors.Is(err, people.ErrAmbiguous) || !strings.Contains(err.Error(), sub) {
			t.Errorf("%s: %v", sub, err)
		}
	}
}

// Names at one provider neither displace the people of another provider nor match subjects.
func TestNamesOfOtherProviders(t *testing.T) {
	t.Parallel()
	p, public := providertest.Start(t), providertest.Start(t)
	memory := store.NewMemory(0, 0)
	s := authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
		other := authorizetest.HospitalProvider(public)
		other.Key, idp.Sub, c.Store = "public", "oid", memory
		c.IdentityProviders = append(c.IdentityProviders, other)
	})
	sub := signInAs(t, s, p, personAt("ann", "oid", "0b1", "preferred_username", "ward"))
	for i := range 25 {
		public.Change(func(s *providertest.Settings) {
			s.People = []providertest.Person{personAt(fmt.Sprint(i), "preferred_username", []string{"ward", p.Issuer + "\x00ann"}[i%2])}
		})
		authorizetest.FederatedTokens(authorizetest.NewBrowser(t, s), authorizetest.SelectProvider("public"))
	}
	if list, err := s.Sessions(t.Context(), "hospital:ann"); len(list) != 1 || err != nil {
		t.Errorf("by subject: %+v, %v", list, err)
	}
	for _, key := range []string{store.Key("person", "name\x00"+p.Issuer+"\x00ward"), store.Key("person", "subject\x00"+p.Issuer+"\x00ann")} {
		if value, err := memory.Get(t.Context(), key); err != nil || strings.Count(string(value), `"id":`) != 1 || !strings.Contains(string(value), sub) {
			t.Errorf("%s, %v", value, err)
		}
	}
	if _, err := s.Sessions(t.Context(), "ward"); !errors.Is(err, people.ErrAmbiguous) || !strings.Contains(err.Error(), sub) {
		t.Errorf("by name: %v", err)
	}
}

// Events and sessions identify the person at the provider, and the reason of a rejection is only in the audit log.
func TestTrailNamesPerson(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		person   providertest.Person
		change   func(*people.IdentityProvider, *authorize.Config)
		userName string
		reason   string
	}{
		{"user name", personAt("s", "preferred_username", "Ann", "email", "a@x.example", "email_verified", true), nil, "Ann", ""},
		{"address", personAt("s", "email", "a@x.example", "email_verified", true), nil, "a@x.example", ""},
		{"address that is not verified", personAt("s", "email", "a@x.example"), nil, "", ""},
		{"no groups", personAt("s", "preferred_username", "Ann"), withAllowRule("group", "clinicians"), "Ann", "allow group clinicians: no groups from the idp"},
		{"other groups", personAt("s", "groups", "secret"), withAllowRule("group", "clinicians"), "", "allow group clinicians: person is not in this group"},
		{"no address", personAt("s"), withAllowRule("email", "*@x.example"), "", "allow email *@x.example: no e-mail address from the idp"},
		{"address not verified", personAt("s", "email", "a@x.example"), withAllowRule("email", "*@x.example"), "", "allow email *@x.example: e-mail address is not verified"},
		{"another address", personAt("s", "email", "a@y.example", "email_verified", true), withAllowRule("email", "b@y.example"), "a@y.example", "allow email b@y.example: e-mail address does not match"},
		{"disabled here", personAt("s", "email", "alice@example.org", "email_verified", true), func(idp *people.IdentityProvider, c *authorize.Config) {
			idp.LinkEmail, c.Users[0].Disabled = true, true
		}, "alice@example.org", "the linked local user is disabled"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var events []audit.Event
			p := providertest.Start(t, func(s *providertest.Settings) { s.People = []providertest.Person{tt.person} })
			s := authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
				c.Audit = func(_ context.Context, e audit.Event) { events = append(events, e) }
				if tt.change != nil {
					tt.change(idp, c)
				}
			})
			b := authorizetest.NewBrowser(t, s)
			back := authorizetest.SignInAtProvider(b, nil)
			want := audit.Person{Provider: "hospital", Subject: "s", UserName: tt.userName}
			if tt.reason == "" {
				b.Redeem(back)
				list, err := s.Sessions(t.Context(), "")
				if err != nil || len(list) != 1 || list[0].Provider != "hospital" || list[0].Subject != "s" || list[0].UserName != tt.userName {
					t.Errorf("%+v, %v", list, err)
				}
			} else if text := back.String(); !strings.Contains(text, "access_denied") || strings.Contains(text, "description") {
				t.Errorf("response to the app: %s", text)
			}
			if len(events) == 0 || tt.reason == "" && len(events) < 3 {
				t.Fatalf("%+v", events)
			}
			for _, e := range events {
				if e.Person != want {
					t.Errorf("%s: %+v", e.Kind, e.Person)
				}
				var line strings.Builder
				e.Log(t.Context(), slog.New(slog.NewTextHandler(&line, nil)))
				if !strings.Contains(line.String(), tt.reason) || strings.Contains(line.String(), "user_name=") != (tt.userName != "") || strings.Contains(line.String(), "secret") {
					t.Errorf("logged %s", &line)
				}
				if tt.reason != "" {
					break // the remaining text was sent to the app
				}
			}
		})
	}
}
