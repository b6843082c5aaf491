package guardattack

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

const (
	jsonPatchType = "application/json-patch+json"
	idSystem      = "http://zq.example/ids|"
)

// writeAttacks generates write requests of an attacker.
type writeAttacks struct{ *Attacker }

// DrawWrite returns the next random attack by an attacker who may write the records of one patient.
func (a *Attacker) DrawWrite() Attack { return writeAttacks{a}.draw() }

func (a writeAttacks) draw() Attack {
	return pick(a.Attacker, a.moving, a.moving, a.moving, a.moving, a.ownWrite, a.ownWrite, a.conditional, a.conditional,
		a.jsonPatch, a.jsonPatch, a.pathPatch, a.pathPatch, a.deletion, a.foreign, a.submission, a.submission, a.submission)()
}

// moving writes one of the attacker's records so that it references another patient, in addition to the attacker or instead.
func (a writeAttacks) moving() Attack {
	own := a.ownRecord()
	body, v := a.moved(own)
	attack := Attack{Method: http.MethodPut, Path: own.Reference(), Body: body, Victim: v.ID}
	if a.oneIn(3) {
		attack.Method, attack.Path = http.MethodPost, own.Type
	}
	return a.withHeaders(attack)
}

// ownWrite returns a permitted write.
func (a writeAttacks) ownWrite() Attack {
	own := a.ownRecord()
	body := strings.Replace(own.JSON, `"meta":{`, `"language":"`+pick(a.Attacker, "en", "de", "fr")+`","meta":{`, 1)
	return a.withHeaders(pick(a.Attacker,
		Attack{Method: http.MethodPut, Path: own.Reference(), Body: body},
		Attack{Method: http.MethodPut, Path: own.Reference(), Body: body},
		Attack{Method: http.MethodPost, Path: own.Type, Body: body},
		Attack{Method: http.MethodPut, Path: own.Type + "?identifier=" + idSystem + own.ID + "m", Body: body},
		Attack{Method: http.MethodPost, Path: own.Type, Body: body, Headers: []string{"If-None-Exist", "identifier=" + idSystem + own.ID + "m"}},
		Attack{Method: http.MethodPatch, Path: own.Reference(), Body: `[{"op":"add","path":"/language","value":"it"}]`, Headers: []string{"Content-Type", jsonPatchType}},
		Attack{Method: http.MethodPatch, Path: own.Reference(), Body: patchParameters("replace", own.Type+".language", `"name":"value","valueCode":"es"`)},
	))
}

// withHeaders adds a conditional header or a return preference.
func (a writeAttacks) withHeaders(attack Attack) Attack {
	switch a.IntN(8) {
	case 0:
		attack.Headers = append(attack.Headers, "If-Match", pick(a.Attacker, `W/"1"`, `W/"2"`, `W/"3"`, `"2"`, "*"))
	case 1:
		attack.Headers = append(attack.Headers, "Prefer", pick(a.Attacker, "return=representation", "return=minimal", "return=OperationOutcome"))
	case 2:
		attack.Headers = append(attack.Headers, pick(a.Attacker, "X-Cascade", "X-Provenance", "X-Upsert-Extistence-Check", "X-Rewrite-History"),
			pick(a.Attacker, "delete", `{"resourceType":"Provenance","target":[{"reference":"`+a.victim().Reference()+`"}]}`, "disabled", "true"))
	}
	return attack
}

// criteria returns criteria that match a victim's record, several records, or one of the attacker's by a victim's data.
func (a writeAttacks) criteria(own, v Record) string {
	patient := a.World.Patient(v.ownerOr(a.other()))
	return pick(a.Attacker,
		"identifier="+idSystem+v.ID+"m", "_id="+v.ID, "_id="+own.ID+","+v.ID, "identifier="+idSystem+own.ID+"m,"+idSystem+v.ID+"m", "_tag="+v.ID+"m",
		"subject="+patient, "patient="+patient, "patient="+a.World.Patient(a.PatientLetter), "patient.identifier="+idSystem+v.ID+"m", "subject:Patient._tag="+v.ID+"m",
		"_has:Observation:subject:_id="+v.ID, "_id:not="+own.ID, "_lastUpdated=gt2000-01-01", "_filter="+url.QueryEscape("_id eq "+v.ID), "code=8867-4", "status=final", "",
		"_id="+own.ID+"&_has:Provenance:target:_id="+v.ID, "_id="+own.ID+"&"+searches(a).chain(own.Type, v), "_id="+own.ID+"&"+searches(a).has(own.Type, v), "_id="+own.ID+"&_id="+v.ID,
	)
}

