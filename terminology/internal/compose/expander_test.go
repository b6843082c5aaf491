package compose

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

// TestCostlyDoNotWait checks that a request with a slot does not wait for a computation that may need the slot.
func TestCostlyDoNotWait(t *testing.T) {
	l := libraryOf(t, colours, fixture.ValueSet("http://x/vs", `{"include":[{"system":"http://x/colours"}]}`))
	vs, _ := l.set.ValueSets.Find("http://x/vs")
	synctest.Test(t, func(t *testing.T) {
		_, _, _ = l.expansions.flights.Do(vs.Key, func() (any, error) {
			costly := newBudget(t.Context(), l)
			_ = costly.Charge(100_000)
			if x, err := l.expanding(costly).Codes(vs); err != nil || len(x.Entries) != 4 {
				t.Errorf("got %v, %v", x, err)
			}
			return nil, nil
		})
	})
}

// TestExpansionOfCanceledRequest checks that a waiting request gets its expansion if the request that computes it is canceled.
func TestExpansionOfCanceledRequest(t *testing.T) {
	l := libraryOf(t, colours, fixture.ValueSet("http://x/vs", `{"include":[{"system":"http://x/colours"}]}`))
	vs, _ := l.set.ValueSets.Find("http://x/vs")
	synctest.Test(t, func(t *testing.T) {
		var second *CodeList
		waited := make(chan error)
		canceled := newBudget(&cancelingContext{Context: t.Context(), leave: func() {
			go func() {
				x, err := l.expanding(newBudget(t.Context(), l)).Codes(vs)
				second = x
				waited <- err
			}()
			synctest.Wait() // blocks until the second request waits
		}}, l)
		if _, err := l.expanding(canceled).Codes(vs); !errors.Is(err, context.Canceled) {
			t.Errorf("canceled request: got %v", err)
		}
		if err := <-waited; err != nil || len(second.Entries) != 4 {
			t.Errorf("the one that waits: got %v, %v", second, err)
		}
	})
}

// cancelingContext is a context that runs a callback when it is first checked and is then canceled.
type cancelingContext struct {
	context.Context
	leave func()
}

func (c *cancelingContext) Err() error {
	c.leave()
	return context.Canceled
}

func newBudget(ctx context.Context, l *library) *budget.Budget {
	b := budget.New(ctx, l.set.Bounds.VisitedCodes, nil)
	return &b
}

func TestExpansionsAreCached(t *testing.T) {
	l := libraryOf(t, fixture.Animals, fixture.AllCodesOf("http://x/animals"), fixture.SingleConceptCodeSystem("http://x/a", "1", "c"), fixture.AllCodesOf("http://x/a"))
	vs, _ := l.set.ValueSets.Find("http://x/animals-all")
	first, err := l.expanding(nil).Codes(vs)
	if err != nil {
		t.Fatal(err)
	}
	if second, _ := l.expanding(nil).Codes(vs); second != first {
		t.Error("the expansion was made anew")
	}
	l.expansions = NewCodeListCache(2*cachedListOverhead + 8) // one entry too few for both expansions: 8 codes and 1 code
	first, _ = l.expanding(nil).Codes(vs)
	other, _ := l.set.ValueSets.Find("http://x/a-all")
	if _, err := l.expanding(nil).Codes(other); err != nil {
		t.Fatal(err)
	}
	if second, _ := l.expanding(nil).Codes(vs); second == first {
		t.Error("the cache holds more than its limit")
	}
	l.expansions = NewCodeListCache(cachedListOverhead + 5)
	if _, err := l.expanding(nil).Codes(vs); err != nil || countCached(l.expansions) != 0 {
		t.Errorf("got %v, %d items", err, countCached(l.expansions))
	}
}

func countCached(c *CodeListCache) int {
	entries, _ := c.expansions.Size()
	return entries
}

