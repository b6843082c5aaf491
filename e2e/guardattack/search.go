package guardattack

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// searches generates search requests of an attacker.
type searches struct{ *Attacker }

// search returns a search that could reveal other patients' data.
func (a searches) search() Attack {
	v := a.victim()
	resourceType := pick(a, v.Type, a.resourceType())
	attack := a.place(resourceType, v)
	if a.oneIn(3) {
		resourceType = a.ownSearch(&attack)
	}
	for range pick(a, 1, 1, 1, 2, 3) {
		parameter := pick(a, a.plain, a.plain, a.plain, a.chain, a.has, a.include, a.include, a.result, a.special)
		attack = attack.With(parameter(resourceType, v))
	}
	return attack
}

// ownSearch turns an attack into a search that matches at least one of the attacker's own records.
func (a searches) ownSearch(attack *Attack) (resourceType string) {
	own := a.ownRecord()
	attack.Method, attack.Body, attack.Headers = http.MethodGet, "", nil
	attack.Path = own.Type + pick(a, "", "?_id="+own.ID, "?_tag="+own.ID+"m", "?_count=100")
	return own.Type
}

// aimed searches for a victim's content through a reference between a readable record and the victim. The attacker may not see
// that content.
func (a searches) aimed() Attack {
	seen := pick(a, a.ownRecord(), pick(a, a.World.Of(Everybody)...), a.World.Find(a.PatientLetter, "Patient.self"))
	v := a.neighbour(seen)
	attack := Attack{Method: http.MethodGet, Path: seen.Type + pick(a, "", "?_id="+seen.ID), Victim: v.ID}
	by := pick(a, "identifier="+v.ID+"m", "_tag="+v.ID+"m", "identifier=http://zq.example/ids|"+v.ID+"m", "identifier="+v.ID+"m", "_id="+v.ID)
	if !strings.Contains(seen.JSON, v.Reference()) {
		return attack.With("_has:" + v.Type + ":" + a.referenceOf(v.Type) + ":" + by)
	}
	return attack.With(a.referenceOf(seen.Type) + pick(a, "", ":"+v.Type) + "." + by)
}

// neighbour returns another owner's record that references the given record or is referenced by it, otherwise any victim.
func (a searches) neighbour(of Record) Record {
	near := slices.DeleteFunc(slices.Clone(a.World.Records), func(r Record) bool {
		return r.Owner == a.PatientLetter || r.Owner == Everybody || !strings.Contains(r.JSON, of.Reference()) && !strings.Contains(of.JSON, r.Reference())
	})
	if len(near) == 0 {
		return a.victim()
	}
	return pick(a, near...)
}

// referenceOf returns a search parameter of type reference.
func (a searches) referenceOf(resourceType string) string {
	if references := a.references(resourceType); len(references) > 0 {
		return pick(a, references...).Name
	}
	return "subject"
}

// place returns a search request without parameters, at one of the endpoints for searches.
func (a searches) place(resourceType string, v Record) Attack {
	get := func(path string) Attack { return Attack{Method: http.MethodGet, Path: path, Victim: v.ID} }
	post := func(path string) Attack {
		return Attack{Method: http.MethodPost, Path: path, Victim: v.ID, Headers: []string{"Content-Type", "application/x-www-form-urlencoded"}}
	}
	switch a.IntN(30) {
	case 0, 1:
		return post(resourceType + "/_search")
	case 2:
		return post("_search").With("_type=" + resourceType)
	case 3:
		return get("?_type=" + resourceType + "," + a.resourceType())
	case 4:
		return get("")
	case 5:
		return get("Patient/" + v.ID + "/" + resourceType)
	case 6:
		return get(a.World.Patient(a.PatientLetter) + "/" + pick(a, resourceType, "*", "_search"))
	case 7:
		return get(a.anybodys().Reference() + "/" + pick(a, resourceType, "*"))
	case 8:
		return get(a.World.Patient(v.ownerOr(a.PatientLetter)) + "/" + resourceType)
	case 9:
		return post(a.World.Patient(a.PatientLetter) + "/" + resourceType + "/_search")
	}
	return get(resourceType)
}

