package compose

import (
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

func TestExpansionsAreRemembered(t *testing.T) {
	l := libraryOf(t, fixture.Animals, fixture.AllOf("http://x/animals"), fixture.SystemWith("http://x/a", "1", "c"), fixture.AllOf("http://x/a"))
	vs, _ := l.set.ValueSets.Find("http://x/animals-all")
	first, err := l.expanding(nil).Codes(vs)
	if err != nil {
		t.Fatal(err)
	}
	if second, _ := l.expanding(nil).Codes(vs); second != first {
		t.Error("the expansion was made anew")
	}
	l.expansions = NewCodeListCache(2*cachedSteady + 8) // 8 fixture.Animals and one more: 9
	first, _ = l.expanding(nil).Codes(vs)
	other, _ := l.set.ValueSets.Find("http://x/a-all")
	if _, err := l.expanding(nil).Codes(other); err != nil {
		t.Fatal(err)
	}
	if second, _ := l.expanding(nil).Codes(vs); second == first {
		t.Error("the cache holds more than its limit")
	}
	l.expansions = NewCodeListCache(cachedSteady + 5)
	if _, err := l.expanding(nil).Codes(vs); err != nil || held(l.expansions) != 0 {
		t.Errorf("got %v, %d items", err, held(l.expansions))
	}
}

func held(c *CodeListCache) int {
	entries, _ := c.items.Held()
	return entries
}

// TestCachedKeysCount remembers expansions under long keys, in which a client may write what it likes: they are not kept
// for as many entries as they have.
func TestCachedKeysCount(t *testing.T) {
	c := NewCodeListCache(1000)
	long := strings.Repeat("x", 500*cachedBytes)
	for _, key := range []string{long + "a", long + "b"} {
		c.put(key, &CodeList{}, 0)
	}
	if n := held(c); n != 1 {
		t.Errorf("%d are kept, want 1", n)
	}
	if c.put(long+long, &CodeList{}, 0); held(c) != 1 {
		t.Error("one is kept whose key alone is larger than the cache")
	}
}
