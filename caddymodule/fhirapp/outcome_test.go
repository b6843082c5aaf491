package fhirapp

import (
	"encoding/xml"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
)

func TestOutcomeBelowBaseAlone(t *testing.T) {
	t.Parallel()
	g := newGateway(t, `{
	auto_https disable_redirects
	skip_install_trust
}

https://localhost:8443 {
	error 418
	handle_errors {
		fhir_outcome
		respond "not FHIR" {err.status_code}
	}
}
`)
	for path, fhir := range map[string]bool{
		"/fhir/R4": true, "/fhir/R4/x": true, "/FHIR/R4/x": true, "/fhir/R4x": false, "/": false, "/x/fhir/R4": false,
	} {
		response := g.Send(httptest.NewRequest(http.MethodGet, path, nil))
		body := gatewaytest.Read(t, response)
		if response.StatusCode != 418 || (body != "not FHIR") != fhir {
			t.Errorf("%s: %d %s", path, response.StatusCode, body)
		}
	}
}

func TestBackendDownIsOutcome(t *testing.T) {
	t.Parallel()
	g := exampleGateway(t, nil)
	response := g.Get("/fhir/R4/Patient", g.Token())
	if issue := g.Outcome(response); response.StatusCode != http.StatusBadGateway || issue.Code != "transient" {
		t.Errorf("%d %+v", response.StatusCode, issue)
	}
}

// What fhir_bearer refuses is JSON, whatever is asked for, as all that it judges.
func TestRefusalInJSON(t *testing.T) {
	t.Parallel()
	const xmlOnly = "application/fhir+xml"
	g := exampleGateway(t, nil)
	for _, tt := range []struct {
		path, token, accept string
		status              int
	}{
		{"/fhir/R4/Patient/1", "", xmlOnly, http.StatusUnauthorized},
		{"/fhir/R4/Patient/1?_format=xml", "nonsense", xmlOnly, http.StatusUnauthorized},
		{"/fhir/R4/Patient/$secret", g.Token(), xmlOnly + ", */*;q=0.1", http.StatusForbidden},
		{"/fhir/R4/metadata", "", xmlOnly, http.StatusNotAcceptable},
	} {
		response := g.Get(tt.path, tt.token, "Accept", tt.accept)
		if issue := g.Outcome(response); response.StatusCode != tt.status || issue.Severity != "error" {
			t.Errorf("%s: status %d, %+v", tt.path, response.StatusCode, issue)
		}
	}
}

// Clients that ask for XML get errors in XML too.
func TestOutcomeInXML(t *testing.T) {
	t.Parallel()
	terminologytest.Needs(t, "xml")
	g := exampleGateway(t, nil)
	token := g.Token()
	for _, tt := range []struct {
		query, accept string
		xml           bool
	}{
		{"", "application/fhir+xml", true},
		{"&_format=xml", "", true},
		{"&_format=json", "application/fhir+xml", false},
		{"&_format=turtle", "application/fhir+xml", false},
		{"", "text/html,application/xml;q=0.9", false},
	} {
		response := g.Get("/fhir/R4/ValueSet/$expand?count=-1"+tt.query, token, "Accept", tt.accept)
		if response.StatusCode != http.StatusBadRequest {
			t.Errorf("%+v: status %d", tt, response.StatusCode)
		}
		if !tt.xml {
			if issue := g.Outcome(response); issue.Severity != "error" {
				t.Errorf("%+v: %+v", tt, issue)
			}
			continue
		}
		var outcome struct {
			XMLName  xml.Name `xml:"http://hl7.org/fhir OperationOutcome"`
			Severity struct {
				Value string `xml:"value,attr"`
			} `xml:"issue>severity"`
		}
		err := xml.NewDecoder(response.Body).Decode(&outcome)
		if err != nil || outcome.Severity.Value != "error" || response.Header.Get("Content-Type") != "application/fhir+xml" {
			t.Errorf("%+v: %v %+v %v", tt, err, outcome, response.Header)
		}
	}
}
