package fhirapp_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

// wardServer is a FHIR server with the patients p1 and p2. It records its requests.
type wardServer struct {
	mu          sync.Mutex
	requests    []string
	unavailable bool
	other       map[string]string // additional resources, by path below /fhir/R4/
}

func (s *wardServer) set(path, record string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.other = map[string]string{path: record}
}

func (s *wardServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r.URL.RequestURI()+" "+r.Header.Get("Authorization"))
	patient := func(id string) string {
		return fmt.Sprintf(`{"resourceType":"Patient","id":%q,"name":[{"text":"Patient %s"}]}`, id, id)
	}
	w.Header().Set("Content-Type", "application/fhir+json")
	switch {
	case s.unavailable:
		w.WriteHeader(http.StatusServiceUnavailable)
	case r.URL.Path == "/fhir/R4/Patient":
		fmt.Fprintf(w, `{"resourceType":"Bundle","type":"searchset","entry":[{"resource":%s},{"resource":%s}]}`, patient("p1"), patient("p2"))
	case r.URL.Path == "/fhir/R4/Patient/p1", r.URL.Path == "/fhir/R4/Patient/p2":
		fmt.Fprint(w, patient(strings.TrimPrefix(r.URL.Path, "/fhir/R4/Patient/")))
	case s.other[strings.TrimPrefix(r.URL.Path, "/fhir/R4/")] != "":
		fmt.Fprint(w, s.other[strings.TrimPrefix(r.URL.Path, "/fhir/R4/")])
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func newWard(t *testing.T, fhirUser, bearer string) (*gatewaytest.Gateway, *wardServer) {
	t.Helper()
	ward := new(wardServer)
	return gatewaytest.New(t, strings.NewReplacer("FHIRUSER", fhirUser, "BACKEND", gatewaytest.Backend(t, ward), "BEARER", bearer).Replace(`{
	skip_install_trust
	servers {
		trusted_proxies static 192.0.2.1/32
	}
	fhir {
		issuer https://localhost:8443
		store memory
		user alice {
			password_hash $2a$04$3myc/AwjchU/ewsNB6qy1OJE8HZXIoy2Fg4RKTcP5Ys7efFvK9D6y
			fhir_user FHIRUSER
		}
		client app {
			pkce optional
			redirect_uri https://app.example.org/callback
			scope launch/patient patient/*.rs user/*.rs offline_access
		}
	}
}
https://localhost:8443 {
	fhir_authorize
	@fhir path /fhir/R4 /fhir/R4/*
	handle @fhir {
		BEARER
		reverse_proxy BACKEND
	}
	handle_errors {
		fhir_outcome
	}
}
`)), ward
}

// openPicker signs in alice and returns the page to which she is redirected.
func openPicker(t *testing.T, g *gatewaytest.Gateway) *http.Response {
	t.Helper()
	r := g.Get("/oauth2/authorize?"+url.Values{
		"response_type": {"code"}, "client_id": {"app"}, "redirect_uri": {"https://app.example.org/callback"}, "scope": {"launch/patient patient/*.rs"},
	}.Encode(), "")
	form := authorizetest.ReadForm(gatewaytest.ReadBody(t, g.Get(r.Header.Get("Location"), "")))
	form.Fields.Set("username", "alice")
	form.Fields.Set("password", "right")
	return g.Get(g.Post("/oauth2/login", form.Fields).Header.Get("Location"), "")
}

// TestPickerRequestsPassGuard checks that records are requested through the site's routes, as the person and without a token.
func TestPickerRequestsPassGuard(t *testing.T) {
	t.Parallel()
	g, ward := newWard(t, "Practitioner/alice", "fhir_bearer")
	page := openPicker(t, g)
	text := gatewaytest.ReadBody(t, page)
	if page.StatusCode != http.StatusOK || !strings.Contains(text, "Patient p1") || !strings.Contains(text, "Patient p2") {
		t.Fatalf("%d %s", page.StatusCode, text)
	}
	if requests := strings.Join(ward.requests, "\n"); !strings.Contains(requests, "/fhir/R4/Patient?") || strings.Contains(requests, "Bearer") {
		t.Errorf("requests %s", requests)
	}
	form := authorizetest.ReadForm(text)
	form.Fields.Set("patient", "p2")
	form.Fields.Set("decision", "confirm")
	code := authorizetest.Location(t, g.Post("/oauth2/select_patient", form.Fields)).Query().Get("code")
	token := gatewaytest.ReadBody(t, g.Post("/oauth2/token", url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {"https://app.example.org/callback"}, "client_id": {"app"},
	}))
	if !strings.Contains(token, `"patient":"p2"`) {
		t.Errorf("%s", token)
	}
	_, access, _ := strings.Cut(token, `"access_token":"`)
	access, _, _ = strings.Cut(access, `"`)
	if own, other := g.Get("/fhir/R4/Patient/p2", access), g.Get("/fhir/R4/Patient/p1", access); own.StatusCode != http.StatusOK || other.StatusCode != http.StatusNotFound {
		t.Errorf("own %d, other %d", own.StatusCode, other.StatusCode)
	}
	again := gatewaytest.ReadBody(t, g.Get("/oauth2/select_patient?request="+url.QueryEscape(form.Fields.Get("request")), ""))
	_, recent, _ := strings.Cut(again, "<h2>Recent patients</h2>")
	recent, _, _ = strings.Cut(recent, "<h2>")
	if !strings.Contains(recent, "Patient p2") || strings.Contains(recent, "Patient p1") || !strings.Contains(strings.Join(ward.requests, "\n"), "_id=p2") {
		t.Errorf("recent patients %s, requests %q", recent, ward.requests)
	}
}