// ownerOr returns the letter of the record's patient, or otherwise if the record belongs to no patient.
func (r Record) ownerOr(otherwise byte) byte {
	if r.Owner == Hidden || r.Owner == Everybody {
		return otherwise
	}
	return r.Owner
}

// parameter returns a random search parameter of a type.
func (a searches) parameter(resourceType string) Parameter {
	parameters := a.Capabilities[resourceType].SearchParam
	if len(parameters) == 0 {
		return Parameter{"_id", "token"}
	}
	return pick(a, parameters...)
}

// plain returns a search parameter with a value and sometimes a modifier.
func (a searches) plain(resourceType string, v Record) string {
	p := a.parameter(resourceType)
	return p.Name + a.modifier(p) + "=" + url.QueryEscape(a.value(p, v))
}

func (a searches) modifier(p Parameter) string {
	if !a.oneIn(3) {
		return ""
	}
	of := map[string][]string{
		"string":    {":exact", ":contains", ":missing", ":text"},
		"token":     {":not", ":text", ":in", ":not-in", ":above", ":below", ":of-type", ":missing"},
		"reference": {":identifier", ":missing", ":above", ":below", ":Patient", ":Practitioner", ":not", ":Observation", ":mdm"},
		"uri":       {":above", ":below", ":missing", ":contains"},
	}[p.Type]
	return pick(a, append(of, ":missing", ":nonsense")...)
}

// value returns a value that a victim's record may have for the parameter.
func (a searches) value(p Parameter, v Record) string {
	switch p.Type {
	case "reference":
		owner := a.World.Patient(v.ownerOr(a.other()))
		return pick(a, v.Reference(), owner, owner, v.ID, strings.TrimPrefix(owner, "Patient/"), "http://zq.example/ids|"+v.ID+"m", "true",
			a.World.Patient(a.PatientLetter), a.World.Patient(a.PatientLetter)+","+owner)
	case "token":
		return pick(a, v.ID+"m", "http://zq.example/ids|"+v.ID+"m", v.ID, "final", "active", "true", "laboratory", "http://loinc.org|8867-4", "|"+v.ID+"m")
	case "date":
		return pick(a, Day(v.ownerOr('b')), "ge1900-01-01", "lt2100", "ap"+Day(v.ownerOr('b')), "ne2020", "ge2020-01-01")
	case "number", "quantity":
		return pick(a, "gt0", "101", "lt1000||/min", "ge100")
	case "composite":
		return pick(a, "8867-4$gt0", "http://loinc.org|2339-0$gt1", "x$y")
	}
	return pick(a, v.ID+"m", v.ID, "zq", "http://zq.example/"+v.ID+"m", "z")
}

// chain returns a chained parameter: a criterion on the target of a reference.
func (a searches) chain(resourceType string, v Record) string {
	references := a.references(resourceType)
	if len(references) == 0 {
		return a.has(resourceType, v)
	}
	name, target := pick(a, references...).Name, a.resourceType()
	target = pick(a, target, "Patient", v.Type)
	name += pick(a, "", ":"+target)
	if more := a.references(target); a.oneIn(4) && len(more) > 0 {
		name += "." + pick(a, more...).Name
		target = pick(a, "Patient", "Organization", "Practitioner")
		name += pick(a, "", ":"+target)
	}
	p := a.parameter(target)
	return name + "." + p.Name + a.modifier(p) + "=" + url.QueryEscape(a.value(p, v))
}

func (a searches) references(resourceType string) []Parameter {
	return slices.DeleteFunc(slices.Clone(a.Capabilities[resourceType].SearchParam), func(p Parameter) bool { return p.Type != "reference" })
}

