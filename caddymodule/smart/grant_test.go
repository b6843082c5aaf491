package smart

import (
	"errors"
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestGrant(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, requested, allowed, want string }{
		{"nothing", "", "user/*.rs", ""},
		{"listed", "demo.read", "launch demo.read", "demo.read"},
		{"listed, in the order of the request", "b a", "a b", "b a"},
		{"listed resource scope", "user/Patient.rs", "user/Patient.rs", "user/Patient.rs"},
		{"a part of a listed one", "user/Patient.r", "user/*.rs", "user/Patient.r"},
		{"covered by two together", "user/Patient.rs", "user/*.r user/Patient.s", "user/Patient.rs"},
		{"wildcard covered", "user/*.rs", "user/*.cruds", "user/*.rs"},
		{"wildcard covered by two", "user/*.rs", "user/*.r user/*.s", "user/*.rs"},
		{"fewer permissions", "user/*.cruds", "user/*.rs", "user/*.rs"},
		{"fewer types", "user/*.rs", "user/Observation.rs user/Patient.r", "user/Observation.rs user/Patient.r"},
		{"fewer of both", "user/*.rs", "user/Observation.cr", "user/Observation.r"},
		{"other levels not", "user/*.rs", "system/*.rs patient/*.rs user/Patient.r", "user/Patient.r"},
		{"parts over one type joined", "user/*.rs", "user/Patient.r user/Patient.s", "user/Patient.rs"},
		{"parts within others left out", "user/*.cruds", "user/Patient.r user/*.rs", "user/*.rs"},
		{"parts beside others kept", "user/*.cruds", "user/Patient.cr user/*.rs", "user/Patient.cr user/*.rs"},
		{"parts once", "user/*.rs user/Patient.r", "user/Patient.r", "user/Patient.r"},
		{"listed query", "user/Patient.rs?a=b", "user/Patient.rs?a=b", "user/Patient.rs?a=b"},
		{"query of an open scope", "user/Patient.rs?a=b", "user/*.rs", "user/Patient.rs?a=b"},
		{"wildcard within a query", "user/*.rs", "user/Patient.rs?a=b", "user/Patient.rs?a=b"},
		{"wildcard with a query", "user/*.rs?a=b", "user/Patient.cr", "user/Patient.r?a=b"},
		{"wildcard with the same query", "user/*.rs?a=b", "user/Patient.r?a=b", "user/Patient.r?a=b"},
		{"SMART 1 stays", "user/Patient.read", "user/*.rs", "user/Patient.read"},
		{"SMART 1 allowed, SMART 2 requested", "user/Patient.rs", "user/*.read", "user/Patient.rs"},
		{"SMART 1 in part", "user/*.*", "user/*.rs", "user/*.read"},
		{"SMART 1 in part, one type", "user/Patient.*", "user/Patient.cud", "user/Patient.write"},
		{"SMART 1 in full", "user/*.*", "user/Patient.cruds", "user/Patient.*"},
		{"SMART 1 without words for it", "user/*.read", "user/Patient.r", "user/Patient.r"},
		{"SMART 1 with a query", "user/*.read", "user/Patient.rs?a=b", "user/Patient.rs?a=b"},
		{"SMART 2 of a list in 1", "user/*.rs", "user/Patient.read", "user/Patient.rs"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := Grant(scopes(t, test.requested), scopes(t, test.allowed))
			if err != nil || strings.Join(got, " ") != test.want {
				t.Errorf("got %q, %v, want %q", got, err, test.want)
			}
		})
	}
}

func TestGrantRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, requested, allowed, unlisted string }{
		{"no list", "demo.read", "", "demo.read"},
		{"unlisted", "a b c", "a c", "b"},
		{"another case", "Demo", "demo", "Demo"},
		{"unlisted type", "user/Observation.rs", "user/Patient.rs", "user/Observation.rs"},
		{"one type in part", "user/Patient.cruds", "user/Patient.rs", "user/Patient.cruds"},
		{"one type in part, SMART 1", "user/Patient.write", "user/Patient.c", "user/Patient.write"},
		{"wildcard, nothing in common", "user/*.cud", "user/*.rs", "user/*.cud"},
		{"wildcard, another level", "system/*.rs", "user/*.rs", "system/*.rs"},
		{"wildcard, another query", "user/*.rs?a=b", "user/*.rs?a=c", "user/*.rs?a=b"},
		{"more than the query", "user/Patient.rs", "user/Patient.rs?a=b", "user/Patient.rs"},
		{"another query", "user/Patient.rs?a=c", "user/Patient.rs?a=b", "user/Patient.rs?a=c"},
		{"malformed resource scope", "user/Patient.sr", "user/*.cruds", "user/Patient.sr"},
		{"all or nothing", "user/*.rs demo", "user/*.rs", "demo"},
		{"no pattern", "launch/patient", "launch/*", "launch/patient"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := Grant(scopes(t, test.requested), scopes(t, test.allowed))
			var unlisted *UnlistedError
			if !errors.As(err, &unlisted) || unlisted.Scope != test.unlisted || got != nil {
				t.Errorf("got %q, %v, want %q unlisted", got, err, test.unlisted)
			}
		})
	}
}

