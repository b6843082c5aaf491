package definitions

import (
	"fmt"
	"strings"
	"testing"
)

// TestIDsAreUnique checks that definitions with the same ID are all found by distinct IDs.
func TestIDsAreUnique(t *testing.T) {
	named := func(kind, id, url, version string) string {
		return fmt.Sprintf(`{"resourceType":%q,"id":%q,"url":%q,"version":%q,"content":"complete","compose":{"include":[]}}`, kind, id, url, version)
	}
	long := strings.Repeat("x", maxID)
	for _, kind := range []string{"ValueSet", "CodeSystem", "ConceptMap"} {
		for name, tt := range map[string]struct {
			resources []string
			keeps     string // version of the definition that is found by the ID "a"
		}{
			"two urls":               {[]string{named(kind, "a", "http://x/1", "1"), named(kind, "a", "http://x/2", "2")}, "2"},
			"two versions":           {[]string{named(kind, "a", "http://x/1", "2"), named(kind, "a", "http://x/1", "1")}, "1"},
			"three":                  {[]string{named(kind, "a", "http://x/1", "1"), named(kind, "a", "http://x/2", "2"), named(kind, "a", "http://x/3", "3")}, "3"},
			"the longest":            {[]string{named(kind, long, "http://x/1", "1"), named(kind, long, "http://x/2", "2"), named(kind, "a", "http://x/3", "3")}, "3"},
			"replaced":               {[]string{named(kind, "a", "http://x/1", "1"), named(kind, "b", "http://x/1", "1"), named(kind, "a", "http://x/2", "2")}, "2"},
			"replaced by the same":   {[]string{named(kind, "a", "http://x/1", "1"), named(kind, "a", "http://x/1", "1")}, "1"},
			"the new one is in use":  {[]string{named(kind, "a", "http://x/1", "1"), named(kind, "a", "http://x/2", "2"), named(kind, "a-"+hashOf(t, "http://x/1|1"), "http://x/3", "3")}, "2"},
			"the new one was in use": {[]string{named(kind, "a-"+hashOf(t, "http://x/1|1"), "http://x/3", "3"), named(kind, "a", "http://x/1", "1"), named(kind, "a", "http://x/2", "2")}, "2"},
		} {
			t.Run(kind+": "+name, func(t *testing.T) {
				d := setOf(t, tt.resources...)
				checkIDs(t, d)
				if got, ok := definitionByID(d, kind, "a"); !ok || got.Version != tt.keeps {
					t.Errorf("got %v, want version %s", got, tt.keeps)
				}
			})
		}
	}
}

// hashOf returns the hash that is appended to the ID of a definition if another definition takes its ID.
func hashOf(t *testing.T, canonical string) string {
	t.Helper()
	url, version, _ := strings.Cut(canonical, "|")
	_, hash, ok := strings.Cut(new(idTable[*ValueSet]).unusedID(&Definition{ID: "a", URL: url, Version: version}), "-")
	if !ok {
		t.Fatal("no hash")
	}
	return hash
}

func TestIDsOfCoreAreUnique(t *testing.T) { checkIDs(t, coreSet(t)) }

// TestOverlayLeavesIDs checks that a definition sent with a request does not change the IDs of loaded definitions.
func TestOverlayLeavesIDs(t *testing.T) {
	d := setOf(t, `{"resourceType":"ValueSet","id":"a","url":"http://x/1","compose":{"include":[]}}`)
	o, err := d.WithResources([]byte(`{"resourceType":"ValueSet","id":"a","url":"http://x/2","compose":{"include":[]}}`))
	if err != nil {
		t.Fatal(err)
	}
	below, _ := d.ValueSets.ValueSetByID("a")
	above, _ := o.ValueSets.ValueSetByID("a")
	if below.URL != "http://x/1" || above.URL != "http://x/2" {
		t.Errorf("got %s and %s", below.URL, above.URL)
	}
}

// checkIDs checks that each definition can be found by its ID.
func checkIDs(t *testing.T, d *Set) {
	t.Helper()
	check := func(kind string, def *Definition) {
		if found, ok := definitionByID(d, kind, def.ID); def.ID != "" && (!ok || found != def || len(def.ID) > maxID) {
			t.Errorf("%s %s is not found by its id %q", kind, def.Canonical(), def.ID)
		}
	}
	for _, vs := range d.ValueSets.List {
		check("ValueSet", &vs.Definition)
	}
	for index, cs := range d.Systems.CodeSystems {
		if !d.Systems.IsContained(uint32(index)) {
			check("CodeSystem", &cs.Definition)
		}
	}
	for _, m := range d.Maps.Layers[0] {
		check("ConceptMap", &m.Definition)
	}
}

func definitionByID(d *Set, kind, id string) (*Definition, bool) {
	switch kind {
	case "ValueSet":
		if vs, ok := d.ValueSets.ValueSetByID(id); ok {
			return &vs.Definition, true
		}
	case "CodeSystem":
		if cs, ok := d.Systems.ByID(id); ok {
			return &cs.Definition, true
		}
	case "ConceptMap":
		if m, ok := d.Maps.ByID(id); ok {
			return &m.Definition, true
		}
	}
	return nil, false
}

// TestRequestCodeSystems checks that a code system sent with a request is still recognized as such in overlays on top of its
// overlay. Otherwise, each request would build a search index for it.
func TestRequestCodeSystems(t *testing.T) {
	library := setOf(t, `{"resourceType":"CodeSystem","url":"http://x/loaded","status":"active","content":"complete","concept":[{"code":"a"}]}`)
	sent, err := library.WithResources([]byte(`{"resourceType":"CodeSystem","url":"http://x/sent","status":"active","content":"complete","concept":[{"code":"a"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, l := range map[string]*Set{"with it": sent, "with a value set too": sent.Overlay()} {
		for i, cs := range l.Systems.CodeSystems {
			if own := l.Systems.IsFromRequest(uint32(i)); own != (cs.URL == "http://x/sent") {
				t.Errorf("%s: %s is own: %v", name, cs.URL, own)
			}
		}
	}
}
