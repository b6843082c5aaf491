package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/compartment"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"

	"github.com/caddy-fhir/caddy-fhir/e2e/guardattack"
)

// guardWriter is a token holder who may write. Each writer is bound to a different patient.
type guardWriter struct {
	guardPrincipal
	letter   byte
	readable bool // whether the scopes include any read permission
}

// writers returns one holder for each kind of scope that permits writes.
func writers(w *guardattack.World) []guardWriter {
	writer := func(name, scope string, letter byte, grants ...guardGrant) guardWriter {
		id := w.Find(letter, "Patient.self").ID
		holder, readable := guardHolder{scope: scope, patient: id}, false
		if strings.HasPrefix(scope, "user/") {
			holder = guardHolder{scope: scope, fhirUser: "Patient/" + id}
		}
		for i := range grants {
			grants[i].patient = id
			readable = readable || strings.ContainsAny(grants[i].permissions, "rs")
		}
		return guardWriter{guardPrincipal{name, holder, grants}, letter, readable}
	}
	all := func(permissions string) guardGrant { return guardGrant{permissions: permissions} }
	granular := guardGrant{types: []string{"Observation"}, permissions: "cruds", constraint: queryOf("category", laboratory)}
	return []guardWriter{
		writer("everything", "patient/*.cruds", w.Patients[3], all("cruds")),
		writer("user who is the patient", "user/*.cruds", w.Patients[4], all("cruds")),
		writer("one category", "patient/Observation.cruds?category="+laboratory, w.Patients[5], granular),
		writer("without reading", "patient/*.cud", w.Patients[6], all("cud")),
		writer("write of v1", "patient/*.write patient/Patient.read", w.Patients[7], all("cud"), guardGrant{types: []string{"Patient"}, permissions: "rs"}),
	}
}

// testWrites lets each writer make permitted writes and then attack. HAPI's history shows what was changed.
func (g *guardTest) testWrites(t *testing.T) {
	for i, w := range writers(g.world) {
		t.Run(w.name, func(t *testing.T) {
			written := g.changesOf(t, w, func(writable references) {
				g.testWritable(t, w, writable)
				g.attackByWrites(t, w, uint64(i))
			})
			if written < 20 {
				t.Errorf("%d versions were written", written)
			}
		})
	}
}

// attackByWrites sends generated write attacks, each followed by the same attack on an absent resource.
func (g *guardTest) attackByWrites(t *testing.T, w guardWriter, seed uint64) {
	attacks := 900
	if *guardMore {
		attacks *= 10
	}
	as := g.attackers(t, []guardPrincipal{w.guardPrincipal})[0]
	as.writes = true
	as.attacker = guardattack.NewAttacker(g.world, as.attacker.Capabilities, w.letter, *guardSeed<<16+100+seed)
	as.attacker.Bases = []string{g.base, g.server.base}
	if len(w.grants[0].types) > 0 {
		as.attacker.Types = w.grants[0].types
	}
	r := &attackRun{g: g, t: t, statuses: map[int]int{}, faults: map[string]int{}}
	began := time.Now()
	ids := references{}
	for reference := range g.oracle.ofPatient(t, w.patientID()) {
		_, id, _ := strings.Cut(reference, "/")
		ids[id] = true
	}
	for range attacks {
		a := as.attacker.DrawWrite()
		if ids[a.Victim] { // the record belongs to two patients
			a.Victim = ""
		}
		r.pair(as, a)
	}
	t.Logf("%d requests in %v: %v, %d answers with resources", r.sent, time.Since(began).Round(time.Second), r.statuses, r.withResources)
	for kind, n := range r.faults {
		t.Logf("%d × %s", n, kind)
	}
}

// writtenVersion is a version of a resource in HAPI. text is empty if the resource was deleted.
type writtenVersion struct{ reference, id, text string }

// changesOf runs do as a writer and checks each version that HAPI has stored since. It returns the number of these versions.
func (g *guardTest) changesOf(t *testing.T, w guardWriter, do func(writable references)) int {
	t.Helper()
	g.oracle = newGuardOracle(t, g.server, g.world.Types())
	before := g.oracle
	foreign := g.recordsOfOthers(t, w.letter)
	writable := before.allowed(t, w.grants, "cud")
	maps.DeleteFunc(writable, func(reference string, _ bool) bool {
		resourceType, _, _ := strings.Cut(reference, "/")
		unassigned := resourceType == "Device" && !strings.Contains(before.texts[reference], `"Patient/`)
		return foreign[reference] != "" || unassigned || slices.Contains(everybodys, resourceType)
	})
	last := g.lastVersion(t)
	do(writable)
	versions := g.versionsSince(t, last)
	texts := maps.Clone(before.texts)
	for _, v := range slices.Backward(versions) {
		if before.texts[v.reference] != "" && !writable[v.reference] {
			t.Errorf("%s was changed, and is not the writer's: %.500s", v.reference, v.text)
		}
		g.checkVersion(t, w, v, texts[v.reference])
		texts[v.reference] = v.text
	}
	if after := g.recordsOfOthers(t, w.letter); !maps.Equal(foreign, after) {
		t.Errorf("the records of other patients are not what they were:\n%s", differences(foreign, after))
	}
	t.Logf("%d versions written", len(versions))
	return len(versions)
}

