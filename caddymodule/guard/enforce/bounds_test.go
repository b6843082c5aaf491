package enforce_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
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
	if text := bodyOf(t, response); response.StatusCode != http.StatusOK || asked > 20 || !strings.Contains(text, "_page/") {
		t.Errorf("status %d after %d requests: %s", response.StatusCode, asked, text)
	}
}

// TestTypes is over _type, which names what a search of the system is about.
func TestTypes(t *testing.T) {
	t.Parallel()
	all := "Account,AdverseEvent,Appointment,Basic,Claim,Condition,Consent,Coverage,Device,Encounter,Flag,Goal,Immunization,Invoice,List,Media,Observation"
	for target, want := range map[string]int{
		"?_type=" + all: 403,
		"?_type=" + strings.TrimPrefix(all, "Account,"): 200,
		"?_type=Unheard":         400,
		"?_type=Patient,Unheard": 400,
		"?_type=Patient,":        400,
		"?_type=Patient,Patient": 200,
	} {
		g := newGateway(t, records...)
		g.Limits = enforce.Limits{Requests: 1000}
		if got := g.get(patientA, target); got.StatusCode != want {
			t.Errorf("%s: status %d, want %d", target, got.StatusCode, want)
		}
	}
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
