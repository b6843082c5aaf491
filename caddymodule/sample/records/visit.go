package records

import (
	"encoding/base64"
	"fmt"
	"time"
)

// The kinds of visits.
var (
	checkUpVisit = code{snomed, "185349003", "Encounter for check up"}
	illnessVisit = code{snomed, "185345009", "Encounter for symptom"}
)

// clinician adds what is found, decided and done at visits.
type clinician struct {
	records *collection
	dice    dice
}

// encounter adds a visit of half an hour, and returns the Reference to it.
func (c *clinician) encounter(p *patient, at time.Time, kind code, reason *problem) object {
	var why []object
	if reason != nil {
		why = concepts(reason.code)
	}
	end := at.Add(30 * time.Minute)
	return reference(c.records.addFor(p, "Encounter", end,
		member{"status", "finished"},
		member{"class", code{terminology + "v3-ActCode", "AMB", "ambulatory"}.coding()},
		member{"type", concepts(kind)},
		member{"subject", p.ref()},
		member{"participant", []object{{
			{"type", concepts(code{terminology + "v3-ParticipationType", "PPRF", "primary performer"})}, {"individual", p.doctor.ref()},
		}}},
		member{"period", period(at, end)},
		member{"reasonCode", why},
		member{"location", []object{{{"location", office}}}},
		member{"serviceProvider", reference(clinic, clinicName)},
	), kind.display)
}

// stay adds two nights in the ward, and returns the Reference to it.
func (c *clinician) stay(p *patient, at time.Time, reason code) object {
	end := at.Add(50 * time.Hour)
	return reference(c.records.addFor(p, "Encounter", end,
		member{"status", "finished"},
		member{"class", code{terminology + "v3-ActCode", "IMP", "inpatient encounter"}.coding()},
		member{"type", concepts(code{snomed, "32485007", "Hospital admission"})},
		member{"subject", p.ref()},
		member{"participant", []object{{{"individual", practitioners[3].ref()}}}},
		member{"period", period(at, end)},
		member{"reasonCode", concepts(reason)},
		member{"hospitalization", object{{"dischargeDisposition", concept(code{terminology + "discharge-disposition", "home", "Home"})}}},
		member{"location", []object{{{"location", ward}}}},
		member{"serviceProvider", reference(clinic, clinicName)},
	), "Hospital admission")
}

// note adds what the practitioner wrote down, as a document with its text in a Binary, and says who wrote it.
func (c *clinician) note(p *patient, at time.Time, visit object, about string) {
	text := fmt.Sprintf("%s, %s.\n%s, %d years old, was seen by Dr. %s.\nThis note was made up for trying out.\n",
		about, date(at), p.name(), p.age(at), p.doctor.name())
	written := at.Add(45 * time.Minute)
	binary := c.records.addFor(p, "Binary", written,
		member{"contentType", "text/plain"},
		member{"securityContext", p.ref()},
		member{"data", base64.StdEncoding.EncodeToString([]byte(text))},
	)
	document := c.records.addFor(p, "DocumentReference", written,
		member{"status", "current"},
		member{"docStatus", "final"},
		member{"type", concept(code{loinc, "11506-3", "Progress note"})},
		member{"category", concepts(code{usCore + "us-core-documentreference-category", "clinical-note", "Clinical Note"})},
		member{"subject", p.ref()},
		member{"date", dateTime(written)},
		member{"author", []object{p.doctor.ref()}},
		member{"custodian", reference(clinic, clinicName)},
		member{"content", []object{{{"attachment", object{
			{"contentType", "text/plain"}, {"language", "en"}, {"url", binary}, {"size", len(text)}, {"title", about}, {"creation", dateTime(written)},
		}}}}},
		member{"context", object{{"encounter", []object{visit}}, {"period", period(at, at.Add(30*time.Minute))}}},
	)
	c.records.addFor(p, "Provenance", written,
		member{"target", []object{reference(document, about)}},
		member{"recorded", dateTime(written)},
		member{"agent", []object{{
			{"type", concept(code{terminology + "provenance-participant-type", "author", "Author"})},
			{"who", p.doctor.ref()}, {"onBehalfOf", reference(clinic, clinicName)},
		}}},
	)
}
