// Package resource is the view of a FHIR resource by which access to it is decided: [Parse] reads its text once, and
// elements are looked up in the text when they are needed.
//
//	resource.go     Resource: type, id, version, members, contained resources; Reader: reads one after the other
//	path.go         Path: the way from a resource to some of its elements, and Values, which goes it
//	reference.go    Reference: what a literal reference names
//	scan.go         Field, Elements: what lies in a part of a resource
//
// It does not know what the elements mean; the packages searchparam and compartment do.
//
// References: FHIR R4, JSON (https://hl7.org/fhir/R4/json.html) and literal references
// (https://hl7.org/fhir/R4/references.html#literal).
package resource
