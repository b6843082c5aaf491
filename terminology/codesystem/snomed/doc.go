// Package snomed reads SNOMED CT from the releases of its publishers in Release Format 2 (RF2): a zip archive or folder with a
// snapshot of an edition.
//
//	rf2.go            lines, columns and values of a file; errors with file and line
//	load.go           the files of a release; concepts, relationships; the order of concepts
//	descriptions.go   descriptions and language reference sets
//	refsets.go        other reference sets, alternate identifiers
//	edition.go        edition and version
//	ids.go            numbers of identifiers, and sorting by number
//
//	system.go         System: a version of an edition as a code system
//	snapshot.go       the components of a version of an edition
//	values.go         properties for $lookup and filters
//	filters.go        filters on reference sets, expression constraints and expressions
//	ecl.go            evaluation of expression constraints; content.go is the content that package ecl reads
//	expression.go     post-coordinated expressions; subsumption.go compares them by definition; expressioncontent.go is
//	                  the content that constraints on an expression read
//	implied.go        registration; implicit value sets
//	maps.go           implicit concept maps
//
// Concepts have numbers, with parents before children. A [System] is a table with codes, terms, hierarchy and search index,
// like other code systems. Arrays by number contain the data that only SNOMED CT has.
package snomed
