package people_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// staff is a FHIR server that responds to searches by type and records them.
type staff struct {
	answers     map[string]string // Bundle entries by type
	requests    []string
	unreachable bool
}

// Get implements [launch.Records].
func (s *staff) Get(_ context.Context, by launch.Reader, path string, query url.Values) ([]byte, error) {
	s.requests = append(s.requests, by.Scope+" "+path+"?"+query.Encode())
	if s.unreachable {
		return nil, authorizetest.ErrUnreachable
	}
	return []byte(`{"resourceType":"Bundle","entry":[` + s.answers[path] + `]}`), nil
}

// record returns a Bundle entry for a practitioner with an identifier and an address.
func record(id, system, value, more string) string {
	return `{"resource":{"resourceType":"Practitioner","id":"` + id + `","identifier":[{"system":"other","value":"x"},{"system":"` + system +
		`","value":"` + value + `"` + more + `}],"telecom":[{"system":"email","value":"Ada@hospital.example"` + more + `}]}}`
}

var (
	byNumber  = launch.PersonSearch{Type: "Practitioner", System: "urn:n", Claim: "hr.number"}
	byAddress = launch.PersonSearch{Type: "Practitioner", Claim: "", System: ""}
)

// withSearches returns a change that configures searches for a provider's people.
func withSearches(searches ...launch.PersonSearch) func(*people.IdentityProvider) {
	return func(idp *people.IdentityProvider) { idp.FHIRUserSearch = searches }
}

// searchFixture contains a provider with one person, who has the staff number 4|2, and a FHIR server.
type searchFixture struct {
	provider *providertest.Provider
	records  *staff
	log      bytes.Buffer
	trail    authorizetest.AuditTrail
	stores   [2]store.Store
	sub      string // sub of the latest sign-in
}

func newSearchFixture(t *testing.T, claims map[string]any) *searchFixture {
	w := &searchFixture{records: &staff{answers: map[string]string{}}, stores: [2]store.Store{store.NewMemory(0, 0), store.NewMemory(0, 0)}}
	w.provider = providertest.Start(t, func(s *providertest.Settings) { s.People = []providertest.Person{{Subject: "s", Claims: claims}} })
	return w
}

// signIn signs the person in at a new gateway and returns the relative fhirUser or the error.
func (w *searchFixture) signIn(t *testing.T, scope string, change func(*people.IdentityProvider)) string {
	t.Helper()
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, w.provider, func(idp *people.IdentityProvider, c *authorize.Config) {
		change(idp)
		c.Records, c.Store, c.DurableStore = w.records, w.stores[0], w.stores[1]
		c.Logger, c.Audit = slog.New(slog.NewTextHandler(&w.log, nil)), w.trail.Record
	}))
	u := authorizetest.SignInAtProvider(b, url.Values{"scope": {scope}})
	if e := u.Query().Get("error"); e != "" {
		return e
	}
	claims := b.Claims(b.Redeem(u).AccessToken)
	user, _ := claims["fhirUser"].(string)
	w.sub = claims["sub"].(string)
	return strings.TrimPrefix(user, authorizetest.Issuer+"/fhir/R4/")
}