// conditional returns a conditional write.
func (a writeAttacks) conditional() Attack {
	own, v := a.ownRecord(), a.victim()
	resourceType := pick(a.Attacker, own.Type, own.Type, v.Type)
	criteria := a.criteria(own, v)
	body := pick(a.Attacker, own.JSON, withoutID(own), v.JSON, strings.ReplaceAll(own.JSON, own.ID+`"`, v.ID+`"`))
	attack := Attack{Path: resourceType + "?" + criteria, Victim: v.ID}
	switch attack.Method = pick(a.Attacker, http.MethodPost, http.MethodPut, http.MethodPut, http.MethodPatch, http.MethodDelete); attack.Method {
	case http.MethodPost:
		attack.Path, attack.Body, attack.Headers = resourceType, body, []string{"If-None-Exist", criteria}
	case http.MethodPut:
		attack.Body = body
	case http.MethodPatch:
		attack.Body, attack.Headers = `[{"op":"add","path":"/language","value":"nl"}]`, []string{"Content-Type", jsonPatchType}
	}
	return attack
}

func withoutID(r Record) string { return strings.Replace(r.JSON, `"id":"`+r.ID+`",`, "", 1) }

// jsonPatch returns a JSON Patch that makes one of the attacker's records reference another patient, or changes a victim's
// record.
func (a writeAttacks) jsonPatch() Attack {
	own, v := a.ownRecord(), a.victim()
	patient := a.World.Patient(v.ownerOr(a.other()))
	path := "/" + strings.ReplaceAll(a.memberElement(own.Type), ".", pick(a.Attacker, "/", "/0/", "/-/"))
	value := a.naming(patient)
	op := func(kind, path string, more string) string {
		return fmt.Sprintf(`{"op":%q,"path":%q%s}`, kind, path, more)
	}
	asJSON := `,"value":` + value
	operations := []string{pick(a.Attacker,
		op(pick(a.Attacker, "add", "replace", "test"), path, asJSON), op(pick(a.Attacker, "add", "replace"), path+"/reference", fmt.Sprintf(`,"value":%q`, patient)),
		op("add", path+"/0", asJSON), op("add", path+"/-", asJSON), op("remove", path, ""), op("add", path, `,"value":[`+value+`]`),
		op("replace", "/id", fmt.Sprintf(`,"value":%q`, v.ID)), op("add", "/contained", fmt.Sprintf(`,"value":[%s]`, v.JSON)),
		op("replace", "/resourceType", fmt.Sprintf(`,"value":%q`, v.Type)), op("replace", "", `,"value":`+v.JSON), op("add", "/language", `,"value":"pl"`),
		op("add", "/text", asJSON)+","+op("move", path, `,"from":"/text"`), op("add", "/text", asJSON)+","+op("copy", path+"/reference", `,"from":"/text/reference"`),
		op("replace", "/meta/tag/0/code", `,"value":"x"`), op("test", "/status", `,"value":"final"`), op("add", path+"~1reference", fmt.Sprintf(`,"value":%q`, patient)),
		op("add", "/extension", fmt.Sprintf(`,"value":[{"url":"http://zq.example/e","valueReference":%s}]`, value)),
	)}
	if a.oneIn(3) {
		operations = append(operations, op("test", "/id", fmt.Sprintf(`,"value":%q`, pick(a.Attacker, own.ID, v.ID))))
	}
	target := pick(a.Attacker, own, own, own, v)
	return Attack{http.MethodPatch, target.Reference(), "[" + strings.Join(operations, ",") + "]", []string{"Content-Type", jsonPatchType}, v.ID}
}

