package scopelimit_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/scopelimit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// action is one interaction with one resource in category a, b or none. For other scopes, level contains the scope.
type action struct{ level, typ, letter, category string }

// permittedActions returns the set of actions permitted by scopes. It does not use the tested code.
func permittedActions(scopes []string) map[action]bool {
	set := map[action]bool{}
	for _, scope := range scopes {
		level, rest, isResource := strings.Cut(scope, "/")
		if !isResource || level == "launch" {
			set[action{level: scope}] = true
			continue
		}
		rest, query, _ := strings.Cut(rest, "?")
		typ, letters, _ := strings.Cut(rest, ".")
		letters = strings.NewReplacer("read", "rs", "write", "cud", "*", "cruds").Replace(letters)
		for _, t := range []string{"Patient", "Observation", "Condition"} {
			for _, c := range []string{"a", "b", ""} {
				if (typ == "*" || typ == t) && (query == "" || query == "category="+c) {
					for _, l := range letters {
						set[action{level, t, string(l), c}] = true
					}
				}
			}
		}
	}
	return set
}

// free lists scopes that rows cannot limit.
var free = []string{
	"openid", "profile", "email", "phone", "address", "fhirUser", "groups", "launch", "launch/patient", "launch/questionnaire?role=r", "online_access", "offline_access",
}

// generator generates random test data.
type generator struct{ *rand.Rand }

func (w generator) one(of ...string) string { return of[w.IntN(len(of))] }

func (w generator) resource() string {
	scope := w.one("user", "patient") + "/" + w.one("*", "Patient", "Observation") + "."
	if w.IntN(3) == 0 {
		return scope + w.one("read", "write", "*")
	}
	return scope + w.one("r", "rs", "cruds", "cud", "s", "ru") + w.one("", "", "", "?category=a", "?category=b")
}

func (w generator) scopes(limit int, words ...string) (all []string) {
	for range 1 + w.IntN(limit) {
		scope := w.resource()
		if w.IntN(4) == 0 {
			scope = w.one(words...)
		}
		if !slices.Contains(all, scope) {
			all = append(all, scope)
		}
	}
	return all
}

// rows returns random rows that match by group, by claim, or any user.
func (w generator) rows() (rows []scopelimit.Row) {
	for range 1 + w.IntN(4) {
		row := scopelimit.Row{IDP: w.one("", "h", "p"), MatchBy: "group", Value: w.one("doctors", "nurses"), Scopes: w.scopes(3, "demo", "other")}
		switch w.IntN(5) {
		case 0:
			row.MatchBy, row.Value = "any", ""
		case 1:
			row.MatchBy, row.Claim, row.Value = "claim", "ward", w.one("a1", "b2")
		}
		rows = append(rows, row)
	}
	return rows
}

func (w generator) person() (p tokenclaim.Attributes) {
	p.IDP = w.one("h", "p")
	for _, group := range []string{"doctors", "nurses", "visitors"} {
		if w.IntN(2) == 0 {
			p.Groups = append(p.Groups, group)
		}
	}
	if w.IntN(2) == 0 {
		p.Claims = map[string][]string{"ward": {w.one("a1", "b2", "c3")}}
	}
	return p
}

// expectedScopes returns the scopes that rows grant to a user. It does not use the tested code.
func expectedScopes(rows []scopelimit.Row, p tokenclaim.Attributes) (scopes []string) {
	for _, r := range rows {
		if r.IDP != "" && r.IDP != p.IDP {
			continue
		}
		if r.MatchBy == "any" || r.MatchBy == "group" && slices.Contains(p.Groups, r.Value) || r.MatchBy == "claim" && slices.Contains(p.Claims[r.Claim], r.Value) {
			scopes = append(scopes, r.Scopes...)
		}
	}
	return scopes
}

