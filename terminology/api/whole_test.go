package api_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

// buildFullExpansion builds a full expansion from pages of count entries that h serves.
func buildFullExpansion(t testing.TB, h *api.Handler, b *expansion.FullExpansionBuilder, count int, pairs ...string) *expansion.FullExpansion {
	t.Helper()
	for more := true; more; {
		w, err := terminologytest.Request(h, http.MethodGet, terminologytest.Query(append(pairs, "offset", strconv.Itoa(b.Offset()), "count", strconv.Itoa(count))...))
		if err != nil {
			t.Fatal(err)
		}
		if more, err = b.Add(w.Body.Bytes(), count); err != nil {
			t.Fatal(err)
		}
	}
	full, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return full
}

// fullExpansionPage returns page p of a full expansion, decoded from JSON.
func fullExpansionPage(t testing.TB, w *expansion.FullExpansion, p expansion.Page) terminologytest.Expanded {
	t.Helper()
	body, err := w.Expand(p, nil, 100_000)
	if err != nil {
		t.Fatal(err)
	}
	var got terminologytest.Expanded
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	return got
}

// TestFullExpansionMatchesServer compares the pages of a full expansion with those of the server it was fetched from.
func TestFullExpansionMatchesServer(t *testing.T) {
	core := &api.Handler{Library: terminologytest.Core(t)}
	colours := &api.Handler{Library: terminologytest.ColourLibrary(t)}
	tests := []struct {
		name    string
		h       *api.Handler
		params  []string
		terse   bool // designations are fetched, but omitted from the pages
		filters string
	}{
		{"small", core, []string{"url", gender}, false, "m|fe|other|x|male unknown|mlae"},
		{"large", core, []string{"url", "http://terminology.hl7.org/ValueSet/v3-ActCode"}, false, "a|di|dia|ambulatory|IMP|emergency care|e c|xyz|policy|ipmatient|-|AMB"},
		{"several systems", core, []string{"url", "http://hl7.org/fhir/ValueSet/security-labels"}, false, "con|restricted|treat|HIV|r"},
		{"inactive and abstract", core, []string{"url", "http://terminology.hl7.org/ValueSet/v3-RoleCode"}, false, "fam|child|mo|hosp|a"},
		{"colours", colours, []string{"url", "http://x/colours/vs"}, true, "r|red|rot|rood|blue|bl|any|e"},
		{"colours in German", colours, []string{"url", "http://x/colours/vs", "displayLanguage", "de"}, true, "r|red|rot|rood|blau|e"},
		{"colours in Dutch or else anything", colours, []string{"url", "http://x/colours/vs", "displayLanguage", "nl, *"}, true, "r|red|rot|rood|blau|e"},
		{"colours with designations", colours, []string{"url", "http://x/colours/vs", "includeDesignations", "true"}, false, "r|rot|rood"},
		{"colours that are active", colours, []string{"url", "http://x/colours/vs", "activeOnly", "true"}, true, "r|pink|p"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b, params := &expansion.FullExpansionBuilder{OmitDesignations: test.terse}, test.params
			if test.terse {
				params = append(slices.Clip(params), "includeDesignations", "true")
			}
			w := buildFullExpansion(t, test.h, b, 100, params...)
			for filter := range strings.SplitSeq(test.filters+"|", "|") {
				for _, count := range []int{0, 1, 20, 5000} {
					for _, offset := range []int{0, 3} {
						if filter == "" && offset == 0 && count >= w.Len() {
							continue // the server may return the entire expansion as a tree
						}
						pairs := append(slices.Clip(test.params), "offset", strconv.Itoa(offset), "count", strconv.Itoa(count))
						if filter != "" {
							pairs = append(pairs, "filter", filter)
						}
						there := terminologytest.ExpandWith(t, test.h, pairs...)
						here := fullExpansionPage(t, w, expansion.Page{Filter: filter, Offset: &offset, Count: &count})
						if filter != "" { // the order may differ because the full expansion lacks the hierarchy of the server
							sortByCode(&here)
							sortByCode(&there)
							if (count < w.Len() || offset > 0) && len(here.Expansion.Contains) == len(there.Expansion.Contains) {
								here.Expansion.Contains = there.Expansion.Contains
							}
						}
						if !reflect.DeepEqual(here.Expansion.Contains, there.Expansion.Contains) || *here.Expansion.Total != *there.Expansion.Total {
							t.Errorf("filter %q, offset %d, count %d: got %d %v, there %d %v", filter, offset, count,
								*here.Expansion.Total, here.Codes(), *there.Expansion.Total, there.Codes())
						}
						if here.URL != there.URL || here.Version != there.Version || here.Status != there.Status || *here.Expansion.Offset != offset || here.Expansion.Timestamp == "" {
							t.Errorf("got %+v", here)
						}
						if count == 20 && !reflect.DeepEqual(slices.Sorted(slices.Values(here.Parameters())), slices.Sorted(slices.Values(there.Parameters()))) {
							t.Errorf("got parameters %v, there %v", here.Parameters(), there.Parameters())
						}
					}
				}
			}
		})
	}
}

