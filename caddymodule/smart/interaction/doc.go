// Package interaction finds out which of FHIR R4's REST interactions a request is, by method, path, query and header, and
// which permissions of SMART scopes it needs. [Parse] reads a request:
//
//	path below the base          GET               POST               PUT                PATCH             DELETE
//	(empty)                      SystemSearch      Bundle
//	metadata                     Capabilities
//	_history                     SystemHistory
//	_search                                        SystemSearch
//	$operation                   Operation         Operation
//	Type                         TypeSearch        Create ¹           ConditionalUpdate  ConditionalPatch  ConditionalDelete
//	Type/_history                TypeHistory
//	Type/_search                                   TypeSearch
//	Type/$operation              Operation         Operation
//	Type/id                      Read                                 Update             Patch             Delete
//	Type/id/_history             InstanceHistory
//	Type/id/_history/vid         VRead
//	Type/id/$operation           Operation         Operation
//	Patient/id/*                 CompartmentSearch
//	Patient/id/_search                             CompartmentSearch
//	Patient/id/Type              CompartmentSearch
//	Patient/id/Type/_search                        CompartmentSearch
//
// ¹ With If-None-Exist it is ConditionalCreate. The other conditional ones need criteria in the query.
//
// Patient stands for the five types with a compartment: Device, Encounter, Patient, Practitioner and RelatedPerson. A
// HEAD is the GET without its body. Everything else is an error, 404 for a path and 405 for a method that the table does
// not have, 400 for a query of which there is more than one reading; also what R4 does not define but some servers
// offer, such as GET Type/_search, a slash at the end, and operations on one version of a resource. The types are those
// of R4; a server's own types are refused.
//
// The parameters of a request stay as they were sent, decoded once. Whether they are allowed is not decided here.
//
// References: FHIR R4 http.html, search.html and compartmentdefinition.html (https://hl7.org/fhir/R4); SMART App Launch
// 2.2.0, "Scopes for Requesting FHIR Resources".
package interaction
