package records

import "time"

// Today is the day on which the records were made up.
var Today = time.Date(2026, time.November, 2, 9, 0, 0, 0, time.UTC)

// The code systems of the records.
const (
	snomed      = "http://snomed.info/sct"
	icd10       = "http://hl7.org/fhir/sid/icd-10-cm"
	loinc       = "http://loinc.org"
	rxnorm      = "http://www.nlm.nih.gov/research/umls/rxnorm"
	cvx         = "http://hl7.org/fhir/sid/cvx"
	ucum        = "http://unitsofmeasure.org"
	terminology = "http://terminology.hl7.org/CodeSystem/"
	usCore      = "http://hl7.org/fhir/us/core/CodeSystem/"
)

// code is a code with its system.
type code struct{ system, code, display string }

// coding is the Coding of a code.
func (c code) coding() object {
	return object{{"system", c.system}, {"code", c.code}, {"display", c.display}}
}

// concept is a CodeableConcept of codes that mean the same. Its text is the first one's display.
func concept(codes ...code) object {
	var codings []object
	for _, c := range codes {
		codings = append(codings, c.coding())
	}
	return object{{"coding", codings}, {"text", codes[0].display}}
}

// concepts are a list with one CodeableConcept.
func concepts(codes ...code) []object { return []object{concept(codes...)} }

// reference is a Reference to a resource, such as Patient/p01.
func reference(to, display string) object {
	return object{{"reference", to}, {"display", display}}
}

// quantity is a Quantity with a unit of UCUM, and how people write that.
func quantity(value decimal, unit, code string) object {
	return object{{"value", value}, {"unit", unit}, {"system", ucum}, {"code", code}}
}

// date and dateTime write a time as FHIR does.
func date(t time.Time) string { return t.Format(time.DateOnly) }

func dateTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339)
}

// period is a Period. One without an end lasts.
func period(start, end time.Time) object {
	return object{{"start", dateTime(start)}, {"end", dateTime(end)}}
}

// telecom are ways to reach somebody. Numbers with 555-01 are nobody's.
func telecom(phone, email string) []object {
	list := []object{{{"system", "phone"}, {"value", phone}, {"use", "home"}}}
	if email != "" {
		list = append(list, object{{"system", "email"}, {"value", email}})
	}
	return list
}