func TestFHIRUserSearch(t *testing.T) {
	t.Parallel()
	number := map[string]any{"hr": map[string]any{"number": "4|2"}, "email": "ada@hospital.example", "email_verified": true, "preferred_username": "ada"}
	unverified := map[string]any{"email": "ada@hospital.example", "email_verified": false, "preferred_username": "ada"}
	right := record("p1", "urn:n", "4|2", "")
	for _, tt := range []struct {
		name, entries string
		claims        map[string]any
		by            []launch.PersonSearch
		want, logged  string
	}{
		{"by identifier", right, number, []launch.PersonSearch{byNumber}, "Practitioner/p1", ""},
		{"by address", right, number, []launch.PersonSearch{byAddress}, "Practitioner/p1", ""},
		{"in order", right, number, []launch.PersonSearch{{Type: "Patient", System: "urn:n", Claim: "hr.number"}, byNumber}, "Practitioner/p1", ""},
		{"beside a warning", `{"resource":{"resourceType":"OperationOutcome"}},` + right, number, []launch.PersonSearch{byNumber}, "Practitioner/p1", ""},
		{"nobody", "", number, []launch.PersonSearch{byNumber}, "", "fhirUser omitted: no FHIR resource matches"},
		{"two", right + "," + record("p2", "urn:n", "4|2", ""), number, []launch.PersonSearch{byNumber, byAddress}, "", "fhirUser omitted: several FHIR resources match"},
		{"one that does not match", record("p1", "urn:n", "42", ""), number, []launch.PersonSearch{byNumber}, "", "fhirUser omitted: no FHIR resource matches"},
		{"the value of another system", record("p1", "urn:m", "4|2", ""), number, []launch.PersonSearch{byNumber}, "", "fhirUser omitted: no FHIR resource matches"},
		{"an old identifier", record("p1", "urn:n", "4|2", `,"use":"old"`), number, []launch.PersonSearch{byNumber}, "", "fhirUser omitted: no FHIR resource matches"},
		{"an address that ended", record("p1", "urn:n", "4|2", `,"period":{"end":"2001-05"}`), number, []launch.PersonSearch{byAddress}, "", "fhirUser omitted: no FHIR resource matches"},
		{"another type", strings.ReplaceAll(right, "Practitioner", "Patient"), number, []launch.PersonSearch{byNumber}, "", "fhirUser omitted: no FHIR resource matches"},
		{"no longer active", strings.Replace(right, `"id"`, `"active":false,"id"`, 1), number, []launch.PersonSearch{byNumber}, "", "fhirUser omitted: no FHIR resource matches"},
		{"without an id", record("", "urn:n", "4|2", ""), number, []launch.PersonSearch{byNumber}, "", "fhirUser omitted: no FHIR resource matches"},
		{"no claim", right, unverified, []launch.PersonSearch{byNumber, byAddress}, "", "searches=0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newSearchFixture(t, tt.claims)
			w.records.answers["Practitioner"] = tt.entries
			authorizetest.Equal(t, w.signIn(t, "openid fhirUser user/*.rs", withSearches(tt.by...)), tt.want)
			if log := w.log.String(); !strings.Contains(log, tt.logged) || tt.logged != "" && !strings.Contains(log, "idp=hospital subject=s user=ada") {
				t.Errorf("logged %q, want %q", log, tt.logged)
			}
			if recorded := strings.Contains(w.trail.Drain(), audit.KindFHIRUser+" "); recorded != (tt.want != "") {
				t.Errorf("recorded: %t", recorded)
			}
		})
	}
}

// TestFamily checks that a mother's e-mail address does not match her child's record.
func TestFamily(t *testing.T) {
	t.Parallel()
	member := func(resourceType, more string) string {
		return `{"resource":{"resourceType":"` + resourceType + `","id":"x","telecom":[{"system":"email","value":"ada@hospital.example"}]` + more + `}}`
	}
	patient, mother := member("Patient", ""), member("RelatedPerson", "")
	contact := func(address string) string {
		return member("Patient", `,"birthDate":"1980-02","contact":[{"telecom":[{"system":"email","value":"`+address+`"}]}]`)
	}
	for _, tt := range []struct{ name, patients, related, born, by, want string }{
		{"unique address", patient, "", "", "Patient", "Patient/x"},
		{"address of a related person", "", mother, "", "RelatedPerson", "RelatedPerson/x"},
		{"address of the patient and a related person", patient, mother, "", "Patient", ""},
		{"address of both, other type", patient, mother, "", "RelatedPerson", ""},
		{"address of a contact", contact("Ada@hospital.example"), "", "", "Patient", ""},
		{"a contact has another", contact("bob@hospital.example"), "", "1980-02-29", "Patient", "Patient/x"},
		{"another date of birth", contact("bob@hospital.example"), "", "2019-02-28", "Patient", ""},
		{"another year", contact("bob@hospital.example"), "", "2019", "Patient", ""},
		{"a day without its year", contact("bob@hospital.example"), "", "0000-02-29", "Patient", "Patient/x"},
	} {
		w := newSearchFixture(t, map[string]any{"email": "ada@hospital.example", "email_verified": true, "birthdate": tt.born})
		w.records.answers["Patient"], w.records.answers["RelatedPerson"] = tt.patients, tt.related
		authorizetest.Equal(t, w.signIn(t, "openid fhirUser user/*.rs", withSearches(launch.PersonSearch{Type: tt.by})), tt.want, tt.name)
		if refused := strings.Contains(w.log.String(), "may belong to someone else"); refused != (tt.want == "") {
			t.Errorf("%s: logged %q", tt.name, w.log.String())
		}
	}
}

