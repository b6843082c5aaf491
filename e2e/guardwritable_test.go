package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/e2e/guardattack"
)

// testWritable writes each resource that a writer may write, using each interaction that writes.
func (g *guardTest) testWritable(t *testing.T, w guardWriter, writable references) {
	if w.grants[0].constraint != "" {
		g.testConstrained(t, w)
		return
	}
	for _, r := range g.world.Of(w.letter) {
		if !writable[r.Reference()] {
			continue
		}
		a := g.send(t, w.holder, http.MethodPut, r.Reference(), withLanguage(r.JSON, "en"))
		if a.status != http.StatusOK {
			t.Errorf("update of %s (%s): %d, want 200: %.300s", r.Reference(), r.Name, a.status, a.body)
		}
		if hasBody := len(a.body) > 0; hasBody != g.mayRead(w, r.Type) {
			t.Errorf("update of %s is answered with %.300q", r.Reference(), a.body)
		}
	}
	g.testWaysToWrite(t, w)
}

func (w guardWriter) patientID() string { return w.grants[0].patient }

// mayRead reports whether a writer may read records of a type.
func (g *guardTest) mayRead(w guardWriter, resourceType string) bool {
	return slices.ContainsFunc(w.grants, func(grant guardGrant) bool {
		return strings.Contains(grant.permissions, "r") && (len(grant.types) == 0 || slices.Contains(grant.types, resourceType))
	})
}

// testWaysToWrite writes with each interaction: create, update, patch, delete, conditional writes and Bundles.
func (g *guardTest) testWaysToWrite(t *testing.T, w guardWriter) {
	own, visit := g.world.Find(w.letter, "Condition.problem"), g.world.Find(w.letter, "Encounter.visit")
	subject := `"subject":{"reference":"Patient/` + w.patientID() + `"}`
	created := func(name, more string) string {
		return fmt.Sprintf(`{"resourceType":"Condition","identifier":[{"system":"http://zq.example/ids","value":"%s-%c"}],%s%s}`, name, w.letter, subject, more)
	}
	searches := slices.ContainsFunc(w.grants, func(grant guardGrant) bool {
		return len(grant.types) == 0 && strings.Contains(grant.permissions, "s")
	})
	const link = "urn:uuid:3f0a2c52-6d0f-4f0e-9f51-2b8f9d1c7a10"
	for _, test := range []struct {
		name, method, path, body string
		headers                  []string
		conditional              bool
		status                   int
	}{
		{"create", "POST", "Condition", created("plain", `,"encounter":{"reference":"`+visit.Reference()+`"}`), nil, false, 201},
		{"conditional create", "POST", "Condition", created("once", ""), []string{"If-None-Exist", searchByIdentifier("once-" + string(w.letter))}, true, 201},
		{"conditional create again", "POST", "Condition", created("once", ""), []string{"If-None-Exist", searchByIdentifier("once-" + string(w.letter))}, true, 200},
		{"conditional update", "PUT", "Condition?" + searchByIdentifier("once-"+string(w.letter)), created("once", `,"language":"de"`), nil, true, 200},
		{"JSON Patch", "PATCH", own.Reference(), `[{"op":"add","path":"/language","value":"fr"}]`, []string{"Content-Type", "application/json-patch+json"}, false, 200},
		{"FHIRPath Patch", "PATCH", own.Reference(), `{"resourceType":"Parameters","parameter":[{"name":"operation","part":[{"name":"type","valueCode":"replace"},` +
			`{"name":"path","valueString":"Condition.language"},{"name":"value","valueCode":"it"}]}]}`, nil, false, 200},
		{"conditional patch", "PATCH", "Condition?" + searchByIdentifier(own.ID+"m"), `[{"op":"add","path":"/language","value":"es"}]`, []string{"Content-Type", "application/json-patch+json"}, true, 200},
		{"conditional delete", "DELETE", "Condition?" + searchByIdentifier("once-"+string(w.letter)), "", nil, true, 204},
		{"batch", "POST", "", `{"resourceType":"Bundle","type":"batch","entry":[{"request":{"method":"POST","url":"Condition"},"resource":` + created("batch", "") + `}]}`, nil, false, 200},
		{"transaction with a link", "POST", "", `{"resourceType":"Bundle","type":"transaction","entry":[{"fullUrl":"` + link + `","request":{"method":"POST","url":"Encounter"},"resource":` +
			`{"resourceType":"Encounter","status":"planned","class":{"code":"AMB"},` + subject + `}},{"request":{"method":"POST","url":"Condition"},"resource":` +
			created("linked", `,"encounter":{"reference":"`+link+`"}`) + `}]}`, nil, false, 200},
		{"delete", "DELETE", g.world.Find(w.letter, "Flag.risk").Reference(), "", nil, false, 204},
	} {
		want := test.status
		if test.conditional && !searches {
			want = http.StatusForbidden
		}
		if a := g.send(t, w.holder, test.method, test.path, test.body, test.headers...); a.status != want || strings.Contains(string(a.body), `"status":"4`) {
			t.Errorf("%s: %d, want %d: %.300s", test.name, a.status, want, a.body)
		}
	}
	if linked := g.server.all(t, "Condition?"+searchByIdentifier("linked-"+string(w.letter))+"&encounter.status=planned"); len(linked) != 1 {
		t.Errorf("the transaction's link leads to %d encounters", len(linked))
	}
}

