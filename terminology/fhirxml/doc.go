// Package fhirxml converts FHIR resources from JSON to FHIR's XML ([Append]) and from XML to JSON
// ([AppendJSON]) (R4 §2.6.1, §2.6.2).
//
// XML does not show which elements repeat and which values are no strings, and JSON has no order of elements. A table of
// R4's types (r4.txt) supplies both, for the resources that a terminology service reads or returns. Of a resource of
// another type, only the type is read; it is written as it is in the JSON.
package fhirxml
