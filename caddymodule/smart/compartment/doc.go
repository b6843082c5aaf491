// Package compartment holds the compartments of FHIR R4, and decides whether a resource is in that of a patient.
//
// [Members] are the definitions, from the table r4.tsv (see ../generate/SOURCE.md), by which InPatient and Patients judge.
//
// A compartment is defined by search parameters: a resource is a member if one of those listed for its type refers to
// what the compartment is for. Only literal references count, since only they name a resource for certain. R4 says
// besides that a patient's compartment takes in those of linked patients; here each is on its own, and so is Patient,
// which is in its own compartment and not, by Patient.link, in another's.
//
// Reference: FHIR R4, CompartmentDefinition (https://hl7.org/fhir/R4/compartmentdefinition.html).
package compartment
