package dispatch

import (
	"encoding/json"
	"strings"
	"testing"
)

// What a Bundle changes is told by its requests and by the types of its resources,
// wherever its parts break.
func TestWrittenBundle(t *testing.T) {
	for name, tt := range map[string]struct {
		body    string
		changes bool
	}{
		"a value set":                      {`{"entry":[{"resource":{"resourceType" : "ValueSet"},"request":{"method":"PUT"}}]}`, true},
		"a value set, not by a request":    {`{"entry":[{"resource":{"resourceType":"ValueSet"}}]}`, true},
		"a contained one":                  {`{"resource":{"contained":[{"resourceType":"CodeSystem"}]},"request":{"method":"PUT"}}`, true},
		"a deletion":                       {`{"request":{"method":"DELETE","url":"ConceptMap?url=x"}}`, true},
		"a deletion, by its whole address": {`{"request":{"method":"DELETE","url":"https:\/\/x.example\/ValueSet\/1"}}`, true},
		"an operation on the server":       {`{"request":{"method":"POST","url":"\/$import"}}`, true},
		"a read":                           {`{"request":{"method":"GET","url":"ValueSet/1"}}`, false},
		"a read and a write":               {`{"request":{"method":"GET","url":"ValueSet/1"}},{"request":{"method":"PUT","url":"Patient/1"}}`, true},
		"a code":                           {`{"resource":{"system":"http://terminology.hl7.org/CodeSystem/v3-ActCode"},"request":{"method":"PUT","url":"Patient/1"}}`, false},
		"a narrative":                      {`{"div":"<a href=\"ValueSet.html\">\"url\":\"ValueSet\"</a>","request":{"method":"PUT","url":"Patient/1"}}`, false},
		"letters that are escaped":         {`{"request":{"method":"DELETE","url":"Value\u0053et/1"}}`, true},
		"a member that is escaped":         {`{"request":{"method":"DELETE","u\u0072l":"ValueSet/1"}}`, true},
		"letters that must be escaped":     {`{"name":"M\u00fcller \u003c\\","request":{"method":"PUT","url":"Patient/1"}}`, false},
		"a url without an end":             {`{"request":{"method":"DELETE","url":"?` + strings.Repeat("x", maxMember) + `ValueSet`, true},
	} {
		for at := range min(len(tt.body), 200) {
			var b writtenBundle
			for _, part := range []string{tt.body[:at], tt.body[at:]} {
				_, _ = b.Write([]byte(part))
			}
			if name == "a url without an end" {
				_, _ = b.Write([]byte(`"`))
			}
			if b.changes() != tt.changes {
				t.Fatalf("%s, in parts at %d: %t", name, at, b.changes())
			}
		}
	}
}

// Whatever a Bundle holds, a member that names a type of definitions is seen.
func FuzzWrittenBundle(f *testing.F) {
	f.Add("text", `{"a":[1,"\""]}`, "ValueSet/1")
	f.Fuzz(func(t *testing.T, text, raw, url string) {
		if !json.Valid([]byte(raw)) {
			raw = "null"
		}
		quoted, _ := json.Marshal(text)
		named, _ := json.Marshal(url)
		var b writtenBundle
		_, _ = b.Write([]byte(`{"text":` + string(quoted) + `,"raw":` + raw + `,"entry":[{"request":{"method":"DELETE","url":` + string(named) + `}}]}`))
		if namesDefinitions([]byte(url)) && len(url) < maxMember && !b.changes() {
			t.Errorf("%q after %q and %s", url, text, raw)
		}
	})
}
