package message

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// TestFindLinks has the links of a Bundle before its entries, behind them, and in them.
func TestFindLinks(t *testing.T) {
	t.Parallel()
	const (
		bundle  = `"resourceType":"Bundle"`
		links   = `[{"relation":"next","url":"http://backend/fhir?_getpages=1"}]`
		entries = `[{"resource":{"resourceType":"Patient","text":{"div":"<p title=\"k\">link \u00e9 talk</p>"},"name":[{"family":"Falk"}]}}]`
		linked  = `[{"resource":{"resourceType":"Patient","link":[{"other":{"reference":"Patient/2"}}]}}]`
	)
	for _, tt := range []struct {
		name, text string
		found      bool
	}{
		{"before the entries", `{` + bundle + `,"link":` + links + `,"entry":` + entries + `}`, true},
		{"behind the entries", `{` + bundle + `,"entry":` + entries + `,"link":` + links + `}`, true},
		{"behind entries with links", `{` + bundle + `,"entry":` + linked + `,"link":` + links + `}`, true},
		{"before entries with links", `{` + bundle + `,"link":` + links + `,"entry":` + linked + `}`, true},
		{"behind the entries, with white space", `{ ` + bundle + ` , "entry" : ` + entries + " ,\n\"link\" : " + links + ` }`, true},
		{"in the entries alone", `{` + bundle + `,"entry":` + linked + `}`, false},
		{"nowhere", `{` + bundle + `,"entry":` + entries + `}`, false},
		{"of what is a Bundle only then", `{"link":` + links + `,"entry":` + entries + `,` + bundle + `}`, true},
		{"of no Bundle", `{"resourceType":"Patient","link":` + links + `,"entry":` + entries + `}`, false},
		{"twice", `{` + bundle + `,"link":[],"entry":` + entries + `,"link":` + links + `}`, false},
		{"twice before the entries", `{` + bundle + `,"link":[],"link":` + links + `,"entry":` + entries + `}`, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			checkLinks(t, tt.text, links, tt.found)
		})
	}
	for _, escaped := range []string{`\u006cink`, `l\u0069nk`, `li\u006Ek`, `lin\u006B`, `\u006c\u0069\u006e\u006b`} {
		checkLinks(t, fmt.Sprintf(`{%s,"entry":%s,"%s":%s}`, bundle, entries, escaped, links), links, true)
		checkLinks(t, fmt.Sprintf(`{%s,"link":[],"entry":%s,"%s":%s}`, bundle, entries, escaped, links), links, false)
	}
}

func checkLinks(t *testing.T, text, want string, found bool) {
	t.Helper()
	at, links := FindLinks([]byte(text))
	switch {
	case !found && links != nil:
		t.Errorf("%s: found %v", text, links)
	case found && (len(links) != 1 || links[0].Relation != "next" || text[at.From:at.To] != want):
		t.Errorf("%s: found %v at %v", text, links, at)
	}
}

// TestMayNameLink has text in which nothing looks like the name at every distance from its beginning, and the name at
// every place.
func TestMayNameLink(t *testing.T) {
	t.Parallel()
	for length := range 100 {
		before := strings.Repeat("k", length)
		for text, want := range map[string]bool{
			before: false, before + `"`: false, before + `"lin k"`: false, before + `"link" `: true, before + `{"link":[]}`: true,
			before + `link"`: false, before + `\u00e9`: false, before + `\u006c`: true,
		} {
			if got := mayNameLink([]byte(text)); got != want {
				said, _ := json.Marshal(text)
				t.Errorf("%s: %v", said, got)
			}
		}
	}
}
