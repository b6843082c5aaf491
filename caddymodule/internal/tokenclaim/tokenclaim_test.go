package tokenclaim_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
)

func TestNames(t *testing.T) {
	t.Parallel()
	const token = `{"groups":["a","b"],"realm_access":{"roles":["r"]},"resource_access":{"my.app":{"roles":["x"]}},` +
		`"n":12345678901234567890,"yes":true,"several":["s",1,true,null],"mixed":["s",{}],"object":{},"a.b":"whole","a":{"b":"nested"},"empty":null}`
	names := tokenclaim.NewNames(map[string]string{
		"roles": "realm_access.roles", "app": "resource_access.my.app.roles", "n": "n", "yes": "yes", "several": "several", "mixed": "mixed", "object": "object",
		"dotted": "a.b", "none": "realm_access.none", "beyond": "groups.roles", "empty": "empty",
	})
	want := map[string][]string{
		"groups": {"a", "b"}, "roles": {"r"}, "app": {"x"}, "n": {"12345678901234567890"}, "yes": {"true"}, "several": {"s", "1", "true"}, "mixed": nil, "object": nil,
		"dotted": {"whole"}, "none": nil, "beyond": nil, "empty": nil,
	}
	got, err := names.Read([]byte(token))
	slices.Sort(got.UnreadClaims)
	if err != nil || !reflect.DeepEqual(got, tokenclaim.Attributes{Groups: want["groups"], Claims: want, UnreadClaims: []string{"mixed", "object"}}) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	var nobody *tokenclaim.Names
	if got, err := nobody.Read([]byte(token)); got.Claims != nil || err != nil || nobody.String() != "" {
		t.Errorf("without names: %q, %v", got, err)
	}
	if names.String() == tokenclaim.NewNames(nil).String() {
		t.Error("other names are taken for these")
	}
	if got, _ := tokenclaim.NewNames(map[string]string{"groups": "realm_access.roles"}).Read([]byte(token)); !reflect.DeepEqual(got.Groups, []string{"r"}) {
		t.Errorf("groups of another name: %q", got)
	}
}

// TestReferencedGroups checks that groups which the provider returns only as a reference are not treated as an empty list.
func TestReferencedGroups(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, path string
		claims     map[string]any
		complete   bool
	}{
		{"Entra ID's overage", "groups", map[string]any{"_claim_names": map[string]any{"groups": "src1"}, "_claim_sources": map[string]any{"src1": map[string]any{}}}, false},
		{"its short form", "groups", map[string]any{"hasgroups": true}, false},
		{"within another claim", "realm_access.roles", map[string]any{"_claim_names": map[string]any{"realm_access": "s"}}, false},
		{"of a name with dots", "https://h.example/groups", map[string]any{"_claim_names": map[string]any{"https://h.example/groups": "s"}}, false},
		{"another claim", "ward", map[string]any{"_claim_names": map[string]any{"groups": "src1"}, "hasgroups": true}, true},
		{"here, too", "groups", map[string]any{"groups": "g", "hasgroups": true}, true},
		{"none", "groups", map[string]any{"hasgroups": false}, true},
	} {
		if _, complete := tokenclaim.Read(tt.claims, tt.path); complete != tt.complete {
			t.Errorf("%s: complete: %t", tt.name, complete)
		}
	}
}

func TestCheckAll(t *testing.T) {
	t.Parallel()
	many := map[string]string{}
	for c := 'a'; c < 'a'+tokenclaim.MaxNames+1; c++ {
		many[string(c)] = "x"
	}
	for _, names := range []map[string]string{{"": "x"}, {"a.b": "x"}, {"a b": "x"}, {"a": ""}, many} {
		if tokenclaim.CheckAll(names) == nil {
			t.Errorf("%q is accepted", names)
		}
	}
	delete(many, "a")
	if err := tokenclaim.CheckAll(many); err != nil {
		t.Error(err)
	}
}
