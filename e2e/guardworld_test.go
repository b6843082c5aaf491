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

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/compartment"

	"github.com/caddy-fhir/caddy-fhir/e2e/guardattack"
)

// references is a set of resources as Type/id.
type references map[string]bool

// guardOracle determines the patients of resources by means of HAPI's own searches.
type guardOracle struct {
	server    fhirAPI
	texts     map[string]string // JSON of all resources in HAPI, by reference
	byPatient map[string]references
	found     map[string]references // results by search
}

// load stores records in transactions of a few hundred records each.
func (h fhirAPI) load(t *testing.T, records []guardattack.Record) {
	t.Helper()
	for part := range slices.Chunk(records, 200) {
		var entries []string
		for _, r := range part {
			entries = append(entries, fmt.Sprintf(`{"resource":%s,"request":{"method":"PUT","url":%q}}`, r.JSON, r.Reference()))
		}
		h.send(t, http.MethodPost, "", `{"resourceType":"Bundle","type":"transaction","entry":[`+strings.Join(entries, ",")+`]}`).is(t, http.StatusOK)
	}
}

// newGuardOracle reads all resources of the given types from HAPI.
func newGuardOracle(t *testing.T, server fhirAPI, types []string) *guardOracle {
	t.Helper()
	o := &guardOracle{server: server, texts: map[string]string{}, byPatient: map[string]references{}, found: map[string]references{}}
	for _, resourceType := range types {
		maps.Copy(o.texts, server.all(t, resourceType))
	}
	return o
}

// all returns the JSON of the resources that a search finds, on all pages, by reference.
func (h fhirAPI) all(t *testing.T, search string) map[string]string {
	t.Helper()
	found := map[string]string{}
	separator := "?"
	if strings.Contains(search, "?") {
		separator = "&"
	}
	for address := h.base + "/" + search + separator + "_count=1000"; address != ""; {
		var page struct {
			Link  []struct{ Relation, URL string }
			Entry []struct{ Resource json.RawMessage }
		}
		send(t, http.DefaultClient, newRequest(t, http.MethodGet, address, "")).is(t, http.StatusOK).decode(t, &page)
		for _, e := range page.Entry {
			found[referenceOf(e.Resource)] = string(e.Resource)
		}
		address = ""
		for _, l := range page.Link {
			if l.Relation == "next" {
				address = l.URL
			}
		}
	}
	return found
}

// referenceOf returns the reference Type/id of a resource.
func referenceOf(text []byte) string {
	var r struct{ ResourceType, ID string }
	if json.Unmarshal(text, &r) != nil {
		return ""
	}
	return r.ResourceType + "/" + r.ID
}

// search returns the results of a search in HAPI. It sends each search only once.
func (o *guardOracle) search(t *testing.T, search string) references {
	t.Helper()
	found, ok := o.found[search]
	if !ok {
		found = references{}
		for reference := range o.server.all(t, search) {
			found[reference] = true
		}
		o.found[search] = found
	}
	return found
}

// everybodys are the resource types that do not belong to a patient and that everyone shares (docs/reference/resources.md).
var everybodys = []string{
	"Organization", "Practitioner", "PractitionerRole", "Location", "HealthcareService", "Endpoint", "Medication", "Substance",
	"Questionnaire",
}

// ofPatient returns a patient's resources according to HAPI: those that the search parameters of the compartment find, and the
// shared types.
func (o *guardOracle) ofPatient(t *testing.T, id string) references {
	t.Helper()
	if own, ok := o.byPatient[id]; ok {
		return own
	}
	own := references{"Patient/" + id: true}
	types := map[string]bool{}
	for reference := range o.texts {
		resourceType, _, _ := strings.Cut(reference, "/")
		types[resourceType] = true
		if slices.Contains(everybodys, resourceType) {
			own[reference] = true
		}
	}
	for resourceType := range types {
		parameters, _ := compartment.PatientParameters(resourceType)
		for _, p := range parameters {
			maps.Copy(own, o.search(t, resourceType+"?"+p+"=Patient/"+id))
		}
	}
	maps.Copy(own, o.search(t, "Device?patient=Patient/"+id))
	maps.Copy(own, o.search(t, "Device?patient:missing=true"))
	maps.DeleteFunc(own, func(reference string, _ bool) bool { return !o.isAlone(reference, id) })
	o.addDependent(own, id)
	o.byPatient[id] = own
	return own
}

