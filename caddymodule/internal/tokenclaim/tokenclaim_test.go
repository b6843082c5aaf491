package tokenclaim_test

import (
	"reflect"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
)

func TestNames(t *testing.T) {
	t.Parallel()
	const token = `{"groups":["a","b"],"realm_access":{"roles":["r"]},"resource_access":{"my.app":{"roles":["x"]}},` +
		`"n":12345678901234567890,"yes":true,"mixed":["s",1,{}],"object":{},"a.b":"whole","a":{"b":"nested"},"empty":null}`
	names := tokenclaim.NewNames(map[string]string{
		"roles": "realm_access.roles", "app": "resource_access.my.app.roles", "n": "n", "yes": "yes", "mixed": "mixed", "object": "object",
		"dotted": "a.b", "none": "realm_access.none", "beyond": "groups.roles", "empty": "empty",
	})
	want := map[string][]string{
		"groups": {"a", "b"}, "roles": {"r"}, "app": {"x"}, "n": {"12345678901234567890"}, "yes": {"true"}, "mixed": {"s"}, "object": nil,
		"dotted": {"whole"}, "none": nil, "beyond": nil, "empty": nil,
	}
	if got, err := names.Read([]byte(token)); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	var nobody *tokenclaim.Names
	if got, err := nobody.Read([]byte(token)); got != nil || err != nil || nobody.String() != "" {
		t.Errorf("without names: %q, %v", got, err)
	}
	if names.String() == tokenclaim.NewNames(nil).String() {
		t.Error("other names are taken for these")
	}
	if got, _ := tokenclaim.NewNames(map[string]string{"groups": "realm_access.roles"}).Read([]byte(token)); !reflect.DeepEqual(got, map[string][]string{"groups": {"r"}}) {
		t.Errorf("groups of another name: %q", got)
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
