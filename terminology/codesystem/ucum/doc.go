// Package ucum is the code system of units, http://unitsofmeasure.org (the Unified Code for Units of Measure): a grammar,
// whose codes cannot be listed.
//
//	ucum.go      the code system: which expressions are codes, and what they are called
//	parse.go     reads an expression (UCUM §§1 to 12), and says where it is wrong
//	essence.go   the prefixes and units that UCUM defines, read on first use from ucum-essence.xml
//	measure.go   what an expression comes to: its canonical form, its value in base units, and commensurable units
//
// Beyond the grammar of the specification, any component may have annotations, and these may have spaces, since HL7's
// common units do. Special units (§21), such as Cel, may stand in a product; but it converts to nothing (§22).
package ucum