func TestPickerObeysPolicies(t *testing.T) {
	t.Parallel()
	g, ward := newWard(t, "Practitioner/alice", "fhir_bearer {\n\t\t\ttest_deny type Patient\n\t\t}")
	page := openPicker(t, g)
	if text := gatewaytest.ReadBody(t, page); page.StatusCode != http.StatusOK || strings.Contains(text, "Patient p1") {
		t.Errorf("%d %s", page.StatusCode, text)
	}
	if len(ward.requests) > 0 {
		t.Errorf("requests %v", ward.requests)
	}
}

// TestPickerObeysPoliciesBehindProxy checks that policies are evaluated with the browser's address, not that of a proxy.
func TestPickerObeysPoliciesBehindProxy(t *testing.T) {
	t.Parallel()
	g, _ := newWard(t, "Practitioner/alice", "fhir_bearer {\n\t\t\ttest_deny client_ip 203.0.113.9\n\t\t}")
	text := gatewaytest.ReadBody(t, openPicker(t, g))
	if !strings.Contains(text, "Patient p1") {
		t.Fatalf("from the proxy itself: %s", text)
	}
	again := httptest.NewRequest(http.MethodGet, "/oauth2/select_patient?request="+url.QueryEscape(authorizetest.FieldValue(t, text, "request")), nil)
	again.Header.Set("X-Forwarded-For", "203.0.113.9")
	if page := g.Send(again); page.StatusCode != http.StatusOK || strings.Contains(gatewaytest.ReadBody(t, page), "Patient p1") {
		t.Errorf("status %d", page.StatusCode)
	}
}

func TestPickerWhileDown(t *testing.T) {
	t.Parallel()
	g, ward := newWard(t, "Practitioner/alice", "fhir_bearer")
	ward.unavailable = true
	if page := openPicker(t, g); page.StatusCode != http.StatusServiceUnavailable || !strings.Contains(gatewaytest.ReadBody(t, page), "Health records are unavailable right now.") {
		t.Errorf("status %d", page.StatusCode)
	}
}