// testConstrained writes resources in the scope's category. It also tries to write others and to move resources out of it.
func (g *guardTest) testConstrained(t *testing.T, w guardWriter) {
	find := func(name string) guardattack.Record { return g.world.Find(w.letter, name) }
	glucose, both, smoking := find("Observation.glucose"), find("Observation.both"), find("Observation.smoking")
	other := func(r guardattack.Record) string {
		return strings.ReplaceAll(r.JSON, `"code":"laboratory"`, `"code":"exam"`)
	}
	for _, test := range []struct {
		name, method, path, body string
		status                   int
	}{
		{"update", "PUT", glucose.Reference(), withLanguage(glucose.JSON, "en"), 200},
		{"update of one with two categories", "PUT", both.Reference(), withLanguage(both.JSON, "en"), 200},
		{"update that ends the constraint", "PUT", glucose.Reference(), other(glucose), 403},
		{"patch that ends the constraint", "PATCH", glucose.Reference(), `[{"op":"remove","path":"/category/0"}]`, 403},
		{"patch that keeps it", "PATCH", both.Reference(), `[{"op":"remove","path":"/category/1"}]`, 200},
		{"update of another category", "PUT", smoking.Reference(), smoking.JSON, 403},
		{"update that begins the constraint", "PUT", smoking.Reference(), strings.ReplaceAll(smoking.JSON, `"code":"social-history"`, `"code":"laboratory"`), 404},
		{"create", "POST", "Observation", withoutReferences(glucose.JSON), 201},
		{"create of another category", "POST", "Observation", other(glucose), 403},
		{"delete of another category", "DELETE", smoking.Reference(), "", 404},
		{"another type", "PUT", find("Condition.problem").Reference(), find("Condition.problem").JSON, 403},
	} {
		var headers []string
		if test.method == http.MethodPatch {
			headers = []string{"Content-Type", "application/json-patch+json"}
		}
		if a := g.send(t, w.holder, test.method, test.path, test.body, headers...); a.status != test.status {
			t.Errorf("%s: %d, want %d: %.300s", test.name, a.status, test.status, a.body)
		}
	}
}

// withoutReferences returns the record with only the references to its patient, because a writer who may write only
// Observations can't reference a specimen.
func withoutReferences(text string) string {
	before, _, ok := strings.Cut(text, `,"specimen":`)
	if !ok {
		return text
	}
	return before + "}"
}
