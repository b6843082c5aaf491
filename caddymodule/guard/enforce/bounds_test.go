package enforce_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/server"
)

// TestSearchIsBounded checks what one page of a search asks of the FHIR server.
func TestSearchIsBounded(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	asked := 0
	g.server.Answers = map[string]http.HandlerFunc{"Observation": func(w http.ResponseWriter, r *http.Request) {
		asked++
		if n := r.URL.Query().Get("_count"); n != "" && n != "1000" {
			t.Errorf("_count is %s", n)
		}
		w.Header().Set("Content-Type", "application/fhir+json")
		_, _ = io.WriteString(w, fmt.Sprintf(`{"resourceType":"Bundle","type":"searchset","link":[{"relation":"next","url":"http://backend.internal:8080/fhir/Observation?page=%d"}]}`, asked))
	}}
	g.CompartmentSearch = true
	g.server.Answers["Patient/a/Observation"] = g.server.Answers["Observation"]
	response := g.get(patientA, "Observation?_count=5000")
	if text := bodyOf(t, response); response.StatusCode != http.StatusOK || asked > 48 || !strings.Contains(text, "_page/") {
		t.Errorf("status %d after %d requests: %s", response.StatusCode, asked, text)
	}
}

// TestTypes is over _type, which names what a search of the system is about.
func TestTypes(t *testing.T) {
	t.Parallel()
	all := "Account,AdverseEvent,Appointment,Basic,Claim,Condition,Consent,Coverage,Device,Encounter,Flag,Goal,Immunization,Invoice,List,Media,Observation"
	for target, want := range map[string]int{
		"?_sort=_lastUpdated&_type=" + all: 403,
		"?_type=" + all:                    200,
		"?_sort=_lastUpdated":              403,
		"?_sort=_lastUpdated&_type=" + strings.TrimPrefix(all, "Account,"): 200,
		"?_type=Unheard":         400,
		"?_type=Patient,Unheard": 400,
		"?_type=Patient,":        400,
		"?_type=Patient,Patient": 200,
	} {
		g := newGateway(t, records...)
		g.Limits = server.Limits{Requests: 1000}
		if got := g.get(patientA, target); got.StatusCode != want {
			t.Errorf("%s: status %d, want %d", target, got.StatusCode, want)
		}
	}
}

// TestAllTypes checks that a search of all types goes through those that the scopes cover, in pages that cost no more than
// one request may.
func TestAllTypes(t *testing.T) {
	t.Parallel()
	const requests = 12
	few := access.Holder{Scope: "patient/Encounter.rs patient/Observation.rs?status=amended patient/Patient.r", Patient: "a"}
	for _, tt := range []searchCase{
		{"all types", patientA, "", "Device/a1 Device/free Encounter/ea Observation/a1 Observation/a2 Observation/a3 Observation/a4 Observation/b2 Organization/org Patient/a Practitioner/alice Practitioner/bob PractitionerRole/role"},
		{"with a parameter of all types", patientA, "?_id=a1,b1,ea", "Device/a1 Encounter/ea Observation/a1"},
		{"with one of some types", patientA, "?status=final", "400"},
		{"in a compartment", patientA, "Patient/a/*", "Encounter/ea Observation/a1 Observation/a2 Observation/a3 Observation/a4 Observation/b2 Patient/a"},
		{"in another's compartment", patientA, "Patient/b/*", "Observation/b2"},
		{"the scopes' types", few, "", "Encounter/ea Observation/a3 Observation/a4 Observation/b2"},
	} {
		g := newGateway(t, chart...)
		g.Limits = server.Limits{Requests: requests}
		if got := g.foundOrStatus(tt.holder, tt.target); got != tt.want {
			t.Errorf("%s: %s\nwant %s", tt.name, got, tt.want)
		}
	}
	lacking := newGateway(t, chart...)
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/fhir/R4?_count=100", nil)
	err := lacking.Serve(w, r, without{lacking.server, "Condition"}, enforce.Bearer{Rights: access.New(patientA, lacking.Shared)})
	if err != nil || !strings.Contains(w.Body.String(), `"Encounter"`) {
		t.Errorf("a server that lacks a type: %v %s", err, w.Body)
	}
	asked := 0
	g := newGateway(t, chart...)
	g.Limits = server.Limits{Requests: requests}
	g.server.Seen = func(*http.Request) { asked++ }
	var page bundle
	for target := ""; ; target = page.next() {
		asked, page = 0, bundle{}
		if err := json.NewDecoder(g.get(patientA, target).Body).Decode(&page); err != nil || asked > requests {
			t.Fatalf("%d requests for a page, %v", asked, err)
		}
		if page.next() == "" {
			break
		}
	}
}

// without is a server that lacks a type.
type without struct {
	message.NextHandler
	resourceType string
}

func (s without) ServeHTTP(w http.ResponseWriter, r *http.Request) error {
	if strings.HasSuffix(r.URL.Path, "/"+s.resourceType) {
		w.WriteHeader(http.StatusNotFound)
		return nil
	}
	return s.NextHandler.ServeHTTP(w, r)
}

// TestConstraintsDoNotMix checks that scopes with two constraints each find what one of them says, not a bit of each.
func TestConstraintsDoNotMix(t *testing.T) {
	t.Parallel()
	observation := func(id, category, status string) string {
		return strings.NewReplacer(`"id":"a1"`, `"id":"`+id+`"`, "laboratory", category, "final", status).Replace(records[3])
	}
	g := newGateway(t, observation("1", "laboratory", "final"), observation("2", "laboratory", "amended"),
		observation("3", "survey", "final"), observation("4", "survey", "amended"))
	h := access.Holder{Patient: "a", Scope: "patient/Observation.rs?category=laboratory&status=final patient/Observation.rs?category=survey&status=amended"}
	if got := strings.Join(g.found(h, "Observation"), " "); got != "Observation/1 Observation/4" {
		t.Errorf("found %s", got)
	}
	text := bodyOf(t, g.get(h, "Observation?_summary=count"))
	if !strings.Contains(text, `"total":2`) {
		t.Errorf("counted %s", text)
	}
}
