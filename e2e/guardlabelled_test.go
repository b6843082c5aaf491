package e2e

import (
	"net/http"
	"strings"
	"testing"
)

// labelledRequests are requests for a record with a denied label in its second version.
const labelledRequests = `GET {type}/{id}
HEAD {type}/{id}
GET {type}/{id} If-None-Match=W/"2"
GET {type}/{id} If-None-Match=W/"1"
GET {type}/{id}/_history
GET {type}/{id}/_history?_count=1
GET {type}/{id}/_history?_since=2020-01-01T00:00:00Z
GET {type}/{id}/_history?_at=2020
GET {type}/{id}/_history/1
GET {type}/{id}/_history/2
GET {type}/{id}/_history/3
HEAD {type}/{id}/_history/1
GET {type}/{id}/_history/1 If-None-Match=W/"1"
GET {type}/{id}/_history/1?_summary=true
GET {type}/{id}/_history/1?_elements=name
GET {type}/{id}/_history/1/$meta
GET {type}/{id}/$meta
GET {type}/{id}/$diff
GET {type}/{id}/_history/2/$diff
GET {type}/{id}/$everything
GET {type}/_history
GET _history
GET {type}?_id={id}
GET {type}?_id={id}&_total=accurate
GET {type}?_id={id}&_summary=count
GET Observation?subject={type}/{id}
PUT {type}/{id} If-Match=W/"1"	{"resourceType":"{type}","id":"{id}"}
PUT {type}/{id} If-Match=W/"2"	{"resourceType":"{type}","id":"{id}"}
PATCH {type}/{id} Content-Type=application/json-patch+json	[{"op":"test","path":"/id","value":"{id}"}]
DELETE {type}/{id}/_history/1
POST 	{"resourceType":"Bundle","type":"batch","entry":[{"request":{"method":"GET","url":"{type}/{id}/_history/1"}},{"request":{"method":"GET","url":"{type}/{id}/_history"}},{"request":{"method":"GET","url":"{type}/{id}"}},{"request":{"method":"GET","url":"{type}/{id}/_history/2"}},{"request":{"method":"HEAD","url":"{type}/{id}/_history/1"}}]}
POST 	{"resourceType":"Bundle","type":"transaction","entry":[{"request":{"method":"GET","url":"{type}/{id}/_history/1"}}]}`

// TestGuardLabelledLater checks that a denied label also applies to earlier versions, even after the record is deleted. The
// responses equal those for an absent record.
func TestGuardLabelledLater(t *testing.T) {
	t.Parallel()
	h := hapiServer(t)
	g := startGuarded(t, "labelled", h.fhirAPI, pairedRules[1].rule)
	w := newTestPatients()
	h.store(t, w.records(`
		Practitioner {doctor} "name":[{"family":"x"}]
		Patient {patient} "name":[{"family":"x"}]
		Observation {pulse} "status":"final","code":{"text":"{family}"},"subject":{"reference":"Patient/{patient}"}
		Provenance {provenance} "target":[{"reference":"Observation/{pulse}/_history/1"}],"recorded":"2024-01-01T00:00:00Z","agent":[{"who":{"reference":"Practitioner/{doctor}"}}]
		Patient {denied} "name":[{"family":"{family}"}],"birthDate":"1950-01-02"`))
	h.store(t, w.records(`
		Observation {pulse} `+vipLabel+`,"status":"amended","code":{"text":"{family}"},"subject":{"reference":"Patient/{patient}"}
		Patient {denied} `+vipLabel+`,"name":[{"family":"{family}"}],"birthDate":"1950-01-02"`))
	holders := holdersByScope(w)
	holders["the patient herself"] = guardHolder{scope: "patient/*.cruds", patient: w.names["{denied}"]}
	check := func(when string, labelled map[string]string) {
		for reference, absent := range labelled {
			resourceType, id, _ := strings.Cut(reference, "/")
			for name, who := range holders {
				if name == "user" || who.patient == w.names["{denied}"] != (resourceType == "Patient") && who.patient != "" || when == "deleted" && name != "system" {
					continue // the scope grants no access, or the decision is the same as for other scopes
				}
				for line := range strings.Lines(labelledRequests) {
					if strings.HasPrefix(line, "PUT") && who.patient == id {
						continue // the absent record is not in the patient's compartment, so its error response differs
					}
					ask := func(id string) string {
						request := strings.NewReplacer("{type}", resourceType, "{id}", id, "\n", "").Replace(line)
						return strings.ReplaceAll(w.comparable(g.sendLine(t, who, request)), w.template(id), "(id)")
					}
					there, not := ask(id), ask(absent)
					if there != not {
						t.Errorf("%s, %s: %s %s\n%s", when, name, resourceType, line, firstDifference(there, not))
					}
					if strings.Contains(there, "{family}") {
						t.Errorf("%s, %s: %s %s returns denied data", when, name, resourceType, line)
					}
				}
				included := w.comparable(g.sendLine(t, who, w.text("GET Provenance?_id={provenance}&_include=Provenance:target")))
				if strings.Contains(included, "{family}") {
					t.Errorf("%s, %s: a version that is denied is included: %s", when, name, included)
				}
			}
		}
	}
	records := map[string]string{"Patient/" + w.names["{denied}"]: newUUID(), "Observation/" + w.names["{pulse}"]: newUUID()}
	check("labelled", records)
	if a := h.send(t, http.MethodGet, "Patient/"+w.names["{denied}"], ""); a.header.Get("ETag") != `W/"2"` {
		t.Errorf("the record was changed: %s", a.header.Get("ETag"))
	}
	for reference := range records {
		h.send(t, http.MethodDelete, reference, "").is(t, http.StatusOK)
	}
	check("deleted", records)
}
