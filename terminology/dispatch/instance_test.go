package dispatch

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
)

// storeWithOperations is a FHIR server that stores definitions and answers operations itself.
func storeWithOperations(s *definitionStore, answer string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if answer == "" || !strings.Contains(r.URL.Path, "$") {
			s.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/fhir+json")
		_, _ = io.WriteString(w, answer)
	}
}

// TestInstanceIsTheServers has R4 and the FHIR server use one id for different resources.
func TestInstanceIsTheServers(t *testing.T) {
	t.Parallel()
	const theirs = "http://x.example/their-gender"
	const codes = `{"resourceType":"CodeSystem","id":"administrative-gender","url":"http://x.example/cs","content":"complete","concept":[{"code":"theirs"}]}`
	const conceptMap = `{"resourceType":"ConceptMap","id":"cm-address-use-v2","url":"http://x.example/map","group":[{"source":"http://x.example/cs","target":"http://x.example/t",
		"element":[{"code":"theirs","target":[{"code":"1","equivalence":"equal"}]}]}]}`
	for _, tt := range []struct {
		name    string
		fetched bool
		stored  bool   // the FHIR server has resources with these ids
		answers string // of the FHIR server to all operations
		path    string
		want    string
	}{
		{"fetched: $expand", true, true, "", "ValueSet/administrative-gender/$expand", `"code":"theirs"`},
		{"fetched: $validate-code", true, true, "", "ValueSet/administrative-gender/$validate-code?system=http://x.example/cs&code=theirs", `"name":"result","valueBoolean":true`},
		{"fetched: R4's code", true, true, "", "ValueSet/administrative-gender/$validate-code?system=http://hl7.org/fhir/administrative-gender&code=male", `"name":"result","valueBoolean":false`},
		{"fetched: of a CodeSystem", true, true, "", "CodeSystem/administrative-gender/$validate-code?code=theirs", `"name":"result","valueBoolean":true`},
		{"fetched: $lookup", true, true, "", "CodeSystem/administrative-gender/$lookup?code=theirs", `"valueUri":"http://x.example/cs"`},
		{"fetched: $translate", true, true, "", "ConceptMap/cm-address-use-v2/$translate?system=http://x.example/cs&code=theirs", `"name":"result","valueBoolean":true`},
		{"fetched: only R4 has the id", true, false, "", "ValueSet/administrative-gender/$expand", `"code":"male"`},
		{"passed on: $expand", false, true, expansionOf(theirs, "theirs"), "ValueSet/administrative-gender/$expand", `"code":"theirs"`},
		{"passed on: $lookup", false, true, `{"resourceType":"Parameters","id":"theirs"}`, "CodeSystem/administrative-gender/$lookup?code=male", `"id":"theirs"`},
		{"passed on: refused", false, true, "", "ValueSet/administrative-gender/$expand", `"code":"not-found"`},
		{"of the type", false, true, "", "ValueSet/$expand?url=" + genderSet, `"code":"male"`},
	} {
		for _, off := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, off=%t", tt.name, off), func(t *testing.T) {
				t.Parallel()
				terminologytest.Needs(t, tt.path)
				s := newDefinitionStore()
				if tt.stored {
					s.resources = map[string]string{
						"ValueSet/administrative-gender":   listing("administrative-gender", theirs, "theirs"),
						"CodeSystem/administrative-gender": codes, "ConceptMap/cm-address-use-v2": conceptMap,
					}
				}
				g := newSite(t, settings{all: true, off: off, fetched: fetchedIf(tt.fetched)}, storeWithOperations(s, tt.answers))
				for range 3 { // made, stored, and from the cache
					if body := read(t, g.get("/fhir/R4/"+tt.path)); !strings.Contains(body, tt.want) {
						t.Fatalf("got %s, want %s in it", body, tt.want)
					}
				}
			})
		}
	}
}

// TestInstanceAlone asks for an instance where there is no FHIR server behind.
func TestInstanceAlone(t *testing.T) {
	t.Parallel()
	nobody := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for _, s := range []settings{{}, {off: true}, {fetched: fetchedIf(true)}, {off: true, fetched: fetchedIf(true)}} {
		g := newSite(t, s, nobody)
		for range 3 {
			if body := read(t, g.get("/fhir/R4/ValueSet/administrative-gender/$expand")); !strings.Contains(body, `"code":"male"`) {
				t.Errorf("fetched=%t, off=%t: got %s", s.fetched != nil, s.off, body)
			}
		}
		posted := httptest.NewRequest(http.MethodPost, "/fhir/R4/ValueSet/administrative-gender/$expand",
			strings.NewReader(`{"resourceType":"Parameters","parameter":[{"name":"filter","valueString":"female"}]}`))
		posted.Header.Set("Content-Type", "application/fhir+json")
		if body := read(t, g.send(posted)); !strings.Contains(body, `"code":"female"`) || strings.Contains(body, `"code":"male"`) {
			t.Errorf("fetched=%t, off=%t: got %s", s.fetched != nil, s.off, body)
		}
	}
}

// TestInstanceOfFailingServer has the FHIR server not answer: which resource it has is then unknown.
func TestInstanceOfFailingServer(t *testing.T) {
	t.Parallel()
	for _, fetched := range []bool{false, true} {
		g := newSite(t, settings{fetched: fetchedIf(fetched)}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
		}))
		if got := g.get("/fhir/R4/ValueSet/administrative-gender/$expand"); got.StatusCode < 500 {
			t.Errorf("fetched=%t: got %d", fetched, got.StatusCode)
		}
	}
}

// TestInstanceWritten writes a resource with an id of R4, whose expansion is stored.
func TestInstanceWritten(t *testing.T) {
	t.Parallel()
	g := newSite(t, settings{fetched: fetchedIf(true)}, newDefinitionStore())
	const path = "/fhir/R4/ValueSet/administrative-gender/$expand"
	for range 3 {
		if body := read(t, g.get(path)); !strings.Contains(body, `"code":"male"`) {
			t.Fatal(body)
		}
	}
	g.write(http.MethodPut, "ValueSet/administrative-gender", listing("administrative-gender", "http://x.example/theirs", "theirs"))
	if body := read(t, g.get(path)); !strings.Contains(body, `"code":"theirs"`) {
		t.Error(body)
	}
}
