package smart

import (
	"strings"
	"testing"
)

const all = Create | Read | Update | Delete | Search

func TestParseResourceScope(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		in   string
		want ResourceScope
	}{
		{"patient/Observation.rs", ResourceScope{Level: "patient", Type: "Observation", Permission: Read | Search}},
		{"user/*.cruds", ResourceScope{Level: "user", Type: "*", Permission: all}},
		{"system/Patient.c", ResourceScope{Level: "system", Type: "Patient", Permission: Create}},
		{"system/Patient.r", ResourceScope{Level: "system", Type: "Patient", Permission: Read}},
		{"system/Patient.u", ResourceScope{Level: "system", Type: "Patient", Permission: Update}},
		{"system/Patient.d", ResourceScope{Level: "system", Type: "Patient", Permission: Delete}},
		{"system/Patient.s", ResourceScope{Level: "system", Type: "Patient", Permission: Search}},
		{"user/Patient.cs", ResourceScope{Level: "user", Type: "Patient", Permission: Create | Search}},
		{"user/Patient.read", ResourceScope{Level: "user", Type: "Patient", Permission: Read | Search, V1: true}},
		{"user/Patient.write", ResourceScope{Level: "user", Type: "Patient", Permission: Create | Update | Delete, V1: true}},
		{"user/*.*", ResourceScope{Level: "user", Type: "*", Permission: all, V1: true}},
		{
			"patient/Observation.rs?category=http://terminology.hl7.org/CodeSystem/observation-category|laboratory",
			ResourceScope{
				Level: "patient", Type: "Observation", Permission: Read | Search,
				Query: "category=http://terminology.hl7.org/CodeSystem/observation-category|laboratory",
			},
		},
		{"user/A.r?a=b&c=d", ResourceScope{Level: "user", Type: "A", Permission: Read, Query: "a=b&c=d"}},
	} {
		t.Run(test.in, func(t *testing.T) {
			got, ok := ParseResourceScope(test.in)
			if !ok || got != test.want {
				t.Errorf("got %+v, %t, want %+v", got, ok, test.want)
			}
			if got.String() != test.in {
				t.Errorf("written %q", got)
			}
		})
	}
}

// HL7 Europe's API writes .search and .create: the same as .s and .c, as which they are written.
func TestParsePermissionWords(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"system/Patient.search": "system/Patient.s", "user/*.create": "user/*.c", "patient/Observation.search?code=x": "patient/Observation.s?code=x",
	} {
		if got, ok := ParseResourceScope(in); !ok || got.V1 || got.String() != want {
			t.Errorf("%s: %+v, %t", in, got, ok)
		}
	}
	for _, in := range []string{"system/Patient.Search", "system/Patient.searchcreate", "system/Patient.rsearch", "system/Patient.update", "system/Patient.delete"} {
		if got, ok := ParseResourceScope(in); ok {
			t.Errorf("%s: %+v", in, got)
		}
	}
}

func TestParseResourceScopeOther(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, in string }{
		{"nothing", ""},
		{"another scope", "launch/patient"},
		{"reserved scope", "openid"},
		{"no permission", "patient/Observation."},
		{"no dot", "patient/Observation"},
		{"wrong order", "patient/Observation.sr"},
		{"d before u", "patient/Observation.dus"},
		{"repeated letter", "patient/Observation.rr"},
		{"upper case letter", "patient/Observation.R"},
		{"unknown letter", "patient/Observation.rx"},
		{"unknown word", "patient/Observation.reads"},
		{"letter and word", "patient/Observation.cread"},
		{"unknown level", "group/Observation.rs"},
		{"upper case level", "Patient/Observation.rs"},
		{"no level", "/Observation.rs"},
		{"no type", "patient/.rs"},
		{"lower case type", "patient/observation.rs"},
		{"type with digit", "patient/Observation1.rs"},
		{"type with star", "patient/Obs*.rs"},
		{"two stars", "patient/**.rs"},
		{"two types", "patient/Observation/Patient.rs"},
		{"two permissions", "patient/Observation.r.s"},
		{"empty query", "patient/Observation.rs?"},
		{"query without value", "patient/Observation.rs?a="},
		{"query without name", "patient/Observation.rs?=a"},
		{"query without equals", "patient/Observation.rs?a"},
		{"query with empty pair", "patient/Observation.rs?a=b&"},
		{"query with SMART 1", "patient/Observation.read?a=b"},
		{"query instead of permission", "patient/Observation?a=b"},
		{"space", "patient/Observation.rs "},
		{"space in query", "patient/Observation.rs?a=b c"},
		{"quotation mark in query", `patient/Observation.rs?a="`},
		{"not ASCII in query", "patient/Observation.rs?a=ä"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got, ok := ParseResourceScope(test.in); ok {
				t.Errorf("%q is taken for %+v", test.in, got)
			}
		})
	}
}