// TestReaderCannotBeImpersonated checks that a client cannot impersonate the gateway.
func TestReaderCannotBeImpersonated(t *testing.T) {
	t.Parallel()
	g, _ := newWard(t, "Practitioner/alice", "fhir_bearer")
	openPicker(t, g)
	if r := g.Get("/fhir/R4/Patient", ""); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("status %d", r.StatusCode)
	}
}

// TestPickerKnowsGroups checks that requests on behalf of a person are authorized with the person's groups.
func TestPickerKnowsGroups(t *testing.T) {
	t.Parallel()
	for _, group := range []string{"doctors", "visitors"} {
		g, _ := newWard(t, "Practitioner/alice\n\t\t\tgroup "+group, "fhir_bearer {\n\t\t\ttest_require groups doctors\n\t\t}")
		if sees := strings.Contains(gatewaytest.ReadBody(t, openPicker(t, g)), "Patient p1"); sees != (group == "doctors") {
			t.Errorf("%s: sees patients: %t", group, sees)
		}
	}
}

// TestFHIRUserIsSearchedThroughGuard checks that a person's FHIR resource is searched through the site's routes without a
// token, and that search results about other people are ignored.
func TestFHIRUserIsSearchedThroughGuard(t *testing.T) {
	t.Parallel()
	for number, want := range map[string]string{"7,8": "Practitioner/p", "7": ""} {
		provider := providertest.Start(t, func(s *providertest.Settings) { // each test has its own provider, because memory stores are shared
			s.People = []providertest.Person{{Subject: "s", Claims: map[string]any{"number": "7,8"}}}
		})
		g, ward := newWard(t, "Practitioner/alice\n\t\t}\n\t\tidp hospital {\n\t\t\tissuer "+provider.Issuer+"\n\t\t\tclient_id "+providertest.ClientID+
			"\n\t\t\tclient_secret \""+providertest.ClientSecret+"\"\n\t\t\tfhir_user_search Practitioner identifier urn:staff number", "fhir_bearer {\n\t\t\ttest_deny type Patient\n\t\t}")
		ward.set("Practitioner", `{"resourceType":"Bundle","type":"searchset","entry":[{"resource":{"resourceType":"Practitioner","id":"p","identifier":[{"system":"urn:staff","value":"`+number+`"}]}}]}`)
		request := url.Values{
			"response_type": {"code"}, "client_id": {"app"}, "redirect_uri": {"https://app.example.org/callback"}, "scope": {"user/*.rs"}, "identity_provider": {"hospital"},
		}
		start := g.Get("/oauth2/authorize?"+request.Encode(), "").Header.Get("Location")
		if strings.HasPrefix(start, "/") || strings.HasPrefix(start, "https://localhost:8443/") {
			start = g.Get(strings.TrimPrefix(start, "https://localhost:8443"), "").Header.Get("Location")
		}
		back := g.Get("/oauth2/callback/hospital?"+provider.Authorize(t, start).Encode(), "")
		code := authorizetest.Location(t, back).Query().Get("code")
		token := gatewaytest.ReadBody(t, g.Post("/oauth2/token", url.Values{
			"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {"https://app.example.org/callback"}, "client_id": {"app"},
		}))
		_, access, _ := strings.Cut(token, `"access_token":"`)
		access, _, _ = strings.Cut(access, `"`)
		requests := strings.Join(ward.requests, "\n")
		if !strings.Contains(requests, "/fhir/R4/Practitioner?") || !strings.Contains(requests, `identifier=urn%3Astaff%7C7%5C%2C8`) || strings.Contains(requests, "Bearer") {
			t.Errorf("requests %q, response %s", requests, token)
		}
		if found := strings.Contains(gatewaytest.ReadBody(t, g.Get("/fhir/R4/Practitioner", access)), `"id":"p"`); found != (want != "") {
			t.Errorf("%s: user/ scopes open records: %t", number, found)
		}
	}
}
