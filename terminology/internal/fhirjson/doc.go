// Package fhirjson reads FHIR JSON as a stream of tokens and writes parts of it. It knows what all resources share,
// members and extensions, but no particular type of resource.
//
//	reader.go          objects, arrays and primitives in order; errors say where
//	readlimit.go       bounds the memory that a value, or very many small ones, may take
//	resourcetype.go    the type of a resource
//	strings.go         string members of an object
//	member.go          members kept as they are
//	extension.go       extensions with primitive values
//	jsonstring.go      strings and string members
//	array.go           array members, left out when empty
package fhirjson
