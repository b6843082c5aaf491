package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"

	"github.com/caddy-fhir/caddy-fhir/e2e/guardattack"
)

// The guard protects Medplum's router, with the same records and oracle as in the tests with HAPI.
func TestGuardMedplum(t *testing.T) {
	t.Parallel()
	b, err := startBackend("backend-guard")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.process.stop)
	server := fhirAPI{"http://" + b.address + "/fhir/R4"}
	g := &guardTest{world: guardattack.NewWorld("abcdefgh")}
	began := time.Now()
	server.load(t, g.world.Records)
	t.Logf("%d records in %v", len(g.world.Records), time.Since(began).Round(time.Millisecond))
	g.guarded = startGuarded(t, "guard-medplum", server)
	g.oracle, g.capabilities = newGuardOracle(t, server, g.world.Types()), capabilitiesOfR4(g.world.Types())
	t.Run("complete", g.testComplete)
	t.Run("reads", g.testReads)
	t.Run("history", g.testMedplumHistory)
	t.Run("lacks", g.testMedplumLacks)
	t.Run("attacks", func(t *testing.T) { g.testAttacks(t, 2000) })
	t.Run("writes", g.testMedplumWrites)
}

// testMedplumHistory checks that if a record was moved from another patient to this patient, only the new version is visible.
func (g *guardTest) testMedplumHistory(t *testing.T) {
	own, other := g.world.Patient('a'), g.world.Patient('b')
	who := readers(g.world)[0].holder
	put := func(id string, patients ...string) (versions []string) {
		for _, patient := range patients {
			var stored struct{ Meta struct{ VersionID string } }
			g.server.send(t, http.MethodPut, "Basic/"+id, `{"resourceType":"Basic","id":"`+id+`","code":{"text":"x"},"subject":{"reference":"`+patient+`"}}`).
				is(t, http.StatusOK).decode(t, &stored)
			versions = append(versions, stored.Meta.VersionID)
		}
		return versions
	}
	versions := put("moved", other, own)
	put("away", own, other, other)
	for path, want := range map[string]int{
		"Basic/moved/_history":                http.StatusOK,
		"Basic/moved/_history/" + versions[0]: http.StatusNotFound,
		"Basic/moved/_history/" + versions[1]: http.StatusOK,
		"Basic/away":                          http.StatusNotFound,
		"Basic/away/_history":                 http.StatusOK,
		"Basic/none/_history":                 http.StatusNotFound,
		"Basic/none/_history/" + versions[1]:  http.StatusNotFound,
	} {
		a := g.send(t, who, http.MethodGet, path, "").is(t, want)
		if strings.Contains(string(a.body), other) {
			t.Errorf("%s shows %s", path, a.body)
		}
		if strings.HasSuffix(path, "_history") && want == http.StatusOK && strings.Count(string(a.body), own) != 1 {
			t.Errorf("%s: %s", path, a.body)
		}
	}
	for _, id := range []string{"moved", "away"} {
		g.server.send(t, http.MethodDelete, "Basic/"+id, "").is(t, http.StatusOK)
	}
}

// testMedplumLacks checks the effects of features missing from Medplum's router (docs/evidence/guard.md).
func (g *guardTest) testMedplumLacks(t *testing.T) {
	who := readers(g.world)[0].holder
	pulse, self := g.world.Find('a', "Observation.pulse"), g.world.Find('a', "Patient.self")
	for _, test := range []struct {
		path            string
		direct, through string // status and number of resources, without the guard and with it
	}{
		{"Observation?_id=" + pulse.ID + "&_include=Observation:subject", "200 1", "200 1"},
		{"Patient?_id=" + self.ID + "&_revinclude=Observation:subject", "200 1", "200 1"},
		{"Patient?_has:Observation:subject:_id=" + pulse.ID, "200 0", "200 1"},
		{"Observation?_id=" + pulse.ID + "&subject:Patient._id=" + self.ID, "200 0", "200 1"},
		{"Observation?subject=" + self.ID + "&_id=" + pulse.ID, "200 0", "200 0"},
		{"Observation?value-quantity=gt0&_id=" + pulse.ID, "200 0", "200 0"},
		{self.Reference() + "/Observation?_id=" + pulse.ID, "404 0", "200 1"},
		{self.Reference() + "/$everything", "404 0", "404 0"},
		{"?_type=Patient,Observation&_id=" + pulse.ID, "200 0", "200 1"},
		{"Observation/" + pulse.ID + "?_format=xml", "200 1", "406 0"},
		{"Observation/_history", "404 0", "403 0"},
		{"metadata", "200 0", "502 0"},
	} {
		if got := outcomeSummary(g.server.send(t, http.MethodGet, test.path, "")); got != test.direct {
			t.Errorf("%s of Medplum: %s, want %s", test.path, got, test.direct)
		}
		if got := outcomeSummary(g.send(t, who, http.MethodGet, test.path, "")); got != test.through {
			t.Errorf("%s: %s, want %s", test.path, got, test.through)
		}
	}
}

