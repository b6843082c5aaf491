// Package records makes the synthetic records of the sample server: thirty patients, and the people and organizations
// that look after them. Nobody in them exists. They are the same each time: what is random has a fixed seed, and all
// dates lie before and around [Today].
//
//	records.go      All: who comes first, and in which order
//	dice.go         what is left to chance
//	object.go       JSON objects whose members keep their order
//	datatypes.go    codes, references, quantities and periods
//	people.go       the patients' names and dates of birth
//	staff.go        organizations, locations and practitioners, one of them Practitioner/alice
//	patient.go      Patient, RelatedPerson, Coverage, CareTeam, Group
//	history.go      which problems and visits a patient has had
//	problems.go     problems with their codes, medicines and laboratory tests
//	visit.go        Encounter, and what is written at a visit: DocumentReference, Binary, Provenance
//	condition.go    Condition, MedicationRequest, CarePlan, Goal
//	observation.go  Observation: vital signs and smoking status
//	laboratory.go   Observation and DiagnosticReport of the laboratory
//	care.go         AllergyIntolerance, Immunization, Procedure, Appointment
//
// Codes are of SNOMED CT, ICD-10-CM, LOINC, RxNorm, CVX and HL7's own systems; units are of UCUM.
package records
