package e2e

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// If a FHIR server stores value sets but cannot expand them, $expand reflects each write through the gateway immediately.
func TestBackendStoresOnly(t *testing.T) {
	g := startTestGateway(t, "storesonly", fhirServer.address, append(mayWrite, "\t\tfhir_expand\n", "\t\tfhir_expand {\n\t\t\tdefinitions backend\n\t\t}\n")...)
	token := g.userToken(t, "openid", "user/*.cruds").AccessToken
	const system, url, outer = "https://stored.example/cs", "https://stored.example/vs", "https://stored.example/outer"
	codeSystem := `{"resourceType":"CodeSystem","url":"` + system + `","status":"active","content":"complete","concept":[{"code":"a","display":"Alpha"},{"code":"b","display":"Beta"}]}`
	compose := func(id, url, include string) string {
		return `{"resourceType":"ValueSet",` + id + `"url":"` + url + `","status":"active","compose":{"include":[` + include + `]}}`
	}
	g.expand(t, token, outer).is(t, http.StatusNotFound).isOutcome(t)
	g.fhir(t, token, http.MethodPost, "CodeSystem", codeSystem).is(t, http.StatusCreated)
	var stored struct{ ID string }
	g.fhir(t, token, http.MethodPost, "ValueSet", compose("", url, `{"system":"`+system+`"}`)).is(t, http.StatusCreated).decode(t, &stored)
	g.fhir(t, token, http.MethodPost, "ValueSet", compose("", outer, `{"valueSet":["`+url+`"]}`)).is(t, http.StatusCreated)
	want := func(displays ...string) {
		t.Helper()
		for range 3 {
			var got expansion
			g.expand(t, token, outer).is(t, http.StatusOK).decode(t, &got)
			if !slices.Equal(got.displays(), displays) {
				t.Errorf("got %q, want %q", got.displays(), displays)
			}
		}
	}
	want("Alpha", "Beta")
	only := `{"system":"` + system + `","concept":[{"code":"b"}]}`
	g.fhir(t, token, http.MethodPut, "ValueSet/"+stored.ID, compose(`"id":"`+stored.ID+`",`, url, only)).is(t, http.StatusOK)
	awaitPropagation()
	want("Beta")
}

// A gateway can be the terminology server of another gateway.
func TestUpstreamGateway(t *testing.T) {
	tx := startTestGateway(t, "tx", fhirServer.address, "\t\tfhir_bearer\n\t\tfhir_expand\n", "\t\tfhir_expand {\n\t\t\toperations all\n\t\t}\n")
	upstream := " " + tx.issuer + "/fhir/R4 {\n\t\t\t\ttls_ca " + tx.rootFile + "\n\t\t\t\tttl 10m\n\t\t\t}\n"
	g := startTestGateway(t, "front", fhirServer.address, "\t\tfhir_expand\n",
		"\t\tfhir_expand {\n\t\t\tcore off\n\t\t\toperations all\n\t\t\troute http://hl7.org/fhir"+upstream+"\t\t\tstale 1h\n\t\t}\n")
	token := g.userToken(t, "openid", "user/*.rs").AccessToken
	var got expansion
	for range 3 {
		answer := g.expand(t, token, maritalStatus, "filter", "married").is(t, http.StatusOK)
		answer.decode(t, &got)
		if got.URL != maritalStatus || len(got.displays()) != 2 {
			t.Errorf("%s", answer.body)
		}
		if control := answer.header.Get("Cache-Control"); !strings.HasPrefix(control, "private") {
			t.Errorf("Cache-Control %s", control)
		}
	}
	g.fhir(t, token, http.MethodGet, "CodeSystem/$lookup?system=http://hl7.org/fhir/administrative-gender&code=female", "").is(t, http.StatusOK)
	var theirs expansion
	g.expand(t, token, "https://backend.example/ValueSet/only-here").is(t, http.StatusOK).decode(t, &theirs)
	if !slices.Equal(theirs.displays(), []string{"From the backend"}) {
		t.Errorf("definition without a route: %q", theirs.displays())
	}
	tx.process.stop()
	if hit := g.expand(t, token, maritalStatus, "filter", "married").is(t, http.StatusOK).header.Get("Cache-Status"); !strings.Contains(hit, "hit") {
		t.Errorf("when it is gone: %s", hit)
	}
	g.expand(t, token, gender).is(t, http.StatusBadGateway).isOutcome(t)
}
