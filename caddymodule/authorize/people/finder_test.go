package people

import (
	"context"
	"testing"
	"time"
)

// An account is found for the provider of its issuer alone: also if the index of another issuer leads to it, because its sub
// was that issuer's person's before, and if both know the same subject and name.
func TestFinderOfAnotherIssuer(t *testing.T) {
	t.Parallel()
	const sub, subject, name = "e1", "1", "ann"
	clinic := &Provider{IdentityProvider: IdentityProvider{Key: "clinic", Issuer: "https://clinic.example"}}
	accounts := newAccounts(hospital)
	accounts.Providers[clinic.Key] = clinic
	for _, p := range []*Provider{clinic, hospital} { // has it now
		if err := accounts.put(t.Context(), sub, &storedAccount{Provider: p.Key, Issuer: p.Issuer, Subject: subject, Username: name, User: User{ID: sub}}); err != nil {
			t.Fatal(err)
		}
	}
	f := Finder{accounts}
	first := func(ctx context.Context, p *Provider, name string) ([]Known, error) {
		return f.FirstNamed(ctx, p, name, time.Time{})
	}
	for _, tt := range []struct {
		name string
		find func(context.Context, *Provider, string) ([]Known, error)
		term string
	}{
		{"by subject", f.BySubject, subject},
		{"by id: the subject", f.ByID, subject},
		{"by id: the sub", f.ByID, sub},
		{"by name", f.ByName, name},
		{"by name: the sub", f.ByName, sub},
		{"by first name", first, name},
	} {
		if found, err := tt.find(t.Context(), clinic, tt.term); len(found) != 0 || err != nil {
			t.Errorf("%s: the clinic finds %+v, %v", tt.name, found, err)
		}
		if found, err := tt.find(t.Context(), hospital, tt.term); len(found) != 1 || err != nil {
			t.Errorf("%s: the hospital finds %+v, %v", tt.name, found, err)
		}
	}
}

// A name or subject that an account had before does not lead to it any more, unless the search is for who had it first.
func TestFinderOfFormerNames(t *testing.T) {
	t.Parallel()
	p, accounts := hospital, newAccounts(hospital)
	for _, s := range []storedAccount{{Subject: "1", Username: "ann"}, {Subject: "2", Username: "anna"}} { // the same person, with another subject
		s.Provider, s.Issuer, s.User.ID = p.Key, p.Issuer, "e1"
		if err := accounts.put(t.Context(), "e1", &s); err != nil {
			t.Fatal(err)
		}
	}
	f := Finder{accounts}
	for _, tt := range []struct {
		find func(context.Context, *Provider, string) ([]Known, error)
		term string
		want int
	}{{f.BySubject, "1", 0}, {f.BySubject, "2", 1}, {f.ByName, "ann", 0}, {f.ByName, "anna", 1}, {f.ByID, "1", 0}, {f.ByID, "2", 1}} {
		if found, err := tt.find(t.Context(), p, tt.term); len(found) != tt.want || err != nil {
			t.Errorf("%s: %+v, %v", tt.term, found, err)
		}
	}
	if found, err := f.FirstNamed(t.Context(), p, "ann", time.Time{}); len(found) != 1 || err != nil {
		t.Errorf("first: %+v, %v", found, err)
	}
	if found, err := f.FirstNamed(t.Context(), p, "ann", time.Now().Add(time.Hour)); len(found) != 0 || err != nil {
		t.Errorf("first since later: %+v, %v", found, err)
	}
}
