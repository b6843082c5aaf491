package people

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

// The JSON members of stored accounts are stable, so that gateways of different versions can share a store.
func TestStoredAccountMembers(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(storedAccount{User: User{ID: "x", Patients: []string{"x"}, TokenBinding: "x", username: "x", Groups: []string{"x"}}})
	if err != nil {
		t.Fatal(err)
	}
	var account, user map[string]json.RawMessage
	if err := json.Unmarshal(text, &account); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(account["user"], &user); err != nil {
		t.Fatal(err)
	}
	if got, want := slices.Sorted(maps.Keys(account)), []string{"issuer", "provider", "subject", "user"}; !slices.Equal(got, want) {
		t.Errorf("account: %q, want %q", got, want)
	}
	want := []string{"Claims", "Disabled", "Email", "EmailVerified", "FHIRUser", "ID", "Name", "PasswordHash", "Patients", "Phone", "TOTPSecret"}
	if got := slices.Sorted(maps.Keys(user)); !slices.Equal(got, want) {
		t.Errorf("user: %q, want %q", got, want)
	}
}

// newAccounts returns in-memory accounts with one provider.
func newAccounts(p *Provider) *Accounts {
	memory := store.NewMemory(0, 0)
	directory, _ := NewDirectory(nil, nil, p.LinkEmail) // cannot fail for an empty list
	return &Accounts{
		Directory: directory, Providers: map[string]*Provider{p.Key: p}, Store: memory, DurableStore: memory,
		Logger: slog.New(slog.DiscardHandler), Lifetime: time.Hour,
	}
}

var hospital = &Provider{IdentityProvider: IdentityProvider{Key: "hospital", Issuer: "https://hospital.example"}}

