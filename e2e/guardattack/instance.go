package guardattack

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// read returns a read of a record or of its history.
func (a *Attacker) read() Attack {
	r := a.anybodys()
	attack := Attack{Method: pick(a, http.MethodGet, http.MethodGet, http.MethodGet, http.MethodHead), Victim: r.ID}
	attack.Path = r.Reference() + pick(a, "", "", "", "", "/_history/1", "/_history/2", "/_history", "/_history/0", "/_history/1/", "/")
	switch a.IntN(12) {
	case 0:
		attack.Path, attack.Victim = r.Type+"/_history", ""
	case 1:
		attack.Path, attack.Victim = "_history?_since=2000-01-01T00:00:00Z", ""
	case 2:
		attack.Path = a.resourceType() + "/" + r.ID // the id combined with another type
	case 3:
		attack.Path = r.Reference() + pick(a, "?_summary=true", "?_summary=text", "?_elements=id", "?_format=xml", "?_pretty=true", "?_id="+a.ownRecord().ID, "?patient="+a.World.Patient(a.PatientLetter))
	}
	switch a.IntN(12) {
	case 0:
		attack.Headers = append(attack.Headers, "If-None-Match", `W/"1"`)
	case 1:
		attack.Headers = append(attack.Headers, "If-Modified-Since", "Sat, 29 Oct 2094 19:43:31 GMT")
	case 2:
		attack.Headers = append(attack.Headers, "Range", "bytes=0-99")
	}
	return attack
}

// operation calls an operation that HAPI or another server supports.
func (a *Attacker) operation() Attack {
	v := a.victim()
	patient := a.World.Patient(v.ownerOr(a.other()))
	path := pick(a,
		patient+"/$everything", patient+"/$everything?_type=Observation", patient+"/$everything?_count=500", "Patient/$everything", "Patient/$everything?_id="+v.ID,
		"Encounter/"+v.ID+"/$everything", a.World.Patient(a.PatientLetter)+"/$everything?_content="+v.ID,
		"$export", "$export?_type=Patient", "Patient/$export", patient+"/$export", "Group/"+v.ID+"/$export", "$export-poll-status?_jobId="+v.ID,
		"$graphql?query="+url.QueryEscape("{PatientList{id name{family}}}"), v.Reference()+"/$graphql?query="+url.QueryEscape("{id}"),
		"$graphql?query="+url.QueryEscape("{Patient(id:\""+v.ID+"\"){id}}"),
		v.Reference()+"/$meta", v.Type+"/$meta", "$meta", v.Reference()+"/$validate", v.Reference()+"/$diff", "$diff?from="+v.Reference()+"&to="+a.ownRecord().Reference(),
		"Observation/$lastn?patient="+patient, "Patient/$match", "Patient/$member-match", "Composition/"+v.ID+"/$document", v.Reference()+"/$includes",
		"Binary/"+v.ID+"/$binary-access-read?path=Binary", v.Reference()+"/$binary-access-read?path=DocumentReference.content.attachment",
		"$get-resource-counts", "$reindex", "$expunge", v.Reference()+"/$expunge", v.Type+"/$expunge", "$mark-all-resources-for-reindexing",
		"$process-message", v.Reference()+"/$meta-add", "$hapi.fhir.replace-references", "$replace-references", "Patient/$hapi.fhir.merge", "$bulkdata-delete",
		"$export-poll-status?_jobId=00000000-0000-4000-8000-000000000000", v.Reference()+"/$convert", "$everything", "$versions", "StructureDefinition/$snapshot", v.Reference()+"/$add-note",
	)
	attack := Attack{Method: pick(a, http.MethodGet, http.MethodPost), Path: path, Victim: v.ID}
	if attack.Method == http.MethodPost {
		attack.Body = a.parametersOf(v)
	}
	if strings.Contains(path, "xport") || a.oneIn(10) {
		attack.Headers = append(attack.Headers, "Prefer", "respond-async")
	}
	return attack
}

