// Package weights reads files that say how often codes are used: in orders, diagnoses, claims. Search shows codes that
// are used often before others that match as well.
//
// A file says what it is for, the url of a code system or of a value set, and then has a code and its count in each line:
//
//	#! http://hl7.org/fhir/sid/icd-10-cm
//	I10,48211
//	E11.9,30102
//
// CSV files as other software writes them (RFC 4180) do as well: with a header that names the columns, in any order; with
// commas, semicolons or tabs. The code system may be in a column of its own. [Weights.Read] has the rules.
//
//	weights.go  how often each code is used
//	reader.go   reads a file: its url, columns, codes and counts
package weights