// TestTable generates rows, requested scopes and clients. A granted scope must be within the request, the client's scopes and
// the scopes of the user's rows. It can be granted again. Without queries, it is exactly their intersection.
func TestTable(t *testing.T) {
	t.Parallel()
	w := generator{rand.New(rand.NewPCG(23, 2))}
	some, less, nothing := 0, 0, 0
	for range 20_000 {
		rows, p := w.rows(), w.person()
		c := client.Client{Scopes: append(w.scopes(4, "demo", "other"), "fhirUser", "groups", "phone", "address", "launch", "launch/patient", "launch/questionnaire", "online_access", "offline_access"), Compat: []string{client.CompatIgnoreUnknownScopes}}
		requested := w.scopes(3, append([]string{"demo", "other"}, free...)...)
		byClient, err := c.GrantScope(strings.Join(requested, " "))
		if err != nil {
			continue
		}
		limits, err := scopelimit.New(rows)
		if err != nil {
			t.Fatal(err)
		}
		got := limits.Narrow(p, byClient)
		switch {
		case len(got) == 0:
			nothing++
		case len(got) < len(byClient):
			less++
		default:
			some++
		}
		mine := append(expectedScopes(rows, p), free...)
		checkGranted(t, got, requested, c.Scopes, mine)
		if len(got) > 0 && (!c.AllowsScope(strings.Join(got, " ")) || !limits.Covers(p, strings.Join(got, " "))) {
			t.Fatalf("%q of %q cannot be granted again: rows %+v, %+v, list %q", got, requested, rows, p, c.Scopes)
		}
	}
	if min(some, less, nothing) < 500 {
		t.Errorf("%d full, %d reduced, %d empty: the samples cover too little", some, less, nothing)
	}
}

// checkGranted compares the granted scope with the intersection of the three lists.
func checkGranted(t *testing.T, got, requested, list, mine []string) {
	t.Helper()
	list = append(slices.Clone(list), smart.ReservedScopes...)
	want, in, may := permittedActions(requested), permittedActions(list), permittedActions(mine)
	if in[action{level: "launch/questionnaire"}] {
		in[action{level: "launch/questionnaire?role=r"}] = true
	}
	granted := permittedActions(got)
	for d := range granted {
		if !want[d] || !in[d] || !may[d] {
			t.Fatalf("%q of %q, list %q, person %q: %+v is too much", got, requested, list, mine, d)
		}
	}
	if strings.Contains(strings.Join(slices.Concat(requested, list, mine), " "), "category") {
		return
	}
	for d := range want {
		if in[d] && may[d] && !granted[d] && (d.typ != "" || len(got) > 0) {
			t.Fatalf("%q of %q, list %q, person %q: %+v is missing", got, requested, list, mine, d)
		}
	}
}

