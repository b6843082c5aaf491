package e2e

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// $everything returns the resources of HAPI's response that the scopes cover, with the page size that the app requests.
func (g *guardTest) testEverything(t *testing.T) {
	patient, other := g.world.Patient(g.world.Patients[0]), g.world.Patient(g.world.Patients[1])
	answered := 0
	for _, p := range readers(g.world) {
		allowed := g.oracle.allowed(t, bothPermissions(p.grants), "r")
		g.checkHidden(t, p, other+"/$everything")
		for _, query := range []string{"", "?_count=20", "?_type=Observation,Condition,Device", "?start=1900-01-01&_count=500"} {
			a := g.send(t, p.holder, http.MethodGet, patient+"/$everything"+query, "")
			if a.status == http.StatusForbidden || a.status == http.StatusNotFound {
				continue
			}
			a.is(t, http.StatusOK)
			answered++
			want := maps.Clone(g.everything(t, patient+"/$everything"+query))
			maps.DeleteFunc(want, func(reference string, _ bool) bool { return !allowed[reference] })
			matches, included, _ := g.pages(t, p.holder, patient+"/$everything"+query)
			got := references{}
			for _, reference := range slices.Concat(matches, included) {
				got[reference] = true
			}
			if strings.Contains(query, "_count=20") { // the resources that reference these may be on another page
				maps.DeleteFunc(want, isSharedResource)
				maps.DeleteFunc(got, func(reference string, is bool) bool { return allowed[reference] && isSharedResource(reference, is) })
			}
			if got.String() != want.String() {
				t.Errorf("%s: $everything%s lacks %s\nand has %s", p.name, query, want.without(got), got.without(want))
			}
		}
	}
	if answered < 12 {
		t.Errorf("$everything was answered %d times", answered)
	}
	g.testEverythingPages(t, patient)
}

// bothPermissions returns the grants with read and search permission. Resources in the response of an operation require both.
func bothPermissions(grants []guardGrant) []guardGrant {
	return slices.DeleteFunc(slices.Clone(grants), func(g guardGrant) bool {
		return !strings.Contains(g.permissions, "r") || !strings.Contains(g.permissions, "s")
	})
}

func isSharedResource(reference string, _ bool) bool {
	resourceType, _, _ := strings.Cut(reference, "/")
	return slices.Contains(everybodys, resourceType)
}

// everything returns the resources in HAPI's own response to the same request.
func (g *guardTest) everything(t *testing.T, path string) references {
	t.Helper()
	if found, ok := g.oracle.found[path]; ok {
		return found
	}
	found := references{}
	for address := g.server.base + "/" + path; address != ""; {
		var page searchPage
		send(t, http.DefaultClient, newRequest(t, http.MethodGet, address, "")).is(t, http.StatusOK).decode(t, &page)
		for _, e := range page.Entry {
			found[referenceOf(e.Resource)] = true
		}
		address = page.next()
	}
	g.oracle.found[path] = found
	return found
}

// checkHidden checks that a GET request for a hidden resource gets 403 or 404.
func (g *guardTest) checkHidden(t *testing.T, p guardPrincipal, path string) {
	t.Helper()
	a := g.send(t, p.holder, http.MethodGet, path, "")
	if a.status != http.StatusForbidden && a.status != http.StatusNotFound {
		t.Errorf("%s: %s is answered with %d: %.300s", p.name, path, a.status, a.body)
	}
}

// testEverythingPages checks that a page link works only with the token that received it, for each form of the request.
func (g *guardTest) testEverythingPages(t *testing.T, patient string) {
	all := readers(g.world)
	var page searchPage
	g.send(t, all[0].holder, http.MethodGet, patient+"/$everything?_count=5", "").is(t, http.StatusOK).decode(t, &page)
	if page.next() == "" {
		t.Fatal("no further page")
	}
	for _, p := range all[1:] {
		g.send(t, p.holder, http.MethodGet, page.next(), "").is(t, http.StatusNotFound)
	}
	body := `{"resourceType":"Parameters","parameter":[{"name":"_type","valueString":"Observation"}]}`
	g.send(t, all[0].holder, http.MethodPost, patient+"/$everything", body).is(t, http.StatusOK)
	for _, path := range []string{"Patient/$everything", "Patient/$everything?_id=" + strings.TrimPrefix(patient, "Patient/"), "$everything"} {
		g.send(t, all[0].holder, http.MethodGet, path, "").is(t, http.StatusForbidden)
	}
}

