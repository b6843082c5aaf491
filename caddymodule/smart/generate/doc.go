// Command generate makes the tables of FHIR R4's search parameters and compartments, which the packages searchparam
// and compartment read, out of R4's own definitions (see SOURCE.md). The same input gives the same bytes.
//
// What R4 says in FHIRPath becomes paths of JSON members: "(Observation.value as Quantity)" is valueQuantity. An
// expression that is more than a path leaves its parameter without one.
package main
