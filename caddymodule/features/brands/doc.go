// Package brands publishes the User Access Brands Bundle (SMART App Launch 2.2, User-access
// Brands): the organization behind a FHIR API, with the name, logo and portal by which
// people recognize it, for apps that let them choose where their records are.
//
//	bundle.go   a Bundle that keeps the rules of the profiles: User Access Brand, its extensions, User Access Endpoint, references
//	element.go  a part of the JSON, with its path for messages; what a URL, an id or an instant looks like
//	feature.go  the feature, and the endpoint that serves the Bundle
//
// A Bundle is served byte for byte, so that what was checked is what apps get.
// The profiles allow resources of other types in it; here there are none, because whatever
// else is in the file would become public with it.
package brands
