// Package fhirxml converts FHIR resources from JSON to XML ([Append]) and from XML to JSON ([AppendJSON]) (R4 §2.6.1, §2.6.2).
//
// XML does not show which elements may repeat and which values are not strings, and JSON does not specify the order of
// elements. A table of R4's types (r4.txt) provides both for the resources that a terminology service reads or returns. For
// other resource types, XML is reduced to the type, and JSON is written in the given order.
//
// Importing the package enables XML in requests, responses and definitions of a terminology service, and in OperationOutcomes
// of the gateway.
package fhirxml

import "github.com/caddy-fhir/caddy-fhir/terminology/negotiation"

func init() { negotiation.RegisterXML(negotiation.XMLCodec{AppendXML: Append, AppendJSON: AppendJSON}) }
