package smart

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestParseScopes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, in string
		want     []string
	}{
		{"none", "", nil},
		{"one", "openid", []string{"openid"}},
		{"several, in their order", "openid launch/patient patient/*.rs", []string{"openid", "launch/patient", "patient/*.rs"}},
		{"repeated", "b a b a", []string{"b", "a"}},
		{"case matters", "a A", []string{"a", "A"}},
		{"all edges of the grammar", "! # [ ] ~", []string{"!", "#", "[", "]", "~"}},
		{"a query", "user/*.rs?code=http://x|y", []string{"user/*.rs?code=http://x|y"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := ParseScopes(test.in)
			if err != nil || !slices.Equal(got, test.want) {
				t.Errorf("got %q, %v, want %q", got, err, test.want)
			}
		})
	}
}

func TestParseScopesMalformed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, in string }{
		{"a space alone", " "},
		{"leading space", " a"},
		{"trailing space", "a "},
		{"double space", "a  b"},
		{"tab", "a\tb"},
		{"line break", "a\nb"},
		{"carriage return", "a\r"},
		{"quotation mark", `a"b`},
		{"backslash", `a\b`},
		{"control character", "a\x00"},
		{"delete", "a\x7f"},
		{"not ASCII", "ä"},
		{"no-break space", "a\u00a0b"},
		{"invalid UTF-8", "a\xff"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := ParseScopes(test.in)
			if !errors.Is(err, errMalformedScope) || got != nil {
				t.Errorf("got %q, %v, want errMalformed", got, err)
			}
		})
	}
}

func FuzzParseScopes(f *testing.F) {
	for _, seed := range []string{"", "openid", "a b a", " a", "a  b", "patient/*.rs?x=y", "ä", "a\\b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		scopes, err := ParseScopes(in)
		if err != nil {
			if !errors.Is(err, errMalformedScope) || len(scopes) > 0 {
				t.Fatalf("%q: %q, %v", in, scopes, err)
			}
			return
		}
		for i, scope := range scopes {
			if strings.ContainsFunc(scope, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }) {
				t.Errorf("%q: scope %q breaks the grammar", in, scope)
			}
			if scope == "" || slices.Contains(scopes[:i], scope) {
				t.Errorf("%q: scope %q is empty or repeated", in, scope)
			}
			if !slices.Contains(strings.Split(in, " "), scope) {
				t.Errorf("%q: scope %q is not in it", in, scope)
			}
		}
		again, err := ParseScopes(strings.Join(scopes, " "))
		if err != nil || !slices.Equal(again, scopes) {
			t.Errorf("%q: parsed again %q, %v, want %q", in, again, err, scopes)
		}
	})
}

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
		{"user/Patient.read", ResourceScope{Level: "user", Type: "Patient", Permission: Read | Search, IsV1: true}},
		{"user/Patient.write", ResourceScope{Level: "user", Type: "Patient", Permission: Create | Update | Delete, IsV1: true}},
		{"user/*.*", ResourceScope{Level: "user", Type: "*", Permission: all, IsV1: true}},
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

// The words .search and .create of HL7 Europe's API are parsed as .s and .c, and also formatted as .s and .c.
func TestParsePermissionWords(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"system/Patient.search": "system/Patient.s", "user/*.create": "user/*.c", "patient/Observation.search?code=x": "patient/Observation.s?code=x",
	} {
		if got, ok := ParseResourceScope(in); !ok || got.IsV1 || got.String() != want {
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
		name, have, requested string
		want                  bool
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
			if got := isCovered(parse(t, test.requested), []ResourceScope{parse(t, test.have)}); got != test.want {
				t.Errorf("%s covers %s: %t", test.have, test.requested, got)
			}
		})
	}
}

func parse(t *testing.T, s string) ResourceScope {
	t.Helper()
	scope, ok := ParseResourceScope(s)
	if !ok {
		t.Fatalf("%q is not a resource scope", s)
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
		if scope.Permission == 0 || scope.Permission > all || (scope.IsV1 && scope.Query != "") {
			t.Errorf("%q is read as %+v", in, scope)
		}
		if !isCovered(scope, []ResourceScope{scope}) {
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
			t.Errorf("%q is not a scope: %q, %v", in, scopes, err)
		}
	})
}