// pathPatch is like jsonPatch, but with FHIRPath Patch.
func (a writeAttacks) pathPatch() Attack {
	own, v := a.ownRecord(), a.victim()
	patient := a.World.Patient(v.ownerOr(a.other()))
	element := own.Type + "." + a.memberElement(own.Type)
	reference := `"name":"value","valueReference":` + a.naming(patient)
	body := pick(a.Attacker,
		patchParameters("replace", element, reference), patchParameters("replace", element+".reference", fmt.Sprintf(`"name":"value","valueString":%q`, patient)),
		patchParameters("insert", element, reference), patchParameters("delete", element, ""), patchParameters("replace", element+"[0]", reference),
		patchParameters("replace", own.Type+".where(true)."+a.memberElement(own.Type), reference), patchParameters("replace", own.Type+".descendants().where($this is Reference)", reference),
		patchParameters("replace", own.Type+".language", `"name":"value","valueCode":"pt"`), patchParameters("replace", own.Type+".id", fmt.Sprintf(`"name":"value","valueString":%q`, v.ID)),
		patchParameters("add", own.Type, `"name":"value","part":[{"name":"reference","valueString":"`+patient+`"}]`), patchParameters("move", element, ""),
		patchParameters("replace", own.Type+".meta", `"name":"value","valueMeta":{"security":[{"code":"R"}]}`), patchParameters("replace", "Patient.where(id='"+v.ID+"').active", `"name":"value","valueBoolean":false`),
		patchParameters("replace", own.Type+".contained", reference), patchParameters("delete", own.Type+".category", ""), patchParameters("replace", own.Type+".resolve()", reference),
		strings.Replace(patchParameters("add", own.Type, reference), `{"name":"value"`, fmt.Sprintf(`{"name":"name","valueString":%q},{"name":"value"`, a.memberElement(own.Type)), 1),
	)
	return Attack{Method: http.MethodPatch, Path: pick(a.Attacker, own, own, own, v).Reference(), Body: body, Victim: v.ID}
}

// patchParameters returns a FHIRPath Patch with one operation of the given type.
func patchParameters(kind, path, value string) string {
	if value != "" {
		value = ",{" + value + "}"
	}
	return fmt.Sprintf(`{"resourceType":"Parameters","parameter":[{"name":"operation","part":[{"name":"type","valueCode":%q},{"name":"path","valueString":%q}%s]}]}`, kind, path, value)
}

// deletion deletes a victim's record or, rarely, one of the attacker's records.
func (a writeAttacks) deletion() Attack {
	own, v := a.ownRecord(), a.victim()
	path := pick(a.Attacker, v.Reference(), v.Reference(), v.Reference(), v.Reference()+"/_history", v.Reference()+"/_history/1", v.Type+"?_id="+v.ID, v.Type+"?identifier="+idSystem+v.ID+"m",
		v.Reference()+"?_expunge=true", v.Reference()+"?_cascade=delete", own.Reference()+"?_cascade=delete", a.World.Patient(a.PatientLetter), a.World.Patient(a.PatientLetter)+"?_cascade=delete")
	attack := Attack{Method: http.MethodDelete, Path: path, Victim: v.ID}
	if a.oneIn(12) {
		attack.Path, attack.Victim = own.Reference(), ""
	}
	return a.withHeaders(attack)
}

// foreign overwrites or copies a victim's record. The content is unchanged, or the attacker becomes its patient, or a record of
// the attacker gets the victim's id.
func (a writeAttacks) foreign() Attack {
	v, own := a.victim(), a.ownRecord()
	patient := a.World.Patient(v.ownerOr(a.other()))
	reassigned := strings.ReplaceAll(strings.ReplaceAll(v.JSON, patient, a.World.Patient(a.PatientLetter)), v.ID+"m", own.ID+"m")
	renamed := strings.Replace(own.JSON, `"id":"`+own.ID+`"`, `"id":"`+v.ID+`"`, 1)
	return a.withHeaders(pick(a.Attacker,
		Attack{Method: http.MethodPut, Path: v.Reference(), Body: pick(a.Attacker, v.JSON, reassigned), Victim: v.ID},
		Attack{Method: http.MethodPut, Path: own.Type + "/" + v.ID, Body: renamed, Victim: v.ID},
		Attack{Method: http.MethodPut, Path: own.Reference(), Body: renamed, Victim: v.ID},
		Attack{Method: http.MethodPost, Path: v.Type, Body: pick(a.Attacker, v.JSON, reassigned), Victim: v.ID},
		Attack{Method: http.MethodPost, Path: v.Reference(), Body: reassigned, Victim: v.ID},
		Attack{Method: http.MethodPut, Path: v.Reference() + "/_history/1", Body: reassigned, Victim: v.ID},
	))
}
