// Package relationship knows for whom a RelatedPerson or a Person acts (FHIR R4 §8.3 and §8.2),
// and when that counts: a relationship that has ended opens no record.
package relationship
