// Package ucum implements the code system of units, http://unitsofmeasure.org (the Unified Code for Units of Measure), as a
// grammar without a list of codes.
//
//	ucum.go      the code system: valid expressions and their names
//	parse.go     parses an expression (UCUM §§1 to 12), with the positions of errors
//	essence.go   the prefixes and units that UCUM defines, read on first use from ucum-essence.xml
//	measure.go   canonical forms, values in base units, and conversions
//
// The package extends the specification in two ways. Any component may have annotations, and these may contain spaces, because
// HL7's common units use them. Special units (§21), such as Cel, may be factors, but such products cannot be converted (§22).
package ucum