// isAlone reports whether a resource references no patient other than id. For a Group it checks the members, for other
// resources the contained resources.
func (o *guardOracle) isAlone(reference, id string) bool {
	text := o.texts[reference]
	if !strings.HasPrefix(reference, "Group/") {
		var resource struct{ Contained []json.RawMessage }
		_ = json.Unmarshal([]byte(text), &resource)
		text = ""
		for _, contained := range resource.Contained {
			text += string(contained)
		}
	}
	return !strings.Contains(strings.ReplaceAll(text, `"Patient/`+id+`"`, ""), `"Patient/`)
}

// addDependent adds resources that belong to the patient because of their references: a Binary with a securityContext that is
// the patient's, a Provenance with all targets readable but not all shared, and a document that references only this patient.
func (o *guardOracle) addDependent(own references, id string) {
	for reference, text := range o.texts {
		var r struct {
			SecurityContext *struct{ Reference string }
			Target          []struct{ Reference string }
		}
		resourceType, _, _ := strings.Cut(reference, "/")
		_ = json.Unmarshal([]byte(text), &r)
		switch resourceType {
		case "Binary":
			if r.SecurityContext != nil && own[r.SecurityContext.Reference] {
				own[reference] = true
			}
		case "Provenance":
			inside, isOwn := true, false
			for _, target := range r.Target {
				of, _, _ := strings.Cut(target.Reference, "/")
				inside, isOwn = inside && own[target.Reference], isOwn || !slices.Contains(everybodys, of)
			}
			if inside && isOwn {
				own[reference] = true
			}
		case "Bundle":
			if strings.Contains(text, `"Patient/`+id+`"`) && !strings.Contains(strings.ReplaceAll(text, `"Patient/`+id+`"`, ""), `"Patient/`) {
				own[reference] = true
			}
		}
	}
}

// guardGrant is a scope in the form that the oracle uses.
type guardGrant struct {
	types       []string // empty for all types
	permissions string
	patient     string // id of the patient; "" if the scope covers all patients
	constraint  string // query of a search; "" for no constraint
	only        string // the only reference that the grant covers; "" for no restriction
}

// allowed returns the resources for which the grants include one of the permissions.
func (o *guardOracle) allowed(t *testing.T, grants []guardGrant, permissions string) references {
	t.Helper()
	all := references{}
	for _, g := range grants {
		if !strings.ContainsAny(g.permissions, permissions) {
			continue
		}
		for reference := range o.texts {
			if o.covers(t, g, reference) {
				all[reference] = true
			}
		}
	}
	return all
}

func (o *guardOracle) covers(t *testing.T, g guardGrant, reference string) bool {
	t.Helper()
	resourceType, _, _ := strings.Cut(reference, "/")
	switch {
	case g.only != "":
		return reference == g.only
	case len(g.types) > 0 && !slices.Contains(g.types, resourceType):
		return false
	case g.patient != "" && !o.ofPatient(t, g.patient)[reference]:
		return false
	}
	return g.constraint == "" || o.search(t, resourceType+"?"+g.constraint)[reference]
}

// String returns the sorted references for error messages.
func (r references) String() string { return strings.Join(slices.Sorted(maps.Keys(r)), " ") }

// without returns the references that are not in others.
func (r references) without(others references) references {
	remaining := maps.Clone(r)
	maps.DeleteFunc(remaining, func(reference string, _ bool) bool { return others[reference] })
	return remaining
}

// queryOf returns a query that consists of the given pairs of names and values.
func queryOf(namesAndValues ...string) string {
	var parts []string
	for i := 0; i < len(namesAndValues); i += 2 {
		parts = append(parts, namesAndValues[i]+"="+url.QueryEscape(namesAndValues[i+1]))
	}
	return strings.Join(parts, "&")
}
