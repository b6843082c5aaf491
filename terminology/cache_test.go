package terminology

import (
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestConcurrentRequests(t *testing.T) {
	l, err := Load(t.Context(), Options{Core: true, MaxCachedEntries: 3000}) // so small that expansions make room again and again
	if err != nil {
		t.Fatal(err)
	}
	urls := []string{gender, "http://terminology.hl7.org/ValueSet/v3-ActCode", "http://hl7.org/fhir/ValueSet/marital-status", "http://hl7.org/fhir/ValueSet/relatedperson-relationshiptype", "http://hl7.org/fhir/ValueSet/all-types"}
	want := map[string][]string{}
	for _, url := range urls {
		want[url] = expand(t, coreLibrary(t), "url", url).codes()
	}
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for n := range 40 {
				url := urls[(i+n)%len(urls)]
				if got := expand(t, l, "url", url).codes(); !slices.Equal(got, want[url]) {
					t.Errorf("%s: got %v", url, got)
				}
			}
		})
	}
	group.Wait()
}

func TestExpansionsAreRemembered(t *testing.T) {
	l := libraryOf(t, animals, allOf("http://x/animals"), codeSystemWith("http://x/a", "1", "c"), allOf("http://x/a"))
	vs, _ := l.set.valueSet("http://x/animals-all")
	first, err := l.expanding(nil).codes(vs)
	if err != nil {
		t.Fatal(err)
	}
	if second, _ := l.expanding(nil).codes(vs); second != first {
		t.Error("the expansion was made anew")
	}
	l.expansions = newCodeListCache(2*cachedSteady + 8) // 8 animals and one more: 9
	first, _ = l.expanding(nil).codes(vs)
	other, _ := l.set.valueSet("http://x/a-all")
	if _, err := l.expanding(nil).codes(other); err != nil {
		t.Fatal(err)
	}
	if second, _ := l.expanding(nil).codes(vs); second == first {
		t.Error("the cache holds more than its limit")
	}
	l.expansions = newCodeListCache(cachedSteady + 5)
	if _, err := l.expanding(nil).codes(vs); err != nil || held(l.expansions) != 0 {
		t.Errorf("got %v, %d items", err, held(l.expansions))
	}
}

func held(c *codeListCache) int {
	entries, _ := c.items.Held()
	return entries
}

// TestCachedKeysCount remembers expansions under long keys, in which a client may write what it likes: they are not kept
// for as many entries as they have.
func TestCachedKeysCount(t *testing.T) {
	c := newCodeListCache(1000)
	long := strings.Repeat("x", 500*cachedBytes)
	for _, key := range []string{long + "a", long + "b"} {
		c.put(key, &codeList{})
	}
	if n := held(c); n != 1 {
		t.Errorf("%d are kept, want 1", n)
	}
	if c.put(long+long, &codeList{}); held(c) != 1 {
		t.Error("one is kept whose key alone is larger than the cache")
	}
}
