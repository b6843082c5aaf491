package guardattack

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// submission returns a batch or transaction of writes. Some entries reference each other by fullUrl.
func (a writeAttacks) submission() Attack {
	v, own := a.victim(), a.ownRecord()
	patient := a.World.Find(v.ownerOr(a.other()), "Patient.self")
	link := pick(a.Attacker, "urn:uuid:6f2f1a3e-52a8-4f5c-8d3a-0c6f0a7b1c11", "urn:uuid:6F2F1A3E-52A8-4F5C-8D3A-0C6F0A7B1C11", "urn:oid:1.2.3", "https://elsewhere.example/fhir/"+patient.Reference(),
		patient.Reference(), a.World.Patient(a.PatientLetter), pick(a.Attacker, append([]string{"http://x.example"}, a.Bases...)...)+"/"+patient.Reference())
	linked := strings.ReplaceAll(own.JSON, a.World.Patient(a.PatientLetter), pick(a.Attacker, link, link, strings.ToUpper(link), link+"/_history/1"))
	entries := []string{
		a.linkedEntry(link, v, patient),
		entry("", pick(a.Attacker, http.MethodPut, http.MethodPost), own, pick(a.Attacker, linked, linked, own.JSON), ""),
	}
	for range a.IntN(3) {
		entries = append(entries, a.anyEntry())
	}
	if a.oneIn(3) {
		entries[0], entries[1] = entries[1], entries[0]
	}
	return Attack{
		Method: http.MethodPost, Victim: pick(a.Attacker, v.ID, patient.ID),
		Body: fmt.Sprintf(`{"resourceType":"Bundle","type":%q,"entry":[%s]}`, pick(a.Attacker, "transaction", "transaction", "batch"), strings.Join(entries, ",")),
	}
}

// linkedEntry returns an entry with link as its fullUrl.
func (a writeAttacks) linkedEntry(link string, v, patient Record) string {
	criteria := "identifier=" + idSystem + patient.ID + "m"
	reassigned := strings.ReplaceAll(strings.ReplaceAll(v.JSON, patient.Reference(), a.World.Patient(a.PatientLetter)), v.ID+"m", a.ownRecord().ID+"m")
	return pick(a.Attacker,
		entry(link, http.MethodPut, patient, patient.JSON, ""),
		entry(link, http.MethodPost, patient, patient.JSON, `,"ifNoneExist":"`+criteria+`"`),
		entryTo(link, http.MethodPut, "Patient?"+criteria, patient.JSON, ""),
		entryTo(link, http.MethodGet, patient.Reference(), "", ""),
		entryTo(link, http.MethodPatch, patient.Reference(), `{"resourceType":"Parameters","parameter":[]}`, ""),
		entryTo(link, http.MethodDelete, patient.Reference(), "", ""),
		entry(link, http.MethodPost, v, v.JSON, ""),
		entry(link, http.MethodPut, a.World.Find(a.PatientLetter, "Patient.self"), a.World.Find(a.PatientLetter, "Patient.self").JSON, ""),
		entryTo(link, http.MethodPost, v.Type, reassigned, `,"ifNoneExist":"_id=`+v.ID+`"`),
	)
}

// anyEntry returns an entry with another write, or with a read of a victim's record.
func (a writeAttacks) anyEntry() string {
	one := pick(a.Attacker, a.ownWrite, a.moving, a.conditional, a.jsonPatch, a.pathPatch, a.foreign, a.deletion, a.read)()
	if strings.HasPrefix(one.Body, "[") { // FHIR doesn't define JSON Patch in a Bundle; servers accept a Binary
		text, _ := json.Marshal([]byte(one.Body))
		one.Body = `{"resourceType":"Binary","contentType":"` + jsonPatchType + `","data":` + string(text) + `}`
	}
	var conditions string
	for i := 0; i < len(one.Headers); i += 2 {
		if name := strings.ReplaceAll(one.Headers[i], "-", ""); strings.HasPrefix(name, "If") {
			conditions += fmt.Sprintf(`,"i%s":%q`, name[1:], one.Headers[i+1])
		}
	}
	return entryTo("", one.Method, one.Path, one.Body, conditions)
}

// entry returns an entry that updates a record by its id or creates a record.
func entry(fullURL, method string, r Record, body, conditions string) string {
	address := r.Type
	if method == http.MethodPut {
		address = r.Reference()
	}
	return entryTo(fullURL, method, address, body, conditions)
}

func entryTo(fullURL, method, address, body, conditions string) string {
	text := fmt.Sprintf(`"request":{"method":%q,"url":%q%s}`, method, address, conditions)
	if fullURL != "" {
		text = fmt.Sprintf(`"fullUrl":%q,`, fullURL) + text
	}
	if body != "" {
		text += `,"resource":` + body
	}
	return "{" + text + "}"
}
