// Package fhirjson reads FHIR JSON as a stream of tokens and writes parts of it. It knows what all resources have
// in common, members and extensions, but no type of resource.
//
//	reader.go          values one after the other: objects, arrays, primitives; errors name the place
//	readlimit.go       bounds what a value, or very many small ones, may take of memory
//	resourcetype.go    which type a resource is of
//	strings.go         objects whose members are strings
//	member.go          members that are kept as they are
//	extension.go       extensions with primitive values
//	jsonstring.go      strings, and members with a string
//	array.go           members with an array, which is left out when empty
package fhirjson