// scopes splits a valid scope string.
func scopes(t *testing.T, s string) []string {
	t.Helper()
	parsed, err := ParseScopes(s)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

var slow = flag.Bool("slow", false, "draw ten times as many samples")

// TestGrantProperty models a scope as the set of interactions that it permits in a small world. Granted scopes must be subsets
// of both the request and the list.
func TestGrantProperty(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	granted, refused := 0, 0
	draws := 2000
	if *slow {
		draws *= 10
	}
	for range draws {
		requested, allowed := randomScopes(random, 2), randomScopes(random, 4)
		checkPartialGrant(t, requested, allowed)
		got, err := Grant(requested, allowed)
		if err != nil {
			refused++
			checkRefusal(t, requested, allowed)
			continue
		}
		granted++
		allowedActions, requestedActions := permittedActions(allowed...), permittedActions(requested...)
		for deed := range permittedActions(got...) {
			if !allowedActions[deed] || !requestedActions[deed] {
				t.Fatalf("%q of %q with the list %q: %+v is too much", got, requested, allowed, deed)
			}
		}
		checkNothingLost(t, requested, allowed, got)
	}
	if granted < draws/20 || refused < draws/20 {
		t.Errorf("%d granted, %d denied: the samples cover too little", granted, refused)
	}
}

// checkPartialGrant checks that a partially granted request gets its intersection with the list, and is rejected only if that
// is empty.
func checkPartialGrant(t *testing.T, requested, allowed []string) {
	t.Helper()
	got, err := GrantPartially(requested, allowed, false)
	allowedActions, requestedActions := permittedActions(allowed...), permittedActions(requested...)
	for deed := range permittedActions(got...) {
		if !allowedActions[deed] || !requestedActions[deed] {
			t.Fatalf("%q of %q with the list %q: %+v is too much", got, requested, allowed, deed)
		}
	}
	if (err == nil) != (len(got) > 0) {
		t.Fatalf("%q of %q with the list %q: %v", got, requested, allowed, err)
	}
	checkNothingLost(t, requested, allowed, got)
}

// checkRefusal checks that a rejected request contains a scope that the list does not cover.
func checkRefusal(t *testing.T, requested, allowed []string) {
	t.Helper()
	list := permittedActions(allowed...)
	for deed := range permittedActions(requested...) {
		if !list[deed] {
			return
		}
	}
	// The list covers the scope in several parts, but no scope can express one of them: the complement of a query.
	if !strings.Contains(strings.Join(allowed, " "), "?") {
		t.Fatalf("%q refused with the list %q", requested, allowed)
	}
}

// checkNothingLost checks that the complete intersection of request and list is granted. Only the intersection of two different
// queries cannot be expressed as a scope.
func checkNothingLost(t *testing.T, requested, allowed, granted []string) {
	t.Helper()
	if strings.Contains(strings.Join(slices.Concat(requested, allowed), " "), "?") {
		return
	}
	list, got := permittedActions(allowed...), permittedActions(granted...)
	for deed := range permittedActions(requested...) {
		if list[deed] && !got[deed] {
			t.Fatalf("%q of %q with the list %q: %+v is missing", granted, requested, allowed, deed)
		}
	}
}

// randomScopes returns up to n resource scopes for a small world.
func randomScopes(random *rand.Rand, n int) []string {
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	var scopes []string
	for range 1 + random.IntN(n) {
		scope := pick("user", "system") + "/" + pick("*", "Patient", "Observation") + "."
		if random.IntN(3) == 0 {
			scope += pick("read", "write", "*")
		} else {
			scope += Permission(1+random.IntN(int(all))).String() + pick("", "", "", "?a=1", "?b=1")
		}
		scopes = append(scopes, scope)
	}
	return scopes
}

// action is an interaction with one resource, which matches the query a=1, b=1, both or neither.
type action struct {
	level, typ string
	permission Permission
	a, b       bool
}

// permittedActions returns the set of interactions that scopes permit. It parses them independently of the tested code.
func permittedActions(scopes ...string) map[action]bool {
	set := make(map[action]bool)
	for _, scope := range scopes {
		scope, query, _ := strings.Cut(scope, "?")
		level, rest, _ := strings.Cut(scope, "/")
		typ, letters, _ := strings.Cut(rest, ".")
		letters = strings.NewReplacer("read", "rs", "write", "cud", "*", "cruds").Replace(letters)
		for _, d := range allActions() {
			if d.level == level && (typ == "*" || d.typ == typ) && strings.Contains(letters, d.permission.String()) &&
				(query == "" || query == "a=1" && d.a || query == "b=1" && d.b) {
				set[d] = true
			}
		}
	}
	return set
}

// allActions returns all interactions. Lipid represents the types that no scope mentions.
func allActions() []action {
	var world []action
	for _, level := range []string{"user", "system"} {
		for _, typ := range []string{"Patient", "Observation", "Lipid"} {
			for p := Create; p <= Search; p <<= 1 {
				for i := range 4 {
					world = append(world, action{level, typ, p, i&1 != 0, i&2 != 0})
				}
			}
		}
	}
	return world
}
