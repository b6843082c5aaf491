// Package fhirxml writes FHIR resources, which are given in JSON, in FHIR's XML (R4 §2.6.1, §2.6.2).
//
// It knows no definitions of types but the order of elements in those resources that a terminology service
// answers with; within other elements, the order of the JSON is kept, save that extensions come first. It
// is not the reverse of anything: XML is not read.
package fhirxml
