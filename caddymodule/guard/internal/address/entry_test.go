package address

import (
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
)

// TestOfEntry has addresses of entries before, behind and without what a client has put into a resource.
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
		{"in what is cut off", `{"entry":[{` + server + `,"resource":{"a":"`, false},
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
		if got := OfEntry(format, []byte(tt.text)); got != want {
			t.Errorf("%s: %q", tt.name, got)
		}
	}
}
