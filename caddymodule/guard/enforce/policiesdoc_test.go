package enforce_test

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/judge"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/policy"
)

var documentedRule = regexp.MustCompile("(?s)```\n(allow|deny) ([a-z-]+) `([^`]+)`\n```")

// documentedRules are the rules of docs/guard.md by name.
func documentedRules(t *testing.T) map[string]*policy.Set {
	t.Helper()
	text, err := os.ReadFile("../../../docs/guard.md")
	if err != nil {
		t.Fatal(err)
	}
	sets := map[string]*policy.Set{}
	for _, found := range documentedRule.FindAllStringSubmatch(string(text), -1) {
		set, err := policy.Compile([]policy.Rule{{Effect: policy.Effect(found[1]), Name: found[2], Expression: found[3]}})
		if err != nil {
			t.Fatal(err)
		}
		sets[found[2]] = set
	}
	return sets
}

// labelled are records with security labels, and one without.
var labelled = []string{
	`{"resourceType":"Patient","id":"a","name":[{"family":"Adams"}],"meta":{"security":[{"display":"no code"},{"system":"http://terminology.hl7.org/CodeSystem/v3-ActCode","code":"VIP"}]}}`,
	`{"resourceType":"Patient","id":"b","name":[{"family":"Brown"}]}`,
	`{"resourceType":"DocumentReference","id":"note","subject":{"reference":"Patient/b"},"meta":{"security":[{"code":"PSYTHPN"}]}}`,
	`{"resourceType":"DocumentReference","id":"letter","subject":{"reference":"Patient/b"},"meta":{"security":[{"code":"R"}]}}`,
	`{"resourceType":"Observation","id":"b1","status":"final","subject":{"reference":"Patient/b"}}`,
}

func TestDocumentedRules(t *testing.T) {
	t.Parallel()
	const hospital = "https://hospital.example"
	var (
		monday   = time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC)
		early    = time.Date(2026, 1, 5, 5, 59, 0, 0, time.UTC) // 6:59 in Berlin
		evening  = time.Date(2026, 1, 5, 18, 0, 0, 0, time.UTC) // 19:00 in Berlin
		saturday = time.Date(2026, 1, 3, 9, 0, 0, 0, time.UTC)
		bound    = access.Holder{Scope: "patient/*.cruds", Patient: "a"}
	)
	sets := documentedRules(t)
	for _, tt := range []struct {
		rule, name string
		holder     access.Holder
		token      policy.Token
		now        time.Time
		target     string
		status     int
	}{
		{"vip", "one who treats them", reader, policy.Token{Issuer: hospital, Subject: "alice"}, monday, "Patient/a", 200},
		{"vip", "somebody else", reader, policy.Token{Issuer: hospital, Subject: "carol"}, monday, "Patient/a", 404},
		{"vip", "one of that name elsewhere", reader, policy.Token{Issuer: "https://other.example", Subject: "alice"}, monday, "Patient/a", 404},
		{"vip", "a record without labels", reader, policy.Token{Issuer: hospital, Subject: "carol"}, monday, "Patient/b", 200},
		{"psychotherapy", "an app", reader, policy.Token{ClientID: "app"}, monday, "DocumentReference/note", 404},
		{"psychotherapy", "the hospital's system", reader, policy.Token{ClientID: "ehr"}, monday, "DocumentReference/note", 200},
		{"psychotherapy", "another document", reader, policy.Token{ClientID: "app"}, monday, "DocumentReference/letter", 200},
		{"office-hours", "on a Monday", reader, policy.Token{ClientID: "front-desk"}, monday, "Patient/a", 200},
		{"office-hours", "too early", reader, policy.Token{ClientID: "front-desk"}, early, "Patient/a", 403},
		{"office-hours", "too late", reader, policy.Token{ClientID: "front-desk"}, evening, "Patient/a", 403},
		{"office-hours", "on a Saturday", reader, policy.Token{ClientID: "front-desk"}, saturday, "Patient/a", 403},
		{"office-hours", "another client", reader, policy.Token{ClientID: "ehr"}, saturday, "Patient/a", 200},
		{"research", "a finding", reader, policy.Token{ClientID: "research"}, monday, "Observation/b1", 200},
		{"research", "a name", reader, policy.Token{ClientID: "research"}, monday, "Patient/b", 404},
		{"research", "another client", reader, policy.Token{ClientID: "ehr"}, monday, "Patient/b", 200},
		{"break-glass", "without", bound, policy.Token{ClientID: "ehr"}, monday, "Patient/b", 404},
		{"break-glass", "with", bound, policy.Token{ClientID: "ehr", Scopes: []string{"break-glass"}}, monday, "Patient/b", 200},
		{"break-glass", "another client", bound, policy.Token{ClientID: "app", Scopes: []string{"break-glass"}}, monday, "Patient/b", 404},
		{"break-glass", "a history", bound, policy.Token{ClientID: "ehr", Scopes: []string{"break-glass"}}, monday, "Patient/b/_history/1", 404},
	} {
		t.Run(tt.rule+"/"+tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, labelled...)
			g.Policies = judge.Policies{
				Rules:  sets[tt.rule],
				Input:  func(*http.Request, *guard.Token) policy.Input { return policy.Input{Token: tt.token, Now: tt.now} },
				Failed: func(_ *http.Request, err error) { t.Error(err) },
			}
			if g.Policies.Rules == nil {
				t.Fatal("there is no such rule")
			}
			if got := g.get(tt.holder, tt.target); got.StatusCode != tt.status {
				t.Errorf("status %d, want %d", got.StatusCode, tt.status)
			}
		})
	}
}

// TestDocumentedResearch checks that a name does not come along with something else either.
func TestDocumentedResearch(t *testing.T) {
	t.Parallel()
	g := newGateway(t, labelled...)
	g.Policies = judge.Policies{Rules: documentedRules(t)["research"], Input: func(*http.Request, *guard.Token) policy.Input {
		return policy.Input{Token: policy.Token{ClientID: "research"}}
	}}
	for target, want := range map[string]string{
		"Patient": "", "Observation?_include=Observation:subject": "Observation/b1",
		"?_type=Patient,Observation": "Observation/b1",
	} {
		if got := strings.Join(g.found(reader, target), " "); got != want {
			t.Errorf("%s: got %q", target, got)
		}
	}
}