// recordsOfOthers returns the records in all other patients' compartments according to HAPI, with their versions by reference.
func (g *guardTest) recordsOfOthers(t *testing.T, letter byte) map[string]string {
	t.Helper()
	var patients []string
	found := map[string]string{}
	for _, other := range []byte(g.world.Patients) {
		if other != letter {
			patients = append(patients, g.world.Patient(other))
			maps.Copy(found, g.server.all(t, "Patient?_id="+strings.TrimPrefix(g.world.Patient(other), "Patient/")))
		}
	}
	for _, resourceType := range g.world.Types() {
		parameters, _ := compartment.PatientParameters(resourceType)
		if resourceType == "Device" {
			parameters = []string{"patient"}
		}
		for _, p := range parameters {
			if resourceType != "Patient" {
				maps.Copy(found, g.server.all(t, resourceType+"?"+p+"="+strings.Join(patients, ",")))
			}
		}
	}
	return found
}

// lastVersion returns the latest entry of HAPI's history.
func (g *guardTest) lastVersion(t *testing.T) writtenVersion {
	t.Helper()
	versions, _ := g.historyPage(t, g.server.base+"/_history?_count=1")
	return versions[0]
}

// versionsSince returns the entries of HAPI's history after the version last, newest first.
func (g *guardTest) versionsSince(t *testing.T, last writtenVersion) []writtenVersion {
	t.Helper()
	var all []writtenVersion
	for address := g.server.base + "/_history?_count=500"; address != ""; {
		var versions []writtenVersion
		versions, address = g.historyPage(t, address)
		if at := slices.Index(versions, last); at >= 0 {
			versions, address = versions[:at], ""
		}
		all = append(all, versions...)
	}
	return all
}

// historyPage returns the versions on a page of HAPI's history, and the URL of the next page.
func (g *guardTest) historyPage(t *testing.T, address string) ([]writtenVersion, string) {
	t.Helper()
	var page struct {
		Link  []struct{ Relation, URL string }
		Entry []struct {
			FullURL  string
			Resource json.RawMessage
			Request  struct{ URL string }
			Response struct{ ETag string }
		}
	}
	send(t, http.DefaultClient, newRequest(t, http.MethodGet, address, "")).is(t, http.StatusOK).decode(t, &page)
	var versions []writtenVersion
	for _, e := range page.Entry {
		reference := referenceOf(e.Resource)
		if len(e.Resource) == 0 {
			reference, _, _ = strings.Cut(e.Request.URL, "/_history")
		}
		versions = append(versions, writtenVersion{reference, e.Response.ETag, string(e.Resource)})
	}
	next := ""
	for _, l := range page.Link {
		if l.Relation == "next" {
			next = l.URL
		}
	}
	return versions, next
}

// checkVersion checks a version that a writer caused. It may not add references to other patients' resources, except to types
// without a patient. The text before and after the write must match the scope's constraint.
func (g *guardTest) checkVersion(t *testing.T, w guardWriter, v writtenVersion, before string) {
	t.Helper()
	old, own := referencesIn(t, before), g.oracle.ofPatient(t, w.patientID())
	for literal := range referencesIn(t, v.text) {
		resourceType, _, _ := strings.Cut(literal, "/")
		if _, ok := compartment.PatientParameters(resourceType); own[literal] || !ok && interaction.IsType(resourceType) && resourceType != "Device" && resourceType != "Binary" || strings.HasPrefix(literal, "urn:") {
			continue
		}
		for token := range guardattack.Tokens([]byte(literal)) {
			if owner := token[2]; owner != w.letter && owner != guardattack.Everybody && !old[literal] {
				t.Errorf("%s was made to refer to %s: %.1000s", v.reference, literal, v.text)
			}
		}
	}
	if w.grants[0].constraint == "" {
		return
	}
	for _, text := range []string{before, v.text} {
		if text != "" && !hasCoding(t, text, "category", laboratory) {
			t.Errorf("%s is, or was, without the category of the scope: %.500s", v.reference, text)
		}
	}
}

// referencesIn returns the literal references in a resource.
func referencesIn(t *testing.T, text string) references {
	t.Helper()
	found := references{}
	if text == "" {
		return found
	}
	var visit func(value any)
	visit = func(value any) {
		switch v := value.(type) {
		case []any:
			for _, one := range v {
				visit(one)
			}
		case map[string]any:
			for name, one := range v {
				if literal, ok := one.(string); ok && name == "reference" {
					found[literal] = true
				}
				visit(one)
			}
		}
	}
	var document any
	if err := json.Unmarshal([]byte(text), &document); err != nil {
		t.Fatal(err)
	}
	visit(document)
	return found
}

// hasCoding reports whether an element of a resource has a coding.
func hasCoding(t *testing.T, text, element, systemAndCode string) bool {
	t.Helper()
	var members map[string]json.RawMessage
	var concepts []struct {
		Coding []struct{ System, Code string }
	}
	if err := json.Unmarshal([]byte(text), &members); err != nil {
		t.Fatal(err)
	}
	_ = json.Unmarshal(members[element], &concepts)
	for _, concept := range concepts {
		for _, coding := range concept.Coding {
			if coding.System+"|"+coding.Code == systemAndCode {
				return true
			}
		}
	}
	return false
}

// searchByIdentifier returns the search for a record by its identifier.
func searchByIdentifier(value string) string {
	return "identifier=" + url.QueryEscape("http://zq.example/ids|"+value)
}

// withLanguage returns a resource with the element language, which harmless changes set.
func withLanguage(text, language string) string {
	return strings.Replace(text, `"meta":{`, fmt.Sprintf(`"language":%q,"meta":{`, language), 1)
}
