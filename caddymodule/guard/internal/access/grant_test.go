package access

import (
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// TestJudged checks that nothing is whole where rules judge each resource, and everything covered as before.
func TestJudged(t *testing.T) {
	t.Parallel()
	for _, g := range []Grant{{Type: smart.AnyType, Permission: smart.Read}, {Type: "Patient", Permission: smart.Read}} {
		before := New(Holder{Scope: "system/Group.r"}, NewShared(nil))
		r := before.With(g).Judged()
		if r.Whole("Patient", smart.Read) || r.Whole(smart.AnyType, smart.Read) || before.Whole("Patient", smart.Read) {
			t.Errorf("%s: whole", g.Type)
		}
		if len(r.For("Patient", smart.Read)) != 1 || !r.Covers(g, resource.Resource{Type: "Patient", ID: "a"}).Covered {
			t.Errorf("%s: not covered", g.Type)
		}
	}
}

// TestByRule checks that a grant by rule has the interaction begin, and covers nothing by itself.
func TestByRule(t *testing.T) {
	t.Parallel()
	g := Grant{Type: smart.AnyType, Permission: smart.Read, ByRule: true}
	before := New(Holder{}, NewShared(nil))
	r := before.With(g)
	if len(r.For("Patient", smart.Read)) != 1 || len(before.Grants) != 0 {
		t.Errorf("grants %v, before %v", r.Grants, before.Grants)
	}
	res := resource.Resource{Type: "Patient", ID: "a"}
	if r.Whole("Patient", smart.Read) || r.Covers(g, res).Covered || r.CoversNew(g, res).Covered {
		t.Error("covers what no rule was asked about")
	}
}