func TestNarrow(t *testing.T) {
	t.Parallel()
	rows := []scopelimit.Row{
		{MatchBy: "group", Value: "doctors", Scopes: []string{"user/*.cruds", "break-glass"}},
		{MatchBy: "group", Value: "nurses", Scopes: []string{"user/Observation.rs?category=vital-signs", "user/Patient.r"}},
		{MatchBy: "claim", Claim: "ward", Value: "b2", Scopes: []string{"user/Patient.s"}},
		{MatchBy: "any", Scopes: []string{"patient/*.rs"}},
		{IDP: "portal", MatchBy: "group", Value: "Doctors", Scopes: []string{"user/*.rs"}},
		{IDP: "portal", MatchBy: "any", Scopes: []string{"demo"}},
	}
	for _, tt := range []struct{ name, groups, ward, requested, want string }{
		{"all", "doctors", "", "openid user/*.cruds break-glass", "openid user/*.cruds break-glass"},
		{"a part of a wildcard", "nurses", "", "openid user/*.rs", "openid user/Observation.rs?category=vital-signs user/Patient.r"},
		{"the union", "nurses", "b2", "user/Patient.rs", "user/Patient.rs"},
		{"two groups", "nurses doctors", "", "user/*.rs", "user/*.rs"},
		{"a word of the site's", "nurses", "", "openid break-glass", "openid"},
		{"no group", "", "", "openid fhirUser user/*.rs patient/*.rs", "openid fhirUser patient/*.rs"},
		{"no such group", "Doctors", "", "user/*.rs", ""},
		{"another provider's", "doctors", "", "demo", ""},
		{"a group that is a claim's value", "b2", "", "user/Patient.s", ""},
		{"only help is left", "", "", "launch user/*.rs offline_access", ""},
		{"only launch and offline_access", "", "", "launch offline_access", "launch offline_access"},
		{"another's records", "nurses", "", "user/Condition.rs", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			limits, err := scopelimit.New(rows)
			if err != nil {
				t.Fatal(err)
			}
			p := tokenclaim.Attributes{IDP: "hospital", Groups: strings.Fields(tt.groups), Claims: map[string][]string{"ward": strings.Fields(tt.ward)}}
			if got := strings.Join(limits.Narrow(p, strings.Fields(tt.requested)), " "); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			for range 2 { // first computed, then cached
				if got := limits.Covers(p, tt.requested); got != (tt.requested == tt.want) {
					t.Errorf("covers: %t", got)
				}
			}
		})
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	good := []string{"user/*.rs"}
	for _, tt := range []struct {
		row  scopelimit.Row
		want string
	}{
		{scopelimit.Row{MatchBy: "group", Value: "g", Scopes: good}, ""},
		{scopelimit.Row{MatchBy: "claim", Claim: "c", Value: "v", Scopes: []string{"patient/Observation.rs?category=a", "break-glass"}}, ""},
		{scopelimit.Row{MatchBy: "any", Scopes: good}, ""},
		{scopelimit.Row{MatchBy: "role", Value: "g", Scopes: good}, `scope_limit: unknown condition "role"`},
		{scopelimit.Row{MatchBy: "group", Scopes: good}, "expected group <name>"},
		{scopelimit.Row{MatchBy: "claim", Value: "v", Scopes: good}, "claim <name> <value>"},
		{scopelimit.Row{MatchBy: "any", Value: "x", Scopes: good}, "or any"},
		{scopelimit.Row{MatchBy: "group", Value: "g"}, "no scopes: list at least one"},
		{scopelimit.Row{MatchBy: "any", Scopes: []string{"openid"}}, "cannot be limited"},
		{scopelimit.Row{MatchBy: "any", Scopes: []string{"launch/patient"}}, "cannot be limited"},
		{scopelimit.Row{MatchBy: "any", Scopes: []string{"system/*.rs"}}, "cannot be granted to people"},
		{scopelimit.Row{MatchBy: "any", Scopes: []string{"user/Patients.rs"}}, "Patients is not a FHIR R4 resource type"},
		{scopelimit.Row{MatchBy: "any", Scopes: []string{"user/Patient.sr"}}, "is not a valid SMART scope"},
	} {
		_, err := scopelimit.New([]scopelimit.Row{tt.row})
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%+v: %v, want %q", tt.row, err, tt.want)
		}
	}
}

// If there are no rows, nothing is limited and no memory is allocated.
func TestNoRows(t *testing.T) {
	limits, err := scopelimit.New(nil)
	scope := []string{"user/*.rs"}
	allocated := testing.AllocsPerRun(10, func() {
		if err != nil || !limits.Covers(tokenclaim.Attributes{}, "user/*.rs") || len(limits.Narrow(tokenclaim.Attributes{}, scope)) != 1 {
			t.Error("limited")
		}
	})
	if allocated != 0 {
		t.Errorf("%v allocations", allocated)
	}
}

// Users who match different rows do not share cached results.
func TestCoversIsByRows(t *testing.T) {
	limits, err := scopelimit.New([]scopelimit.Row{{MatchBy: "group", Value: "doctors", Scopes: []string{"user/*.rs"}}, {MatchBy: "group", Value: "nurses", Scopes: []string{"user/Observation.rs"}}})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for group, want := range map[string]bool{"doctors": true, "nurses": false, "guests": false} {
			if got := limits.Covers(tokenclaim.Attributes{Groups: []string{group}}, "user/Patient.rs"); got != want {
				t.Errorf("%s: %v", group, got)
			}
		}
	}
}