func TestConstraint(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, query string
		want        []Parameter
	}{
		{"one", "category=laboratory", []Parameter{{"category", "laboratory"}}},
		{"in their order", "b=1&a=2", []Parameter{{"b", "1"}, {"a", "2"}}},
		{"one name twice", "a=1&a=2", []Parameter{{"a", "1"}, {"a", "2"}}},
		{"the same twice", "a=1&a=1", []Parameter{{"a", "1"}, {"a", "1"}}},
		{"a system, as SMART writes it", "code=http://loinc.org|4548-4", []Parameter{{"code", "http://loinc.org|4548-4"}}},
		{"a system, encoded", "code=http%3A%2F%2Floinc.org%7C4548-4", []Parameter{{"code", "http://loinc.org|4548-4"}}},
		{"a name, encoded", "c%6Fde=a", []Parameter{{"code", "a"}}},
		{"alternatives", "status=final,amended", []Parameter{{"status", "final,amended"}}},
		{"an escaped comma alone", `name=%5C,`, []Parameter{{"name", `\,`}}},
		{"an escaped backslash", `name=%5C%5C,a`, []Parameter{{"name", `\\,a`}}},
		{"an equals sign", "a=b=c", []Parameter{{"a", "b=c"}}},
		{"a separator, encoded", "a=b%26c=d", []Parameter{{"a", "b&c=d"}}},
		{"a space", "a=b%20c", []Parameter{{"a", "b c"}}},
		{"a plus, encoded", "a=b%2Bc", []Parameter{{"a", "b+c"}}},
		{"decoded once", "a=%2541", []Parameter{{"a", "%41"}}},
		{"UTF-8", "name=M%C3%BCller", []Parameter{{"name", "Müller"}}},
		{"a prefix", "birthdate=ge2000", []Parameter{{"birthdate", "ge2000"}}},
		{"for all types", "_id=a&_tag=b&_type=Patient", []Parameter{{"_id", "a"}, {"_tag", "b"}, {"_type", "Patient"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			scope, ok := ParseResourceScope("user/Patient.rs?" + test.query)
			if got := scope.Constraint(); !ok || !slices.Equal(got, test.want) {
				t.Errorf("got %q, %t, want %q", got, ok, test.want)
			}
		})
	}
}

func TestConstraintNone(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"user/Patient.rs", "user/*.read"} {
		if got := parse(t, in).Constraint(); got != nil {
			t.Errorf("%s: got %q", in, got)
		}
	}
}

// A malformed query narrows a scope to no resources.
func TestConstraintUnread(t *testing.T) {
	t.Parallel()
	scope := ResourceScope{Level: "user", Type: "Patient", Permission: Read, Query: "a:not=b"}
	if got := scope.Constraint(); !slices.Equal(got, []Parameter{{}}) {
		t.Errorf("got %q", got)
	}
}

func TestConstraintMalformed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, query string }{
		{"modifier", "code:in=http://example.org/vs"},
		{"modifier, encoded", "code%3Ain=a"},
		{"modifier for a type", "subject:Patient=1"},
		{"chain", "patient.birthdate=1990"},
		{"chain with a type", "subject:Patient.name=a"},
		{"_include", "_include=Observation:subject"},
		{"_include:iterate", "_include:iterate=Observation:subject"},
		{"_revinclude", "_revinclude=Observation:subject"},
		{"_has", "_has:Observation:patient:code=a"},
		{"_has without a colon", "_has=a"},
		{"_filter", "_filter=name%20eq%20a"},
		{"_query", "_query=a"},
		{"_list", "_list=1"},
		{"_text", "_text=a"},
		{"_content", "_content=a"},
		{"_sort", "_sort=date"},
		{"_count", "_count=1"},
		{"_summary", "_summary=count"},
		{"_elements", "_elements=id"},
		{"_total", "_total=accurate"},
		{"_contained", "_contained=both"},
		{"_containedType", "_containedType=container"},
		{"_format", "_format=json"},
		{"_pretty", "_pretty=true"},
		{"after a good one", "a=b&_count=1"},
		{"another case", "_ID=a"},
		{"empty value", "a=b&c="},
		{"empty alternative", "a=b,,c"},
		{"empty alternative first", "a=,b"},
		{"empty alternative last", "a=b,"},
		{"empty alternatives only", "a=,"},
		{"empty pair between", "a=b&&c=d"},
		{"empty pair first", "&a=b"},
		{"plus", "a=b+c"},
		{"cut escape", "a=%4"},
		{"escape without digits", "a=%zz"},
		{"percent sign alone", "a=100%"},
		{"escape in a name", "a%=b"},
		{"invalid UTF-8", "a=%FF"},
		{"NUL", "a=%00"},
		{"semicolon", "a=b;c=d"},
		{"number sign", "a=b#c"},
		{"question mark in a name", "?a=b"},
		{"space in a name", "a%20b=c"},
		{"separator in a name", "a%26b=c"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got, ok := ParseResourceScope("user/Patient.rs?" + test.query); ok {
				t.Errorf("taken for %q", got.Constraint())
			}
		})
	}
}

