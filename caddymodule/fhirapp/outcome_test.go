package fhirapp

import (
	"encoding/xml"
	"net/http"
	"net/http/httptest"
	"strings"
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
		body := gatewaytest.ReadBody(t, response)
		if response.StatusCode != 418 || (body != "not FHIR") != fhir {
			t.Errorf("%s: %d %s", path, response.StatusCode, body)
		}
	}
}

func TestBackendDownIsOutcome(t *testing.T) {
	t.Parallel()
	g := exampleGateway(t, nil)
	response := g.Get("/fhir/R4/Patient", g.Token())
	if issue := g.DecodeOutcome(response); response.StatusCode != http.StatusBadGateway || issue.Code != "transient" {
		t.Errorf("%d %+v", response.StatusCode, issue)
	}
}

// Rejections by fhir_bearer are JSON regardless of the requested format, like all responses that it inspects.
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
		if issue := g.DecodeOutcome(response); response.StatusCode != tt.status || issue.Severity != "error" {
			t.Errorf("%s: status %d, %+v", tt.path, response.StatusCode, issue)
		}
	}
}

// Clients that request XML get errors in XML.
func TestOutcomeInXML(t *testing.T) {
	t.Parallel()
	terminologytest.RequireFeatures(t, "xml")
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
			if issue := g.DecodeOutcome(response); issue.Severity != "error" {
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

// A rejection contains an OperationOutcome even if the site has error routes.
func TestRefusalIsOutcome(t *testing.T) {
	t.Parallel()
	const here = "https://localhost:8443"
	tests := []struct {
		name, site, path string
		status           int
		issue            string // issue code in the OperationOutcome
		body             string // expected body that is not an OperationOutcome
	}{
		{"no handle_errors", "fhir_bearer\nrespond ok", "/fhir/R4/Patient", 401, "login", ""},
		{"no handle_errors, guard within handle", "handle /fhir/R4/* {\n\tfhir_bearer\n\trespond ok\n}", "/fhir/R4/Patient", 401, "login", ""},
		{"no handle_errors, failed expansion", "fhir_expand\nrespond ok", "/fhir/R4/ValueSet/$expand?count=-1", 400, "invalid", ""},
		{"no handle_errors, API that is down", "fhir_expand\nreverse_proxy " + gatewaytest.UnreachableBackend, "/fhir/R4/Patient", 502, "transient", ""},
		{"no handle_errors, elsewhere", "fhir_expand\nreverse_proxy " + gatewaytest.UnreachableBackend, "/Patient", 502, "", ""},
		{"the fhir_outcome of another base", "fhir_bearer {\n\tfhir_base /api\n}\nhandle_errors {\n\tfhir_outcome\n}", "/api/Patient", 401, "login", ""},
		{"behind handle_path", "handle_path /api/* {\n\tfhir_bearer\n}\nhandle_errors {\n\tfhir_outcome\n}", "/api/fhir/R4/Patient", 401, "login", ""},
		{"behind handle_path, no handle_errors", "handle_path /api/* {\n\tfhir_bearer\n}", "/api/fhir/R4/Patient", 401, "login", ""},
		{"behind uri strip_prefix, API that is down", "uri strip_prefix /api\nfhir_expand\nreverse_proxy " + gatewaytest.UnreachableBackend + "\nhandle_errors {\n\tfhir_outcome\n}", "/api/fhir/R4/Patient", 502, "transient", ""},
		{"a site's own errors", "fhir_bearer\nhandle_errors {\n\trespond \"own {err.status_code}\"\n}", "/fhir/R4/Patient", 401, "", "own 401"},
		{"a site's own errors of another status", "fhir_bearer\nhandle_errors 404 {\n\trespond own\n}", "/fhir/R4/Patient", 401, "login", ""},
		{"another site's errors beside", "fhir_bearer\nrespond ok", "/fhir/R4/Patient", 401, "login", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			caddyfile := siteWith(here, here, tt.site)
			if strings.Contains(tt.name, "beside") {
				caddyfile += "\nhttps://other.example:8443 {\n\thandle_errors {\n\t\trespond other\n\t}\n}\n"
			}
			g := newGateway(t, caddyfile)
			response := g.Get(tt.path, "")
			if response.StatusCode != tt.status {
				t.Errorf("status %d", response.StatusCode)
			}
			if tt.issue != "" {
				if issue := g.DecodeOutcome(response); issue.Code != tt.issue {
					t.Errorf("issue %+v", issue)
				}
			} else if body := gatewaytest.ReadBody(t, response); body != tt.body {
				t.Errorf("body %q", body)
			}
			if tt.status == http.StatusUnauthorized && response.Header.Get("WWW-Authenticate") == "" {
				t.Error("no challenge")
			}
		})
	}
}

// As Caddy's users expect, the order of directives in a block has no effect.
func TestDirectiveOrder(t *testing.T) {
	t.Parallel()
	const here = "https://localhost:8443"
	tests := []struct {
		name, body, path string
		status           int
	}{
		{"fhir_expand before respond", "fhir_expand\nrespond 404", expandPath("http://hl7.org/fhir/ValueSet/administrative-gender"), 200},
		{"fhir_expand before error", "error 404\nfhir_expand", expandPath("http://hl7.org/fhir/ValueSet/administrative-gender"), 200},
		{"fhir_expand before abort", "abort\nfhir_expand", expandPath("http://hl7.org/fhir/ValueSet/administrative-gender"), 200},
		{"fhir_bearer before fhir_expand", "fhir_expand\nfhir_bearer", expandPath("http://hl7.org/fhir/ValueSet/administrative-gender"), 401},
		{"fhir_bearer before handle", "handle {\n\trespond ok\n}\nfhir_bearer", "/fhir/R4/Patient", 401},
		{"fhir_authorize before fhir_bearer", "fhir_bearer\nfhir_authorize", "/.well-known/openid-configuration", 200},
		{"SMART discovery before fhir_bearer", "fhir_bearer\nfhir_authorize", "/fhir/R4/.well-known/smart-configuration", 200},
		{"the handler after fhir_authorize is guarded", "fhir_bearer\nfhir_authorize\nrespond ok", "/oauth2/authorize/", 401},
		{"fhir_outcome before what answers errors", "fhir_bearer\nhandle_errors {\n\thandle {\n\t\trespond own\n\t}\n\tfhir_outcome\n}", "/fhir/R4/Patient", 401},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			response := newGateway(t, siteWith(here, here, tt.body)).Get(tt.path, "")
			if body := gatewaytest.ReadBody(t, response); response.StatusCode != tt.status || body == "own" {
				t.Errorf("%d %s", response.StatusCode, body)
			}
		})
	}
}

