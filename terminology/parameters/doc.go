// Package parameters reads and writes the parameters of operations (R4 §2.30), as a query string or a Parameters resource.
//
//	input.go         reading: one Input for each parameter
//	number.go        whole numbers; choice.go: booleans that may be absent
//	coding.go        Coding and CodeableConcept; designation.go: names of concepts
//	writer.go        writing a Parameters resource
package parameters