// TestFHIRUserSearchQuery checks the search query, and that the claim and the configuration take precedence.
func TestFHIRUserSearchQuery(t *testing.T) {
	t.Parallel()
	claims := map[string]any{"hr": map[string]any{"number": "4|2"}, "f": "Practitioner/claimed"}
	for _, tt := range []struct {
		name, requests, want string
		change               func(*people.IdentityProvider)
	}{
		{"searched", `system/Practitioner.rs Practitioner?_count=3&identifier=urn%3An%7C4%5C%7C2`, "Practitioner/p1", func(*people.IdentityProvider) {}},
		{"the claim", "", "Practitioner/claimed", func(idp *people.IdentityProvider) { idp.Claims = map[string]string{"fhirUser": "f"} }},
		{"the configuration", "", "Practitioner/c", func(idp *people.IdentityProvider) { idp.FHIRUsers = map[string]string{"s": "Practitioner/c"} }},
	} {
		w := newSearchFixture(t, claims)
		w.records.answers["Practitioner"] = record("p1", "urn:n", "4|2", "")
		got := w.signIn(t, "openid fhirUser", func(idp *people.IdentityProvider) { withSearches(byNumber)(idp); tt.change(idp) })
		authorizetest.Equal(t, got, tt.want, tt.name)
		authorizetest.Equal(t, strings.Join(w.records.requests, "\n"), tt.requests, tt.name)
	}
}

// TestFHIRUserIsRemembered checks that the search is repeated when the value changes and after a
// day, and never for a removed search.
func TestFHIRUserIsRemembered(t *testing.T) {
	t.Parallel()
	w := newSearchFixture(t, map[string]any{"hr": map[string]any{"number": "4|2"}})
	w.records.answers["Practitioner"] = record("p1", "urn:n", "4|2", "")
	for range 2 {
		authorizetest.Equal(t, w.signIn(t, "openid fhirUser", withSearches(byNumber)), "Practitioner/p1")
	}
	authorizetest.Equal(t, len(w.records.requests), 1, "searches")
	w.records.answers["Practitioner"] = record("p2", "urn:n", "5", "")
	w.provider.Change(func(s *providertest.Settings) {
		s.People = []providertest.Person{{Subject: "s", Claims: map[string]any{"hr": map[string]any{"number": 5}}}}
	})
	authorizetest.Equal(t, w.signIn(t, "openid fhirUser", withSearches(byNumber)), "Practitioner/p2")
	w.age(t)
	authorizetest.Equal(t, w.signIn(t, "openid fhirUser", withSearches(byNumber)), "Practitioner/p2")
	authorizetest.Equal(t, len(w.records.requests), 3, "searches")
	authorizetest.Equal(t, w.signIn(t, "openid user/*.rs", withSearches()), "")
	authorizetest.Equal(t, len(w.records.requests), 3, "searches")
}

// age backdates the search result by a day.
func (w *searchFixture) age(t *testing.T) {
	value, err := w.stores[0].Get(t.Context(), "account:"+w.sub)
	authorizetest.NoError(t, err)
	old := regexp.MustCompile(`"at":"[^"]*"`).ReplaceAll(value, []byte(`"at":"`+time.Now().Add(-24*time.Hour).UTC().Format(time.RFC3339)+`"`))
	authorizetest.NoError(t, w.stores[0].Put(t.Context(), "account:"+w.sub, old, time.Hour))
}

// TestFHIRUserWhileDown checks that while the FHIR server is down, people can sign in only to apps that do not need fhirUser.
func TestFHIRUserWhileDown(t *testing.T) {
	t.Parallel()
	w := newSearchFixture(t, map[string]any{"hr": map[string]any{"number": "4|2"}})
	w.records.unreachable = true
	authorizetest.Equal(t, w.signIn(t, "openid user/*.rs", withSearches(byNumber)), "temporarily_unavailable")
	authorizetest.Equal(t, w.signIn(t, "openid demo.read", withSearches(byNumber)), "")
	w.records.unreachable = false
	w.records.answers["Practitioner"] = record("p1", "urn:n", "4|2", "")
	authorizetest.Equal(t, w.signIn(t, "openid fhirUser", withSearches(byNumber)), "Practitioner/p1")
	w.records.unreachable = true
	for _, number := range []string{"4|2", "5"} { // a different number identifies a different person
		w.provider.Change(func(s *providertest.Settings) {
			s.People = []providertest.Person{{Subject: "s", Claims: map[string]any{"hr": map[string]any{"number": number}}}}
		})
		authorizetest.Equal(t, w.signIn(t, "openid demo.read", withSearches(byNumber)), "")
		value, err := w.stores[0].Get(t.Context(), "account:"+w.sub)
		if isStored := strings.Contains(string(value), "Practitioner/p1"); err != nil || isStored != (number == "4|2") {
			t.Errorf("with the number %s kept: %t, %v", number, isStored, err)
		}
	}
}
