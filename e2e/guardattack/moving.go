package guardattack

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/compartment"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// memberElement returns the dotted path of an element that assigns resources of a type to a patient.
func (a writeAttacks) memberElement(resourceType string) string {
	names, _ := compartment.PatientParameters(resourceType)
	var elements []string
	for _, name := range append(names, "patient", "subject") {
		parameter, _ := searchparam.Lookup(resourceType, name)
		for _, path := range parameter.Paths {
			elements = append(elements, strings.Join(path.Elements, "."))
		}
	}
	return pick(a.Attacker, append(elements, "subject")...)
}

// naming returns the JSON of a Reference to a patient, in one of the forms that servers may accept.
func (a writeAttacks) naming(patient string) string {
	id := strings.TrimPrefix(patient, "Patient/")
	identifier := fmt.Sprintf(`{"system":"http://zq.example/ids","value":"%sm"}`, id)
	reference := func(literal string) string { return fmt.Sprintf(`{"reference":%q}`, literal) }
	spelled := pick(a.Attacker,
		patient, patient, patient, patient+"/_history/1", "Patient?identifier="+idSystem+id+"m", "Patient?_id="+id, "Patient?_tag="+id+"m", "/"+patient, "./"+patient, "patient/"+id,
		patient+"#x", patient+" ", " "+patient, "Patient%2f"+id, patient+"/", "Patient//"+id, "Patient/"+a.World.Find(a.PatientLetter, "Patient.self").ID+"/../"+id, id, patient+"?x=y",
		"https://elsewhere.example/fhir/"+patient, "https://elsewhere.example/fhir/Patient?identifier="+idSystem+id+"m", "urn:uuid:"+id, "Patient/_history/"+id, "Patient|"+id,
		pick(a.Attacker, append([]string{""}, a.Bases...)...)+"/"+patient, pick(a.Attacker, append([]string{""}, a.Bases...)...)+"/Patient?identifier="+idSystem+id+"m",
	)
	own := a.World.Patient(a.PatientLetter)
	return pick(a.Attacker, reference(spelled), reference(spelled), reference(spelled), reference(spelled),
		`{"identifier":`+identifier+`}`, `{"type":"Patient","identifier":`+identifier+`}`, fmt.Sprintf(`{"reference":%q,"identifier":%s}`, own, identifier),
		fmt.Sprintf(`{"reference":%q,"reference":%q}`, own, spelled), fmt.Sprintf(`{"reference":%q,"Reference":%q}`, own, spelled),
		fmt.Sprintf(`{"reference":%q,"extension":[{"url":"http://zq.example/e","valueReference":%s}]}`, own, reference(spelled)),
		fmt.Sprintf(`{"reference":"\u0050atient/%s"}`, id), fmt.Sprintf(`{"reference":%q,"_reference":{"extension":[{"url":"http://zq.example/e","valueReference":%s}]}}`, own, reference(spelled)),
		fmt.Sprintf(`{"reference":[%q,%q]}`, own, spelled), `{"reference":"#c"}`)
}

// moved changes one of the attacker's records so that it references another patient or one of that patient's records. It
// returns the changed record and the referenced one.
func (a writeAttacks) moved(own Record) (string, Record) {
	v := a.victim()
	patient := a.World.Find(v.ownerOr(a.other()), "Patient.self")
	ownPatient := fmt.Sprintf(`{"reference":%q}`, a.World.Patient(a.PatientLetter))
	switch a.IntN(8) {
	case 0, 1: // replace one of the references to the attacker's patient
		return a.replaceOne(own.JSON, ownPatient, a.naming(patient.Reference())), patient
	case 2: // replace all references
		return strings.ReplaceAll(own.JSON, ownPatient, a.naming(patient.Reference())), patient
	case 3: // add a duplicate member
		element, _, _ := strings.Cut(a.memberElement(own.Type), ".")
		return strings.TrimSuffix(own.JSON, "}") + fmt.Sprintf(`,%q:%s}`, pick(a.Attacker, element, strings.ToUpper(element[:1])+element[1:]), a.naming(patient.Reference())), patient
	case 4: // add a contained resource
		return a.containing(own, v, patient), patient
	case 5: // reference a record of the other patient
		return a.replaceOne(own.JSON, `{"reference":"`, `{"reference":"`+v.Reference()+`","display":"`), v
	}
	return a.added(own, patient), patient
}

// replaceOne replaces one random occurrence of a text.
func (a writeAttacks) replaceOne(text, old, by string) string {
	parts := strings.Split(text, old)
	if len(parts) == 1 {
		return text
	}
	at := 1 + a.IntN(len(parts)-1)
	return strings.Join(parts[:at], old) + by + strings.Join(parts[at:], old)
}

// containing returns one of the attacker's records with a contained record of another patient.
func (a writeAttacks) containing(own, v, patient Record) string {
	inner := pick(a.Attacker,
		fmt.Sprintf(`{"resourceType":"Patient","id":"c","link":[{"other":{"reference":%q},"type":"seealso"}]}`, patient.Reference()),
		fmt.Sprintf(`{"resourceType":"Observation","id":"c","status":"final","code":{"text":"x"},"subject":%s}`, a.naming(patient.Reference())),
		strings.Replace(v.JSON, `"id":"`+v.ID+`"`, `"id":"c"`, 1),
	)
	text := strings.TrimSuffix(own.JSON, "}") + `,"contained":[` + inner + `]}`
	if a.oneIn(2) {
		return a.replaceOne(text, `{"reference":"`, `{"reference":"#c","display":"`)
	}
	return text
}

// added returns one of the attacker's records with an additional element that references another patient.
func (a writeAttacks) added(own, patient Record) string {
	var members map[string]any
	if err := json.Unmarshal([]byte(own.JSON), &members); err != nil {
		panic(err) // the records of the world are valid JSON
	}
	setElement(a, members, strings.Split(a.memberElement(own.Type), "."), json.RawMessage(a.naming(patient.Reference())))
	text, _ := json.Marshal(members)
	return string(text)
}

// setElement sets an element, or appends a value if the element is repeatable.
func setElement(a writeAttacks, members map[string]any, path []string, value any) {
	if len(path) > 1 {
		inner := map[string]any{}
		setElement(a, inner, path[1:], value)
		value = inner
	}
	switch there := members[path[0]].(type) {
	case []any:
		members[path[0]] = append(there, value)
	case nil:
		members[path[0]] = pick(a.Attacker, value, any([]any{value}))
	default:
		members[path[0]] = pick(a.Attacker, value, any([]any{there, value}))
	}
}