// outcomeSummary returns the status and the number of resources of a response.
func outcomeSummary(a httpResponse) string { return fmt.Sprint(a.status, len(resourcesIn(a.body))) }

// testMedplumWrites checks that a written record still belongs to the patient, and that If-Match is respected.
func (g *guardTest) testMedplumWrites(t *testing.T) {
	own, other := g.world.Patient('a'), g.world.Patient('b')
	who := guardHolder{scope: "patient/*.cruds", patient: strings.TrimPrefix(own, "Patient/")}
	record := func(id, patient string) string {
		return `{"resourceType":"Basic","id":"` + id + `","code":{"text":"x"},"subject":{"reference":"` + patient + `"}}`
	}
	g.server.send(t, http.MethodPut, "Basic/mine", record("mine", own)).is(t, http.StatusOK)
	g.server.send(t, http.MethodPut, "Basic/his", record("his", other)).is(t, http.StatusOK)
	created := g.send(t, who, http.MethodPost, "Basic", strings.Replace(record("x", own), `"id":"x",`, "", 1)).is(t, http.StatusCreated)
	for _, test := range []struct {
		name, method, path, body, header string
		status                           int
	}{
		{"create another's", "POST", "Basic", record("x", other), "", 403},
		{"read the created resource", "GET", strings.TrimPrefix(created.header.Get("Location"), g.base+"/"), "", "", 200},
		{"update", "PUT", "Basic/mine", record("mine", own), "", 200},
		{"update an old version", "PUT", "Basic/mine", record("mine", own), `W/"0"`, 412},
		{"give away", "PUT", "Basic/mine", record("mine", other), "", 403},
		{"take", "PUT", "Basic/his", record("his", own), "", 404},
		{"patch", "PATCH", "Basic/mine", `[{"op":"add","path":"/language","value":"de"}]`, "", 200},
		{"patch away", "PATCH", "Basic/mine", `[{"op":"replace","path":"/subject/reference","value":"` + other + `"}]`, "", 403},
		{"patch another's", "PATCH", "Basic/his", `[{"op":"add","path":"/language","value":"de"}]`, "", 404},
		{"patch nothing", "PATCH", "Basic/none", `[{"op":"add","path":"/language","value":"de"}]`, "", 404},
		{"batch", "POST", "", batchOf("GET", "Basic/mine"), "", 200},
		{"transaction of another's", "POST", "", strings.Replace(batchOf("DELETE", "Basic/his"), "batch", "transaction", 1), "", 403},
		{"delete another's", "DELETE", "Basic/his", "", "", 404},
		{"delete", "DELETE", "Basic/mine", "", "", 204},
	} {
		var headers []string
		if test.method == http.MethodPatch {
			headers = append(headers, "Content-Type", "application/json-patch+json")
		}
		if test.header != "" {
			headers = append(headers, "If-Match", test.header)
		}
		if a := g.send(t, who, test.method, test.path, test.body, headers...); a.status != test.status {
			t.Errorf("%s: %d, want %d: %.300s", test.name, a.status, test.status, a.body)
		}
	}
	if a := g.server.send(t, http.MethodGet, "Basic/his", "").is(t, http.StatusOK); !strings.Contains(string(a.body), other) {
		t.Errorf("another's is %s", a.body)
	}
}

// capabilitiesOfR4 returns the search parameters that R4 defines, for a server without a CapabilityStatement.
func capabilitiesOfR4(types []string) map[string]guardattack.Capabilities {
	byType := map[string]guardattack.Capabilities{}
	for _, resourceType := range types {
		var c guardattack.Capabilities
		for _, p := range searchparam.Parameters(resourceType) {
			c.SearchParam = append(c.SearchParam, guardattack.Parameter{Name: p.Name, Type: p.Kind.String()})
			if p.Kind == searchparam.Reference {
				c.SearchInclude = append(c.SearchInclude, resourceType+":"+p.Name)
			}
		}
		byType[resourceType] = c
	}
	for of, c := range byType {
		for _, from := range types {
			c.SearchRevInclude = append(c.SearchRevInclude, byType[from].SearchInclude...)
		}
		byType[of] = c
	}
	return byType
}