// Exports require system scopes, contain only the types in these scopes, and are accessible only with the token that started
// them.
func (g *guardTest) testExport(t *testing.T) {
	group := g.world.Find(g.world.Patients[0], "Group.alone").Reference()
	asynchronous := []string{"Prefer", "respond-async"}
	for _, p := range slices.Concat(readers(g.world), g.writingPrincipals()) {
		if strings.Contains(p.holder.scope, "system/") {
			continue
		}
		for _, path := range []string{"$export", "$export?_type=Observation", "Patient/$export", group + "/$export", g.world.Patient(g.world.Patients[0]) + "/$export"} {
			g.send(t, p.holder, http.MethodGet, path, "", asynchronous...).is(t, http.StatusForbidden)
		}
	}
	system := func(scope string) guardHolder { return guardHolder{scope: scope} }
	for _, test := range []struct {
		name, scope, path string
		status            int
		types             []string
	}{
		{"named types", "system/*.rs", "$export?_type=Observation,Organization", 202, []string{"Observation", "Organization"}},
		{"types of the scopes", "system/Observation.rs system/Condition.rs", "$export", 202, []string{"Condition", "Observation"}},
		{"one of them", "system/Observation.rs system/Condition.rs", "$export?_type=Condition", 202, []string{"Condition"}},
		{"in a format by its short name", "system/Observation.rs", "$export?_outputFormat=ndjson", 202, []string{"Observation"}},
		{"in a format by its other name", "system/Observation.rs", "$export?_outputFormat=application/ndjson", 202, []string{"Observation"}},
		{"in another format", "system/Observation.rs", "$export?_outputFormat=text/csv", 400, nil},
		{"another type", "system/Observation.rs", "$export?_type=Patient", 403, nil},
		{"another type, too", "system/Observation.rs", "$export?_type=Observation,Patient", 403, nil},
		{"another type by a filter", "system/Observation.rs", "$export?_typeFilter=Patient%3Fgender=female", 403, nil},
		{"a filter that chains", "system/Observation.rs", "$export?_typeFilter=Observation%3Fsubject.name=x", 403, nil},
		{"a constraint", "system/Observation.rs?status=final", "$export", 403, nil},
		{"read alone", "system/*.r", "$export", 403, nil},
		{"of patients without Patient", "system/Observation.rs", "Patient/$export", 403, nil},
		{"of patients", "system/Patient.rs system/Observation.rs", "Patient/$export", 202, []string{"Observation", "Patient"}},
		{"of a group without Group", "system/Patient.rs system/Observation.rs", group + "/$export", 403, nil},
		{"of one patient", "system/*.rs", g.world.Patient(g.world.Patients[0]) + "/$export", 403, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			who := system(test.scope)
			a := g.send(t, who, http.MethodGet, test.path, "", asynchronous...).is(t, test.status)
			if test.status == http.StatusAccepted {
				g.checkExport(t, who, a.header.Get("Content-Location"), test.types)
			}
		})
	}
}

// writingPrincipals returns the principals of all [writers].
func (g *guardTest) writingPrincipals() []guardPrincipal {
	var all []guardPrincipal
	for _, w := range writers(g.world) {
		all = append(all, w.guardPrincipal)
	}
	return all
}