func TestCovered(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, have, asked string
		want              bool
	}{
		{"itself", "user/Patient.rs", "user/Patient.rs", true},
		{"a part", "user/Patient.rs", "user/Patient.r", true},
		{"more", "user/Patient.rs", "user/Patient.cruds", false},
		{"a type", "user/*.rs", "user/Patient.rs", true},
		{"all types", "user/Patient.rs", "user/*.rs", false},
		{"another type", "user/Patient.rs", "user/Observation.rs", false},
		{"another level", "system/Patient.rs", "user/Patient.rs", false},
		{"SMART 1 in 2", "user/Patient.rs", "user/Patient.read", true},
		{"SMART 2 in 1", "user/Patient.write", "user/Patient.cud", true},
		{"a query", "user/Patient.rs", "user/Patient.rs?a=b", true},
		{"the same query", "user/Patient.rs?a=b", "user/Patient.r?a=b", true},
		{"another query", "user/Patient.rs?a=b", "user/Patient.rs?a=c", false},
		{"a longer query", "user/Patient.rs?a=b", "user/Patient.rs?a=b&c=d", false},
		{"without the query", "user/Patient.rs?a=b", "user/Patient.rs", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := covered(parse(t, test.asked), []ResourceScope{parse(t, test.have)}); got != test.want {
				t.Errorf("%s covers %s: %t", test.have, test.asked, got)
			}
		})
	}
}

// parse reads a resource scope that must be one.
func parse(t *testing.T, s string) ResourceScope {
	t.Helper()
	scope, ok := ParseResourceScope(s)
	if !ok {
		t.Fatalf("%q is no resource scope", s)
	}
	return scope
}

func FuzzParseResourceScope(f *testing.F) {
	for _, seed := range []string{
		"patient/*.rs", "user/Observation.cruds?a=b", "system/*.*", "user/Patient.read", "openid",
		"patient/Observation.sr", "patient/Observation.rs?", "a/b.c",
		"user/Patient.r?name:not=a", "user/Patient.r?a=%5C,&a=b", "user/*.r?_id=a%00",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		scope, ok := ParseResourceScope(in)
		if !ok {
			return
		}
		if scope.String() != in {
			t.Errorf("%q is written as %q", in, scope)
		}
		if scope.Permission == 0 || scope.Permission > all || (scope.V1 && scope.Query != "") {
			t.Errorf("%q is read as %+v", in, scope)
		}
		if !covered(scope, []ResourceScope{scope}) {
			t.Errorf("%q does not cover itself", in)
		}
		if (len(scope.Constraint()) > 0) != (scope.Query != "") {
			t.Errorf("%q is narrowed by %q", in, scope.Constraint())
		}
		for _, p := range scope.Constraint() {
			if p.Value == "" || !isConstraintName(p.Name) {
				t.Errorf("%q is narrowed by %q", in, p)
			}
		}
		if scopes, err := ParseScopes(in); err != nil || len(scopes) != 1 || strings.Contains(in, " ") {
			t.Errorf("%q is no scope: %q, %v", in, scopes, err)
		}
	})
}
