package address

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
)

// recordingSealer returns a LinkSealer that stores the links in found and returns a recognizable link.
func recordingSealer(found *message.Links) LinkSealer {
	return func(links message.Links) (message.Links, error) {
		*found = links
		return message.Links{{Relation: "self", URL: "sealed"}}, nil
	}
}

// The links of a Bundle are replaced before, after and between its entries, in pieces of any size.
func TestLinkFinder(t *testing.T) {
	t.Parallel()
	const (
		bundle  = `"resourceType":"Bundle"`
		links   = `[{"relation":"next","url":"http://backend/fhir?_getpages=1"}]`
		entries = `[{"resource":{"resourceType":"Patient","text":{"div":"<p title=\"k\">link \u00e9 talk</p>\\"},"name":[{"family":"Falk"}]}}]`
		linked  = `[{"resource":{"resourceType":"Bundle","link":[{"relation":"next","url":"x"}]}}]`
		other   = `[{"other":{"reference":"Patient/2"},"type":"seealso"}]`
	)
	type test struct {
		name, text string
		want       string // empty if the text stays unchanged
	}
	tests := []test{
		{"before the entries", `{` + bundle + `,"link":` + links + `,"entry":` + entries + `}`, `{` + bundle + `,"link":@,"entry":` + entries + `}`},
		{"behind the entries", `{` + bundle + `,"entry":` + entries + `,"link":` + links + `}`, `{` + bundle + `,"entry":` + entries + `,"link":@}`},
		{"behind entries with links", `{` + bundle + `,"entry":` + linked + `,"link":` + links + `}`, `{` + bundle + `,"entry":` + linked + `,"link":@}`},
		{"before entries with links", `{` + bundle + `,"link":` + links + `,"entry":` + linked + `}`, `{` + bundle + `,"link":@,"entry":` + linked + `}`},
		{"with white space", "\n{ " + bundle + ` , "entry" : ` + entries + " ,\n\"link\"\t: " + links + ` }`, "\n{ " + bundle + ` , "entry" : ` + entries + " ,\n\"link\"\t: @ }"},
		{"in the entries alone", `{` + bundle + `,"entry":` + linked + `}`, ""},
		{"nowhere", `{` + bundle + `,"entry":` + entries + `}`, ""},
		{"before the type", `{"link":` + links + `,` + bundle + `}`, `{"link":@,` + bundle + `}`},
		{"of a Patient", `{"resourceType":"Patient","link":` + other + `}`, ""},
		{"empty", `{` + bundle + `,"link":[]}`, ""},
		{"empty, and once more", `{` + bundle + `,"link":[],"link":` + links + `}`, `{` + bundle + `,"link":[],"link":@}`},
		{"as a value", `{"id":"link","x":["link",[1]],"y":{"link":` + links + `}}`, ""},
		{"no JSON", "link", ""},
		{"nothing", "", ""},
	}
	for _, escaped := range []string{`\u006cink`, `l\u0069nk`, `li\u006Ek`, `lin\u006B`, `\u006c\u0069\u006e\u006b`} {
		tests = append(tests, test{escaped, fmt.Sprintf(`{%s,"%s":%s}`, bundle, escaped, links), fmt.Sprintf(`{%s,"%s":@}`, bundle, escaped)})
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			want := tt.want
			if want == "" {
				want = tt.text
			}
			for size := 1; size <= len(tt.text)+1; size++ {
				var found message.Links
				f := LinkReplacer{Seal: recordingSealer(&found)}
				var out []byte
				for at := 0; at < len(tt.text); at += size {
					var err error
					if out, err = f.Append(out, []byte(tt.text[at:min(at+size, len(tt.text))])); err != nil {
						t.Fatal(err)
					}
				}
				const replaced = `[{"relation":"self","url":"sealed"}]`
				if got := string(out); got != replaceAll(want, "@", replaced) {
					t.Fatalf("in pieces of %d: %s", size, got)
				}
				if found != nil && found.Find("next") != "http://backend/fhir?_getpages=1" {
					t.Fatalf("in pieces of %d: links %v", size, found)
				}
			}
		})
	}
}

