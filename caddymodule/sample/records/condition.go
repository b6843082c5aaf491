package records

import (
	"strings"
	"time"
)

// onset is when a problem began, and how it came to be known.
type onset struct {
	since, until time.Time // without an end it lasts
	category     string
	visit        object
}

// condition adds a Condition, and returns the Reference to it.
func (c *clinician) condition(p *patient, of problem, at onset) object {
	system, status, display := terminology+"condition-category", "active", "Active"
	if at.category == "health-concern" {
		system = usCore + "condition-category"
	}
	if !at.until.IsZero() {
		status, display = "resolved", "Resolved"
	}
	recorded := at.since.AddDate(0, 0, 2)
	return reference(c.records.addFor(p, "Condition", recorded,
		member{"clinicalStatus", concept(code{terminology + "condition-clinical", status, display})},
		member{"verificationStatus", concept(code{terminology + "condition-ver-status", "confirmed", "Confirmed"})},
		member{"category", concepts(code{system, at.category, title(at.category)})},
		member{"code", concept(of.code, code{icd10, of.icd10, of.code.display})},
		member{"subject", p.ref()},
		member{"encounter", at.visit},
		member{"onsetDateTime", date(at.since)},
		member{"abatementDateTime", dayOf(at.until)},
		member{"recordedDate", date(recorded)},
		member{"recorder", p.doctor.ref()},
	), of.code.display)
}

// title is a code in words, such as Problem List Item.
func title(code string) string {
	words := strings.Split(code, "-")
	for i, w := range words {
		words[i] = strings.ToUpper(w[:1]) + w[1:]
	}
	return strings.Join(words, " ")
}

func dayOf(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return date(t)
}

// order adds a MedicationRequest.
func (c *clinician) order(p *patient, d drug, at time.Time, visit, reason object, status string) {
	c.records.addFor(p, "MedicationRequest", at,
		member{"status", status},
		member{"intent", "order"},
		member{"category", concepts(code{terminology + "medicationrequest-category", "community", "Community"})},
		member{"medicationCodeableConcept", concept(d.code)},
		member{"subject", p.ref()},
		member{"encounter", visit},
		member{"authoredOn", dateTime(at)},
		member{"requester", p.doctor.ref()},
		member{"reasonReference", []object{reason}},
		member{"dosageInstruction", []object{{
			{"text", d.dosage},
			{"timing", object{{"repeat", object{{"frequency", d.perDay}, {"period", 1}, {"periodUnit", "d"}}}}},
			{"asNeededBoolean", d.asNeeded},
		}}},
	)
}

// plan adds what is to be reached with a problem, and how.
func (c *clinician) plan(p *patient, h held) {
	if h.goal == "" {
		return
	}
	start := Today.AddDate(0, -14, 0)
	goal := c.records.addFor(p, "Goal", start,
		member{"lifecycleStatus", "active"},
		member{"description", object{{"text", h.goal}}},
		member{"subject", p.ref()},
		member{"startDate", date(start)},
		member{"target", []object{{{"dueDate", date(Today.AddDate(1, 0, 0))}}}},
		member{"addresses", []object{h.condition}},
	)
	c.records.addFor(p, "CarePlan", start,
		member{"text", object{{"status", "generated"}, {"div", `<div xmlns="http://www.w3.org/1999/xhtml">` + escape(h.goal) + `</div>`}}},
		member{"status", "active"},
		member{"intent", "plan"},
		member{"category", concepts(code{usCore + "careplan-category", "assess-plan", "Assessment and Plan of Treatment"})},
		member{"title", "Plan for " + strings.ToLower(h.code.display)},
		member{"subject", p.ref()},
		member{"period", period(start, time.Time{})},
		member{"author", p.doctor.ref()},
		member{"careTeam", []object{reference("CareTeam/"+p.id+"-careteam-1", "")}},
		member{"addresses", []object{h.condition}},
		member{"goal", []object{reference(goal, h.goal)}},
	)
}

// escape is a text in XHTML.
func escape(text string) string { return strings.ReplaceAll(text, "<", "&lt;") }
