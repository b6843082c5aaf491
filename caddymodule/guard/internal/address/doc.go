// Package address rewrites addresses of the FHIR server in responses into those that clients use.
//
//	bases.go     the FHIR server's base URLs, learned from its responses
//	replacer.go  replaces base URLs in JSON and XML, piece by piece
//	entry.go     finds an address of the FHIR server in the entries of a Bundle
//	links.go     finds Bundle.link in JSON, piece by piece
//	xml.go       finds Bundle.link in XML
//
// Addresses below the FHIR server's base are replaced wherever they stand, however they are escaped. What identifies
// something stays: canonical URLs of definitions, and the systems of identifiers and codes.
package address
