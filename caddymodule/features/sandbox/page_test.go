package sandbox

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page/pagetest"
)

func TestPagesInEachLanguage(t *testing.T) {
	t.Parallel()
	pagetest.CheckInEachLanguage(t, files, map[string]page.View{
		"launchpage": {Data: launchPageData{
			Request: "sealed", Person: page.Person{Name: "Alice Adams"}, Searchable: true, Name: "Smith", More: true, Chosen: "2",
			Apps:     []launchApp{{"sandbox-app", "Sandbox App", "fhir.example.org", true}, {"growth-chart", "Growth Chart", "chart.example", false}},
			Patients: []page.Patient{{ID: "1", Name: "John Smith", BirthDate: "1970-05-01", Identifier: "12345", Gender: page.Gender("male")}, {ID: "2"}},
		}},
		"launchpage-problem": {Data: launchPageData{Problem: launchProblem{true, true, true, true, true}, Local: true, LocalChosen: true}},
		"sandboxapp":         {Script: "sandboxapp", Data: appData{"sandbox-app", sandboxApp, "https://fhir.example.org/fhir/R4", "openid"}},
	})
}

// A record number is not broken at its hyphens, and is text all the same.
func TestRecordNumbersAreWhole(t *testing.T) {
	t.Parallel()
	site, err := page.New("https://sign-in.example", page.Branding{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	site.Show(w, httptest.NewRequest(http.MethodGet, "/", nil), page.View{
		Template: "launchpage", Data: launchPageData{Patients: []page.Patient{{Name: "Ada", Identifier: "MRN-<1>"}}},
	})
	if text := w.Body.String(); !strings.Contains(text, `record number <span class="whole">MRN-&lt;1&gt;</span>`) {
		t.Error(text)
	}
}