// TestCachedKeysCount checks that the size of cached expansions includes keys. Clients control their length.
func TestCachedKeysCount(t *testing.T) {
	c := NewCodeListCache(1000)
	long := strings.Repeat("x", 500*bytesPerCachedEntry)
	for _, key := range []string{long + "a", long + "b"} {
		c.put(key, &CodeList{}, 0)
	}
	if n := countCached(c); n != 1 {
		t.Errorf("%d are kept, want 1", n)
	}
	if c.put(long+long, &CodeList{}, 0); countCached(c) != 1 {
		t.Error("an entry with a key larger than the cache was stored")
	}
}

const profileWithColours = `{"resourceType":"StructureDefinition","url":"http://x/profile","contained":[
	{"resourceType":"ValueSet","id":"inner","compose":{"include":[{"system":"http://x/colours"}]}}]}`

// twoColours is the compose of a value set with two codes.
const twoColours = `{"include":[{"system":"http://x/colours","concept":[{"code":"red"},{"code":"green"}]}]}`

// TestEachOriginIsCached checks that expansions are cached for each kind of value set reference.
func TestEachOriginIsCached(t *testing.T) {
	entire := strings.Replace(colours, `"version"`, `"valueSet":"http://x/colours/entire","version"`, 1)
	holder := `{"resourceType":"ValueSet","url":"http://x/holder","contained":[
		{"resourceType":"ValueSet","id":"inner","compose":{"include":[{"system":"http://x/colours"}]}}],"compose":{"include":[{"valueSet":["#inner"]}]}}`
	l := libraryOf(t, entire, fixture.AllCodesOf("http://x/colours"), profileWithColours, holder)
	sent := jsontext.Value(fixture.ValueSet("http://x/sent", twoColours))
	anonymous := jsontext.Value(strings.Replace(string(sent), `"url":"http://x/sent",`, "", 1))
	for name, tt := range map[string]struct {
		ref  ValueSetRef
		with []jsontext.Value
		want int
	}{
		"loaded":                {ref: ValueSetRef{URL: "http://x/colours-all"}, want: 4},
		"CodeSystem.valueSet":   {ref: ValueSetRef{URL: "http://x/colours/entire"}, want: 4},
		"fhir_vs":               {ref: ValueSetRef{URL: "http://x/colours?fhir_vs"}, want: 4},
		"fhir_vs of a version":  {ref: ValueSetRef{URL: "http://x/colours?fhir_vs|1.0.0"}, want: 4},
		"fhir_vs of a subtree":  {ref: ValueSetRef{URL: "http://x/colours?fhir_vs=isa/any"}, want: 4},
		"fhir_vs of a leaf":     {ref: ValueSetRef{URL: "http://x/colours?fhir_vs=isa/red"}, want: 1},
		"contained":             {ref: ValueSetRef{URL: "http://x/holder#inner"}, want: 4},
		"contained in profile":  {ref: ValueSetRef{URL: "http://x/profile#inner"}, want: 4},
		"posted":                {ref: ValueSetRef{ValueSet: sent}, want: 2},
		"posted without a url":  {ref: ValueSetRef{ValueSet: anonymous}, want: 2},
		"tx-resource":           {ref: ValueSetRef{URL: "http://x/sent"}, with: []jsontext.Value{sent}, want: 2},
		"posted beside another": {ref: ValueSetRef{ValueSet: anonymous}, with: []jsontext.Value{sent}, want: 2},
	} {
		t.Run(name, func(t *testing.T) {
			first, second := l.codesOf(t, tt.ref, tt.with...), l.codesOf(t, tt.ref, tt.with...)
			if first != second || len(first.Entries) != tt.want {
				t.Errorf("got %d codes and %d made anew, want %d, cached", len(first.Entries), len(second.Entries), tt.want)
			}
		})
	}
}