// checkExport waits for an export to complete, and compares its files with HAPI's resources.
func (g *guardTest) checkExport(t *testing.T, who guardHolder, status string, types []string) {
	t.Helper()
	g.checkForeign(t, who, status)
	var end struct {
		Request             string
		RequiresAccessToken bool
		Output              []struct{ Type, URL string }
	}
	g.exportEnd(t, who, status).decode(t, &end)
	if !end.RequiresAccessToken || !strings.HasPrefix(end.Request, g.base+"/") {
		t.Errorf("the end of the export is %+v", end)
	}
	got, want, exported := references{}, references{}, map[string]bool{}
	for _, file := range end.Output {
		exported[file.Type] = true
		g.checkForeign(t, who, file.URL)
		for line := range strings.Lines(string(g.send(t, who, http.MethodGet, file.URL, "").is(t, http.StatusOK).body)) {
			got[referenceOf([]byte(line))] = true
		}
	}
	for _, resourceType := range types {
		for reference := range g.server.all(t, resourceType) {
			want[reference] = true
		}
	}
	if names := slices.Sorted(maps.Keys(exported)); !slices.Equal(names, types) {
		t.Errorf("files of %s, want %s", names, types)
	}
	if strings.Contains(end.Request, "Patient/") { // the export omits resources without a patient
		maps.DeleteFunc(want, func(reference string, _ bool) bool {
			return !got[reference] && !strings.HasPrefix(reference, "Patient/")
		})
	}
	if got.String() != want.String() {
		t.Errorf("not exported: %s\nexported: %s", want.without(got), got.without(want))
	}
	g.checkBinaries(t)
	if a := g.send(t, who, http.MethodDelete, status, ""); a.status != http.StatusAccepted && a.status != http.StatusNotFound {
		t.Errorf("deleted with %d: %s", a.status, a.body)
	}
}

// exportEnd waits until an export is complete and returns its manifest response.
func (g *guardTest) exportEnd(t *testing.T, who guardHolder, status string) httpResponse {
	t.Helper()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(time.Minute); ; <-ticker.C {
		a := g.send(t, who, http.MethodGet, status, "")
		if a.status != http.StatusAccepted {
			return a.is(t, http.StatusOK)
		}
		if time.Now().After(deadline) {
			t.Fatalf("still at work: %s", a.header.Get("X-Progress"))
		}
	}
}

// checkForeign checks that a sealed link points to the gateway, and that it gets 404 with other tokens.
func (g *guardTest) checkForeign(t *testing.T, who guardHolder, link string) {
	t.Helper()
	if !strings.HasPrefix(link, g.base+"/_") {
		t.Errorf("the link is %s", link)
	}
	holders := []guardHolder{{scope: "system/*.rs openid"}, {scope: "system/*.cruds"}, {scope: who.scope, patient: "zqb0000"}, {scope: who.scope, fhirUser: "Practitioner/zqs0002"}}
	for _, other := range append(holders, readers(g.world)[0].holder) {
		for _, method := range []string{http.MethodGet, http.MethodDelete} {
			if a := g.send(t, other, method, link, ""); a.status != http.StatusNotFound {
				t.Errorf("%s of %s by %v: %d", method, link, other, a.status)
			}
		}
	}
}

// checkBinaries checks that the export files, which HAPI stores as Binary resources, are hidden from bound scopes, and that
// HAPI's own link to a job is rejected.
func (g *guardTest) checkBinaries(t *testing.T) {
	t.Helper()
	files := 0
	for reference, text := range g.server.all(t, "Binary") {
		var binary struct{ ContentType string }
		_ = json.Unmarshal([]byte(text), &binary)
		if binary.ContentType != typeNDJSON {
			continue
		}
		files++
		for _, p := range readers(g.world) {
			g.checkHidden(t, p, reference)
		}
	}
	if files == 0 {
		t.Error("HAPI keeps no files")
	}
	for _, scope := range []string{"system/*.rs", "patient/*.rs"} {
		g.send(t, guardHolder{scope: scope}, http.MethodGet, g.server.job(t), "").is(t, http.StatusForbidden)
	}
}

// typeNDJSON is the media type of an export's files.
const typeNDJSON = "application/fhir+ndjson"