// A scope with a malformed query neither covers another scope nor is covered by one.
func TestGrantMalformedQuery(t *testing.T) {
	t.Parallel()
	const modified = "user/Patient.rs?name:not=a"
	if got, err := Grant([]string{modified}, []string{"user/*.cruds"}); err == nil {
		t.Errorf("granted %q", got)
	}
	if got, err := Grant([]string{"user/Patient.r?name:not=a"}, []string{modified}); err == nil {
		t.Errorf("granted %q", got)
	}
	if got := resourceScopes(strings.Fields(modified)); len(got) > 0 {
		t.Errorf("read as %+v", got)
	}
}

func TestParseParameters(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, query string
		want        []Parameter
	}{
		{"none", "", nil},
		{"separators only", "&&", nil},
		{"separators too many", "&a=b&&c=d&", []Parameter{{"a", "b"}, {"c", "d"}}},
		{"in their order", "b=1&a=2&b=0", []Parameter{{"b", "1"}, {"a", "2"}, {"b", "0"}}},
		{"no equals sign", "_summary", []Parameter{{"_summary", ""}}},
		{"no value", "name=", []Parameter{{"name", ""}}},
		{"two equals signs", "a=b=c", []Parameter{{"a", "b=c"}}},
		{"modifier", "name:exact=a", []Parameter{{"name:exact", "a"}}},
		{"modifier, encoded", "name%3Aexact=a", []Parameter{{"name:exact", "a"}}},
		{"chain", "subject:Patient.name=a", []Parameter{{"subject:Patient.name", "a"}}},
		{"reverse chain", "_has:Observation:patient:code=a", []Parameter{{"_has:Observation:patient:code", "a"}}},
		{"plus", "a=b+c", []Parameter{{"a", "b c"}}},
		{"plus, encoded", "a=b%2bc", []Parameter{{"a", "b+c"}}},
		{"bar", "a=b|c", []Parameter{{"a", "b|c"}}},
		{"decoded once", "a=%2500", []Parameter{{"a", "%00"}}},
		{"UTF-8", "a=%C3%A4", []Parameter{{"a", "ä"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := ParseParameters(test.query)
			if err != nil || !slices.Equal(got, test.want) {
				t.Errorf("got %q, %v, want %q", got, err, test.want)
			}
		})
	}
}

func TestParseParametersRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, query string }{
		{"no name", "=a"},
		{"semicolon", "a=b;c=d"},
		{"semicolon in a name", "a;b=c"},
		{"number sign", "a=b#c"},
		{"cut escape", "a=%2"},
		{"no escape", "a=%gg"},
		{"cut escape in a name", "a%=b"},
		{"NUL", "a=b%00"},
		{"NUL in a name", "a%00=b"},
		{"invalid UTF-8", "a=%C3%28"},
		{"overlong UTF-8", "a=%C0%AF"},
		{"surrogate", "a=%ED%A0%80"},
		{"UTF-8, not encoded", "a=ä"},
		{"Latin-1, not encoded", "a=\xe4"},
		{"space", "a=b c"},
		{"line break", "a=b\r\nc"},
		{"delete", "a=\x7f"},
		{"brackets in a name", "a[]=b"},
		{"space in a name", "a+b=c"},
		{"question mark in a name", "Patient?a=b"},
		{"separator in a name", "a%26b=c"},
		{"equals sign in a name", "a%3Db=c"},
		{"letters like ours in a name", "%D0%B0=b"},
		{"after a good one", "a=b&c=%"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := ParseParameters(test.query)
			if !errors.Is(err, errAmbiguousParameters) || got != nil {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

func FuzzParseParameters(f *testing.F) {
	for _, seed := range []string{"", "a=b&c=d", "a", "a=b+c%20d", "a=%2541", "code=http://loinc.org|1", "a=b;c", "&=%"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		list, err := ParseParameters(query)
		if err != nil {
			if !errors.Is(err, errAmbiguousParameters) || list != nil {
				t.Fatalf("%q: %q, %v", query, list, err)
			}
			return
		}
		if strings.ContainsAny(query, ";#\x00") {
			t.Errorf("%q is read as %q", query, list)
		}
		again, err := ParseParameters(EncodeParameters(list))
		if err != nil || !slices.Equal(again, list) {
			t.Errorf("%q: read again %q, %v, want %q", query, again, err, list)
		}
	})
}
