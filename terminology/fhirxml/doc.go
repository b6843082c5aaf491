// Package fhirxml converts FHIR resources from JSON to FHIR's XML ([Append]) and from XML to JSON
// ([AppendJSON]) (R4 §2.6.1, §2.6.2).
//
// XML does not show which elements repeat and which values are no strings, and JSON has no order of elements. A table of
// R4's types (r4.txt) supplies both, for the resources that a terminology service reads or returns. Of a resource of
// another type, only the type is read; it is written as it is in the JSON.
//
// Importing the package enables XML in requests, responses and definitions of a terminology service, and in the
// OperationOutcomes of the gateway.
package fhirxml

import "github.com/caddy-fhir/caddy-fhir/terminology/negotiation"

func init() { negotiation.RegisterXML(negotiation.XMLCodec{AppendXML: Append, AppendJSON: AppendJSON}) }