// Browsers that open an unknown address get a page. Other clients and other handlers' responses are not changed.
func TestUnknownPages(t *testing.T) {
	t.Parallel()
	const browser = "text/html,application/xhtml+xml,*/*;q=0.8"
	g := gatewaytest.New(t, strings.TrimSuffix(gatewaytest.AuthorizationServer(""), "}\n")+
		"\trespond /gone 404\n\trespond /explained \"not here\" 404\n\trespond /oauth2/other other 200\n}\n")
	for name, c := range map[string]struct {
		path, accept, want string
		status             int
	}{
		"browser":                {"/oauth2/unknown", browser, "<h1>Page not found</h1>", http.StatusNotFound},
		"client":                 {"/oauth2/unknown", "application/json", "", http.StatusOK},
		"empty 404":              {"/gone", browser, "Your account", http.StatusNotFound},
		"empty 404 for a client": {"/gone", "*/*", "", http.StatusNotFound},
		"404 with a body":        {"/explained", browser, "not here", http.StatusNotFound},
		"other handler":          {"/oauth2/other", browser, "other", http.StatusOK},
		"nothing":                {"/", browser, "", http.StatusOK},
		"FHIR":                   {"/fhir/R4/Patient", browser, "OperationOutcome", http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest(http.MethodGet, c.path, nil)
			r.Header.Set("Accept", c.accept)
			answer := g.Send(r)
			text := gatewaytest.ReadBody(t, answer)
			if answer.StatusCode != c.status || !strings.Contains(text, c.want) || (text == "") != (c.want == "") {
				t.Errorf("%d %s", answer.StatusCode, text)
			}
		})
	}
}
