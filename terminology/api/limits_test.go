package api

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
)

// TestLimits reaches each limit of a handler and of a library: what is just allowed is answered, and one more
// is refused with an error that says which limit it is.
func TestLimits(t *testing.T) {
	filtered := func(regex string) string {
		return valueSetOf("http://x/regex", fmt.Sprintf(`{"include":[{"system":"http://x/colours","filter":[{"property":"code","op":"regex","value":%q}]}]}`, regex))
	}
	chain := []string{valueSetOf("http://x/0", `{"include":[{"system":"http://x/colours"}]}`)}
	for i := range 4 {
		chain = append(chain, valueSetOf(fmt.Sprintf("http://x/%d", i+1), fmt.Sprintf(`{"include":[{"valueSet":["http://x/%d"]}]}`, i)))
	}
	inline := func(name string) string { return `{"resourceType":"ValueSet","name":"` + name + `","compose":{}}` }
	resources := func(n int) string {
		return `{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"http://x/0"}` +
			strings.Repeat(`,{"name":"tx-resource","resource":{"resourceType":"ValueSet"}}`, n) + `]}`
	}
	for _, test := range []struct {
		name                    string
		handler                 *Handler
		options                 definitions.Options
		path, allowed, tooMuch  string // of GET, after path; of POST the bodies
		status                  int
		code                    string
		text                    string
		method                  string
		allowedSet, tooLargeSet string // more definitions
	}{
		{name: "entries", handler: &Handler{Limits: expansion.Limits{Entries: 3}}, path: "/ValueSet/$expand?url=http://x/0&count=", allowed: "3", tooMuch: "4", status: 422, code: "too-costly", text: "more than 3"},
		{name: "entries without a page", handler: &Handler{Limits: expansion.Limits{Entries: 3}}, path: "/ValueSet/$expand?url=http://x/0", allowed: "&count=3", tooMuch: "", status: 422, code: "too-costly", text: "offset and count"},
		{name: "filter length", handler: &Handler{Limits: expansion.Limits{FilterLength: 5}}, path: "/ValueSet/$expand?url=http://x/0&filter=", allowed: "abcde", tooMuch: "abcdef", status: 400, code: "too-long", text: "5 bytes"},
		{name: "filter words", handler: &Handler{Limits: expansion.Limits{FilterWords: 2}}, path: "/ValueSet/$expand?url=http://x/0&filter=", allowed: "a+b", tooMuch: "a+b+c", status: 400, code: "too-long", text: "2 words"},
		{name: "body", handler: &Handler{MaxBody: int64(len(inline("a")))}, method: "POST", path: "/ValueSet/$expand", allowed: inline("a"), tooMuch: inline("aa"), status: 413, code: "too-long", text: "bytes"},
		{name: "resources", handler: &Handler{MaxResources: 2}, method: "POST", path: "/ValueSet/$expand", allowed: resources(2), tooMuch: resources(3), status: 413, code: "too-costly", text: "2 tx-resource"},
		{name: "import depth", options: definitions.Options{MaxImportDepth: 3}, path: "/ValueSet/$expand?url=http://x/", allowed: "3", tooMuch: "4", status: 422, code: "too-costly", text: "more than 3 deep"},
		{name: "import depth of a validation", options: definitions.Options{MaxImportDepth: 3}, path: "/ValueSet/$validate-code?system=http://x/colours&code=red&url=http://x/", allowed: "3", tooMuch: "4", status: 422, code: "too-costly", text: "more than 3 deep"},
		{name: "gathered", options: definitions.Options{MaxGathered: 30}, path: "/ValueSet/$expand?url=http://x/", allowed: "1", tooMuch: "2", status: 422, code: "too-costly", text: "more than 30 codes"},
		{name: "regex", options: definitions.Options{MaxRegexStates: 10}, path: "/ValueSet/$expand?url=http://x/regex", allowedSet: filtered("(a|r)[a-z]+"), tooLargeSet: filtered("(a{3}){5}"), status: 422, code: "too-costly", text: "more than 10"},
		{name: "regex of a validation", options: definitions.Options{MaxRegexStates: 10}, path: "/ValueSet/$validate-code?url=http://x/regex&system=http://x/colours&code=red", allowedSet: filtered("red"), tooLargeSet: filtered("red|brown|black"), status: 422, code: "too-costly", text: "more than 10"},
	} {
		t.Run(test.name, func(t *testing.T) {
			ask := func(more, part string) (int, string) {
				h := test.handler
				if h == nil {
					h = &Handler{}
				}
				test.options.Definitions = definitionFiles(t, append([]string{colours, more}, chain...)...)
				l, err := terminology.Load(t.Context(), test.options)
				if err != nil {
					t.Fatal(err)
				}
				h.Library = l
				if test.method == http.MethodPost {
					w, _ := call(t, h, test.method, test.path, part)
					return w.Code, w.Body.String()
				}
				w, _ := call(t, h, http.MethodGet, test.path+part, "")
				return w.Code, w.Body.String()
			}
			if status, body := ask(test.allowedSet, test.allowed); status != http.StatusOK {
				t.Errorf("at the limit: got %d %s", status, body)
			}
			status, body := ask(test.tooLargeSet, test.tooMuch)
			if status != test.status {
				t.Errorf("beyond the limit: got %d %s", status, body)
			}
			wantText(t, body, `"code":"`+test.code+`"`, test.text)
		})
	}
}

// definitionFiles writes resources that are not empty to a folder, each to a file of its own.
func definitionFiles(t *testing.T, resources ...string) []string {
	folder := t.TempDir()
	for i, resource := range resources {
		if resource != "" {
			writeFile(t, filepath.Join(folder, fmt.Sprintf("%03d.json", i)), []byte(resource))
		}
	}
	return []string{folder}
}
