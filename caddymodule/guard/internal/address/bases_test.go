package address

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestBases checks which texts are accepted as base URLs, and that each host name has its own.
func TestBases(t *testing.T) {
	t.Parallel()
	var b Bases
	for _, text := range []string{"", "fhir", "ftp://x/fhir", "http://x/fhir?y", "http://x/fhir#y", "http://x/a b", "http://x/" + strings.Repeat("a", maxBase)} {
		if b.Add("a", text); len(b.Of("a")) > 0 {
			t.Errorf("%.20q was added", text)
		}
	}
	b.Add("a", "http://x/fhir")
	b.Add("a", "http://x/fhir")
	b.Add("b", "http://y/fhir")
	for name, want := range map[string][]string{"a": {"http://x/fhir"}, "b": {"http://y/fhir"}, "c": nil} {
		if got := b.Of(name); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestBasesForget checks that of too many bases, and of too many ways to reach the gateway, the oldest are forgotten.
func TestBasesForget(t *testing.T) {
	t.Parallel()
	var b Bases
	for i := range maxKeys + 1 {
		b.Add(fmt.Sprint(i), "http://x/fhir")
	}
	for i := range maxBases + 1 {
		b.Add("1", fmt.Sprintf("http://x/%d", i))
	}
	if len(b.keys) != maxKeys || b.Of("0") != nil || b.Of(fmt.Sprint(maxKeys)) == nil {
		t.Errorf("%d keys", len(b.keys))
	}
	if got := b.Of("1"); !slices.Equal(got, []string{"http://x/1", "http://x/2", "http://x/3", "http://x/4"}) {
		t.Errorf("bases %q", got)
	}
}