// TestFullExpansionKeepsMembers checks that members are preserved even if this server would never produce them.
func TestFullExpansionKeepsMembers(t *testing.T) {
	const entry = `{"extension":[{"url":"http://mine","valueString":"x \u00e9"}],"system":"http://x","abstract":true,"inactive":true,"version":"7","code":"a","display":"Alpha",` +
		`"designation":[{"language":"de","use":{"system":"http://s","code":"c"},"value":"Anfang"}],"_display":{"id":"1"}}`
	page := `{"resourceType":"ValueSet","id":"i","meta":{"versionId":"3"},"url":"http://x/vs","status":"draft","expansion":{"extension":[{"url":"http://e","valueCode":"x"}],` +
		`"identifier":"urn:x","timestamp":"2026-01-02","total":1,"offset":0,"parameter":[{"name":"count","valueInteger":9},{"name":"version","valueUri":"http://x|7"}],"contains":[` + entry + `]}}`
	var b expansion.FullExpansionBuilder
	if more, err := b.Add([]byte(page), 9); err != nil || more {
		t.Fatal(more, err)
	}
	w, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	for _, filter := range []string{"", "alp", "anf", "a"} {
		body, err := w.Expand(expansion.Page{Filter: filter}, nil, 1)
		if err != nil {
			t.Fatal(err)
		}
		fixture.WantContains(t, string(body), entry, `"id":"i"`, `"meta":{"versionId":"3"}`, `"status":"draft"`, `{"url":"http://e","valueCode":"x"}`, `"timestamp":"2026-01-02"`, `{"name":"version","valueUri":"http://x|7"}`, `"total":1`)
		if strings.Contains(string(body), `"valueInteger":9`) || strings.Contains(string(body), "urn:x") {
			t.Errorf("page-specific members remain: %s", body)
		}
	}
	if _, err := w.Expand(expansion.Page{}, nil, 0); err == nil || !strings.Contains(err.Error(), "http://x/vs") {
		t.Errorf("got %v", err)
	}
}

// pageOf returns an expansion page with the given codes. total and offset are JSON members, or empty.
func pageOf(total, offset string, codes ...string) string {
	var entries []string
	for _, code := range codes {
		entries = append(entries, fmt.Sprintf(`{"system":"http://x","code":%q}`, code))
	}
	return fmt.Sprintf(`{"resourceType":"ValueSet","expansion":{%s%s"contains":[%s]}}`, total, offset, strings.Join(entries, ","))
}

func TestFullExpansionPages(t *testing.T) {
	four := func(codes ...string) string { return pageOf(`"total":4,`, "", codes...) }
	tests := []struct {
		name  string
		pages []string // responses to requests with count=2
		want  string   // codes, or empty if no full expansion can be built
		lie   bool
	}{
		{"two", []string{four("a", "b"), four("c", "d")}, "a b c d", false},
		{"short pages", []string{four("a"), four("b"), four("c", "d")}, "a b c d", false},
		{"all at once", []string{four("a", "b", "c", "d")}, "a b c d", false},
		{"no total", []string{pageOf("", "", "a", "b"), pageOf("", "", "c")}, "a b c", false},
		{"no total, ends with a page", []string{pageOf("", "", "a", "b"), pageOf("", "")}, "a b", false},
		{"empty", []string{pageOf(`"total":0,`, "")}, "-", false},
		{"tree", []string{`{"resourceType":"ValueSet","expansion":{"total":3,"contains":[{"code":"a","contains":[{"code":"b"},{"code":"c"}]}]}}`}, "a b c", false},
		{"overlap", []string{four("a", "b"), four("b", "c")}, "", true},
		{"the same again", []string{four("a", "b"), four("a", "b")}, "", true},
		{"twice in a page", []string{four("a", "a")}, "", true},
		{"total changes", []string{four("a", "b"), pageOf(`"total":5,`, "", "c", "d")}, "", true},
		{"total goes away", []string{four("a", "b"), pageOf("", "", "c", "d")}, "", true},
		{"more than total", []string{four("a", "b", "c"), four("d", "e")}, "", true},
		{"nothing more", []string{four("a", "b"), four()}, "", true},
		{"another offset", []string{four("a", "b"), pageOf(`"total":4,`, `"offset":0,`, "c", "d")}, "", true},
		{"no total, count ignored", []string{pageOf("", "", "a", "b", "c")}, "", true},
		{"missing page", []string{four("a", "b")}, "", false},
		{"no page", nil, "", false},
		{"cut off by the server", []string{`{"resourceType":"ValueSet","expansion":{"extension":[{"url":"http://hl7.org/fhir/StructureDefinition/valueset-toocostly","valueBoolean":true}],"total":1,"contains":[{"code":"a"}]}}`}, "", false},
		{"heading without a code", []string{`{"resourceType":"ValueSet","expansion":{"total":2,"contains":[{"abstract":true,"display":"H","contains":[{"code":"b"}]}]}}`}, "", false},
		{"endlessly deep", []string{`{"resourceType":"ValueSet","expansion":{"contains":` + strings.Repeat(`[{"code":"a","contains":`, 100) + "[]" + strings.Repeat("}]", 100) + `}}`}, "", false},
		{"garbage", []string{`{"resourceType":"ValueSet","expansion":{"contains":[{"code":`}, "", false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var b expansion.FullExpansionBuilder
			var err error
			for i, page := range test.pages {
				var more bool
				if more, err = b.Add([]byte(page), 2); err != nil {
					break
				}
				if last := i == len(test.pages)-1; more == last && test.want != "" {
					t.Errorf("page %d: more is %t", i, more)
				}
			}
			if errors.Is(err, expansion.ErrInconsistentPages) != test.lie {
				t.Errorf("got %v", err)
			}
			w, buildErr := b.Build()
			if test.want == "" {
				if err == nil && buildErr == nil {
					t.Error("accepted as a full expansion")
				}
				return
			}
			if err != nil || buildErr != nil {
				t.Fatal(err, buildErr)
			}
			terminologytest.WantCodes(t, fullExpansionPage(t, w, expansion.Page{}), strings.TrimSuffix(test.want, "-"))
		})
	}
}

func sortByCode(vs *terminologytest.Expanded) {
	slices.SortFunc(vs.Expansion.Contains, func(a, b terminologytest.Entry) int {
		return cmp.Or(strings.Compare(a.System, b.System), strings.Compare(a.Code, b.Code))
	})
}
