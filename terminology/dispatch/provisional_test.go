package dispatch

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
)

// validations is a FHIR server that answers all operations in one way, and counts.
type validations struct {
	status int
	body   string
	asked  atomic.Int64
}

func (v *validations) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	v.asked.Add(1)
	w.Header().Set("Content-Type", "application/fhir+json")
	w.WriteHeader(v.status)
	_, _ = io.WriteString(w, v.body)
}

// What rests on definitions that are not here is asked of others, whose answer is
// given and kept; where they have none, that which was made here stands.
func TestValidationAsksOthers(t *testing.T) {
	t.Parallel()
	const (
		validate  = "CodeSystem/$validate-code?url=http://snomed.info/sct&code=138875005"
		member    = "ValueSet/$validate-code?url=" + genderSet + "&system=http://snomed.info/sct&code=138875005"
		translate = "ConceptMap/$translate?system=http://snomed.info/sct&code=138875005"
		good      = `{"resourceType":"Parameters","parameter":[{"name":"result","valueBoolean":true},{"name":"message","valueString":"theirs"}]}`
		refused   = `{"resourceType":"OperationOutcome","issue":[{"severity":"error","code":"not-found","diagnostics":"theirs"}]}`
		theirs    = `"theirs"`
		ours      = `"valueBoolean":false`
	)
	tests := []struct {
		name, query, want string
		status            int
		body              string
		kept              bool
	}{
		{"a code system", validate, theirs, 200, good, true},
		{"a value set", member, theirs, 200, good, true},
		{"concept maps", translate, theirs, 200, good, true},
		{"they know it neither", validate, ours, 404, refused, true},
		{"they have no such operation", translate, ours, 501, refused, false},
		{"they are no FHIR server", validate, ours, 404, "theirs", false},
		{"they answer something else", validate, ours, 200, "theirs", false},
		{"they let nobody in", member, ours, 401, "", false},
	}
	for _, who := range []string{"next handler", "upstream"} {
		for _, tt := range tests {
			t.Run(who+" "+tt.name, func(t *testing.T) {
				terminologytest.Needs(t, tt.query)
				server := &validations{status: tt.status, body: tt.body}
				stored := settings{all: true, cache: cache.Options{NegativeTTL: time.Hour, FailureTTL: -1}}
				g := newSiteBefore(t, who, stored, server)
				for _, method := range []string{"GET", "GET", "HEAD"} {
					response := g.send(httptest.NewRequest(method, "/fhir/R4/"+tt.query, nil))
					got := read(t, response)
					if response.StatusCode != http.StatusOK || method == "GET" && !strings.Contains(got, tt.want) || !strings.Contains(response.Header.Get("Cache-Control"), "no-cache") {
						t.Errorf("%s: %d %v %s", method, response.StatusCode, response.Header, got)
					}
				}
				if n := server.asked.Load(); (n == 1) != tt.kept {
					t.Errorf("asked %d times", n)
				}
				uncached := newSiteBefore(t, who, settings{all: true, off: true}, server)
				if got := read(t, uncached.get("/fhir/R4/"+tt.query)); tt.body != "theirs" && !strings.Contains(got, tt.want) {
					t.Errorf("past the cache: %s", got)
				}
				xml := read(t, g.get("/fhir/R4/"+tt.query+"&_format=xml"))
				if tt.want == ours && terminologytest.Has("xml") && !strings.Contains(xml, `<valueBoolean value="false"/>`) {
					t.Errorf("as XML: %s", xml)
				}
			})
		}
	}
}

// What was validated by POST is asked whole, and what is known here is not asked.
func TestPostedValidationAsksOthers(t *testing.T) {
	terminologytest.Needs(t, "CodeSystem/$validate-code")
	t.Parallel()
	g := newSite(t, settings{all: true}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/fhir+json")
		_, _ = fmt.Fprintf(w, `{"resourceType":"Parameters","parameter":[{"name":"theirs","resource":%s}]}`, body)
	}))
	for system, want := range map[string]bool{"http://snomed.info/sct": true, "http://hl7.org/fhir/administrative-gender": false} {
		body := `{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"` + system + `"},{"name":"code","valueCode":"nobody"}]}`
		r := httptest.NewRequest(http.MethodPost, "/fhir/R4/CodeSystem/$validate-code", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/fhir+json")
		if got := read(t, g.send(r)); strings.Contains(got, `"theirs","resource":`+body) != want {
			t.Errorf("%s: %s", system, got)
		}
	}
}