// codesOf expands the value set that ref refers to, in an overlay with the given resources.
func (l *library) codesOf(t *testing.T, ref ValueSetRef, with ...jsontext.Value) *CodeList {
	t.Helper()
	set := l.set
	var err error
	if len(with) > 0 {
		if set, err = set.WithResources(with...); err != nil {
			t.Fatal(err)
		}
	}
	set, vs, err := l.expansions.ValueSetFor(set, &ref, &Rules{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	x, err := (&Expander{Definitions: set, Cache: l.expansions, Rules: &Rules{}}).Codes(vs)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// TestSentContentDecides checks that the content of resources sent with a request determines the expansion, even if they have
// no canonical or that of a loaded resource.
func TestSentContentDecides(t *testing.T) {
	l := libraryOf(t, colours, fixture.AllCodesOf("http://x/colours"))
	one := `{"include":[{"system":"http://x/colours","concept":[{"code":"red"}]}]}`
	fewer := jsontext.Value(strings.Replace(colours, `{"code":"pink","display":"Pink"}`, `{"code":"blue"},{"code":"grey"}`, 1))
	loaded := ValueSetRef{URL: "http://x/colours-all"}
	for name, tt := range map[string]struct {
		ref  ValueSetRef
		with []jsontext.Value
		want int
	}{
		"loaded":                             {ref: loaded, want: 4},
		"loaded, with another code system":   {ref: loaded, with: []jsontext.Value{fewer}, want: 5},
		"posted as the loaded one":           {ref: ValueSetRef{ValueSet: jsontext.Value(fixture.ValueSet("http://x/colours-all", twoColours))}, want: 2},
		"posted as the loaded one, shorter":  {ref: ValueSetRef{ValueSet: jsontext.Value(fixture.ValueSet("http://x/colours-all", one))}, want: 1},
		"posted without url":                 {ref: ValueSetRef{ValueSet: jsontext.Value(fixture.ValueSet("", twoColours))}, want: 2},
		"posted without url, shorter":        {ref: ValueSetRef{ValueSet: jsontext.Value(fixture.ValueSet("", one))}, want: 1},
		"posted beside another code system":  {ref: ValueSetRef{ValueSet: jsontext.Value(fixture.AllCodesOf("http://x/colours"))}, with: []jsontext.Value{fewer}, want: 5},
		"posted without another code system": {ref: ValueSetRef{ValueSet: jsontext.Value(fixture.AllCodesOf("http://x/colours"))}, want: 4},
	} {
		for range 2 {
			if x := l.codesOf(t, tt.ref, tt.with...); len(x.Entries) != tt.want {
				t.Errorf("%s: got %d codes, want %d", name, len(x.Entries), tt.want)
			}
		}
	}
}

// TestSentIsBounded checks that the cache stays within its limits if clients send many value sets.
func TestSentIsBounded(t *testing.T) {
	l := libraryOf(t, colours)
	size := definitions.OverlaySize(overlayOf(t, l, "http://x/0"))
	l.expansions = NewCodeListCache(3 * size / bytesPerCachedEntry)
	for url := range strings.FieldsSeq("http://x/1 http://x/2 http://x/3 http://x/4 http://x/5") {
		l.codesOf(t, ValueSetRef{ValueSet: jsontext.Value(fixture.ValueSet(url, twoColours))})
	}
	if n, cost := l.expansions.inlineValueSets.Size(); n != 2 && n != 3 || cost > int64(3*size) {
		t.Errorf("%d value sets of %d bytes are kept", n, cost)
	}
	if _, cost := l.expansions.expansions.Size(); cost > int64(l.expansions.Limit()) {
		t.Errorf("expansions of %d codes are kept", cost)
	}
}

func overlayOf(t *testing.T, l *library, url string) *definitions.Set {
	t.Helper()
	overlay, err := l.set.WithResources(jsontext.Value(fixture.ValueSet(url, twoColours)))
	if err != nil {
		t.Fatal(err)
	}
	return overlay
}
