// Package fhirxml turns FHIR resources from JSON into FHIR's XML ([Append]) and from XML into JSON
// ([AppendJSON]) (R4 §2.6.1, §2.6.2).
//
// What JSON knows and XML does not, which elements repeat and which values are no strings, and what XML
// knows and JSON does not, the order of elements, is taken from a table of the types of R4 (r4.txt): those of
// the resources that a terminology service reads or answers with, and of all of their elements. Of a resource
// of another type, nothing but the type is read; it is written as it is in the JSON.
package fhirxml