func (a *Attacker) parametersOf(v Record) string {
	return fmt.Sprintf(`{"resourceType":"Parameters","parameter":[{"name":"resource","resource":%s},{"name":"patient","valueString":%q},{"name":"_type","valueString":%q}]}`,
		pick(a, v.JSON, a.ownRecord().JSON), v.Reference(), v.Type)
}

// write returns a request that changes a victim's record or creates a record that references the victim.
func (a *Attacker) write() Attack {
	v, own := a.victim(), a.ownRecord()
	patient := a.World.Patient(v.ownerOr(a.other()))
	moved := strings.ReplaceAll(own.JSON, a.World.Patient(a.PatientLetter), patient)
	conditional := fmt.Sprintf("%s?identifier=http://zq.example/ids|%sm", v.Type, v.ID)
	byIdentifier := strings.ReplaceAll(own.JSON, a.World.Patient(a.PatientLetter), "Patient?identifier=http://zq.example/ids|"+v.ID+"m")
	attack := func(method, path, body string, headers ...string) Attack {
		return Attack{method, path, body, headers, v.ID}
	}
	jsonPatch := `[{"op":"replace","path":"/status","value":"entered-in-error"}]`
	moving := fmt.Sprintf(`[{"op":"%s","path":"/subject","value":{"reference":%q}}]`, pick(a, "replace", "add", "test"), patient)
	return pick(a,
		attack(http.MethodPut, v.Reference(), v.JSON), attack(http.MethodPut, v.Reference(), v.JSON, "If-Match", `W/"1"`),
		attack(http.MethodPut, own.Reference(), moved), attack(http.MethodPost, own.Type, moved), attack(http.MethodPost, v.Type, v.JSON),
		attack(http.MethodPost, own.Type, byIdentifier), attack(http.MethodPut, own.Reference(), byIdentifier),
		attack(http.MethodPut, v.Reference(), strings.ReplaceAll(v.JSON, patient, a.World.Patient(a.PatientLetter))),
		attack(http.MethodPatch, v.Reference(), jsonPatch, "Content-Type", "application/json-patch+json"),
		attack(http.MethodPatch, own.Reference(), moving, "Content-Type", "application/json-patch+json"),
		attack(http.MethodPatch, v.Reference(), fhirPathPatch(v.Type, patient)), attack(http.MethodPatch, own.Reference(), fhirPathPatch(own.Type, patient)),
		attack(http.MethodPatch, conditional, jsonPatch, "Content-Type", "application/json-patch+json"),
		attack(http.MethodDelete, v.Reference(), ""), attack(http.MethodDelete, conditional, ""), attack(http.MethodDelete, v.Type+"?_id="+v.ID+"&_expunge=true", ""),
		attack(http.MethodPut, conditional, v.JSON), attack(http.MethodPost, v.Type, v.JSON, "If-None-Exist", "identifier=http://zq.example/ids|"+v.ID+"m"),
		attack(http.MethodPost, own.Type, own.JSON, "If-None-Exist", "_has:Observation:subject:_id="+v.ID),
		attack(http.MethodDelete, v.Reference()+"/_history", ""), attack(http.MethodDelete, v.Reference()+"/_history/1", ""),
		attack(http.MethodPut, own.Type+"/"+v.ID, strings.ReplaceAll(own.JSON, own.ID, v.ID)),
		attack(http.MethodPut, v.Type+"?_id="+v.ID, v.JSON, "Prefer", "return=representation"),
	)
}

func fhirPathPatch(resourceType, patient string) string {
	return fmt.Sprintf(`{"resourceType":"Parameters","parameter":[{"name":"operation","part":[{"name":"type","valueCode":"replace"},`+
		`{"name":"path","valueString":"%s.subject"},{"name":"value","valueReference":{"reference":%q}}]}]}`, resourceType, patient)
}