// has returns a _has parameter: a criterion on resources that reference the matches.
func (a searches) has(resourceType string, v Record) string {
	other := pick(a, v.Type, a.resourceType(), "Observation", "Provenance", "AuditEvent", "Group", "List")
	references := a.references(other)
	if len(references) == 0 {
		return "_has:Observation:subject:code=8867-4"
	}
	p := a.parameter(other)
	name := "_has:" + other + ":" + pick(a, references...).Name + ":"
	if a.oneIn(6) {
		return name + a.has(other, v)
	}
	return name + p.Name + a.modifier(p) + "=" + url.QueryEscape(a.value(p, v))
}

// include returns a parameter that adds referenced or referencing resources to the results.
func (a searches) include(resourceType string, v Record) string {
	capabilities := a.Capabilities[resourceType]
	if other, ok := a.Capabilities[v.Type]; ok && a.oneIn(4) {
		capabilities = other
	}
	values := append([]string{"*", "*:*", resourceType + ":*", "Patient:link", v.Type + ":patient", v.Type + ":subject"}, capabilities.SearchInclude...)
	if a.oneIn(2) {
		values = append([]string{"*", "*:*", v.Type + ":*", v.Type + ":patient", v.Type + ":subject", "Provenance:target"}, capabilities.SearchRevInclude...)
		return pick(a, "_revinclude", "_revinclude", "_revinclude:iterate", "_revinclude:recurse", "_revinclude:logical") + "=" + url.QueryEscape(pick(a, values...))
	}
	return pick(a, "_include", "_include", "_include:iterate", "_include:recurse", "_include:logical") + "=" + url.QueryEscape(pick(a, values...)+pick(a, "", "", ":Patient"))
}

// result returns a parameter that controls the content or order of the results.
func (a searches) result(resourceType string, _ Record) string {
	p := a.parameter(resourceType)
	return pick(a,
		"_sort="+p.Name, "_sort=-"+p.Name, "_sort=_lastUpdated", "_sort=-_id", "_sort=subject.name", "_sort=_has:Observation:subject:code", "_sort="+p.Name+",-_id",
		"_summary=true", "_summary=text", "_summary=data", "_summary=count", "_summary=false", "_summary=nonsense",
		"_elements=id", "_elements=subject", "_elements=Patient.name,id", "_total=accurate", "_total=estimate", "_total=none",
		"_count=0", "_count=1", "_count=500", "_count=-1", "_count=x", "_offset=5", "_contained=both", "_contained=true&_containedType=contained",
		"_pretty=true", "_score=true", "_maxresults=3", "_narrative=generate", "_graph=x", "_mdm=true",
	)
}

// special returns parameters that all resource types support, and special query languages.
func (a searches) special(_ string, v Record) string {
	patient := a.World.Patient(v.ownerOr(a.other()))
	return pick(a,
		"_id="+v.ID, "_id="+v.ID+","+a.ownRecord().ID, "_id:not="+v.ID, "_tag=http://zq.example/tags|"+v.ID+"m", "_tag:not=x", "_tag="+v.ID+"m",
		"_lastUpdated=gt2000-01-01", "_security:not=x", "_profile:missing=true", "_source:missing=false", "_source="+v.ID,
		"_filter="+url.QueryEscape("_id eq "+v.ID), "_filter="+url.QueryEscape("identifier eq "+v.ID+"m or status eq final"),
		"_text="+v.ID+"m", "_content="+v.ID+"m", "_list="+v.ID, "_list=$current-problems", "_query=current", "_type=Patient,"+v.Type,
		"_has:Patient:link:_id="+v.ID, "_in="+v.ID, "_near=1|1|1|km", "_expunge=true", "_cascade=delete", "patient="+patient,
		"_include=*&_revinclude=*&_include:iterate=*&_revinclude:iterate=*", "_getpages="+v.ID, "_getpages=00000000-0000-4000-8000-000000000000&_getpagesoffset=0",
		"_format=xml", "_format=html/json", "_format=application/fhir%2Bturtle", "_bundletype=history", "_at=2020", "_since=2000-01-01",
	)
}
