// Package brands publishes the User Access Brands Bundle (SMART App Launch 2.2, User-access
// Brands): the organization behind a FHIR API, with the name, logo and portal by which
// people recognize it, for apps that let them choose where their records are.
//
//	bundle.go       a Bundle that keeps the rules of the profiles: Read, Make
//	primary.go      the brand that the SMART configuration names
//	organization.go the rules of User Access Brand, and of its extensions for logos and portals
//	endpoint.go     the rules of User Access Endpoint
//	reference.go    what refers to what, within the Bundle
//	element.go      a part of the JSON, with its path for messages; what a URL, an id or an instant looks like
//	brand.go        a Brand of a few words becomes a Bundle
//	resource.go     the resources as they are written
//	publication.go  serves a Bundle, and knows since when it is as it is
//
// A Bundle that is read is served byte for byte, so that what was checked is what apps get.
// The profiles allow resources of other types in it; here there are none, because whatever
// else is in the file would become public with it.
package brands