// Links that cannot be rewritten are an error.
func TestUnreadableLinks(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"numbers for links": `{"link":[1]}`,
		"long links":        `{"link":["` + string(make([]byte, maxLinksSize)),
	} {
		f := LinkReplacer{Seal: recordingSealer(new(message.Links))}
		if _, err := f.Append(nil, []byte(text)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for name, text := range map[string]string{
		"UTF-16, big-endian":    "\x00{\x00}",
		"UTF-16, little-endian": "{\x00}\x00",
		"byte order mark":       "\xef\xbb\xbf{}",
		"text":                  "text",
	} {
		if CheckJSON([]byte(text)) == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for name, text := range map[string]string{
		"another encoding": `<?xml version="1.0" encoding="UTF-16"?><Patient/>`,
		"no XML":           `{"resourceType":"Bundle"}`,
		"cut off":          `<Bundle><link><relation value="next"/>`,
		"without its end":  `<Bundle><type value="searchset"/>`,
	} {
		for _, seal := range []LinkSealer{nil, recordingSealer(new(message.Links))} {
			if _, err := ReplaceXMLLinks([]byte(text), seal); err == nil && (seal != nil || text[:2] == "<?" || text[0] == '{') {
				t.Errorf("%s: no error", name)
			}
		}
	}
}

// The links of Bundles in XML are replaced.
func TestReplaceXMLLinks(t *testing.T) {
	t.Parallel()
	const link = `<link><relation value="next"/><url value="http://backend/fhir?_getpages=1&amp;x=2"/></link>`
	const replaced = `<link xmlns="http://hl7.org/fhir"><relation value="self"/><url value="sealed"/></link>`
	for _, tt := range []struct{ name, before, links, after string }{
		{"before the entries", `<?xml version="1.0" encoding="UTF-8"?><Bundle xmlns="http://hl7.org/fhir"><total value="1"/>`, link + "\n  " + link, `<entry><resource/></entry></Bundle>`},
		{"with a prefix", `<f:Bundle xmlns:f="http://hl7.org/fhir">`, `<f:link><f:relation value="next"/><f:url value='http://backend/fhir?_getpages=1&#x26;x=2'/></f:link>`, `</f:Bundle>`},
		{"before truncation", `<Bundle>`, link, `<entry><resource><Pat`},
		{"in an entry", `<Bundle><entry><resource><Bundle>` + link + `</Bundle></resource></entry></Bundle>`, "", ""},
		{"of a Patient", `<Patient><link><other/></link></Patient>`, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var found message.Links
			got, err := ReplaceXMLLinks([]byte(tt.before+tt.links+tt.after), recordingSealer(&found))
			want := tt.before + tt.after
			if tt.links != "" {
				want = tt.before + replaced + tt.after
			}
			if err != nil || string(got) != want {
				t.Errorf("%v, %s", err, got)
			}
			if tt.links != "" && found.Find("next") != "http://backend/fhir?_getpages=1&x=2" {
				t.Errorf("links %v", found)
			}
		})
	}
}

// Addresses are found anywhere in an entry except in its resource, which may come from a client.
func TestOfEntry(t *testing.T) {
	t.Parallel()
	const (
		server   = `"fullUrl":"http://backend/fhir/Bundle/1"`
		nested   = `"resource":{"resourceType":"Bundle","entry":[{"fullUrl":"http://client/r4/Patient/1","response":{"location":"http://client/r4/Patient/2"}}]}`
		text     = `"resource":{"name":[{"given":["fullUrl","http://client/r4/Patient/1"]}],"location":"http://client/r4/Patient/3"}`
		response = `"response":{"status":"200","location":"http://backend/fhir/Bundle/1"}`
		entry    = `<fullUrl value="http://backend/fhir/Bundle/1"/>`
		inside   = `<resource><Bundle><entry><fullUrl value="http://client/r4/Patient/1"/></entry></Bundle></resource>`
	)
	for _, tt := range []struct {
		name, text string
		none       bool
	}{
		{"before a resource", `{"resourceType":"Bundle","entry":[{` + server + `,` + nested + `}]}`, false},
		{"behind a nested Bundle", `{"entry":[{` + nested + `,` + server + `}]}`, false},
		{"behind texts", `{"entry":[{` + text + `,` + server + `}]}`, false},
		{"in the next entry", `{"entry":[{` + text + `},{` + nested + `},{` + server + `}]}`, false},
		{"of a response", `{"link":[{"url":"x"}],"entry":[{` + text + `,` + response + `}]}`, false},
		{"in a truncated entry", `{"entry":[{` + server + `,"resource":{"a":"`, false},
		{"of a response without location", `{"entry":[{"response":{"status":"204"}},{` + response + `}]}`, false},
		{"of nothing", `{"entry":[{` + nested + `},{` + text + `}]}`, true},
		{"of no Bundle", `{"contained":[{"entry":[{` + server + `}]}]}`, true},
		{"of no text", `{"entry":[{"fullUrl":1}]}`, true},
		{"cut off before", `{"entry":[{"resource":{` + server, true},
		{"no JSON", `x`, true},
		{"XML before a resource", `<Bundle><entry>` + entry + inside + `</entry></Bundle>`, false},
		{"XML behind a resource", `<?xml version="1.0"?><Bundle><total value="1"/><entry>` + inside + entry + `</entry></Bundle>`, false},
		{"XML of a response", `<Bundle><entry>` + inside + `<response><location value="http://backend/fhir/Bundle/1"/></response></entry></Bundle>`, false},
		{"XML of nothing", `<Bundle><entry>` + inside + `</entry></Bundle>`, true},
		{"XML of no Bundle", `<Patient><contained>` + inside + `</contained></Patient>`, true},
	} {
		format, want := message.JSON, "http://backend/fhir/Bundle/1"
		if strings.HasPrefix(tt.text, "<") {
			format = message.XML
		}
		if tt.none {
			want = ""
		}
		if got := EntryAddress(format, []byte(tt.text)); got != want {
			t.Errorf("%s: %q", tt.name, got)
		}
	}
}