// A claimed sub belongs to its owner. Another subject of the issuer, or the same subject of another issuer, can get it only
// after its release.
func TestSubStaysWithOwner(t *testing.T) {
	t.Parallel()
	a := newAccounts(hospital)
	owner := identity{issuer: hospital.Issuer, subject: "ann", sub: "e1"}
	if err := recordSubOwner(t.Context(), a, &owner); err != nil {
		t.Fatal(err)
	}
	for name, other := range map[string]identity{
		"another subject":        {issuer: hospital.Issuer, subject: "ben", sub: "e1"},
		"another issuer":         {issuer: "https://clinic.example", subject: "ann", sub: "e1"},
		"another issuer's other": {issuer: "https://clinic.example", subject: "ben", sub: "e1"},
	} {
		if err := recordSubOwner(t.Context(), a, &other); !errors.Is(err, errUnusableSub) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := recordSubOwner(t.Context(), a, &owner); err != nil {
		t.Errorf("the owner: %v", err)
	}
}

// A released sub is available to another person only after all its grants have been revoked.
func TestSubIsKeptUntilGrantsEnd(t *testing.T) {
	t.Parallel()
	a := newAccounts(hospital)
	broken := errors.New("the store is away")
	ended := 0
	a.RevokeUserGrants = func(context.Context, string, string) error { ended++; return broken }
	long := time.Now().Add(-time.Hour)
	record, err := store.ToJSON(subOwner{Issuer: hospital.Issuer, Subject: "ann", Until: time.Now().Add(ownershipLifetime), Released: long})
	if err == nil {
		err = a.DurableStore.Put(t.Context(), store.Key("sub-owner", "e1"), record, time.Hour)
	}
	if err != nil {
		t.Fatal(err)
	}
	ben := identity{issuer: hospital.Issuer, subject: "ben", sub: "e1"}
	if err := recordSubOwner(t.Context(), a, &ben); !errors.Is(err, broken) || ended != 1 {
		t.Errorf("%v, ended %d times", err, ended)
	}
	if after, err := a.DurableStore.Get(t.Context(), store.Key("sub-owner", "e1")); err != nil || string(after) != string(record) {
		t.Errorf("the owner is %s, %v", after, err)
	}
}

// The provider's patient claim may contain only valid FHIR ids.
func TestClaimedPatientsAreIDs(t *testing.T) {
	t.Parallel()
	p := &Provider{IdentityProvider: IdentityProvider{Key: "hospital", Claims: map[string]string{"patient": "patients"}}}
	got := p.Identity(&relyingparty.Identity{Claims: map[string]any{"patients": []any{"a1", "../x", "", "a b", "Patient/1", "b.2-3", strings.Repeat("x", 65)}}})
	if want := []string{"a1", "b.2-3"}; !slices.Equal(got.user.Patients, want) {
		t.Errorf("%q, want %q", got.user.Patients, want)
	}
}

// A claim that is too long or has too many values is not read at all, and policies that depend on it deny access.
func TestLongClaimIsUnread(t *testing.T) {
	t.Parallel()
	many := make([]any, maxClaimValues+1)
	for i := range many {
		many[i] = "x"
	}
	p := &Provider{IdentityProvider: IdentityProvider{TokenClaims: map[string]string{"ward": "ward"}}}
	for name, tt := range map[string]struct {
		value  any
		unread bool
	}{
		"a text":             {"3", false},
		"as many as allowed": {many[1:], false},
		"too many":           {many, true},
		"too long":           {strings.Repeat("x", maxTokenClaimLength+1), true},
		"another form":       {map[string]any{}, true},
	} {
		claims, unread := p.tokenClaims(&relyingparty.Identity{Claims: map[string]any{"ward": tt.value}})
		if (len(unread) > 0) != tt.unread || (len(claims["ward"]) > 0) == tt.unread {
			t.Errorf("%s: %d values, unread %q", name, len(claims["ward"]), unread)
		}
	}
}

// The result of a FHIR server search is used only while the search is configured for the provider.
func TestFoundPersonNeedsSearch(t *testing.T) {
	t.Parallel()
	search := launch.PersonSearch{Type: "Practitioner", System: "urn:staff", Claim: "number"}
	found := &storedAccount{FHIRMatch: &launch.FoundPerson{Query: launch.PersonQuery{PersonSearch: search, Value: "7"}, Reference: "Practitioner/7"}}
	other := search
	other.System = "urn:other"
	for name, tt := range map[string]struct {
		searches []launch.PersonSearch
		want     string
	}{
		"the search": {[]launch.PersonSearch{other, search}, "Practitioner/7"}, "another search": {[]launch.PersonSearch{other}, ""}, "none": {nil, ""},
	} {
		p := &Provider{IdentityProvider: IdentityProvider{FHIRUserSearch: tt.searches}}
		if got := p.fhirUser(found); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// If a provider links by address, two users cannot have the same verified address.
func TestLinksAreUnambiguous(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		link, verified, wrong bool
		other                 string
	}{
		"the same address":      {true, true, true, "Ann@Example.org"},
		"another address":       {true, true, false, "ben@example.org"},
		"not verified":          {true, false, false, "ann@example.org"},
		"the provider no links": {false, true, false, "ann@example.org"},
	} {
		ann := User{ID: "ann", PasswordHash: "x", Email: "ann@example.org", EmailVerified: true}
		ben := User{ID: "ben", PasswordHash: "x", Email: tt.other, EmailVerified: tt.verified}
		for _, pair := range [][2]User{{ann, ben}, {ben, ann}} {
			d, err := NewDirectory(pair[:1], nil, tt.link)
			if err != nil {
				t.Fatal(err)
			}
			if err := d.Add(pair[1]); (err != nil) != tt.wrong {
				t.Errorf("%s: %v", name, err)
			}
			d.Remove(pair[0].ID)
			if err := d.Add(pair[0]); (err != nil) != (d.User(pair[1].ID) != nil && tt.wrong) {
				t.Errorf("%s, the other way: %v", name, err)
			}
		}
	}
}

// Rename replaces a user name only if it is the account's current name.
func TestRenameOfAnotherName(t *testing.T) {
	t.Parallel()
	for from, want := range map[string]string{"ann": "eve", "ANN": "eve", "ben": "ann", "": "ann"} {
		a := newAccounts(hospital)
		if err := a.put(t.Context(), "e1", &storedAccount{Provider: "hospital", Issuer: hospital.Issuer, Subject: "1", Username: "ann"}); err != nil {
			t.Fatal(err)
		}
		if err := Rename(t.Context(), a, "e1", from, "eve"); err != nil {
			t.Error(err)
		}
		if stored, err := a.storedAccount(t.Context(), "e1"); err != nil || stored.Username != want {
			t.Errorf("%q: %+v, %v", from, stored, err)
		}
	}
}

// An index entry has a maximum size and remains marked as full.
func TestIndexEntryIsBounded(t *testing.T) {
	t.Parallel()
	var e indexEntry
	for i := range maxNameUses + 5 {
		e.addUse(string(rune('a'+i)), time.Now(), false)
	}
	if len(e.Uses) != maxNameUses || !e.IsFull {
		t.Errorf("%d accounts, full: %v", len(e.Uses), e.IsFull)
	}
}

// An account is found only at the provider of its issuer. This is true even if the index of another issuer lists it because its
// sub belonged to a person of that issuer, and even if both issuers use the same subject and name.
func TestFinderOfAnotherIssuer(t *testing.T) {
	t.Parallel()
	const sub, subject, name = "e1", "1", "ann"
	clinic := &Provider{IdentityProvider: IdentityProvider{Key: "clinic", Issuer: "https://clinic.example"}}
	accounts := newAccounts(hospital)
	accounts.Providers[clinic.Key] = clinic
	for _, p := range []*Provider{clinic, hospital} { // the second put moves the account from clinic to hospital
		if err := accounts.put(t.Context(), sub, &storedAccount{Provider: p.Key, Issuer: p.Issuer, Subject: subject, Username: name, User: User{ID: sub}}); err != nil {
			t.Fatal(err)
		}
	}
	f := Finder{accounts}
	first := func(ctx context.Context, p *Provider, name string) ([]StoredPerson, error) {
		return f.FindFirstNamed(ctx, p, name, time.Time{})
	}
	for _, tt := range []struct {
		name string
		find func(context.Context, *Provider, string) ([]StoredPerson, error)
		term string
	}{
		{"by subject", f.FindBySubject, subject},
		{"by id: the subject", f.FindByID, subject},
		{"by id: the sub", f.FindByID, sub},
		{"by name", f.FindByName, name},
		{"by name: the sub", f.FindByName, sub},
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

// A former name or subject does not identify the account, except in a search for the first user of the name.
func TestFinderOfFormerNames(t *testing.T) {
	t.Parallel()
	p, accounts := hospital, newAccounts(hospital)
	for _, s := range []storedAccount{{Subject: "1", Username: "ann"}, {Subject: "2", Username: "anna"}} { // same person with a new subject
		s.Provider, s.Issuer, s.User.ID = p.Key, p.Issuer, "e1"
		if err := accounts.put(t.Context(), "e1", &s); err != nil {
			t.Fatal(err)
		}
	}
	f := Finder{accounts}
	for _, tt := range []struct {
		find func(context.Context, *Provider, string) ([]StoredPerson, error)
		term string
		want int
	}{{f.FindBySubject, "1", 0}, {f.FindBySubject, "2", 1}, {f.FindByName, "ann", 0}, {f.FindByName, "anna", 1}, {f.FindByID, "1", 0}, {f.FindByID, "2", 1}} {
		if found, err := tt.find(t.Context(), p, tt.term); len(found) != tt.want || err != nil {
			t.Errorf("%s: %+v, %v", tt.term, found, err)
		}
	}
	if found, err := f.FindFirstNamed(t.Context(), p, "ann", time.Time{}); len(found) != 1 || err != nil {
		t.Errorf("first: %+v, %v", found, err)
	}
	if found, err := f.FindFirstNamed(t.Context(), p, "ann", time.Now().Add(time.Hour)); len(found) != 0 || err != nil {
		t.Errorf("first since later: %+v, %v", found, err)
	}
}
