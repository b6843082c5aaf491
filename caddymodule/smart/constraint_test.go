package smart

import (
	"slices"
	"strings"
	"testing"
)

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

// TestConstraintUnread checks that a query nobody has parsed narrows a scope to nothing, not to all.
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

// TestGrantMalformedQuery checks that a scope whose query cannot be judged covers nothing, and is covered by nothing.
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
